"""Admin client of one cluster, and its requests about groups and offsets."""

import time
from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import NamedTuple

from confluent_kafka import KafkaError

from headrace.api import TopicPartition
from headrace.errors import Fatal, GaveUp, HeadraceError, Retriable, Unreachable
from headrace.kafka.admin_requests import ClusterAdmin
from headrace.kafka.errors import translate
from headrace.kafka.topic_admin import TopicAdmin, TopicConfigAdmin
from headrace.kafka.wire import (
    EARLIEST,
    LATEST,
    ClusterClient,
    ClusterMetadata,
    Committed,
    ForeignBroker,
    RequestRefused,
    Unanswered,
    UnsupportedBroker,
    committed_offsets,
    describe_producers,
    list_groups,
    list_offsets,
    set_committed_offsets,
    set_share_starts,
    share_starts,
    transactional_ids,
    used_share_groups,
)
from headrace.sentences import first_few


class GroupAdmin(ClusterAdmin):
    """Lists groups, and reads and sets their committed offsets.

    Calls block as in ``ClusterAdmin``.
    """

    def groups(self) -> set[str]:
        """Return the consumer groups that the principal may describe."""
        client = self._requests.client
        tried = f"list the consumer groups of {self.name}"
        future = self._requests.call(
            tried, lambda: client.list_consumer_groups(request_timeout=self._timeout_s)
        )
        found = self._requests.result(tried, future)
        if found.errors:
            raise self._requests.failed(found.errors[0], tried)
        return {group.group_id for group in found.valid}

    def protocol_types(self) -> dict[str, str]:
        """Return the protocol type of each group that the principal may describe.

        Types are ``consumer``, ``share``, ``streams`` and ``connect``. The type is empty for a
        group that only has committed offsets. ``groups`` returns only groups with type ``consumer``
        or an empty type.
        """
        return {group: one.protocol_type for group, one in self._on_wire(list_groups).items()}

    def groups_with_members(self) -> dict[str, str]:
        """Return the groups of any type that have members, with their protocol types.

        Brokers before Kafka 2.6 do not list the states of groups. This method then describes each
        group.
        """
        found = {}
        for group, one in self._on_wire(list_groups).items():
            known = one.has_members
            if known or (known is None and self.has_members(group)):
                found[group] = one.protocol_type
        return found

    def has_members(self, group: str) -> bool:
        """Return True if a group of any type has members, for example a group of Connect workers.

        Return False for a group that does not exist or that the principal may not describe.
        """
        client = self._requests.client
        tried = f"describe group {group} of {self.name}"
        found = self._requests.call(
            tried, lambda: client.list_groups(group, timeout=self._timeout_s)
        )
        return any(one.members for one in found)

    def committed(
        self, groups: Collection[str]
    ) -> tuple[dict[str, dict[TopicPartition, Committed]], dict[str, HeadraceError]]:
        """Return the committed offsets of each group, and an error for each unreadable group.

        Only topics that the principal may describe are included.
        """
        return self._on_wire_by_group(groups, lambda cluster: committed_offsets(cluster, groups))

    def commit(
        self, offsets: Mapping[str, Mapping[TopicPartition, Committed]]
    ) -> dict[str, HeadraceError]:
        """Set the committed offsets of each group, and return an error for each group that failed.

        A group fails if any of its offsets could not be set. The error is ``GroupActive`` if the
        group has members.
        """
        _, failed = self._on_wire_by_group(
            offsets, lambda cluster: set_committed_offsets(cluster, offsets)
        )
        return failed


SHARE = "share"
"""Kafka's protocol type of share groups."""


class ShareGroupAdmin(ClusterAdmin):
    """Reads and sets the start offsets of share groups. Calls block as in ``ClusterAdmin``.

    The methods raise no errors. They return an error for each group without a response. The error
    is ``NoShareGroups`` if the cluster does not support share groups.
    """

    def share_starts(
        self, groups: Collection[str]
    ) -> tuple[dict[str, dict[TopicPartition, int]], dict[str, HeadraceError]]:
        """Return the start offsets of each group, and an error for each group that failed.

        Only topics that the principal may describe are included.
        """
        return self._on_wire_by_group(groups, lambda cluster: share_starts(cluster, groups))

    def set_share_starts(
        self, starts: Mapping[str, Mapping[TopicPartition, int]]
    ) -> dict[str, HeadraceError]:
        """Set the start offsets of each group, and return an error for each group that failed.

        A group fails if any of its offsets could not be set. The error is ``GroupActive`` if the
        group has members.
        """
        _, failed = self._on_wire_by_group(
            starts, lambda cluster: set_share_starts(cluster, starts)
        )
        return failed

    def used_share_groups(
        self, groups: Collection[str]
    ) -> tuple[set[str], dict[str, HeadraceError]]:
        """Return the groups that have or had members, and an error for each group that failed."""
        found, failed = self._on_wire_by_group(
            groups, lambda cluster: used_share_groups(cluster, groups)
        )
        return {group for group, used in found.items() if used}, failed


class Position(Enum):
    """Named offset of a partition. Consumers of committed records read up to ``LAST_STABLE``."""

    EARLIEST = "earliest"
    LATEST = "latest"
    LAST_STABLE = "last stable"


class OffsetAdmin(ClusterAdmin):
    """Reads offsets of partitions. Calls block as in ``ClusterAdmin``."""

    def offsets(
        self, partitions: Iterable[TopicPartition], position: Position
    ) -> dict[TopicPartition, int]:
        """Return the offset at ``position`` of each partition.

        Retry partitions without a response until the time-out, and then raise ``Retriable``.
        """
        return _all(*self.found_offsets(partitions, position))

    def found_offsets(
        self, partitions: Iterable[TopicPartition], position: Position
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, HeadraceError]]:
        """Return the offset at ``position`` of each partition, and errors of those that failed.

        Partitions without a response are retried until the time-out.
        """
        return self._list_offsets(partitions, *_question(position))

    def known_ends(
        self, partitions: Iterable[TopicPartition], position: Position = Position.LATEST
    ) -> dict[TopicPartition, int]:
        """Return the offset at ``position`` of each partition that responds to a single request."""
        return self._ask_offsets(partitions, *_question(position))[0]

    def offsets_at(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int
    ) -> dict[TopicPartition, int]:
        """Return the first offset at or after a Unix time in ms, or -1 if no such record exists."""
        what = f"read offsets at {timestamp_ms} ms"
        return _all(*self._list_offsets(partitions, timestamp_ms, False, what))

    def _list_offsets(
        self, partitions: Iterable[TopicPartition], time_ms: int, committed: bool, what: str
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, HeadraceError]]:
        missing = set(partitions)
        found: dict[TopicPartition, int] = {}
        deadline = time.monotonic() + self._timeout_s
        while True:
            answered, failed = self._ask_offsets(missing, time_ms, committed, what)
            found |= answered
            missing -= answered.keys()
            # Brokers briefly disagree after a topic was created or a leader moved.
            if not missing or time.monotonic() > deadline:
                return found, self._reasons(what, failed)
            time.sleep(0.1)

    def _ask_offsets(
        self, partitions: Iterable[TopicPartition], time_ms: int, committed: bool, what: str
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, "_Failure"]]:
        """Send one request to each leader, and return the offsets and the errors by partition."""
        asked = frozenset(partitions)
        if not asked:
            return {}, {}

        async def ask(
            cluster: ClusterClient,
        ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, _Failure]]:
            if unknown := {at.topic for at in asked if cluster.view.leadership(at) is None}:
                await cluster.refresh(unknown)
            answers = await list_offsets(
                cluster, asked, time_ms, read_committed=committed, timeout_s=0
            )
            failed = {
                at: _failure(f"{what} of {at} on {self.name}", at, error, cluster.view)
                for at, error in answers.failed.items()
            }
            if failed:
                cluster.view = ClusterMetadata()  # leaders may have moved
            return {at: one.offset for at, one in answers.found.items()}, failed

        try:
            found, failed = self._on_kept_wire(ask)
        except (Retriable, GaveUp) as error:
            return {}, dict.fromkeys(asked, _Failure(error))
        self._requests.served = self._requests.served or bool(found)
        for one in failed.values():
            if isinstance(one.error, Fatal):
                raise one.error
        return found, failed

    def _reasons(
        self, what: str, failed: Mapping[TopicPartition, "_Failure"]
    ) -> dict[TopicPartition, HeadraceError]:
        """Return the error of each partition. Each unreachable leader is diagnosed once."""
        partitions: dict[_Failure, list[TopicPartition]] = {}
        for at, failure in failed.items():
            partitions.setdefault(failure, []).append(at)
        found: dict[TopicPartition, HeadraceError] = {}
        for (error, leader), those in partitions.items():
            reason: HeadraceError = error
            if isinstance(error, GaveUp | Unreachable) and not isinstance(error, ForeignBroker):
                names = first_few([str(at) for at in sorted(those)], _MAX_NAMES)
                tried = f"{what} of {names} on {self.name}"
                reason = self._diagnosed(tried, error, _client_error(error, leader))
            found |= dict.fromkeys(those, reason)
        return found


_MAX_NAMES = 3
"""Maximum number of partitions that a message names."""


class _Failure(NamedTuple):
    """Reason why partitions have no offset. All partitions of a leader may share it."""

    error: HeadraceError
    leader: str = ""
    """Address and id of the leader without a response, such as ``kafka-1:9092/1``."""


def _failure(
    tried: str, at: TopicPartition, error: HeadraceError, view: ClusterMetadata
) -> _Failure:
    topic, led = view.topics.get(at.topic), view.leadership(at)
    if led is None:
        code = topic.error.value if topic is not None else 0
        return _Failure(translate(KafkaError(code or KafkaError.LEADER_NOT_AVAILABLE), tried))
    if isinstance(error, RequestRefused):
        return _Failure(translate(KafkaError(error.code.value), tried))
    if isinstance(error, Unreachable):
        return _Failure(error, f"{view.brokers[led.leader].server}/{led.leader}")
    return _Failure(Retriable(f"could not {tried}: no answer from the partition's leader"))


def _client_error(error: HeadraceError, leader: str) -> KafkaError | None:
    """Return the error of a leader's connection in librdkafka's form."""
    code = KafkaError._TIMED_OUT if isinstance(error, Unanswered) else KafkaError._TRANSPORT
    return KafkaError(code, f"kafka://{leader}: {error}") if leader else None


class ActiveProducer(NamedTuple):
    """Producer that a partition's leader remembers: by default for a day after its last record."""

    producer_id: int
    transactional_id: str
    """Empty if the producer has none, if the principal may not describe it, and before Kafka
    3.0."""
    last_ms: int
    """Timestamp of the producer's last record in this partition, in ms."""
    last_sequence: int
    """Sequence number of the producer's last record in this partition."""


class ProducerAdmin(ClusterAdmin):
    """Reads the producers of partitions. Calls block as in ``ClusterAdmin``."""

    def active_producers(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, tuple[ActiveProducer, ...]]:
        """Return the producers of each partition that answers.

        Brokers do not know producers without a producer id. If no partition answers, raise an
        error. The error is ``Fatal`` if the brokers are older than Kafka 2.8, or if the permission
        to read the topics is missing.
        """

        async def ask(
            cluster: ClusterClient,
        ) -> dict[TopicPartition, tuple[ActiveProducer, ...]]:
            answers = await describe_producers(cluster, partitions)
            states = answers.found or answers.all()
            ids = {one.producer_id for those in states.values() for one in those}
            try:
                names = await transactional_ids(cluster, ids) if ids else {}
            except UnsupportedBroker:
                names = {}
            return {
                at: tuple(
                    ActiveProducer(
                        one.producer_id,
                        names.get(one.producer_id, ""),
                        one.last_timestamp,
                        one.last_sequence,
                    )
                    for one in those
                )
                for at, those in states.items()
            }

        return self._on_wire(ask)


def _all(
    found: dict[TopicPartition, int], failed: Mapping[TopicPartition, HeadraceError]
) -> dict[TopicPartition, int]:
    for error in failed.values():
        raise error
    return found


def _question(position: Position) -> tuple[int, bool, str]:
    """Return the arguments ``time_ms``, ``committed`` and ``what`` of ``_list_offsets``."""
    time_ms = EARLIEST if position is Position.EARLIEST else LATEST
    return time_ms, position is Position.LAST_STABLE, f"read {position.value} offsets"


class Admin(TopicAdmin, TopicConfigAdmin, OffsetAdmin, ProducerAdmin, GroupAdmin, ShareGroupAdmin):
    """Admin client for the topics, settings, offsets, producers and groups of one cluster."""


def ensure_topic(
    admin: Admin,
    topic: str,
    partitions: int,
    config: Mapping[str, str],
    *,
    because: str,
    consequence: str = "",
) -> bool:
    """Create the topic if it does not exist, and return True if this call created it.

    An existing topic is used as it is, so that no permission to create topics is needed.

    Args:
        admin: Client of the cluster.
        topic: Name of the topic.
        partitions: Required number of partitions.
        config: Settings of a new topic.
        because: Reason for the number of partitions, for messages.
        consequence: Effect of deleting the topic, for messages.

    Raises:
        Fatal: The topic has another number of partitions, or cannot be created.
        Retriable: Another process is creating the topic, or no broker responded.
    """
    found = admin.describe([topic]).get(topic)
    if found is None:
        if admin.create_topic(topic, partitions, config=config):
            return True
        found = admin.describe([topic]).get(topic)
    where = f"topic {topic} on {admin.name}"
    if found is None:
        raise Retriable(f"{where} is being created by another process: trying again")
    if found.partitions != partitions:
        raise Fatal(
            f"{where} has {found.partitions} partitions, and must have {partitions}, {because}: "
            f"delete it, and it is created again{consequence}"
        )
    return False
