"""Several owners write one plan at the same time, to a target whose answers are lost.

Each record is at its offset, regardless of which owner is fenced and when.
"""

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from support.examples import one_in
from support.fake_broker import serving
from support.fake_kafka import FakeClock, FakeCluster, FakeLog
from support.patience import WITHIN_S
from support.preserving_target import PreservingTarget
from support.wire_kafka import LOST, UNANSWERED

from headrace.api import TopicPartition
from headrace.datapath.markers import new_epoch
from headrace.datapath.preserved.owner import Closer, End, ends_of, identified
from headrace.datapath.preserved.plan import Append, Hole, Operation
from headrace.datapath.preserved.writer import Writer
from headrace.datapath.producer import Leaders
from headrace.datapath.spans import Outgoing
from headrace.errors import HeadraceError, Retriable
from headrace.kafka.wire import BatchWriter, ClusterClient, EventLoop, encoded, start

TOPIC, DATA = "orders", "headrace-data"
FAULTS = [*[None] * 4, LOST, UNANSWERED]
Plan = Sequence[bool]
"""Whether each offset has a record."""


def operations(plan: Plan, offset: int, chance: random.Random) -> Iterator[Operation]:
    """Yield operations from ``offset`` on, in batches of any size."""
    while offset < len(plan):
        end, most = offset, offset + (chance.randint(1, 4) if plan[offset] else len(plan))
        while end < min(most, len(plan)) and plan[end] == plan[offset]:
            end += 1
        yield append(offset, end) if plan[offset] else Hole(offset, end)
        offset = end


def append(first: int, end: int) -> Append:
    writer = BatchWriter()
    for offset in range(first, end):
        writer.add(encoded(offset, 0, None, b"%d" % offset))
    return Append(Outgoing(writer.finish(), end, lambda: None, writer.offsets), rebuilt=True)


class Copier:
    """Owner with its own loop."""

    def __init__(
        self, target: PreservingTarget, plans: Mapping[TopicPartition, Plan], number: int, seed: int
    ) -> None:
        self._plans, self._chance = plans, random.Random(seed + number)
        self._loop = EventLoop()
        self._cluster = ClusterClient(self._loop, target.access)
        self._leaders = Leaders(self._cluster)
        for earlier in range(number):  # progress says that other tasks released them
            self._wait(identified(self._cluster, f"headrace-task-{earlier % 2}"))
        self._name = f"headrace-task-{number % 2}"
        self.errors: dict[TopicPartition, HeadraceError] = {}
        self._todo: dict[TopicPartition, Iterator[Operation]] = {}
        self.next: dict[TopicPartition, int] = {}
        self._writer = self._begin()

    def _begin(self) -> Writer:
        """Return a writer with a new epoch that begins at the current ends of all partitions."""
        owner = self._wait(identified(self._cluster, self._name))
        closer = Closer(DATA, self._wait(new_epoch(self._cluster, DATA)))
        producers = dict.fromkeys(self._plans, closer.identity.producer_id)
        ends = self._wait(ends_of(self._cluster, producers))
        self.errors, self._todo = {}, {}
        writer = Writer(self._leaders, owner, self._written, self._failed)
        for at, end in ends.items():
            if isinstance(end, End):
                writer.begin(at, end, closer)
                self._todo[at] = operations(self._plans[at], end.offset, self._chance)
                self.next[at] = end.offset
            else:
                self.errors[at] = end
        return writer

    def step(self) -> None:
        """Write some operations, and collect the outcomes."""
        for at, todo in self._todo.items():
            if at not in self.errors and (operation := next(todo, None)) is not None:
                self._writer.write(at, operation)
        self._writer.flush()
        self._loop.run_once(0.002)

    def again(self) -> None:
        """After a failure, take all partitions over with a new writer, as a new lane does."""
        if not self.errors:
            return
        for error in self.errors.values():
            assert isinstance(error, Retriable), error
        self._writer.close()
        try:
            self._writer = self._begin()
        except Retriable as error:  # a lost batch closed the connection
            self.errors = dict.fromkeys(self._plans, error)

    @property
    def done(self) -> bool:
        return all(self.next.get(at) == len(plan) for at, plan in self._plans.items())

    def close(self) -> None:
        self._writer.close()
        self._leaders.close()
        self._cluster.close()
        self._loop.close()

    def _wait(self, coroutine: Any) -> Any:
        return self._loop.wait(start(coroutine), WITHIN_S)

    def _written(self, at: TopicPartition, next_offset: int, outgoing: Outgoing | None) -> None:
        self.next[at] = next_offset

    def _failed(self, at: TopicPartition, error: HeadraceError) -> None:
        self.errors[at] = error


PLANS = st.lists(st.lists(st.booleans(), min_size=1, max_size=60), min_size=2, max_size=2)


@one_in(12)
@given(PLANS, st.integers(0, 2**32))
def test_each_record_is_at_its_offset_whoever_writes(plans: list[list[bool]], seed: int) -> None:
    chance = random.Random(seed)
    by_partition = {TopicPartition(TOPIC, n): plan for n, plan in enumerate(plans)}
    cluster = FakeCluster("west", FakeClock())
    cluster.logs = {at: FakeLog() for at in by_partition}
    faults = random.Random(seed + 1)
    with serving() as serve:
        target = PreservingTarget(serve, cluster, TOPIC, 2)
        copiers: list[Copier] = []
        try:
            for number in range(3):
                target.fault = lambda *_: None
                target.end_is_lost = lambda: False
                copiers.append(Copier(target, by_partition, number, seed))
                target.fault = lambda *_: faults.choice(FAULTS)
                target.end_is_lost = lambda: faults.choice(FAULTS) == UNANSWERED
                for _ in range(chance.randint(0, 30)):
                    chance.choice(copiers).step()  # the older ones have not noticed it yet
            newest = copiers[-1]
            deadline_s = time.monotonic() + WITHIN_S
            while not newest.done:
                assert time.monotonic() < deadline_s, (newest.next, newest.errors)
                chance.choice(copiers).step()
                if not chance.randrange(10):
                    newest.again()
            for copier in copiers:
                for _ in range(20):
                    copier.step()
        finally:
            for copier in copiers:
                copier.close()
    for at, plan in by_partition.items():
        expected = [b"%d" % offset if record else None for offset, record in enumerate(plan)]
        assert [one and one.value for one in cluster.logs[at].entries] == expected
