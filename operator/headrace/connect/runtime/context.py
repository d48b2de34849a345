"""Context that all units of one flow share on one driver."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from headrace.api import (
    RESET_ANNOTATION,
    ClusterAccess,
    ClusterSpec,
    Pauses,
    ReplicationFlow,
    ReplicationFlowSpec,
    Resets,
    TopicPartition,
    checkpoints_topic,
    offset_syncs_topic,
)
from headrace.api.flow import DeliveryMode, Location
from headrace.api.offsets import OffsetsMode
from headrace.connect.runtime.contested_partitions import Contested
from headrace.connect.runtime.offset_sync_writer import OffsetSyncWriter
from headrace.connect.runtime.ownership import DriverIdentity
from headrace.datapath import (
    KAFKA,
    Clients,
    DeadLetters,
    Mover,
    ProgressLog,
    TokenBucket,
)
from headrace.errors import InvalidSpec
from headrace.kafka import COMPARED_TIMEOUT_S, Admin, Operation, RightsAdmin
from headrace.logs import get_logger
from headrace.replication import (
    NameFilter,
    Progress,
    ProgressKey,
    TopicFilter,
    policy_for,
)
from headrace.timing import Clock

_STALL_S = 1.0
"""Pause of a loop, in seconds, after which its driver may have been declared lost and its
partitions reassigned."""


class StallDetector:
    """Detector of pauses of a loop.

    All tasks of a loop share it, because with many tasks, one task's steps may be seconds apart.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = clock.monotonic()
        self.stalls = 0
        """Number of stalls. A task that has seen fewer must check its claim."""

    def beat(self) -> None:
        """Record that the loop runs."""
        now = self._clock.monotonic()
        if now - self._last > _STALL_S:
            self.stalls += 1
        self._last = now


class TopicState(NamedTuple):
    """State of a topic on a cluster. Any part may be the cause of an error."""

    allowed: frozenset[Operation] | None
    """Permitted operations, or None if the topic does not exist."""
    settings: Mapping[str, str] | None
    """Settings in effect, or None if they cannot be read."""


log = get_logger(__name__)


class FlowContext:
    """Clients and names of a flow. Cluster ids are read when they are first needed."""

    def __init__(
        self,
        flow: ReplicationFlow,
        driver: DriverIdentity,
        secrets: Path | None = None,
        *,
        clients: Clients = KAFKA,
        clock: Clock = time,
    ) -> None:
        """Create the context.

        Args:
            flow: The flow.
            driver: This driver.
            secrets: Folder of Secrets, with files ``<name>/<key>``.
            clients: Factories of Kafka clients.
            clock: Source of the time.
        """
        self.clock = clock
        self.sleep: Callable[[float], None] = time.sleep
        """Function that waits for the given seconds."""
        self.clients = replace(
            clients,
            acls=lambda cluster: clients.acls(self._known(cluster)),
            admin=lambda cluster: self.source if cluster is self.source_access else self.target,
            consumer=lambda cluster, *more: clients.consumer(self._known(cluster), *more),
            producer=lambda cluster, *more: clients.producer(self._known(cluster), *more),
            transactions_decided=lambda cluster, *more: clients.transactions_decided(
                self._known(cluster), *more
            ),
        )
        self.driver = driver
        spec = flow.spec
        self.policy = policy_for(spec.replication_policy, spec.source.alias)
        self.exactly_once = spec.delivery.mode is DeliveryMode.EXACTLY_ONCE
        """Whether owners write in transactions."""
        self.preserved = spec.offsets.mode is OffsetsMode.PRESERVED
        """Whether copies have their sources' offsets."""
        self._follow(flow)
        self.source_access = ClusterAccess(
            _read_in(driver.rack, spec.source), "spec.source", secrets
        )
        self.target_access = ClusterAccess(spec.target, "spec.target", secrets)
        self.source = clients.admin(self.source_access)
        self.target = clients.admin(self.target_access)
        self.progress = ProgressLog(self.target_access, spec.source.alias, self.clients, clock)
        self.dead_letters = DeadLetters(self.target_access, self.clients, clock)
        self._offset_syncs: dict[Location, OffsetSyncWriter] = {}
        self.bandwidth = TokenBucket(clock)
        """Limit of the read rate of all source tasks on this driver. ``Worker`` sets it."""
        self._mover: Mover | None = None
        self._making_mover = threading.Lock()
        self.stall_detector = StallDetector(clock)
        self._contested: dict[str, Contested] = {}
        self._topic_states: dict[str, dict[tuple[Location, str], TopicState]] = {}

    @property
    def mover(self) -> Mover:
        """The flow's mover, which is created at the first access.

        The first access waits for brokers of the target.

        Raises:
            Retriable: No broker of the target responds.
        """
        with self._making_mover:
            if self._mover is None:
                self._mover = self._make_mover()
            return self._mover

    def _make_mover(self) -> Mover:
        source, target = self._known(self.source_access), self._known(self.target_access)
        return self.clients.mover(
            lambda: self.spec, source, target, self.policy.target_topic, self.bandwidth
        )

    def _known(self, cluster: ClusterAccess) -> ClusterAccess:
        """Return the access to the source or target with its cluster id.

        Clients of the wire protocol use no broker that reports another id.
        """
        of_source = cluster is self.source_access
        id_ = self.source_cluster_id if of_source else self.target_cluster_id
        return replace(cluster, cluster_id=id_)

    def change(self, flow: ReplicationFlow) -> None:
        """Apply a changed spec, except for the fields of ``read_at_start``.

        A change of these fields requires new clients. The annotation that resets partitions is also
        applied. ``flow`` is replaced only if something changed.
        """
        if _followed(flow) != _followed(self.flow):
            self._follow(flow)

    def _follow(self, flow: ReplicationFlow) -> None:
        self.flow = flow
        self.pauses = Pauses.of(flow.spec.paused_partitions)
        self.resets = _resets(flow)
        topics, alias = flow.spec.topics, flow.spec.target.alias
        # The heartbeats topic is compacted, so nearly all of its offsets would have to be filled.
        copied = not self.preserved
        self.topics = TopicFilter(
            topics.include, topics.exclude, self.policy, alias, heartbeats=copied
        )
        self.groups = NameFilter(flow.spec.groups.include, flow.spec.groups.exclude)

    @property
    def spec(self) -> ReplicationFlowSpec:
        return self.flow.spec

    @property
    def now_ms(self) -> int:
        """Current Unix time in ms."""
        return int(self.clock.time() * 1000)

    @property
    def name(self) -> str:
        return self.flow.metadata.name

    @cached_property
    def source_cluster_id(self) -> str:
        """Cluster id of the source; raise ``Retriable`` if no broker responds."""
        return _agreed_id(self.source)

    @cached_property
    def target_cluster_id(self) -> str:
        """Cluster id of the target; raise ``Retriable`` if no broker responds."""
        return _agreed_id(self.target)

    def check_brokers(self) -> None:
        """Raise ``Retriable`` if a broker of another cluster responds for the source or target.

        Call it before a loss is reported, because the admin clients do not compare the cluster ids
        of all connections.
        """
        self.source.expect(self.source_cluster_id)
        self.target.expect(self.target_cluster_id)
        self.source.check_brokers()
        self.target.check_brokers()

    @property
    def checkpoints_topic(self) -> str:
        """Checkpoints topic on the target."""
        return checkpoints_topic(self.spec.source.alias, self.spec.replication_policy.separator)

    @property
    def offset_syncs(self) -> OffsetSyncWriter:
        """Writer of offset syncs to the cluster that ``offsetSyncs.location`` names now."""
        location = self.spec.offset_syncs.location
        if (writer := self._offset_syncs.get(location)) is None:
            here, other = self.target_access, self.spec.source
            if location is Location.SOURCE:
                here, other = self.source_access, self.spec.target
            topic = offset_syncs_topic(other.alias, self.spec.replication_policy.separator)
            made = OffsetSyncWriter(topic, here, self.clients)
            writer = self._offset_syncs.setdefault(location, made)
        return writer

    @property
    def offset_syncs_admin(self) -> Admin:
        """Admin client of the cluster that ``offsetSyncs.location`` names now."""
        on_source = self.spec.offset_syncs.location is Location.SOURCE
        return self.source if on_source else self.target

    def progress_key(self, at: TopicPartition) -> ProgressKey:
        """Return the key of a source partition in the progress topic."""
        return ProgressKey(
            self.source_cluster_id, at.topic, at.partition, self.policy.target_topic(at.topic)
        )

    def stored(self, at: TopicPartition) -> Progress | None:
        """Return the stored progress of a source partition, or None.

        Raises:
            Fatal: The progress cannot be read, and was not reset since it was stored.
        """
        return self.progress.get(self.progress_key(at), self.resets.time_ms(at))

    def contested(self, unit: str) -> Contested:
        """Return the contested partitions that all instances of a unit on this driver share."""
        if unit not in self._contested:
            made = Contested(self.progress, self.stored, self.clock)
            self._contested.setdefault(unit, made)
        return self._contested[unit]

    @cached_property
    def rights(self) -> Mapping[Location, RightsAdmin]:
        """Clients that read permissions, which are created when they are first needed."""
        access = {Location.SOURCE: self.source_access, Location.TARGET: self.target_access}
        return {side: self.clients.rights(one) for side, one in access.items()}

    def topic_states(self, unit: str) -> dict[tuple[Location, str], TopicState]:
        """Return the states of topics at the last try of a unit, which all its instances share."""
        return self._topic_states.setdefault(unit, {})

    def close(self) -> None:
        """Stop reading progress, and send the last offset syncs."""
        for writer in self._offset_syncs.values():
            writer.close()
        self.progress.close()


def _agreed_id(admin: Admin) -> str:
    """Return the cluster id that all brokers report; raise ``Retriable`` if they disagree."""
    found = admin.cluster_id()
    admin.expect(found)
    admin.check_brokers(COMPARED_TIMEOUT_S)
    return found


def _read_in(rack: str, source: ClusterSpec) -> ClusterSpec:
    """Return the source's spec with the driver's rack, to fetch from near replicas (KIP-392)."""
    if not rack:
        return source
    return source.model_copy(update={"config": {"client.rack": rack, **source.config}})


def _followed(flow: ReplicationFlow) -> tuple[ReplicationFlowSpec, str]:
    return flow.spec, flow.metadata.annotations.get(RESET_ANNOTATION, "")


def _resets(flow: ReplicationFlow) -> Resets:
    """Return the requested resets.

    An annotation that cannot be read is logged and ignored.
    """
    try:
        return Resets.from_metadata(flow.metadata)
    except InvalidSpec as error:
        log.error("reset ignored", flow=flow.metadata.name, why=str(error))
        return Resets({})
