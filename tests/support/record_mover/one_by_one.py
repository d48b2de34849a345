"""Records that are sent one at a time, to find the one that the target refuses.

A range of many records is divided first.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Set
from math import isqrt

from support.record_mover.in_flight_window import InFlightWindow

from headrace.api import TopicPartition
from headrace.kafka import Message

_FEW = 64


class OneByOne:
    """Holds messages back until the records before them have their outcome. One thread calls it.

    Only of partitions with suspects: while one of these is on its way, no other record is, and if
    they are few, none of them.
    """

    def __init__(self) -> None:
        self._suspects: dict[TopicPartition, range] = {}
        self._held: dict[TopicPartition, deque[Message]] = {}
        self._alone: dict[TopicPartition, Message] = {}
        """The record of each partition that was sent by itself last."""

    @property
    def held(self) -> Set[TopicPartition]:
        """Partitions with records that are held back: read no more of these."""
        return self._held.keys()

    def open(self, at: TopicPartition, suspects: range) -> None:
        """Send records with these source offsets one at a time, or by few."""
        if suspects:
            self._suspects[at] = suspects

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget the held messages of these partitions: they are not sent."""
        for at in partitions:
            self._held.pop(at, None)

    def close(self, at: TopicPartition) -> None:
        """Forget a partition."""
        self.drop([at])
        self._suspects.pop(at, None)
        self._alone.pop(at, None)

    def hold(self, window: InFlightWindow, message: Message) -> bool:
        """Return whether a message has to wait. If so, keep it, even if it is no record."""
        if window.at not in self._held and not self._waits(window, message):
            return False
        self._held.setdefault(window.at, deque()).append(message)
        return True

    def released(self, window: InFlightWindow) -> Iterator[Message]:
        """Held messages whose turn it is: handle each before you take the next."""
        held = self._held.get(window.at, deque())
        while held and not self._waits(window, held[0]):
            yield held.popleft()
        if not held:
            self.drop([window.at])

    def sent(self, at: TopicPartition, message: Message) -> None:
        if self._is_suspect(at, message.offset()) and self._together(at) == 1:
            self._alone[at] = message

    def alone(self, at: TopicPartition, offset: int) -> Message | None:
        message = self._alone.get(at)
        return message if message is not None and message.offset() == offset else None

    def _waits(self, window: InFlightWindow, message: Message) -> bool:
        if not window.unfinished:
            return False
        oldest, this = (
            self._is_suspect(window.at, offset)
            for offset in ((window.committed or window).acknowledged, message.offset())
        )
        if oldest and this:
            return window.unfinished >= self._together(window.at)
        return oldest or this

    def _together(self, at: TopicPartition) -> int:
        suspects = len(self._suspects[at])
        return 1 if suspects <= _FEW else isqrt(suspects)

    def _is_suspect(self, at: TopicPartition, offset: int | None) -> bool:
        return offset in self._suspects.get(at, range(0))
