"""The record mover: consume and produce, record by record, through librdkafka."""

import threading
from collections.abc import Callable, Mapping, Set
from contextlib import ExitStack
from dataclasses import dataclass

from support.record_mover.backpressure import Backpressure
from support.record_mover.in_flight_window import InFlightWindow
from support.record_mover.one_by_one import OneByOne
from support.record_mover.problems import read_problem, write_problem
from support.record_mover.reading import Reading
from support.record_mover.sending import Sending

from headrace.api import ClusterAccess, TopicPartition
from headrace.assign import TaskId
from headrace.datapath.bandwidth import TokenBucket
from headrace.datapath.clients import Clients
from headrace.datapath.lane import (
    CopiedCounts,
    CopyFrom,
    Problem,
    Reached,
    TargetLoss,
    Transactional,
)
from headrace.datapath.transactions import Mark
from headrace.errors import Retriable
from headrace.kafka import KafkaError, Message, Producer, Renewal, in_words, translated
from headrace.logs import get_logger
from headrace.replication import RecordChanges
from headrace.replication.progress import ContiguousRange
from headrace.timing import Clock

log = get_logger(__name__)

_PREFETCH_KIB = 16_384


@dataclass(frozen=True)
class RecordResources:
    source: ClusterAccess
    target: ClusterAccess
    target_topic: Callable[[str], str]
    clients: Clients
    clock: Clock
    changes: RecordChanges | None
    bandwidth: TokenBucket


class RecordLane:
    def __init__(
        self,
        mover: RecordResources,
        task: TaskId,
        on_error: Callable[[str], None],
        copied: CopiedCounts,
    ) -> None:
        source, target = mover.source, mover.target
        self._mover, self._task, self._copied = mover, task, copied
        self.closed = threading.Event()
        self._renewal = Renewal(source, target)
        self._windows: dict[TopicPartition, InFlightWindow] = {}
        consumer = mover.clients.consumer(
            source,
            {
                "queued.max.messages.kbytes": _PREFETCH_KIB,
                "fetch.message.max.bytes": 1 << 20,
            },
            on_error=lambda error: on_error(in_words(source, error)),
        )
        self._reading = Reading(consumer, self._windows, task.name)
        self._on_error = on_error
        self._sending = Sending(self._make_producer(), mover.clock)
        self._backpressure = Backpressure(mover.clock)
        self._one_by_one = OneByOne()
        self._leaving: frozenset[TopicPartition] = frozenset()
        self._problems: dict[TopicPartition, Problem] = {}

    def _make_producer(self) -> Producer | None:
        # Gapless: after a record that the broker refuses none of its partition may be appended.
        # librdkafka then stops the whole producer.
        target, on_error = self._mover.target, self._on_error
        return self._mover.clients.producer(
            target,
            {"enable.gapless.guarantee": True},
            on_error=lambda error: on_error(in_words(target, error)),
        )

    @property
    def partitions(self) -> Set[TopicPartition]:
        return self._windows.keys()

    @property
    def in_flight(self) -> int:
        return sum(window.unfinished for window in self._windows.values())

    @property
    def polled(self) -> bool:
        return True

    @property
    def transactions(self) -> Transactional | None:
        return None

    @property
    def outdated(self) -> bool:
        return self._renewal.due

    def open(self, positions: Mapping[TopicPartition, CopyFrom]) -> None:
        for at, position in positions.items():
            self._windows[at] = InFlightWindow(
                at,
                position.offset,
                self._mover.target_topic(at.topic),
                position.leader_epoch,
                self._copied,
                floor=position.target_offset,
            )
            self._one_by_one.open(at, position.suspects)
        self._reading.begin(positions.keys())

    def leave(self, partitions: Set[TopicPartition]) -> None:
        self._leaving |= partitions
        self._one_by_one.drop(partitions)

    def keep(self, partitions: Set[TopicPartition]) -> None:
        if back := self._leaving & partitions:
            self._leaving -= back
            self._reading.begin_again(back)

    def pause(self, partitions: Set[TopicPartition]) -> None:
        self._one_by_one.drop(self._reading.pause(partitions))

    def forget(self, partitions: Set[TopicPartition]) -> None:
        self._reading.forget(partitions)
        for at in partitions:
            del self._windows[at]
            self._problems.pop(at, None)
            self._one_by_one.close(at)
        self._leaving -= partitions

    def rest(self) -> None:
        """Do nothing: only ``run_once`` takes records."""

    def run_once(self) -> int:
        stopped_before = self._sending.stopped
        self.poll()
        if self.problems():
            return 0
        if stopped_before is not None:
            target = self._mover.target
            raise Retriable(f"{target.name}: the producer stopped: {stopped_before.args[0].str()}")
        if self._sending.stopped is not None or not self._has_room():
            return 0  # the next poll brings reports: they say why, or make room
        with translated(f"run {self._task.name}"):
            moved = self._send_held()
            if messages := self._fetched():
                moved += sum(self._take(message) for message in messages)
                self._reading.set_aside(self._one_by_one.held - self._reading.put_aside)
            return moved

    def _fetched(self) -> list[Message]:
        bandwidth = self._mover.bandwidth
        if not bandwidth.limited:
            return self._reading.fetched()
        return self._reading.fetched_within(bandwidth) if bandwidth.wait_s() == 0 else []

    def poll(self) -> None:
        self._sending.poll()

    def state(self) -> dict[TopicPartition, Reached]:
        return {at: self._reached(window, window.done) for at, window in self._windows.items()}

    def _reached(self, window: InFlightWindow, mark: Mark) -> Reached:
        return Reached(
            acknowledged=mark.acknowledged,
            target_offset=mark.target_offset,
            leader_epoch=mark.leader_epoch,
            in_flight=window.unfinished,
            end=self._reading.end(window.at),
            oldest_timestamp_ms=window.oldest_timestamp_ms,
            unexpected_offsets=window.unexpected_offsets,
        )

    def take_runs(self) -> dict[TopicPartition, list[ContiguousRange]]:
        taken = {at: window.take_runs() for at, window in self._windows.items()}
        return {at: runs for at, runs in taken.items() if runs}

    def problems(self) -> list[Problem]:
        refused = [
            self._refused(window, window.error)
            for window in self._windows.values()
            if window.error is not None
        ]
        lost = [
            Problem(at, TargetLoss(at, window.lost_at, window.lowest_possible))
            for at, window in self._windows.items()
            if window.lost_at is not None
        ]
        return [*self._problems.values(), *lost, *refused]

    def _refused(self, window: InFlightWindow, error: KafkaError) -> Problem:
        alone = self._one_by_one.alone(window.at, window.error_at)
        return write_problem(
            window, error, alone, self._mover.source.alias, self._mover.target.alias
        )

    def drop_unsent(self) -> None:
        self._sending.drop_unsent()

    def settle(self, timeout_s: float) -> None:
        self.drop_unsent()
        if left := self._sending.outcomes(timeout_s):
            raise Retriable(
                f"{self._mover.target.alias} did not acknowledge {left} records that were on their "
                "way"
            )
        for window in self._windows.values():
            window.rewind()

    def close(self) -> None:
        with ExitStack() as closing:
            closing.callback(self.closed.set)
            closing.callback(self._reading.close)
            self._sending.close()

    def _has_room(self) -> bool:
        """Return whether more may be sent, and set partitions aside that need too much room."""
        reading = self._reading
        back = reading.put_aside - self._leaving - self._one_by_one.held
        if drained := {at for at in back if not self._windows[at].in_flight}:
            reading.take_back(drained)
        if not self._backpressure.full(self._windows, reading.put_aside):
            return True
        if stuck := self._backpressure.stuck(self._windows, reading.put_aside):
            log.warning(
                "the target does not take these partitions: others go on",
                task=self._task.name,
                partitions=[str(at) for at in sorted(stuck)],
            )
            reading.set_aside(stuck)
        return False

    def _send_held(self) -> int:
        windows = [self._windows[at] for at in self._one_by_one.held]
        return sum(
            self._handle(window, message)
            for window in windows
            for message in self._one_by_one.released(window)
        )

    def _take(self, message: Message) -> int:
        at = TopicPartition(message.topic() or "", message.partition() or 0)
        window = self._windows.get(at)
        if window is None or at in self._leaving:
            return 0
        if self._reading.skips(at):
            return 0  # it still lay in the consumer's queue
        return 0 if self._one_by_one.hold(window, message) else self._handle(window, message)

    def _handle(self, window: InFlightWindow, message: Message) -> int:
        at = window.at
        if at in self._problems or window.refused is not None:
            return 0  # nothing of a partition may overtake its problem
        if (error := message.error()) is not None:
            if problem := read_problem(window, message, error, self._mover.source.alias):
                self._problems[at] = problem
            return 0
        offset = message.offset()
        if offset is None or offset < window.position:
            return 0  # fetched before the position was set back
        changes = self._mover.changes
        if (
            changes is not None
            and changes.concern(at.topic)
            and changes.apply(_headers(message)) is None
        ):
            window.passed_over(offset, message.leader_epoch())
            self._copied.filtered += 1
            return 0
        self._one_by_one.sent(at, message)
        return int(self._sending.send(window, message, offset))


def _headers(message: Message) -> tuple[tuple[str, bytes | None], ...]:
    headers = message.headers() or []
    found = headers.items() if isinstance(headers, dict) else headers
    return tuple(
        (name, value.encode() if isinstance(value, str) else value) for name, value in found
    )
