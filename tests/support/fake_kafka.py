"""Kafka clusters in memory, and clients of them: in the place of librdkafka, below every mover.

A test sees what was written by reading a cluster's logs. It decides when a producer's records are
sent, and in what order and with what outcome they are reported. A real broker cannot do that.
"""

import threading
import zlib
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple, cast

import confluent_kafka
from support.memory_mover import MemoryMover

from headrace.api import ClusterAccess
from headrace.api.flow import ReplicationFlowSpec
from headrace.api.partitions import TopicPartition
from headrace.datapath import Clients, RecordConsumer, TokenBucket
from headrace.errors import Fatal, HeadraceError, Retriable
from headrace.kafka import (
    AclAdmin,
    ActiveProducer,
    Admin,
    BrokerDisk,
    Committed,
    KafkaError,
    KafkaException,
    Operation,
    Position,
    RecordProducer,
    Replicas,
    RightsAdmin,
    Topic,
    TopicConfig,
    TopicRights,
)

Report = Callable[[KafkaError | None, "FakeMessage"], None]


class FakeClock:
    """Moves when a test or a waiting client moves it."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.end_s = 10_000.0

    def monotonic(self) -> float:
        return self.now_s

    def time(self) -> float:
        return 1_700_000_000 + self.now_s

    def advance(self, seconds: float) -> None:
        self.now_s += seconds
        assert self.now_s < self.end_s, "somebody waits for ever"


class FakeRecord(NamedTuple):
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Any = None
    leader_epoch: int = 0


MARKER = None
"""An offset that holds no record: a transaction's marker, or what compaction removed."""
GONE = FakeRecord(None, None, -7)
"""A record that compaction removed; its offset is not sent."""


@dataclass
class FakeLog:
    """One partition; ``start`` is the offset of its first entry."""

    start: int = 0
    entries: list[FakeRecord | None] = field(default_factory=list)
    leader_epoch: int = 0
    open_from: int | None = None
    """The first offset of the oldest transaction that is open."""
    unreadable_at: int | None = None
    """Offset at which clients stop reading without an error."""
    batches: dict[int, bytes] = field(default_factory=dict)
    """Stored batches by first offset. ``WireCluster`` sends them unchanged."""
    aborted: list[tuple[int, int]] = field(default_factory=list)
    """Aborted transactions: producer id and first offset."""

    @property
    def end(self) -> int:
        return self.start + len(self.entries)

    @property
    def stable_end(self) -> int:
        """The last stable offset."""
        return self.end if self.open_from is None else self.open_from

    @property
    def values(self) -> list[bytes | None]:
        """The values of all records."""
        return [record.value for record in self.entries if record is not MARKER]

    def at(self, offset: int) -> FakeRecord | None:
        return self.entries[offset - self.start]

    def store(self, base_offset: int, batch: bytes, entries: Sequence[FakeRecord | None]) -> None:
        """Append a batch. If it begins after the end, the offsets between hold no record."""
        assert base_offset >= self.end
        self.entries += [MARKER] * (base_offset - self.end)
        self.batches[base_offset] = batch
        epoch = self.leader_epoch
        self.entries += [one and one._replace(leader_epoch=epoch) for one in entries]

    def batch_at(self, offset: int) -> bytes | None:
        """Return the stored batch that has this offset, unless a record of it was removed."""
        firsts = list(self.batches)
        if not (place := bisect_right(firsts, offset)):
            return None
        batch = self.batches[firsts[place - 1]]
        offsets = offsets_of(batch)
        there = self.entries[max(offsets.start - self.start, 0) : offsets.stop - self.start]
        return batch if offset in offsets and GONE not in there else None

    def first_since(self, timestamp_ms: int) -> int:
        """Return the first offset of that time or later, or -1 if there is none."""
        there = (
            offset
            for offset, record in enumerate(self.entries, self.start)
            if record is not MARKER and record.timestamp_ms >= timestamp_ms
        )
        return next(there, -1)

    def delete_before(self, offset: int) -> None:
        """Delete the records before an offset, as retention does."""
        self.entries, self.start = self.entries[offset - self.start :], offset
        self.batches = {
            at: one for at, one in self.batches.items() if offsets_of(one).stop > offset
        }

    def truncate(self, offset: int) -> None:
        """Elect a leader without the records from ``offset`` on, as an unclean election does."""
        del self.entries[offset - self.start :]
        self.batches = {
            at: one for at, one in self.batches.items() if offsets_of(one).stop <= offset
        }
        self.leader_epoch += 1


def offsets_of(batch: bytes) -> range:
    """Return the offsets of a stored batch."""
    first, last_delta = int.from_bytes(batch[:8]), int.from_bytes(batch[23:27])
    return range(first, first + last_delta + 1)


class FakeMessage:
    """A record, a report or an error with the interface of confluent_kafka's ``Message``."""

    def __init__(
        self,
        at: TopicPartition,
        offset: int,
        record: FakeRecord | None = None,
        error: KafkaError | None = None,
    ) -> None:
        self._at, self._offset, self._record, self._error = at, offset, record, error

    def topic(self) -> str:
        return self._at.topic

    def partition(self) -> int:
        return self._at.partition

    def offset(self) -> int:
        return self._offset

    def error(self) -> KafkaError | None:
        return self._error

    def key(self) -> bytes | None:
        return self._record.key if self._record else None

    def value(self) -> bytes | None:
        return self._record.value if self._record else None

    def headers(self) -> Any:
        return self._record.headers if self._record else None

    def timestamp(self) -> tuple[int, int]:
        return 1, self._record.timestamp_ms if self._record else -1

    def leader_epoch(self) -> int | None:
        return self._record.leader_epoch if self._record else None


class FakeCluster:
    """Topics with their ids, and the clients that were created; it is also its own ``Admin``."""

    def __init__(self, alias: str, clock: FakeClock) -> None:
        self.name = alias
        self.clock = clock
        self.away = False
        """Whether no request to it is answered."""
        self.leaderless: set[TopicPartition] = set()
        self.silent: set[TopicPartition] = set()
        """Partitions whose leader does not answer, though it is known."""
        self.ids: dict[str, str] = {}
        self.configs: dict[str, dict[str, str]] = {}
        """Topics' own settings."""
        self.defaults: dict[str, str] = {}
        """Topic settings of the brokers."""
        self.config_changes: list[Mapping[str, Mapping[str, str | None]]] = []
        """Changes of settings that were requested."""
        self.hides_settings = False
        """Whether settings of topics cannot be read."""
        self.unseen: set[str] = set()
        """New topics that are not known to the broker that returns settings."""
        self.topic_racks: dict[TopicPartition, frozenset[str]] = {}
        """Racks from which partitions can be read."""
        self.requests = 0
        self.rack_requests = 0
        self.logs: dict[TopicPartition, FakeLog] = {}
        self.committed_by: dict[str, dict[TopicPartition, Committed]] = {}
        """Committed offsets by consumer group."""
        self.kinds: dict[str, str] = {}
        """Groups that are not consumer groups, and their protocol types."""
        self.starts: dict[str, dict[TopicPartition, int]] = {}
        """Start offsets of share groups."""
        self.used: set[str] = set()
        """Share groups that had members."""
        self.no_share_groups: HeadraceError | None = None
        """Reason why it has no share groups."""
        self.active: set[str] = set()
        """Groups with members."""
        self.not_committable: dict[str, HeadraceError] = {}
        """Groups that accept commits only from their members, or none."""
        self.forbidden: set[str] = set()
        """Groups that may not be described, and topics that may not be made."""
        self.denied: set[tuple[str, Operation]] = set()
        """Operations on topics, groups and transactional ids that the user may not perform."""
        self.refused_settings: set[str] = set()
        """Settings of topics that its policy refuses."""
        self.acls: list[dict[str, str]] = []
        """ACLs of topics."""
        self.wrote: dict[TopicPartition, tuple[ActiveProducer, ...]] = {}
        """Producers of partitions."""
        self.too_old = False
        self.foreign_broker = False
        """Whether a broker of another cluster answers at one of its addresses."""
        self.unmakeable: Fatal | None = None
        """Reason why no topic can be created, other than a missing permission."""
        self.disks = {1: BrokerDisk(10**12, {})}
        """Disks of its brokers."""
        self.in_sync = 1
        """Replicas of each partition that are."""
        self.producers: list[FakeProducer] = []
        self.consumers: list[FakeConsumer] = []
        self.holds_back: Callable[[TopicPartition], bool] = lambda at: False
        """Partitions whose records stay in the producer until the test sends and reports them."""
        self.refuses: Callable[[TopicPartition, FakeRecord], int] = lambda at, record: 0
        """Code with which brokers refuse a record and its batch permanently, or 0."""
        self.names_refused = False
        """Whether brokers name the records of a refused batch that are the reason (KIP-467)."""
        self.largest_bytes = 1 << 20
        """A larger value is refused by the client."""
        self.overtaken: set[TopicPartition] = set()
        """Partitions of which a producer dropped a record that was to be sent again.

        A younger record was in flight: librdkafka continues with it.
        """
        self.changed = threading.Condition()
        self._made = count(1)

    def records(self, topic: str, partition: int = 0) -> list[bytes | None]:
        """Return the values of a partition."""
        return self.logs[TopicPartition(topic, partition)].values

    def append(self, topic: str, *values: bytes | None, partition: int = 0) -> None:
        """Write records, as any producer of the user's does."""
        for value in values:
            self.write(TopicPartition(topic, partition), FakeRecord(b"key", value, 1_000))

    def write(self, at: TopicPartition, record: FakeRecord | None) -> int:
        """Write one entry; its offset."""
        with self.changed:
            log = self.logs[at]
            epoch = log.leader_epoch
            log.entries.append(record and record._replace(leader_epoch=epoch))
            self.changed.notify_all()
            return log.end - 1

    @property
    def producer(self) -> "FakeProducer":
        """The one of the newest lane (the progress log's is made first)."""
        return next(made for made in reversed(self.producers) if "partitioner" not in made.settings)

    # As Admin.

    def cluster_id(self) -> str:
        self._answer()
        return f"id-of-{self.name}"

    def topics(self) -> dict[str, int]:
        self._answer()
        return {name: self._size(name) for name in self.ids}

    def describe(self, names: Iterable[str]) -> dict[str, Topic]:
        self._answer()
        there = self.ids.keys() & set(names)
        return {
            name: Topic(name, self._size(name), self.ids[name], self._leaderless(name))
            for name in there
        }

    def _leaderless(self, name: str) -> frozenset[int]:
        return frozenset(at.partition for at in self.leaderless if at.topic == name)

    def topic_config(self, name: str) -> dict[str, str]:
        self._answer()
        return self.configs[name]

    def topic_configs(
        self, names: Iterable[str]
    ) -> tuple[dict[str, TopicConfig], dict[str, HeadraceError]]:
        self._answer()
        if self.hides_settings:
            return {}, {name: Fatal(f"could not read the settings of {name}") for name in names}
        there = (self.ids.keys() & set(names)) - self.unseen
        configs = {one: dict(self.configs[one]) for one in there}
        return {one: TopicConfig(own, self.defaults | own) for one, own in configs.items()}, {}

    def rights_on_existing(self, names: Iterable[str]) -> dict[str, frozenset[Operation]]:
        self._answer()
        there = self.ids.keys() & set(names)
        return {
            name: frozenset(one for one in Operation if (name, one) not in self.denied)
            for name in there
        }

    def change_topic_configs(
        self, changes: Mapping[str, Mapping[str, str | None]]
    ) -> dict[str, HeadraceError]:
        if changes:
            self.config_changes.append(changes)
        failed = self.validate_topic_configs(changes)
        for topic in changes.keys() - failed.keys():
            for setting, value in changes[topic].items():
                self.configs[topic].pop(setting, None)
                self.configs[topic] |= {} if value is None else {setting: value}
        return failed

    def validate_topic_configs(
        self, changes: Mapping[str, Mapping[str, str | None]]
    ) -> dict[str, HeadraceError]:
        self._answer()
        failed: dict[str, HeadraceError] = {}
        for topic, change in changes.items():
            if refused := self.refused_settings & change.keys():
                failed[topic] = Fatal(f"could not set {', '.join(sorted(refused))} of {topic}")
        return failed

    def create_topic(
        self, name: str, partitions: int, factor: int = -1, config: dict[str, str] | None = None
    ) -> bool:
        self._answer()
        if name in self.forbidden:
            raise Fatal(f"could not create topic {name} on {self.name}: grant rights")
        if name in self.ids:
            return False
        self.configs[name] = dict(config or {})
        self.ids[name] = f"{name}-{next(self._made)}"
        self.logs |= {TopicPartition(name, number): FakeLog() for number in range(partitions)}
        return True

    def add_partitions(self, name: str, total: int) -> None:
        for number in range(total):
            self.logs.setdefault(TopicPartition(name, number), FakeLog())

    def racks(self, topics: Collection[str]) -> dict[TopicPartition, frozenset[str]]:
        self._answer()
        self.rack_requests += 1
        return {at: racks for at, racks in self.topic_racks.items() if at.topic in topics}

    def topic_rights(self, names: Iterable[str], _: object) -> dict[str, TopicRights]:
        self._answer()
        return {name: self._topic_rights(name) for name in names}

    def _topic_rights(self, name: str) -> TopicRights:
        there = name in self.ids
        return TopicRights(
            self._allowed(name),
            there,
            self._size(name),
            Replicas(1, self.in_sync),
            None if there else self.unmakeable,
        )

    def _allowed(self, name: str) -> frozenset[Operation]:
        return frozenset(one for one in Operation if (name, one) not in self.denied)

    def cluster_rights(self) -> frozenset[Operation]:
        return self._allowed("kafka-cluster")

    def topic_acls(self) -> list[dict[str, str]]:
        self._answer()
        return [dict(one) for one in self.acls]

    def add_acls(self, acls: Iterable[Mapping[str, str]]) -> None:
        self.acls += [dict(one) for one in acls if one not in self.acls]

    def remove_acls(self, acls: Iterable[Mapping[str, str]]) -> None:
        gone = [dict(one) for one in acls]
        self.acls = [one for one in self.acls if one not in gone]

    def group_rights(self, names: Iterable[str]) -> dict[str, frozenset[Operation]]:
        return {name: self._allowed(name) for name in names}

    def broker_disks(self, topics: Mapping[str, int]) -> dict[int, BrokerDisk]:
        self._answer()
        return self.disks

    def may_use_transactional_id(self, name: str) -> bool:
        return Operation.WRITE in self._allowed(name)

    def expect(self, cluster_id: str) -> None:
        assert cluster_id == self.cluster_id()

    def check_brokers(self, within_s: float = 0) -> None:
        self._answer()
        if self.foreign_broker:
            raise Retriable(f"a broker of another cluster answers for {self.name}")

    def check_version(self) -> None:
        if self.too_old:
            raise Fatal(f"{self.name} is too old")

    def groups(self) -> set[str]:
        self._answer()
        return self.committed_by.keys() - self.kinds.keys()

    def groups_with_members(self) -> dict[str, str]:
        return {
            group: kind for group, kind in self.protocol_types().items() if group in self.active
        }

    def protocol_types(self) -> dict[str, str]:
        self._answer()
        return dict.fromkeys(self.committed_by, "consumer") | self.kinds

    def has_members(self, group: str) -> bool:
        return group in self.active

    def committed(
        self, groups: Iterable[str]
    ) -> tuple[dict[str, dict[TopicPartition, Committed]], dict[str, HeadraceError]]:
        self._answer()
        asked = self.committed_by.keys() & set(groups)
        refused = asked & self.forbidden
        why: dict[str, HeadraceError] = {one: Fatal(f"may not read {one}") for one in refused}
        return {one: dict(self.committed_by[one]) for one in asked - refused}, why

    def commit(
        self, offsets: Mapping[str, Mapping[TopicPartition, Committed]]
    ) -> dict[str, HeadraceError]:
        self._answer()
        failed: dict[str, HeadraceError] = {}
        for group, wanted in offsets.items():
            if group in self.not_committable:
                failed[group] = self.not_committable[group]
            else:
                self.committed_by.setdefault(group, {}).update(wanted)
        return failed

    def share_starts(
        self, groups: Collection[str]
    ) -> tuple[dict[str, dict[TopicPartition, int]], dict[str, HeadraceError]]:
        refused = self._no_share_groups(groups)
        return {
            one: dict(self.starts.get(one, {})) for one in groups if one not in refused
        }, refused

    def set_share_starts(
        self, starts: Mapping[str, Mapping[TopicPartition, int]]
    ) -> dict[str, HeadraceError]:
        failed = self._no_share_groups(starts)
        for group, wanted in starts.items():
            if group in self.not_committable:
                failed[group] = self.not_committable[group]
            elif group not in failed:
                self.starts.setdefault(group, {}).update(wanted)
        return failed

    def used_share_groups(
        self, groups: Collection[str]
    ) -> tuple[set[str], dict[str, HeadraceError]]:
        refused = self._no_share_groups(groups)
        return self.used & (set(groups) - refused.keys()), refused

    def _no_share_groups(self, groups: Collection[str]) -> dict[str, HeadraceError]:
        self._answer()
        if self.no_share_groups is not None:
            return dict.fromkeys(groups, self.no_share_groups)
        return {one: Fatal(f"may not read {one}") for one in groups if one in self.forbidden}

    def consumer_commits(
        self, group: str, at: TopicPartition, offset: int, metadata: str = ""
    ) -> None:
        """Commit an offset as a consumer of that group does."""
        self.committed_by.setdefault(group, {})[at] = Committed(offset, metadata)

    def delete_topic(self, name: str) -> int:
        """Delete a topic and return the number of its partitions."""
        del self.ids[name]
        return self._size(name)

    def recreate_topic(self, name: str) -> None:
        self.create_topic(name, self.delete_topic(name))

    def offsets(
        self, partitions: Iterable[TopicPartition], position: Position
    ) -> dict[TopicPartition, int]:
        found, failed = self.found_offsets(partitions, position)
        for error in failed.values():
            raise error
        return found

    def found_offsets(
        self, partitions: Iterable[TopicPartition], position: Position
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, Retriable]]:
        self._answer()
        named = {Position.EARLIEST: "start", Position.LATEST: "end"}.get(position, "stable_end")
        asked = set(partitions)
        silent = asked & (self.leaderless | self.silent)
        failed = {at: Retriable(f"could not read offsets of {at}") for at in silent}
        return {at: getattr(self.logs[at], named) for at in asked - silent}, failed

    def offsets_at(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int
    ) -> dict[TopicPartition, int]:
        self._answer()
        return {at: self.logs[at].first_since(timestamp_ms) for at in partitions}

    def known_ends(
        self, partitions: Iterable[TopicPartition], position: Position = Position.LATEST
    ) -> dict[TopicPartition, int]:
        return self.found_offsets(partitions, position)[0]

    def active_producers(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[ActiveProducer, ...]]:
        self._answer()
        if self.too_old:
            raise Fatal(f"{self.name} serves no describe_producers")
        return {at: self.wrote.get(at, ()) for at in partitions}

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        self._answer()
        for at, offset in before.items():
            if at.topic in self.forbidden:
                raise Fatal(f"could not delete records of {at} on {self.name}: grant rights")
            self.logs[at].delete_before(offset)

    def partition_of(self, topic: str, key: bytes) -> TopicPartition:
        """Return the partition to which any producer writes a record of this key."""
        return TopicPartition(topic, zlib.crc32(key) % self._size(topic))

    def _size(self, name: str) -> int:
        return sum(at.topic == name for at in self.logs)

    def _answer(self) -> None:
        self.requests += 1
        if self.away:
            raise Retriable(f"no broker of {self.name} answered")


@dataclass(eq=False)
class Produced:
    """A record that a producer has in its queue or on its way."""

    at: TopicPartition
    record: FakeRecord
    report: Report
    in_flight: bool = False
    """Sent, and not answered."""
    offset: int | None = None
    """Offset on the target, once it was appended."""

    @property
    def queued(self) -> bool:
        """Whether the record was not sent, or is to be sent again."""
        return self.offset is None and not self.in_flight


class FakeProducer:
    """A producer that delivers its reports in ``poll`` and ``flush``.

    Unless its cluster holds a topic's records back, they are sent and acknowledged there at once.

    A gapless producer stops at the first record that is refused. Records that are not sent, and
    records that are produced from then on, are reported as purged, and one ``poll`` or ``flush``
    raises the fatal error. Any other producer sends the records that followed the refused one.
    """

    def __init__(self, cluster: FakeCluster, settings: Mapping[str, Any] | None) -> None:
        self._cluster = cluster
        self.settings = dict(settings or {})
        self.queue: list[Produced] = []
        """Records that are not reported yet, oldest first. Records with an offset are in flight."""
        self._reports: deque[Callable[[], None]] = deque()
        self._stopped = False
        self.raises_when_stopped = False
        """Whether ``produce`` raises after a stop, as if that happened since the last poll."""
        self._unraised: KafkaError | None = None

    @property
    def gapless(self) -> bool:
        return bool(self.settings.get("enable.gapless.guarantee"))

    def __len__(self) -> int:
        return len(self.queue) + len(self._reports)

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None = None,
        *,
        on_delivery: Report = lambda error, message: None,
        timestamp: int = 0,
        headers: Any = None,
    ) -> None:
        at = self._cluster.partition_of(topic, key or b"")
        at = at if partition in (None, -1) else TopicPartition(topic, partition)
        if self._stopped and self.raises_when_stopped:
            raise KafkaException(KafkaError(KafkaError._FATAL))
        if len(value or b"") > self._cluster.largest_bytes:
            raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
        timestamp_ms = timestamp or int(self._cluster.clock.time() * 1000)  # as librdkafka does
        record = FakeRecord(key, value, timestamp_ms, headers)
        self.queue.append(Produced(at, record, on_delivery))
        if self._stopped:
            self.purge(in_flight=False)

    def poll(self, timeout: float) -> int:
        if (error := self._unraised) is not None:
            self._unraised = None
            raise KafkaException(error)
        if not self._cluster.away:
            batches: dict[TopicPartition, list[Produced]] = {}
            for produced in self.queue:
                if not self._cluster.holds_back(produced.at):
                    batches.setdefault(produced.at, []).append(produced)
            for batch in batches.values():
                self.answer(batch)
        served = 0
        while self._reports:
            self._reports.popleft()()
            served += 1
        if not served:
            self._cluster.clock.advance(timeout)
        return served

    def flush(self, timeout: float) -> int:
        self.poll(0)
        if len(self):
            self._cluster.clock.advance(timeout)
        return len(self)

    def purge(self, in_queue: bool = True, in_flight: bool = True) -> None:
        for produced in list(self.queue):
            if in_queue if produced.queued else in_flight:
                if any(one.in_flight and one.at == produced.at for one in self.queue):
                    self._cluster.overtaken.add(produced.at)
                reason = "_PURGE_QUEUE" if produced.queued else "_PURGE_INFLIGHT"
                self._report(produced, KafkaError(getattr(KafkaError, reason)))

    # Actions of a test.

    def append(self, produced: Produced) -> None:
        """Append a record to the target; the report arrives later."""
        if produced.offset is None:
            produced.offset = self._cluster.write(produced.at, produced.record)

    def acknowledge(self, produced: Produced) -> None:
        """Append it if that was not done; the next poll reports it."""
        self.append(produced)
        self._report(produced, None)

    def answer(self, batch: list[Produced]) -> None:
        """Acknowledge a batch, or refuse it because of one record, as a broker does."""
        cluster = self._cluster
        batch = [one for one in batch if one in self.queue]  # a refusal may have purged them
        new = [one for one in batch if one.offset is None]
        codes = {one: cluster.refuses(one.at, one.record) for one in new}
        refused = {one: code for one, code in codes.items() if code}
        if not refused:
            for produced in batch:
                self.acknowledge(produced)
        elif cluster.names_refused:
            other = KafkaError._INVALID_DIFFERENT_RECORD
            self.refuse_batch({one: refused.get(one, other) for one in new})
        else:
            self.refuse_batch(dict.fromkeys(new, next(iter(refused.values()))))

    def refuse(self, produced: Produced, code: int) -> None:
        """Report an error for a record in the next polls."""
        self.refuse_batch({produced: code})

    def refuse_batch(self, codes: Mapping[Produced, int]) -> None:
        """Report an error for each of these records in the next polls."""
        for produced, code in codes.items():
            self._report(produced, KafkaError(code))
        followed = {produced.at for produced in codes}
        if not self.gapless:  # librdkafka raises its epoch and continues with what followed
            for produced in [one for one in self.queue if one.at in followed]:
                produced.in_flight = False
            return
        self.stop(KafkaError._GAPLESS_GUARANTEE)
        # A broker takes no sequence number whose predecessor it does not have.
        for produced in [one for one in self.queue if one.at in followed and one.offset is None]:
            self._report(produced, KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER))

    def stop(self, code: int) -> None:
        """Raise a fatal error: the producer accepts no more records."""
        self._stopped = True
        self._unraised = KafkaError(code, "stopped by the test", True)
        self.purge(in_flight=False)

    def _report(self, produced: Produced, error: KafkaError | None) -> None:
        self.queue.remove(produced)
        offset = -1001 if produced.offset is None else produced.offset
        message = FakeMessage(produced.at, offset, produced.record, error)
        self._reports.append(lambda: produced.report(error, message))


class FakeConsumer:
    """Reads logs as ``auto.offset.reset=error`` and ``enable.partition.eof`` have it."""

    def __init__(self, cluster: FakeCluster, settings: Mapping[str, Any] | None) -> None:
        self._cluster = cluster
        self._committed = (settings or {}).get("isolation.level") != "read_uncommitted"
        self.positions: dict[TopicPartition, int] = {}
        self._epochs: dict[TopicPartition, int] = {}
        self._reported: dict[TopicPartition, int] = {}
        """Offset at which each partition's end was reported."""
        self.errors: deque[tuple[TopicPartition, KafkaError]] = deque()
        """Errors that the next polls return first."""
        self.closed = False

    def assign(self, positions: list[confluent_kafka.TopicPartition]) -> None:
        self.positions.clear()
        self.incremental_assign(positions)

    def incremental_assign(self, positions: list[confluent_kafka.TopicPartition]) -> None:
        for position in positions:
            at = TopicPartition(position.topic, position.partition)
            assert at not in self.positions, f"{at} is assigned already"
            self.positions[at] = position.offset
            self._epochs[at] = position.leader_epoch or 0
            self._reported.pop(at, None)

    def incremental_unassign(self, positions: list[confluent_kafka.TopicPartition]) -> None:
        for position in positions:
            self.positions.pop(TopicPartition(position.topic, position.partition), None)

    def get_watermark_offsets(
        self, position: confluent_kafka.TopicPartition, cached: bool
    ) -> tuple[int, int]:
        at = TopicPartition(position.topic, position.partition)
        if at not in self.positions:
            return -1001, -1001  # not fetched
        log = self._cluster.logs[at]
        return log.start, log.end

    def poll(self, timeout: float) -> FakeMessage | None:
        assert not self.closed, "the consumer is closed"
        with self._cluster.changed:
            if (message := self._next()) is not None or not timeout:
                return message
            self._cluster.changed.wait(min(timeout, 0.004))  # a thread of its own: real time
            return self._next()

    def consume(self, number: int, timeout: float) -> list[FakeMessage]:
        messages = iter(lambda: self.poll(timeout), None)
        return [message for _, message in zip(range(number), messages, strict=False)]

    def close(self) -> None:
        self.closed = True

    def _next(self) -> FakeMessage | None:
        if self._cluster.away:
            return None
        if self.errors:
            at, error = self.errors.popleft()
            return FakeMessage(at, -1001, error=error)
        for at in sorted(self.positions):
            if (message := self._next_of(at)) is not None:
                return message
        return None

    def _next_of(self, at: TopicPartition) -> FakeMessage | None:
        log, offset = self._cluster.logs[at], self.positions[at]
        if not log.start <= offset <= log.end:
            del self.positions[at]  # as librdkafka: it fetches no more of it
            return FakeMessage(at, offset, error=KafkaError(KafkaError._AUTO_OFFSET_RESET))
        while offset < (log.stable_end if self._committed else log.end):
            if offset == log.unreadable_at:
                return None
            record = log.at(offset)
            offset += 1
            self.positions[at] = offset
            if record is not MARKER:
                return FakeMessage(at, offset - 1, record)
        if self._reported.get(at) == offset:
            return None
        self._reported[at] = offset
        return FakeMessage(at, offset, error=KafkaError(KafkaError._PARTITION_EOF))


class FakeKafka:
    """Clusters by their alias, and the factories of their clients."""

    def __init__(self, *aliases: str) -> None:
        self.clock = FakeClock()
        self.clusters = {alias: FakeCluster(alias, self.clock) for alias in aliases}

    def clients(self) -> Clients:
        """Return the clients for a ``FlowContext``."""
        return Clients(
            consumer=cast("Callable[..., RecordConsumer]", self._consumer),
            producer=cast("Callable[..., RecordProducer]", self._producer),
            admin=cast("Callable[[ClusterAccess], Admin]", self._admin),
            mover=self._mover,
            acls=cast("Callable[[ClusterAccess], AclAdmin]", self._admin),
            rights=cast("Callable[[ClusterAccess], RightsAdmin]", self._admin),
        )

    def _mover(
        self,
        spec: Callable[[], ReplicationFlowSpec],
        source: ClusterAccess,
        target: ClusterAccess,
        target_topic: Callable[[str], str],
        bandwidth: TokenBucket,
    ) -> MemoryMover:
        """Return a mover that needs no wire protocol."""
        for access in (source, target):
            self.clusters[access.alias].cluster_id()
        return MemoryMover(source, target, target_topic, self.clients(), self.clock, bandwidth)

    def _admin(self, access: ClusterAccess) -> FakeCluster:
        return self.clusters[access.alias]

    def _consumer(self, access: ClusterAccess, settings: Any = None, *_: Any) -> FakeConsumer:
        cluster = self.clusters[access.alias]
        cluster.consumers.append(consumer := FakeConsumer(cluster, settings))
        return consumer

    def _producer(self, access: ClusterAccess, settings: Any = None, **_: Any) -> FakeProducer:
        cluster = self.clusters[access.alias]
        cluster.producers.append(producer := FakeProducer(cluster, settings))
        return producer
