"""Messages that a consumer received, and whether it keeps up with its topics."""

from typing import Any, cast

from confluent_kafka import KafkaError

from headrace.api import TopicPartition
from headrace.kafka import Consumer
from headrace_spark.probe_consumer import BEHIND_MS, Following


class Message:
    """Record, or the end of its partition."""

    def __init__(self, at: TopicPartition, offset: int, *, is_end: bool = False) -> None:
        self._at, self._offset, self._is_end = at, offset, is_end

    def topic(self) -> str:
        return self._at.topic

    def partition(self) -> int:
        return self._at.partition

    def offset(self) -> int:
        return self._offset

    def error(self) -> KafkaError | None:
        return KafkaError(KafkaError._PARTITION_EOF) if self._is_end else None


class Queue:
    """Queue of a consumer that waits 10 ms for each message."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.there: list[Any] = []
        self.next: Any = None
        self.following = Following(cast(Consumer, self), "west", lambda: self.now_ms)

    def consume(self, most: int, timeout_s: float) -> list[Any]:
        assert timeout_s == 0
        taken, self.there = self.there[:most], self.there[most:]
        return taken

    def poll(self, timeout_s: float) -> Any:
        self.now_ms += 10
        return self.next

    def take(self) -> int:
        """Take the available messages and return their number."""
        return sum(len(part.records) for part in self.following.take(0.1))


ORDERS, BILLS = TopicPartition("orders", 3), TopicPartition("bills", 0)


def test_it_is_behind_once_it_had_no_pause_for_a_second() -> None:
    queue = Queue()
    queue.there = [Message(ORDERS, offset) for offset in range(2_000)]
    taken = queue.take()
    assert not queue.following.is_behind
    queue.now_ms += BEHIND_MS
    taken += queue.take()
    assert queue.following.is_behind
    while queue.there:
        taken += queue.take()
    assert taken == 2_000
    assert queue.following.is_behind
    queue.next = Message(ORDERS, 2_000)
    assert queue.take() == 1
    assert not queue.following.is_behind
    queue.next = None
    assert queue.following.take(0.1) == []


def test_what_it_took_comes_by_partition_with_the_place_behind_it() -> None:
    queue = Queue()
    first, second, alone = Message(ORDERS, 7), Message(ORDERS, 8), Message(BILLS, 0)
    # A transaction's marker follows the last record: only the end of the partition shows it.
    queue.there = [first, second, alone, Message(ORDERS, 10, is_end=True)]
    assert [tuple(part) for part in queue.following.take(0.1)] == [
        (ORDERS, [first, second], 9),
        (BILLS, [alone], 1),
        (ORDERS, [], 10),
    ]
