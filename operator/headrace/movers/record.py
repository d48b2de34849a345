"""The record mover: consume and produce, record by record, through librdkafka."""

import threading
from collections.abc import Callable, Mapping, Set
from functools import partial

from headrace.api import ClusterAccess, TopicPartition
from headrace.assign import TaskId
from headrace.clock import Clock
from headrace.errors import HeadraceError, Retriable
from headrace.kafka import (
    KafkaError,
    KafkaException,
    Message,
    Renewal,
    assign_more,
    concerns_record,
    diverged_at,
    fetched_end,
    translate,
    translated,
    unassign,
    words,
)
from headrace.logs import get_logger
from headrace.movers.backpressure import Backpressure
from headrace.movers.clients import Clients
from headrace.movers.copied_runs import Run
from headrace.movers.in_flight_window import InFlightWindow
from headrace.movers.lane import (
    Copied,
    CopyFrom,
    OffsetGone,
    Problem,
    Reached,
    RecordRefused,
    SourceRecord,
    TargetLoss,
)
from headrace.movers.one_by_one import OneByOne

log = get_logger(__name__)

_BATCH_RECORDS = 2_000
_PREFETCH_KIB = 16_384


class RecordMover:
    """See ``Mover``. Its lanes share nothing."""

    def __init__(
        self,
        source: ClusterAccess,
        target: ClusterAccess,
        target_topic: Callable[[str], str],
        clients: Clients,
        clock: Clock,
    ) -> None:
        """``target_topic`` names topics on the target."""
        self.source, self.target = source, target
        self.target_topic = target_topic
        self.clients = clients
        self.clock = clock
        self.fencing = None
        """See ``Mover.fencing``: librdkafka sends nothing outside a transaction with an epoch that
        others can raise."""

    def lane(self, task: TaskId, on_error: Callable[[str], None], copied: Copied) -> "RecordLane":
        """See ``Mover.lane``."""
        return RecordLane(self, task, on_error, copied)


class RecordLane:
    """See ``Lane``. Key, value, headers, timestamp and partition of a record stay as they are, but
    for timestamps 0 and -1 (none): see ``Copied.restamped``.

    One consumer and one producer of its own, so that what it has queued can be dropped without
    touching another task.
    """

    def __init__(
        self, mover: RecordMover, task: TaskId, on_error: Callable[[str], None], copied: Copied
    ) -> None:
        """See ``Mover.lane``."""
        source, target = mover.source, mover.target
        self._mover, self._task, self._copied = mover, task, copied
        self.closed = threading.Event()
        """See ``Lane.closed``."""
        self._renewal = Renewal(source, target)
        self._consumer = mover.clients.consumer(
            source,
            {
                "queued.max.messages.kbytes": _PREFETCH_KIB,
                "fetch.message.max.bytes": 1 << 20,
            },
            on_error=lambda error: on_error(f"{source.alias}: {words(error)}"),
        )
        # Gapless: after a record that the broker refuses none of its partition may be appended.
        # librdkafka then stops the whole producer.
        self._producer = mover.clients.producer(
            target,
            {"enable.gapless.guarantee": True},
            on_error=lambda error: on_error(f"{target.alias}: {words(error)}"),
        )
        self._stopped: KafkaException | None = None
        """The fatal error of the producer."""
        self._windows: dict[TopicPartition, InFlightWindow] = {}
        self._backpressure = Backpressure(mover.clock)
        self._aside: dict[TopicPartition, int | None] = {}
        """Partitions that are not read until the target takes what it was sent of them, with
        their end on the source."""
        self._paused: dict[TopicPartition, int | None] = {}
        """Partitions that are not to be read for now, with their end on the source."""
        self._one_by_one = OneByOne()
        self._leaving: frozenset[TopicPartition] = frozenset()
        self._problems: dict[TopicPartition, Problem] = {}
        self._restamped: set[TopicPartition] = set()
        """Partitions whose first record without a timestamp was logged."""

    @property
    def partitions(self) -> Set[TopicPartition]:
        """See ``Lane.partitions``."""
        return self._windows.keys()

    @property
    def in_flight(self) -> int:
        """See ``Lane.in_flight``."""
        return sum(window.in_flight for window in self._windows.values())

    @property
    def outdated(self) -> bool:
        """See ``Lane.outdated``."""
        return self._renewal.due

    def open(self, positions: Mapping[TopicPartition, CopyFrom]) -> None:
        """See ``Lane.open``."""
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
        self._read(positions.keys())

    def leave(self, partitions: Set[TopicPartition]) -> None:
        """See ``Lane.leave``."""
        self._leaving |= partitions
        self._one_by_one.drop(partitions)

    def keep(self, partitions: Set[TopicPartition]) -> None:
        """See ``Lane.keep``."""
        if back := self._leaving & partitions:
            self._leaving -= back
            self._stop_reading(back)
            self._read(back - self._aside.keys())

    def pause(self, partitions: Set[TopicPartition]) -> None:
        """See ``Lane.pause``."""
        if begun := (partitions & self._windows.keys()) - self._paused.keys():
            ends = {at: self._end(at) for at in begun}
            self._stop_reading(begun)
            self._one_by_one.drop(begun)
            self._paused |= ends
        if ended := self._paused.keys() - partitions:
            for at in ended:
                del self._paused[at]
            self._read(ended - self._aside.keys())

    def forget(self, partitions: Set[TopicPartition]) -> None:
        """See ``Lane.forget``."""
        self._stop_reading(partitions)
        for at in partitions:
            del self._windows[at]
            self._problems.pop(at, None)
            self._aside.pop(at, None)
            self._paused.pop(at, None)
            self._one_by_one.close(at)
        self._leaving -= partitions

    def run_once(self) -> int:
        """See ``Lane.run_once``."""
        stopped_before = self._stopped
        self.poll()
        if self.problems():
            return 0
        if stopped_before is not None:
            target = self._mover.target
            raise Retriable(f"{target.name}: the producer stopped: {stopped_before.args[0].str()}")
        if self._stopped is not None or not self._has_room():
            return 0  # the next poll brings reports: they say why, or make room
        with translated(f"run {self._task.name}"):
            moved = self._send_held()
            first = self._consumer.poll(0)
            if first is None:
                return moved
            messages = [first, *self._consumer.consume(_BATCH_RECORDS, 0)]
            moved += sum(self._take(message) for message in messages)
            self._set_aside(self._one_by_one.held - self._aside.keys())
            return moved

    def poll(self) -> None:
        """See ``Lane.poll``."""
        self._poll(0)

    def _poll(self, timeout_s: float) -> None:
        try:
            self._producer.poll(timeout_s)
        except KafkaException as error:  # a fatal one; it is raised once
            self._stopped = error

    def state(self) -> dict[TopicPartition, Reached]:
        """See ``Lane.state``."""
        return {
            at: Reached(
                acknowledged=window.acknowledged,
                target_offset=window.target_offset,
                leader_epoch=window.leader_epoch,
                in_flight=window.in_flight,
                end=self._end(at),
                oldest_timestamp_ms=window.oldest_timestamp_ms,
                unexpected_offsets=window.unexpected_offsets,
            )
            for at, window in self._windows.items()
        }

    def take_runs(self) -> dict[TopicPartition, list[Run]]:
        """See ``Lane.take_runs``."""
        taken = {at: window.runs.take() for at, window in self._windows.items()}
        return {at: runs for at, runs in taken.items() if runs}

    def problems(self) -> list[Problem]:
        """See ``Lane.problems``."""
        refused = [
            Problem(at, self._refusal(window, window.error))
            for at, window in self._windows.items()
            if window.error is not None
        ]
        lost = [
            Problem(at, TargetLoss(at, window.lost_at, window.lowest_possible))
            for at, window in self._windows.items()
            if window.lost_at is not None
        ]
        return [*self._problems.values(), *lost, *refused]

    def drop_unsent(self) -> None:
        """See ``Lane.drop_unsent``."""
        self._producer.purge(in_queue=True, in_flight=False)

    def settle(self, timeout_s: float) -> None:
        """See ``Lane.settle``."""
        self.drop_unsent()
        if left := self._outcomes(timeout_s):
            raise Retriable(
                f"{self._mover.target.alias} did not acknowledge {left} records that were on their "
                "way"
            )
        for window in self._windows.values():
            window.rewind()

    def close(self) -> None:
        """See ``Lane.close``."""
        try:
            self._producer.purge()
            self._outcomes(1)
            self._consumer.close()
        finally:
            # Their threads and buffers go with the last reference, and an error that was raised
            # here and is still reported refers to this lane.
            del self._producer, self._consumer
            self.closed.set()

    def _outcomes(self, timeout_s: float) -> int:
        """Wait for the outcome of what was sent; how many are not known by then.

        Not by ``flush``: it goes on to call delivery reports while it raises a fatal error.
        """
        deadline = self._mover.clock.monotonic() + timeout_s
        while (left := len(self._producer)) and self._mover.clock.monotonic() < deadline:
            self._poll(0.05)
        return left

    def _read(self, partitions: Set[TopicPartition]) -> None:
        windows = {at: self._windows[at] for at in partitions - self._paused.keys()}
        with translated(f"read for {self._task.name}"):
            assign_more(
                self._consumer,
                [(at, window.position) for at, window in windows.items()],
                {at: window.leader_epoch for at, window in windows.items()},
            )

    def _stop_reading(self, partitions: Set[TopicPartition]) -> None:
        with translated(f"read less for {self._task.name}"):
            unassign(self._consumer, partitions - self._aside.keys() - self._paused.keys())

    def _end(self, at: TopicPartition) -> int | None:
        """Of the source, as last fetched."""
        known = self._aside if at in self._aside else self._paused
        return known[at] if at in known else fetched_end(self._consumer, at)

    def _has_room(self) -> bool:
        """Whether more may be sent; sets partitions aside that take room from the others."""
        back = self._aside.keys() - self._leaving
        back -= self._one_by_one.held
        if drained := {at for at in back if not self._windows[at].in_flight}:
            for at in drained:
                del self._aside[at]
            self._read(drained)
        if not self._backpressure.full(self._windows, self._aside.keys()):
            return True
        if stuck := self._backpressure.stuck(self._windows, self._aside.keys()):
            log.warning(
                "the target does not take these partitions: others go on",
                task=self._task.name,
                partitions=[str(at) for at in sorted(stuck)],
            )
            self._set_aside(stuck)
        return False

    def _set_aside(self, partitions: Set[TopicPartition]) -> None:
        ends = {at: self._end(at) for at in partitions}
        self._stop_reading(partitions)
        self._aside |= ends

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
        if at in self._aside or at in self._paused:
            return 0  # it still lay in the consumer's queue
        return 0 if self._one_by_one.hold(window, message) else self._handle(window, message)

    def _handle(self, window: InFlightWindow, message: Message) -> int:
        at = window.at
        if at in self._problems or window.refused is not None:
            return 0  # nothing of a partition may overtake its problem
        if (error := message.error()) is not None:
            self._handle_error(window, message, error)
            return 0
        offset = message.offset()
        if offset is None or offset < window.position:
            return 0  # fetched before the position was set back
        _, timestamp_ms = message.timestamp()
        if timestamp_ms <= 0:
            self._count_restamped(at, offset)
        key, value = message.key(), message.value()
        self._one_by_one.sent(at, message)
        try:
            self._producer.produce(
                window.target_topic,
                value,
                key,
                at.partition,
                on_delivery=partial(window.delivered, offset),
                timestamp=max(0, timestamp_ms),
                headers=message.headers(),
            )
        except KafkaException as refusal:
            if refusal.args[0].code() == KafkaError._FATAL:
                return 0  # it stopped just now: the next polls raise that, then bring the reports
            if not concerns_record(refusal.args[0]):
                raise
            window.passed(offset)  # all before it was sent
            window.refuse(offset, refusal.args[0])
            return 0
        window.sent(offset, timestamp_ms, len(key or b"") + len(value or b""))
        leader_epoch = message.leader_epoch()
        window.leader_epoch = -1 if leader_epoch is None else leader_epoch
        return 1

    def _count_restamped(self, at: TopicPartition, offset: int) -> None:
        """librdkafka's producer sends no such timestamp: it takes 0 for "now"."""
        self._copied.restamped += 1
        if at not in self._restamped:
            self._restamped.add(at)
            log.warning(
                "records without a timestamp, or with 0, get the time of copying on the target, "
                "as the Kafka client cannot send them otherwise; here is the first one",
                task=self._task.name,
                partition=str(at),
                offset=offset,
            )

    def _handle_error(self, window: InFlightWindow, message: Message, error: KafkaError) -> None:
        if error.code() == KafkaError._PARTITION_EOF:
            window.passed(message.offset() or 0)
            return
        at, alias = window.at, self._mover.source.alias
        where = f"{at} of {alias}"
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            gone = OffsetGone(
                at, window.position, f"{where}: {error.str()}", diverged_at=diverged_at(error)
            )
            self._problems[at] = Problem(at, gone)
            return
        offset = message.offset() or 0
        offset = offset if offset >= 0 else window.position
        failure = translate(error, f"read {at} offset {offset} of {alias}")
        if isinstance(failure, Retriable):
            log.info("read failed, client retries", partition=str(at), reason=str(failure))
            return
        self._problems[at] = Problem(at, failure)

    def _refusal(self, window: InFlightWindow, error: KafkaError) -> HeadraceError:
        at, offset, mover = window.at, window.error_at, self._mover
        failure = translate(
            error,
            f"write {at} offset {offset} of {mover.source.alias} "
            f"to {window.target_topic} on {mover.target.alias}",
        )
        if window.refused is None:
            return failure
        message = self._one_by_one.alone(at, offset)
        record = _source_record(message) if message is not None else None
        return RecordRefused(at, window.refused, error.name(), str(failure), record)


def _source_record(message: Message) -> SourceRecord:
    headers = message.headers() or []
    return SourceRecord(
        message.offset() or 0,
        message.timestamp()[1],
        message.key(),
        message.value(),
        headers if isinstance(headers, list) else list(headers.items()),
    )
