"""The mover of source tasks on clusters in memory, which have no wire protocol.

It copies record by record with the clients of ``fake_kafka``. It has no threads and no limits.
"""

import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from functools import partial
from math import isqrt
from typing import cast

import confluent_kafka

from headrace.api import ClusterAccess, TopicPartition
from headrace.assign import TaskId
from headrace.datapath import Clients, CopiedCounts, CopyFrom, Problem, TokenBucket
from headrace.datapath.lane import (
    Fencing,
    OffsetGone,
    Reached,
    RecordRefused,
    SourceRecord,
    TargetLoss,
)
from headrace.errors import Retriable
from headrace.kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    translate,
    translated,
    unassign,
)
from headrace.replication.progress import ContiguousRange, CopiedRuns
from headrace.timing import Clock

_BATCH_RECORDS = 2_000
_FEW_SUSPECTS = 64
_DROPPED = {
    KafkaError._PURGE_QUEUE,
    KafkaError._PURGE_INFLIGHT,
    KafkaError._FATAL,
    KafkaError._GAPLESS_GUARANTEE,
}
"""Reports of records that no broker refused: the producer stopped, or they were purged."""


_OF_A_RECORD = {
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_TIMESTAMP,
}


def assign_more(
    consumer: Consumer,
    positions: Iterable[tuple[TopicPartition, int]],
    leader_epochs: Mapping[TopicPartition, int],
) -> None:
    """Assign additional partitions to the consumer.

    Fetched records of its other partitions are kept.

    ``leader_epochs`` contains the leader epoch of the record before each offset, or -1 if it is
    unknown. The broker uses it to detect a log that was truncated and filled again (KIP-320).
    """
    consumer.incremental_assign(
        [
            confluent_kafka.TopicPartition(*at, offset, leader_epoch=leader_epochs[at])
            for at, offset in positions
        ]
    )


def fetched_end(consumer: Consumer, at: TopicPartition) -> int | None:
    """Return the partition's end as of the last fetch, or None before the first fetch.

    Sends no request.
    """
    known = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(*at), cached=True)
    return known[1] if known and known[1] >= 0 else None


def diverged_at(error: KafkaError) -> int | None:
    """Return the end of the common log of a truncated partition, or None for another error.

    From that offset on, the partition contains other records than those that were read. It is 0 if
    the client does not report it. librdkafka has no error code for a truncation: it uses the code
    of a failed offset reset, and reports the offset only in the message.
    """
    if KafkaError(KafkaError._LOG_TRUNCATION).str() not in error.str():
        return None
    end = re.search(r"broker end offset is (\d+)", error.str())
    return int(end[1]) if end else 0


def concerns_record(error: KafkaError) -> bool:
    """Return True if the broker rejected a record, or its batch, because of its content or size.

    Other records of the topic may be accepted. No permission is missing.
    """
    return error.code() in _OF_A_RECORD


@dataclass
class SentWindow:
    """Records of one partition between the read position and the last acknowledgement."""

    at: TopicPartition
    copied: CopiedCounts
    position: int
    """The next source offset to read."""
    leader_epoch: int
    floor: int
    """Lowest target offset that the next record can get, unless the target lost records."""
    suspects: range
    pending: deque[tuple[int, int, int]] = field(default_factory=deque)
    """Offset, timestamp in milliseconds, and size in bytes of each unacknowledged record."""
    early: dict[int, int] = field(default_factory=dict)
    """Target offsets, by source offset, of records acknowledged before an older one."""
    runs: CopiedRuns = field(default_factory=CopiedRuns)
    target_offset: int | None = None
    lost_at: int | None = None
    """Target offset below acknowledged ones; no record is acknowledged from there on."""
    error: KafkaError | None = None
    error_at: int = 0
    refused: range | None = None
    """Source offsets from the first to the last record that was refused for its content."""
    unexpected_offsets: int = 0
    last_timestamp_ms: int | None = None
    held: deque[Message] = field(default_factory=deque)
    """Messages that wait for the outcome of a suspect, or of the records before a suspect."""
    alone: Message | None = None
    """The suspect that was sent by itself last."""

    @property
    def acknowledged(self) -> int:
        return self.pending[0][0] if self.pending else self.position

    def pass_to(self, offset: int) -> None:
        self.position = max(self.position, offset)

    def delivered(self, offset: int, error: KafkaError | None, message: Message) -> None:
        """Receive a report, which may arrive in any order."""
        if error is not None:
            # Dropped records are still pending: nothing is acknowledged after them.
            if error.code() not in _DROPPED:
                self.refuse(offset, error)
            return
        self.early[offset] = message.offset() or 0
        while self.pending and (first := self.pending[0][0]) in self.early:
            if (target_offset := self.early.pop(first)) < self.floor:
                self.lost_at = target_offset
                return
            _, self.last_timestamp_ms, size_bytes = self.pending.popleft()
            self.runs.add(first, target_offset)
            self.unexpected_offsets += self.target_offset not in (None, target_offset)
            self.target_offset = self.floor = target_offset + 1
            self.copied.records += 1
            self.copied.bytes += size_bytes

    def refuse(self, offset: int, error: KafkaError) -> None:
        known = self.refused
        content = concerns_record(error)
        if (known is None or offset < known.start) if content else self.error is None:
            self.error, self.error_at = error, offset
        if content:
            known = known or range(offset, offset + 1)
            self.refused = range(min(known.start, offset), max(known.stop, offset + 1))

    @property
    def together(self) -> int:
        """Number of suspects that may be in flight."""
        return 1 if len(self.suspects) <= _FEW_SUSPECTS else isqrt(len(self.suspects))

    def waits(self, message: Message) -> bool:
        """Return whether a message waits for an outcome: suspects and others are never mixed."""
        if not self.pending:
            return False
        oldest, this = self.acknowledged in self.suspects, message.offset() in self.suspects
        return len(self.pending) >= self.together if oldest and this else oldest or this

    def write_problem(self, source: str, target: str) -> Problem | None:
        """Return why the target does not accept the partition's records."""
        if self.lost_at is not None:
            return Problem(self.at, TargetLoss(self.at, self.lost_at, self.floor))
        if self.error is None:
            return None
        tried = f"write {self.at} offset {self.error_at} of {source} to {target}"
        failure = translate(self.error, tried)
        if self.refused is None:
            return Problem(self.at, failure)
        alone, code = self.alone, self.error.name()
        record = _source_record(alone) if alone and alone.offset() == self.error_at else None
        return Problem(self.at, RecordRefused(self.at, self.refused, code, str(failure), record))

    def read_problem(self, message: Message, error: KafkaError, source: str) -> Problem | None:
        """Return why the partition cannot be read, or None if the client continues."""
        if error.code() == KafkaError._PARTITION_EOF:
            self.pass_to(message.offset() or 0)
            return None
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            why, diverged = f"{self.at} of {source}: {error.str()}", diverged_at(error)
            gone = OffsetGone(self.at, self.position, why, diverged_at=diverged)
            return Problem(self.at, gone)
        offset = message.offset() or 0
        offset = offset if offset >= 0 else self.position
        failure = translate(error, f"read {self.at} offset {offset} of {source}")
        return None if isinstance(failure, Retriable) else Problem(self.at, failure)


def _source_record(message: Message) -> SourceRecord:
    headers = message.headers() or []
    headers = headers if isinstance(headers, list) else list(headers.items())
    timestamp_ms = message.timestamp()[1]
    return SourceRecord(
        message.offset() or 0, timestamp_ms, message.key(), message.value(), headers
    )


@dataclass
class MemoryMover:
    """Makes lanes of one flow. Its writers cannot be fenced."""

    source: ClusterAccess
    target: ClusterAccess
    target_topic: Callable[[str], str]
    clients: Clients
    clock: Clock
    bandwidth: TokenBucket
    fencing: Fencing | None = None

    def lane(
        self, task: TaskId, on_error: Callable[[str], None], copied: CopiedCounts
    ) -> "MemoryLane":
        return MemoryLane(self, task, on_error, copied)


class MemoryLane:
    """A lane that sends and receives in the calls of its task."""

    polled = True
    transactions = None
    outdated = False

    def __init__(
        self,
        mover: MemoryMover,
        task: TaskId,
        on_error: Callable[[str], None],
        copied: CopiedCounts,
    ) -> None:
        self._mover, self._task, self._copied = mover, task, copied
        self.closed = threading.Event()
        self._consumer = cast("Consumer", mover.clients.consumer(mover.source, {}))
        # Gapless: none of a partition's records is appended after one that the broker refused.
        self._producer = cast(
            "Producer",
            mover.clients.producer(mover.target, {"enable.gapless.guarantee": True}),
        )
        self._stopped: KafkaException | None = None
        """The fatal error of the producer."""
        self._windows: dict[TopicPartition, SentWindow] = {}
        self._leaving: frozenset[TopicPartition] = frozenset()
        self._paused: frozenset[TopicPartition] = frozenset()
        self._ends: dict[TopicPartition, int | None] = {}
        """Ends on the source of partitions that are not read."""
        self._problems: dict[TopicPartition, Problem] = {}

    @property
    def partitions(self) -> Set[TopicPartition]:
        return self._windows.keys()

    @property
    def in_flight(self) -> int:
        return sum(len(window.pending) for window in self._windows.values())

    def open(self, positions: Mapping[TopicPartition, CopyFrom]) -> None:
        for at, start in positions.items():
            self._windows[at] = SentWindow(at, self._copied, *start[:4])
        self._read(positions.keys())

    def _read(self, partitions: Set[TopicPartition]) -> None:
        """Read these from their windows' positions on, unless they are paused or leaving."""
        windows = [self._windows[at] for at in partitions - self._paused - self._leaving]
        for window in windows:
            self._ends.pop(window.at, None)
        starts = [(window.at, window.position) for window in windows]
        assign_more(self._consumer, starts, {one.at: one.leader_epoch for one in windows})

    def _stop_reading(self, partitions: Set[TopicPartition]) -> None:
        read = partitions - self._ends.keys()
        self._ends |= {at: fetched_end(self._consumer, at) for at in read}
        for at in partitions:
            self._windows[at].held.clear()
        unassign(self._consumer, read)

    def leave(self, partitions: Set[TopicPartition]) -> None:
        self._stop_reading(partitions)
        self._leaving |= partitions

    def keep(self, partitions: Set[TopicPartition]) -> None:
        back = self._leaving & partitions
        self._leaving -= back
        self._read(back)

    def pause(self, partitions: Set[TopicPartition]) -> None:
        begun = (partitions & self._windows.keys()) - self._paused
        ended = self._paused - partitions
        self._stop_reading(begun)
        self._paused = (self._paused | begun) - ended
        self._read(ended)

    def forget(self, partitions: Set[TopicPartition]) -> None:
        self._stop_reading(partitions)
        for at in partitions:
            del self._windows[at]
            self._ends.pop(at, None)
            self._problems.pop(at, None)
        self._leaving -= partitions
        self._paused -= partitions

    def rest(self) -> None:
        """Do nothing: only ``run_once`` reads records."""

    def run_once(self) -> int:
        stopped_before = self._stopped
        self.poll()
        if self.problems():
            return 0
        if stopped_before is not None:
            why = stopped_before.args[0].str()
            raise Retriable(f"{self._mover.target.name}: the producer stopped: {why}")
        if self._stopped is not None:
            return 0  # the next poll brings reports, which contain the reason
        with translated(f"run {self._task.name}"):
            sent = sum(self._send_held(window) for window in self._windows.values())
            return sent + sum(self._take(message) for message in self._fetched())

    def _fetched(self) -> list[Message]:
        bandwidth = self._mover.bandwidth
        messages = [] if bandwidth.wait_s() else self._consumer.consume(_BATCH_RECORDS, 0)
        bandwidth.spend(sum(map(_size_bytes, messages)))
        return messages

    def _send_held(self, window: SentWindow) -> int:
        sent = 0
        while window.held and not window.waits(window.held[0]):
            sent += self._handle(window, window.held.popleft())
        return sent

    def _take(self, message: Message) -> int:
        window = self._windows[TopicPartition(message.topic() or "", message.partition() or 0)]
        if window.held or window.waits(message):
            window.held.append(message)
            return 0
        return self._handle(window, message)

    def _handle(self, window: SentWindow, message: Message) -> int:
        if window.at in self._problems or window.refused is not None:
            return 0  # nothing of a partition may overtake its problem
        if (error := message.error()) is None:
            return self._send(window, message)
        if problem := window.read_problem(message, error, self._mover.source.alias):
            self._problems[window.at] = problem
        return 0

    def _send(self, window: SentWindow, message: Message) -> int:
        offset, timestamp_ms = message.offset() or 0, message.timestamp()[1]
        if offset in window.suspects and window.together == 1:
            window.alone = message
        try:
            self._producer.produce(
                self._mover.target_topic(window.at.topic),
                message.value(),
                message.key(),
                window.at.partition,
                on_delivery=partial(window.delivered, offset),
                timestamp=max(0, timestamp_ms),
                headers=message.headers(),
            )
        except KafkaException as refusal:
            if refusal.args[0].code() == KafkaError._FATAL:
                return 0  # the next poll raises it
            if not concerns_record(refusal.args[0]):
                raise
            window.pass_to(offset)
            window.refuse(offset, refusal.args[0])
            return 0
        window.pending.append((offset, timestamp_ms, _size_bytes(message)))
        window.position = offset + 1
        epoch = message.leader_epoch()
        window.leader_epoch = -1 if epoch is None else epoch
        return 1

    def poll(self, timeout_s: float = 0) -> None:
        try:
            self._producer.poll(timeout_s)
        except KafkaException as error:  # a fatal one; it is raised once
            self._stopped = error

    def state(self) -> dict[TopicPartition, Reached]:
        return {at: self._reached(window) for at, window in self._windows.items()}

    def _reached(self, window: SentWindow) -> Reached:
        at, pending = window.at, window.pending
        return Reached(
            acknowledged=window.acknowledged,
            target_offset=window.target_offset,
            leader_epoch=window.leader_epoch,
            in_flight=len(pending),
            end=self._ends[at] if at in self._ends else fetched_end(self._consumer, at),
            oldest_timestamp_ms=pending[0][1] if pending else window.last_timestamp_ms,
            unexpected_offsets=window.unexpected_offsets,
        )

    def take_runs(self) -> dict[TopicPartition, list[ContiguousRange]]:
        taken = {at: window.runs.take() for at, window in self._windows.items()}
        return {at: runs for at, runs in taken.items() if runs}

    def problems(self) -> list[Problem]:
        source, target = self._mover.source.alias, self._mover.target
        written = [
            window.write_problem(source, f"{self._mover.target_topic(at.topic)} on {target.alias}")
            for at, window in self._windows.items()
        ]
        return [*self._problems.values(), *(problem for problem in written if problem)]

    def drop_unsent(self) -> None:
        self._producer.purge(in_queue=True, in_flight=False)

    def settle(self, timeout_s: float) -> None:
        self.drop_unsent()
        deadline_s = self._mover.clock.monotonic() + timeout_s
        while (left := len(self._producer)) and self._mover.clock.monotonic() < deadline_s:
            self.poll(0.05)
        if left:
            target = self._mover.target.alias
            raise Retriable(f"{target} did not acknowledge {left} records that were in flight")
        for window in self._windows.values():
            window.position = window.acknowledged
            window.pending.clear()

    def close(self) -> None:
        self._producer.purge()
        self._consumer.close()
        self.closed.set()


def _size_bytes(message: Message) -> int:
    return len(message.key() or b"") + len(message.value() or b"")
