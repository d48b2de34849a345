"""Partitions about which a source does not answer, on a clock of the test."""

from collections.abc import Iterable, Iterator, Set

import pytest
from support.fake_kafka import FakeClock

from headrace.api import TopicPartition
from headrace.datapath.locate import SourcePartition
from headrace.datapath.unanswered import Silence
from headrace.kafka.wire import EventLoop

AT, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)
BROKER = (1, 0)


class Watched:
    """Two partitions that are asked for and not answered."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.loop = EventLoop(self.clock)
        self.sources = {
            at: SourcePartition(at, 0, -1, now_s=self.clock.now_s) for at in (AT, OTHER)
        }
        self.asked: set[TopicPartition] = {AT, OTHER}
        self.unread: set[TopicPartition] = set()
        self.ready = True
        self.silence = Silence(
            self.loop,
            self.sources,
            is_asked=lambda source: source.at in self.asked,
            readable=self._readable,
        )

    def _readable(self, ats: Iterable[TopicPartition]) -> Set[TopicPartition] | None:
        return set(ats) - self.unread if self.ready else None

    def run(self, seconds: int) -> None:
        """Let that time pass, second by second."""
        for _ in range(seconds):
            self.clock.advance(1.0)
            self.loop.run_once(0)

    def silent_s(self) -> dict[TopicPartition, float]:
        return {at: self.clock.now_s - since for at, since in self.silence.since_s.items()}


@pytest.fixture
def watched() -> Iterator[Watched]:
    watched = Watched()
    yield watched
    watched.silence.close()
    watched.loop.close()


def test_the_time_since_the_last_answer_is_known(watched: Watched) -> None:
    for _ in range(30):
        watched.silence.heard(BROKER, [OTHER])
        watched.run(1)

    assert watched.silent_s() == {AT: 30.0}
    watched.silence.heard(BROKER, [AT, OTHER])
    watched.run(1)
    assert watched.silent_s() == {}


def test_an_answer_before_the_last_failure_does_not_count(watched: Watched) -> None:
    watched.run(30)
    watched.silence.heard(BROKER, [AT, OTHER])
    watched.sources[AT].failed_s = watched.clock.now_s
    watched.run(1)

    assert watched.silent_s() == {AT: 31.0}


def test_a_failed_partition_is_silent_though_it_is_not_asked_for(watched: Watched) -> None:
    watched.asked = set()
    watched.sources[AT].failed_s = watched.clock.now_s
    watched.run(30)

    assert watched.silent_s() == {AT: 30.0}


def test_a_partition_that_is_not_to_be_read_is_not_silent(watched: Watched) -> None:
    watched.unread = {AT}
    watched.run(30)

    assert watched.silent_s() == {OTHER: 30.0}


def test_the_time_does_not_grow_while_nothing_is_read(watched: Watched) -> None:
    watched.run(5)
    watched.ready = False
    watched.run(60)

    assert watched.silent_s() == {AT: 5.0, OTHER: 5.0}


def test_the_time_of_a_frozen_process_does_not_count(watched: Watched) -> None:
    watched.run(1)
    watched.clock.advance(600.0)
    watched.run(1)

    assert max(watched.silent_s().values(), default=0.0) < 5.0
