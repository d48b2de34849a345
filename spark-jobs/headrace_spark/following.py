"""A consumer that follows what is written, and whether it keeps up.

One that has no moment to wait for messages measures itself: what it gets has waited for it.
"""

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import NamedTuple

from headrace.api import TopicPartition
from headrace.kafka import Consumer, Message, journal
from headrace_spark.clocks import steady_ms

BEHIND_MS = 1_000
"""Without a pause for so long, it may be behind."""
_AT_ONCE = 500
"""Messages that are there."""


class Taken(NamedTuple):
    """What a consumer got of one partition in one go."""

    at: TopicPartition
    records: list[Message]
    next_offset: int
    """Behind them, and behind the marks of transactions where the partition ends; 0: unknown."""


class Following:
    """See above."""

    def __init__(self, consumer: Consumer, cluster: str, clock: Callable[[], int] = steady_ms):
        """``cluster``: its alias; ``clock``: in ms."""
        self._consumer, self._cluster, self._clock = consumer, cluster, clock
        self._waited_at_ms = clock()

    def take(self, wait_s: float) -> list[Taken]:
        """What is there; else the next message, if it comes in time. A partition without records
        has nothing more at the moment.

        Raises:
            HeadraceError: what cannot heal by itself.
        """
        found = self._consumer.consume(_AT_ONCE, 0)
        if not found:
            message = self._consumer.poll(wait_s)
            self._waited_at_ms = self._clock()
            found = [] if message is None else [message]
        return list(self._by_partition(found))

    @property
    def is_behind(self) -> bool:
        """What was taken last may have waited for this consumer."""
        return self._clock() - self._waited_at_ms >= BEHIND_MS

    def _by_partition(self, found: list[Message]) -> Iterator[Taken]:
        for (topic, partition), group in groupby(found, key=lambda m: (m.topic(), m.partition())):
            at = TopicPartition(topic or "", partition or 0)
            messages = list(group)
            records = [m for m in messages if m.error() is None or self._is_record(m, at)]
            behind = [(records[-1].offset() or 0) + 1] if records else []
            yield Taken(at, records, max([*behind, messages[-1].offset() or 0]))

    def _is_record(self, message: Message, at: TopicPartition) -> bool:
        return journal.is_record(message, f"read {at} of {self._cluster}")
