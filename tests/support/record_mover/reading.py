"""The read side of a record lane. It skips partitions that are paused or stopped."""

from collections.abc import Mapping, Set

from support.record_mover.in_flight_window import InFlightWindow

from headrace.api import TopicPartition
from headrace.datapath.bandwidth import TokenBucket
from headrace.kafka import Consumer, Message, assign_more, fetched_end, translated, unassign

_BATCH_RECORDS = 2_000


class Reading:
    """The owner of the consumer. One thread calls it."""

    def __init__(
        self, consumer: Consumer, windows: Mapping[TopicPartition, InFlightWindow], task: str
    ) -> None:
        """Read all partitions of the lane; ``windows`` are those with their positions."""
        self._consumer, self._windows, self._task = consumer, windows, task
        self._aside: dict[TopicPartition, int | None] = {}
        """Partitions that are not read until the target accepts their sent records.

        The value is their end on the source.
        """
        self._paused: dict[TopicPartition, int | None] = {}
        """Partitions that are not to be read for now, with their end on the source."""

    @property
    def put_aside(self) -> Set[TopicPartition]:
        return self._aside.keys()

    def skips(self, at: TopicPartition) -> bool:
        """Return whether a partition is not read now."""
        return at in self._aside or at in self._paused

    def end(self, at: TopicPartition) -> int | None:
        known = self._aside if at in self._aside else self._paused
        return known[at] if at in known else fetched_end(self._consumer, at)

    def begin(self, partitions: Set[TopicPartition]) -> None:
        """Read these from their windows' positions on."""
        windows = {at: self._windows[at] for at in partitions - self._paused.keys()}
        with translated(f"read for {self._task}"):
            assign_more(
                self._consumer,
                [(at, window.position) for at, window in windows.items()],
                {at: window.leader_epoch for at, window in windows.items()},
            )

    def begin_again(self, partitions: Set[TopicPartition]) -> None:
        """Read these again, from their windows' positions on, unless they are skipped."""
        self._stop(partitions)
        self.begin(partitions - self._aside.keys())

    def _stop(self, partitions: Set[TopicPartition]) -> None:
        with translated(f"read less for {self._task}"):
            unassign(self._consumer, partitions - self._aside.keys() - self._paused.keys())

    def pause(self, partitions: Set[TopicPartition]) -> Set[TopicPartition]:
        """Pause exactly these partitions, and return the newly paused ones."""
        if begun := (partitions & self._windows.keys()) - self._paused.keys():
            ends = {at: self.end(at) for at in begun}
            self._stop(begun)
            self._paused |= ends
        if ended := self._paused.keys() - partitions:
            for at in ended:
                del self._paused[at]
            self.begin(ended - self._aside.keys())
        return begun

    def set_aside(self, partitions: Set[TopicPartition]) -> None:
        """Stop reading these partitions until they are taken back."""
        ends = {at: self.end(at) for at in partitions}
        self._stop(partitions)
        self._aside |= ends

    def take_back(self, partitions: Set[TopicPartition]) -> None:
        """Read these again, which were set aside."""
        for at in partitions:
            del self._aside[at]
        self.begin(partitions)

    def forget(self, partitions: Set[TopicPartition]) -> None:
        """Read no more of these."""
        self._stop(partitions)
        for at in partitions:
            self._aside.pop(at, None)
            self._paused.pop(at, None)

    def fetched(self) -> list[Message]:
        first = self._consumer.poll(0)
        return [] if first is None else [first, *self._consumer.consume(_BATCH_RECORDS, 0)]

    def fetched_within(self, bandwidth: TokenBucket) -> list[Message]:
        messages, size = [], 0
        while size < bandwidth.request_bytes and (message := self._consumer.poll(0)) is not None:
            messages.append(message)
            size += len(message.key() or b"") + len(message.value() or b"")
        bandwidth.spend(size)
        return messages

    def close(self) -> None:
        """Free the client."""
        try:
            self._consumer.close()
        finally:
            del self._consumer  # see ``Sending.close``
