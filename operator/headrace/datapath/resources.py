"""Resources that the lanes of a mover share: the loop's thread and connections."""

import os
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from headrace.api import ClusterAccess, TopicPartition
from headrace.api.client_settings import Compression
from headrace.api.flow import BatchVerification
from headrace.api.offsets import GapPolicy
from headrace.datapath.bandwidth import TokenBucket
from headrace.datapath.chunk import Joiner, Memory
from headrace.datapath.producer import Leaders
from headrace.datapath.rebuild import TopicChanges
from headrace.datapath.transactions import LANE_AGE_S
from headrace.datapath.verify import EPOCH_INTERVAL_S, UNVERIFIED_BYTES
from headrace.errors import Fatal
from headrace.kafka import Renewal
from headrace.kafka.wire import (
    Buffers,
    ClusterClient,
    EventLoop,
    ProducerIdentity,
    Reply,
    Scanner,
    start,
)
from headrace.logs import get_logger
from headrace.replication import OwnerProducer, RecordChanges

log = get_logger(__name__)

_KEPT_BYTES = 40 << 20
"""Maximum size of all buffers in bytes, including buffers in use. It is more than all lanes may
hold."""
_TRIM_S = 10.0


class LoopThread:
    """Event loop in a thread that runs until the process ends, and the resources of its lanes."""

    def __init__(self) -> None:
        self.loop = EventLoop()
        self.buffers = Buffers(_KEPT_BYTES)
        self.memory = Memory()
        self.joiner = Joiner(self.buffers, self.memory, self.loop.now_s)
        self.scanner = Scanner()
        threading.Thread(target=self._run, name="headrace-batches", daemon=True).start()

    def _trim(self) -> None:
        self.buffers.trim()
        self.loop.call_later(_TRIM_S, self._trim)

    def _run(self) -> None:
        try:
            self._trim()
            while True:
                self.loop.run_once(60.0)
        except Exception:
            # Lanes without a loop would look alive. The driver must end visibly.
            log.exception("internal error, the driver ends: please report it")
            os._exit(1)


_making = threading.Lock()
_shared: list[LoopThread] = []


def shared_loop() -> LoopThread:
    """Return the loop thread of this process. The first call starts it."""
    with _making:
        if not _shared:
            _shared.append(LoopThread())
        return _shared[0]


def run_in(loop: EventLoop, coroutine: Coroutine[Reply[Any], None, None]) -> None:
    """Run a coroutine in the thread of a loop; an error of the coroutine ends the driver."""
    loop.call_from_thread(lambda: start(coroutine).then(lambda reply: reply.result()))


class Outlet:
    """Connections to the target that several lanes share. The last lane closes them.

    Lanes that are created after a change of the credentials get another outlet.
    """

    def __init__(self, thread: LoopThread, target: ClusterAccess) -> None:
        self.users = 0
        self._renewal = Renewal(target)
        self.cluster = ClusterClient(thread.loop, target, buffers=thread.buffers)
        self.leaders = Leaders(self.cluster)

    @property
    def outdated(self) -> bool:
        """Whether credentials have changed since the outlet was created."""
        return self._renewal.due

    def close(self) -> None:
        self.leaders.close()
        self.cluster.close()


@dataclass(frozen=True)
class LaneSettings:
    """Times and sizes of a mover's lanes."""

    max_age_s: float = LANE_AGE_S
    """Maximum age of a lane that later owners can fence."""
    epoch_interval_s: float = EPOCH_INTERVAL_S
    """Time from an acknowledgement to the query of the target's leader epochs."""
    unverified_bytes: int = UNVERIFIED_BYTES
    """Maximum size of a lane's batches that wait for verification."""
    marked_offsets: int = 1_000
    """Number of offsets of a long hole that are filled by markers at a time, which takes some
    seconds. Filled offsets count as copied, so that the next owner fills only the rest."""


DEFAULT_LANE_SETTINGS = LaneSettings()
"""Settings that production uses."""


class LaneResources:
    """Clusters, settings, connections to the target, and used producer identities of a mover."""

    def __init__(
        self,
        source: ClusterAccess,
        target: ClusterAccess,
        target_topic: Callable[[str], str],
        thread: Callable[[], LoopThread],
        verification: Callable[[], BatchVerification],
        *,
        bandwidth: TokenBucket,
        holes: GapPolicy,
        records: RecordChanges | None,
        compression: Compression,
        settings: LaneSettings,
    ) -> None:
        """Create the resources of a mover.

        Args:
            source: Access to the source.
            target: Access to the target.
            target_topic: Returns a topic's name on the target.
            thread: Returns the loop thread.
            verification: Returns the current setting.
            bandwidth: Limit of the read rate.
            holes: How lanes with preserved offsets fill holes.
            records: Filter and header changes, or None.
            compression: Compression of batches on the target.
            settings: Times and sizes of the lanes.
        """
        self.source, self.target = source, target
        self.target_topic = target_topic
        self.thread = thread
        self.verification, self.bandwidth = verification, bandwidth
        self.holes = holes
        self.settings = settings
        self._records, self._compression = records, compression
        self._changes: dict[str, TopicChanges] = {}
        self.rack = source.spec.config.get("client.rack", "")
        self.corrupt: dict[TopicPartition, int] = {}
        """Source offset at which a batch was damaged once, by source partition."""
        self._begun: dict[TopicPartition, ProducerIdentity] = {}
        self._lock = threading.Lock()
        self._outlet: Outlet | None = None

    def changes(self, topic: str) -> TopicChanges:
        """Return the changes to the batches of a topic. The result is cached."""
        if (found := self._changes.get(topic)) is None:
            found = TopicChanges.of(topic, self._records, self._compression)
            self._changes[topic] = found
        return found

    def begin(self, at: TopicPartition, writer: OwnerProducer) -> ProducerIdentity:
        """Return the identity with which a lane writes to a target partition, and record its use.

        An identity serves only once for a partition. A second lane would begin with sequence 0
        again. Brokers would take its batch for a repeated one, and it would be lost.

        Raises:
            Fatal: The partition was last written with the same identity.
        """
        identity = ProducerIdentity(writer.producer_id, writer.producer_epoch)
        with self._lock:
            if self._begun.get(at) == identity:
                raise Fatal(f"internal error: {at} would be written with {identity} again")
            self._begun[at] = identity
        return identity

    def outlet(self, thread: LoopThread) -> Outlet:
        """Return the shared outlet to the target, with current credentials.

        The caller must release it.
        """
        with self._lock:
            if self._outlet is None or self._outlet.outdated:
                self._outlet = Outlet(thread, self.target)
            self._outlet.users += 1
            return self._outlet

    def release(self, outlet: Outlet) -> None:
        """Release an outlet that a lane no longer needs. Call it in the loop's thread."""
        with self._lock:
            outlet.users -= 1
            if outlet.users:
                return
            if outlet is self._outlet:
                self._outlet = None
        outlet.close()
