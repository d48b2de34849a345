"""Progress topic, which a thread reads into a table."""

import threading
from collections.abc import Iterable, Mapping
from math import inf

from headrace.api import ClusterAccess, TopicPartition, earlier_name, progress_topic
from headrace.datapath.acknowledgements import ANSWER_S, Storing
from headrace.datapath.clients import Clients
from headrace.datapath.record_consumer import ReadRecord
from headrace.datapath.undecided_transactions import Stored, Undecided
from headrace.errors import Fatal, HeadraceError, Retriable
from headrace.kafka import (
    COMPARED_TIMEOUT_S,
    KafkaError,
    Position,
    ReloadingClient,
    Renewal,
    Throttle,
    assign,
    ensure_topic,
    partition_of,
    translated,
)
from headrace.logs import get_logger
from headrace.replication import OwnerProducer, Progress, ProgressKey
from headrace.replication.ancestry import AncestryKey, AncestryTable, Descent, is_ancestry
from headrace.replication.first_start import FirstStart, FirstStartKey, FirstStarts
from headrace.replication.progress import Writers, writers_after
from headrace.timing import Clock

log = get_logger(__name__)

# This number is permanent, because a key's partition depends on it.
PARTITIONS = 8

ANCESTRY_PARTITION = 0
"""Partition with all records of ``AncestryKey``. Flows whose source is this target read only it."""

_AS_IT_IS = {
    # A read-committed consumer would see nothing that was stored after the first record of a frozen
    # transaction of another task, until that transaction times out. No owner could take over during
    # that time. Progress that was stored in a transaction is marked as such; it counts once its
    # marker was read (``_decide``).
    "isolation.level": "read_uncommitted",
}
_DECIDE_S = 10.0
"""Interval, in seconds, at which transactions are decided even if nothing reads progress."""


class ProgressLog:
    """Progress topic of a source, read by a thread into a table. Thread-safe.

    ``start`` begins to read. The table contains all stored progress after ``read_to_end``.

    Earlier versions of headrace used another name for the topic. A topic with that name is also
    read, but only tombstones are written to it. The progress with the higher epoch counts. Each
    claim is written to the topic with the current name, so a claimed partition no longer depends on
    the earlier topic.
    """

    def __init__(
        self,
        target: ClusterAccess,
        source_alias: str,
        clients: Clients,
        clock: Clock,
        *,
        earlier: bool = False,
    ) -> None:
        """Create the object without reading.

        ``earlier`` selects the name that the topic had in earlier versions of headrace.
        """
        self.topic = progress_topic(source_alias)
        self._earlier_topic = earlier_name(self.topic)
        if earlier:
            self.topic = self._earlier_topic
        self._source_alias = source_alias
        self._earlier: ProgressLog | None = None
        self._target, self._clients, self._clock = target, clients, clock
        self._admin = clients.admin(target)
        # This is the partitioner of Java's clients. Other writers must put a key into the same
        # partition, or compaction would keep both records.
        settings = {"partitioner": "murmur2", "linger.ms": 0}
        self._producer = ReloadingClient(target, lambda: clients.producer(target, settings))
        self._table: dict[ProgressKey, Progress] = {}
        self._unreadable: dict[ProgressKey, tuple[int, str]] = {}
        """Last stored value that cannot be read: its Unix time in ms, and the reason."""
        self._first_starts = FirstStarts()
        self._ancestry = AncestryTable()
        self._writers: dict[ProgressKey, Writers] = {}
        self._overtaken: set[ProgressKey] = set()
        self._stored_at: dict[str, float] = {}
        self._stored_ms: dict[ProgressKey, int] = {}
        self._undecided = Undecided()
        self._noted: dict[ProgressKey, int] = {}
        """Highest offset of each key's records, including tombstones.

        Unreadable records and records of undecided or aborted transactions are left out.
        """
        self._decided_s = -inf
        self._read: dict[int, int] = {}
        self.was_read = False
        """Whether the topic was read to its end once."""
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._throttle = Throttle(clock)
        self._silent = threading.Event()
        """Event that is set if the consumer returns nothing although there is data. The consumer is
        then replaced."""
        self._truncated = threading.Event()
        """Event that is set if the topic lost records that were read. It is then read again."""
        self._tail: threading.Thread | None = None

    def start(self) -> None:
        """Create the topic if it does not exist, and begin to read it.

        Call it again if it raises an error.
        """
        with self._changed:
            if self._tail is not None:
                return
            self._producer.get()  # it knows the cluster's id, with which brokers are compared
            if self.topic != self._earlier_topic:
                self._start_earlier()
                self._ensure_topic()
            self._read = dict.fromkeys(range(PARTITIONS), 0)
            self._tail = threading.Thread(
                target=self._follow, name=f"tail-{self.topic}", daemon=True
            )
            self._tail.start()

    def read_to_end(self, timeout_s: float = 10.0) -> None:
        """Wait until the table contains everything that is stored now.

        Progress of open or aborted transactions is not included. If the topic ends before records
        that were read, because a leader without them was elected, the whole topic is read again.

        Raises:
            Retriable: Reading takes longer than ``timeout_s``.
            Throttled: Reading takes longer than ``timeout_s`` because of a quota, and
                ``on_throttled`` of the clients raises this error.
        """
        self._read_earlier(timeout_s)
        ends = self._ends()
        with self._changed:
            before = dict(self._read)
        if not self.was_read or _ends_before(ends, before):
            self._admin.check_brokers(COMPARED_TIMEOUT_S)  # a foreign broker may have responded
            ends = self._ends()
            if _ends_before(ends, before):
                self._truncated.set()
        while not self._reaches(ends, timeout_s):
            tried = f"read {self.topic} on {self._admin.name} to its end"
            read = sum(min(self._read[at.partition], end) for at, end in ends.items())
            self._clients.on_throttled(self._throttle.error(tried, read, sum(ends.values())))
        self._decide()
        with self._changed:
            self.was_read = True

    def _ends(self) -> dict[TopicPartition, int]:
        return self._admin.offsets(
            [TopicPartition(self.topic, number) for number in range(PARTITIONS)], Position.LATEST
        )

    def _reaches(self, ends: Mapping[TopicPartition, int], timeout_s: float) -> bool:
        """Wait until these ends are read. Return False if brokers throttle the consumer."""
        with self._changed:
            before = dict(self._read)
            if self._changed.wait_for(lambda: self._has_read(ends), timeout_s):
                return True
            if self._throttle.active:
                return False
            if self._read == before:
                self._silent.set()
        raise Retriable(
            f"could not read {self.topic} on {self._admin.name} to its end within {timeout_s:.0f} s"
        )

    def _has_read(self, ends: Mapping[TopicPartition, int]) -> bool:
        read = all(self._read[at.partition] >= end for at, end in ends.items())
        return read and not self._truncated.is_set()

    def get(self, key: ProgressKey, reset_ms: int = 0) -> Progress | None:
        """Return the last stored progress of a partition, or None.

        If a user requested a reset at ``reset_ms``, after unreadable progress was stored, the last
        readable progress is returned.

        Raises:
            Fatal: The stored progress cannot be read. Without it, all records would be copied
                again.
        """
        log_of_key = self._log_of(key)
        with log_of_key._changed:
            written_ms, why = log_of_key._unreadable.get(key, (0, ""))
            if why and reset_ms <= written_ms:
                raise Fatal(why)
            return log_of_key._table.get(key)

    def partition_of(self, key: ProgressKey) -> TopicPartition:
        """Return the partition of the topic that contains a key's records."""
        return TopicPartition(self.topic, partition_of(key.encode(), PARTITIONS))

    def in_transaction(
        self, entries: Mapping[ProgressKey, Progress]
    ) -> dict[TopicPartition, list[tuple[bytes, bytes]]]:
        """Return the keys and values to write in a transaction, by partition of the topic."""
        found: dict[TopicPartition, list[tuple[bytes, bytes]]] = {}
        for key, progress in entries.items():
            record = key.encode(), progress.of_transaction().encode()
            found.setdefault(self.partition_of(key), []).append(record)
        return found

    def entries(self) -> dict[ProgressKey, Progress]:
        """Return all progress that can be read."""
        before = {} if self._earlier is None else self._earlier.entries()
        with self._changed:
            found = {key: one for key, one in self._table.items() if key not in self._unreadable}
            unreadable = set(self._unreadable)
        for key, progress in before.items():
            own = found.get(key)
            if key not in unreadable and (own is None or progress.epoch > own.epoch):
                found[key] = progress
        return found

    def writers(self, key: ProgressKey) -> frozenset[OwnerProducer]:
        """Return the producers that may have appended since the partition was last fenced.

        They include the writer of an earlier claim that was stored after a later claim.
        """
        log_of_key = self._log_of(key)
        with log_of_key._changed:
            return frozenset(log_of_key._writers.get(key, {}).values())

    def overtaken(self, key: ProgressKey) -> bool:
        """Return whether an earlier owner stored progress after the current owner.

        Compaction would keep the earlier owner's progress, so the current owner must store its own
        again.
        """
        with self._changed:
            return key in self._overtaken

    def stored_at(self, owner: str) -> float:
        """Return when progress of this owner was last read, in monotonic seconds; -inf if never."""
        earlier_s = -inf if self._earlier is None else self._earlier.stored_at(owner)
        with self._changed:
            return max(earlier_s, self._stored_at.get(owner, -inf))

    def stored_ms(self, key: ProgressKey) -> int:
        """Return the Unix time in ms at which a partition's progress was stored, or -1."""
        log_of_key = self._log_of(key)
        with log_of_key._changed:
            return log_of_key._stored_ms.get(key, -1)

    def send(self, entries: Mapping[ProgressKey, Progress], timeout_s: float = ANSWER_S) -> Storing:
        """Store progress without waiting. The result reports the acknowledgement."""
        return self._send(
            {key.encode(): progress.encode() for key, progress in entries.items()}, timeout_s
        )

    def _send(
        self, records: Mapping[bytes, bytes | None], timeout_s: float, partition: int = -1
    ) -> Storing:
        tried = f"write progress to {self.topic} on {self._admin.name}"
        producer = self._producer.get()
        storing = Storing(producer.poll, self._clock, tried, len(records), timeout_s)
        with translated(tried):
            for key, value in records.items():
                producer.produce(self.topic, value, key, partition, on_delivery=storing.delivered)
        return storing

    def first_start(self, key: FirstStartKey) -> FirstStart | None:
        """Return the topics that the source had at a flow's first start; None if not stored."""
        with self._changed:
            return self._first_starts.get(key)

    def store_first_start(self, key: FirstStartKey, first: FirstStart, time_ms: int) -> None:
        """Store the topics of a flow's first start, and wait for the acknowledgement.

        Raises:
            Retriable: The acknowledgement does not arrive within ``ANSWER_S``.
        """
        self._send(first.encode(key, time_ms), ANSWER_S).wait()

    def hops(self, flow: AncestryKey, now_ms: int) -> dict[str, Descent]:
        """Return the hops of a flow by source topic, as ``AncestryTable.of_flow`` does."""
        with self._changed:
            return self._ancestry.of_flow(flow, now_ms)

    def all_hops(self) -> dict[AncestryKey, Descent]:
        """Return the hops of all flows that store progress in this topic."""
        with self._changed:
            return dict(self._ancestry.descents)

    def send_ancestry(self, records: Mapping[bytes, bytes | None]) -> Storing:
        """Store records of ``AncestryKey`` without waiting, as ``send`` does."""
        return self._send(records, ANSWER_S, ANCESTRY_PARTITION)

    def stored(self, source_cluster_id: str) -> dict[ProgressKey, Progress]:
        """Return all progress of a source cluster that can be read."""
        return {
            key: progress
            for key, progress in self.entries().items()
            if key.source_cluster_id == source_cluster_id
        }

    def purge(self, keys: Iterable[ProgressKey]) -> None:
        """Delete the progress of these keys with tombstones.

        Brokers reject DeleteRecords on a compacted topic.
        """
        keys = list(keys)
        if self._earlier is not None:
            self._earlier.purge(keys)  # or the next start would read the progress from there
        producer = self._producer.get()
        with translated(f"purge {self.topic} on {self._admin.name}"):
            for key in keys:
                producer.produce(self.topic, None, key.encode())
        producer.poll(0)

    def write(self, entries: Mapping[ProgressKey, Progress], timeout_s: float = ANSWER_S) -> None:
        """Store progress, and wait for the acknowledgement.

        Raises:
            Retriable: The acknowledgement does not arrive within ``timeout_s``.
        """
        self.send(entries, timeout_s).wait()

    def close(self) -> None:
        """Stop reading the topic."""
        self._stop.set()
        if self._earlier is not None:
            self._earlier.close()
        if self._tail is not None:
            self._tail.join(timeout=2)

    def exists(self) -> bool:
        """Return whether a progress topic exists, without creating it."""
        return bool(self._admin.describe([self.topic])) or self._earlier_exists()

    def _earlier_exists(self) -> bool:
        # The topic is not described, because a user without permission to describe it would get an
        # error even if it does not exist.
        return self._earlier_topic in self._admin.topics()

    def _start_earlier(self) -> None:
        if self._earlier is None and self._earlier_exists():
            earlier = ProgressLog(
                self._target, self._source_alias, self._clients, self._clock, earlier=True
            )
            earlier.start()
            self._earlier = earlier
            log.info("taking over progress", from_topic=earlier.topic, to_topic=self.topic)

    def _read_earlier(self, timeout_s: float) -> None:
        earlier = self._earlier
        if earlier is None or earlier._stop.is_set():
            return
        try:
            earlier.read_to_end(timeout_s)
        except Retriable:
            if self._earlier_exists():
                raise
            log.warning("the earlier progress topic was deleted", topic=earlier.topic)
            earlier.close()  # the table keeps the progress that was read

    def _log_of(self, key: ProgressKey) -> "ProgressLog":
        """Return the log with the latest progress of a partition: this, or the earlier topic's."""
        earlier = self._earlier
        if earlier is None or key in self._unreadable:
            return self
        own, before = self._table.get(key), earlier._table.get(key)
        if own is None:
            return earlier
        return earlier if before is not None and before.epoch > own.epoch else self

    def _ensure_topic(self) -> None:
        if ensure_topic(
            self._admin,
            self.topic,
            PARTITIONS,
            {"cleanup.policy": "compact"},
            because="or no position would be found again",
            consequence=" (all topics are then copied from spec.startFrom on)",
        ):
            log.info("created progress topic", topic=self.topic)
            return
        try:
            policy = self._admin.topic_config(self.topic).get("cleanup.policy", "compact")
        except Fatal as error:
            log.info("cleanup.policy is not checked", topic=self.topic, why=str(error))
            return
        if policy != "compact":
            raise Fatal(
                f"topic {self.topic} on {self._admin.name} has cleanup.policy={policy}: positions "
                "would be deleted in time, and topics copied again; set it to compact"
            )

    def _follow(self) -> None:
        while not self._stop.is_set():
            renewal = Renewal(self._target)
            self._silent.clear()
            if self._truncated.is_set():
                self._begin_again()
            try:
                consumer = self._clients.consumer(self._target, _AS_IT_IS, self._throttle)
            except Retriable as error:
                log.info("cannot follow progress, tried again", topic=self.topic, why=str(error))
                self._stop.wait(1)
                continue
            positions = self._read.items()
            assign(consumer, [(TopicPartition(self.topic, p), offset) for p, offset in positions])
            replaced = self._stop, self._silent, self._truncated
            while not (renewal.due or any(event.is_set() for event in replaced)):
                message = consumer.poll(0.2)
                if message is not None:
                    self._take(message)
                self._decide_in_time()
            consumer.close()
            if self._silent.is_set():
                log.warning("no progress came: following it by another client", topic=self.topic)

    def _begin_again(self) -> None:
        """Read the topic from its start.

        The table is kept, because progress that only this process knows is better than none.
        """
        log.warning("progress was truncated: reading it again", topic=self.topic)
        with self._changed:
            self._read = dict.fromkeys(range(PARTITIONS), 0)
            self._noted.clear()
            self._undecided = Undecided()
            self._truncated.clear()

    def _decide_in_time(self) -> None:
        now_s = self._clock.monotonic()
        if self._undecided and now_s - self._decided_s > _DECIDE_S:
            self._decided_s = now_s
            try:
                self._decide()
            except HeadraceError as error:  # a reader of progress also gets the error
                log.info("transactions of progress are not read", why=str(error))

    def _decide(self) -> None:
        """Add committed progress to the table.

        If transactions were used, this waits for the target.
        """
        with self._changed:
            ranges = {
                partition: range(first, self._read[partition])
                for partition, first in self._undecided.first.items()
            }
        for partition, offsets in ranges.items():
            at = TopicPartition(self.topic, partition)
            decided = self._clients.transactions_decided(self._target, at, offsets)
            with self._changed:
                for stored in self._undecided.decide(partition, decided):
                    self._count_committed(stored)

    def _take(self, message: ReadRecord) -> None:
        partition, offset = message.partition(), message.offset()
        if partition is None or offset is None:
            return
        if (error := message.error()) is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                self._advance(partition, offset)
            else:
                log.info("reading progress failed, client retries", reason=error.str())
                if error.code() == KafkaError._AUTO_OFFSET_RESET and self._read[partition]:
                    # The topic was truncated, and the client reads nothing more of this partition.
                    # The partition may be longer again before ``read_to_end`` compares its end.
                    self._truncated.set()
            return
        try:
            key = ProgressKey.decode(message.key() or b"")
        except ValueError as error:
            self._take_other(message, str(error))
        else:
            self._note(key, message.value(), message.timestamp()[1], partition, offset)
        self._advance(partition, offset + 1)

    def _take_other(self, message: ReadRecord, why: str) -> None:
        """Read a record that is not progress of a partition."""
        key, value = message.key() or b"", message.value()
        try:
            with self._changed:
                if is_ancestry(key):
                    self._ancestry.read(key, value, message.timestamp()[1])
                else:
                    self._first_starts.read(key, value)
        except ValueError as error:
            why = f"{why}; {error}" if is_ancestry(key) else why
            log.error("unreadable progress key", topic=self.topic, offset=message.offset(), why=why)

    def _note(
        self, key: ProgressKey, value: bytes | None, time_ms: int, partition: int, offset: int
    ) -> None:
        with self._changed:
            try:
                progress = Progress.decode(value) if value is not None else None
            except ValueError as error:
                where = f"record {offset} of {TopicPartition(self.topic, partition)}"
                why = (
                    f"the progress of {key.topic}-{key.partition}, {where} on {self._admin.name}, "
                    f"cannot be read ({error}): run the version of headrace that wrote it, or "
                    "reset the partition (`headrace flow reset`): it is copied from spec.startFrom"
                )
                self._unreadable[key] = time_ms, why
                log.error("unreadable progress", why=why)
                return
            if progress is not None and progress.in_transaction:
                self._undecided.add(partition, Stored(key, progress, time_ms, offset))
                self._stored_at[progress.owner] = self._clock.monotonic()  # the owner is alive
                return
            if self._count(key, progress, time_ms, offset) and progress is not None:
                self._stored_at[progress.owner] = self._clock.monotonic()

    def _count_committed(self, stored: Stored) -> None:
        """Count committed progress.

        If progress at a later offset of the topic counts already, it is replaced only by progress
        with a later epoch.
        """
        key, progress, time_ms, offset = stored
        if offset < self._noted.get(key, -1):
            known = self._table.get(key)
            if known is None or progress.epoch <= known.epoch:
                return
        self._count(key, progress, time_ms, offset)

    def _count(
        self, key: ProgressKey, progress: Progress | None, time_ms: int, offset: int
    ) -> bool:
        """Put progress into the table, unless it has a lower epoch than the progress there.

        Return True if the table has it. An earlier owner that was frozen and resumes may store
        progress after the next owner.
        """
        self._noted[key] = max(offset, self._noted.get(key, -1))
        self._unreadable.pop(key, None)
        self._note_writers(key, progress)
        if progress is None:
            self._table.pop(key, None)
            self._overtaken.discard(key)
        elif (known := self._table.get(key)) is None or progress.epoch >= known.epoch:
            self._table[key] = progress
            self._stored_ms[key] = time_ms
            self._overtaken.discard(key)
        else:
            self._overtaken.add(key)
            return False
        return True

    def _note_writers(self, key: ProgressKey, progress: Progress | None) -> None:
        if progress is None:
            self._writers.pop(key, None)
            return
        known = self._writers.get(key, {})
        self._writers[key] = writers_after(known, self._table.get(key), progress)

    def _advance(self, partition: int, offset: int) -> None:
        with self._changed:
            self._read[partition] = max(self._read[partition], offset)
            self._changed.notify_all()


def _ends_before(ends: Mapping[TopicPartition, int], read: Mapping[int, int]) -> bool:
    """Return whether a partition ends before the records that were read."""
    return any(end < read[at.partition] for at, end in ends.items())
