"""What holds for every split of partitions into tasks, and while one turns into the next."""

import random
from collections import Counter
from itertools import chain

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.api.partitions import TopicPartition
from headrace.replication import split
from headrace.replication.splitting import SplitConfig, SplitState, TaskReport, resplit

PARTITION = st.builds(TopicPartition, st.sampled_from(["a", "b", "c"]), st.integers(0, 9))
PARTITIONS = st.frozensets(PARTITION, max_size=25)
MAX = st.integers(1, 8)
WEIGHT = st.one_of(st.none(), st.sampled_from([0.0, 1.0, 10.0, 10.0, 200.0]), st.floats(0, 1e6))


def settle(
    weights: dict[TopicPartition, float | None], state: SplitState, config: SplitConfig
) -> tuple[SplitState, int]:
    """Minute after minute, all tasks doing as told, until nothing changes; and the rounds."""
    for round in range(60):
        reports = {index: TaskReport(True, held) for index, held in state.tasks.items()}
        following = resplit(weights, state, reports, 60_000 * round, config)
        if following.tasks == state.tasks and not following.moving:
            return following, round
        state = following
    raise AssertionError("still moving after an hour")


@given(PARTITIONS, PARTITIONS, MAX, MAX)
def test_complete_disjoint_and_of_the_right_number(
    before: frozenset[TopicPartition],
    after: frozenset[TopicPartition],
    old_max: int,
    max_tasks: int,
) -> None:
    tasks = split(after, split(before, {}, old_max), max_tasks)
    held = list(chain.from_iterable(tasks.values()))
    assert sorted(held) == sorted(after)
    assert all(0 <= index < max_tasks and partitions for index, partitions in tasks.items())
    if not before:
        assert len(tasks) == min(max_tasks, len(after))


@given(PARTITIONS, PARTITIONS, MAX)
def test_what_has_a_task_keeps_it(
    before: frozenset[TopicPartition], more: frozenset[TopicPartition], max_tasks: int
) -> None:
    old = split(before, {}, max_tasks)
    new = split(before | more, old, max_tasks)
    assert all(partitions <= new[index] for index, partitions in old.items())


@given(PARTITIONS, MAX)
def test_tasks_are_even(partitions: frozenset[TopicPartition], max_tasks: int) -> None:
    sizes = [len(held) for held in split(partitions, {}, max_tasks).values()]
    assert not sizes or max(sizes) - min(sizes) <= 1


@given(st.dictionaries(PARTITION, WEIGHT, min_size=1), PARTITIONS, MAX, st.integers(0, 59_999))
def test_a_new_topic_touches_one_task_a_partition_and_moves_nothing(
    weights: dict[TopicPartition, float | None],
    new: frozenset[TopicPartition],
    max_tasks: int,
    now_ms: int,
) -> None:
    config = SplitConfig(max_tasks)
    state, _ = settle(weights, SplitState(), config)
    fresh = {TopicPartition("new", at.partition): None for at in new}
    reports = {index: TaskReport(True, held) for index, held in state.tasks.items()}
    # Not a balance round: what such a one moves is another matter.
    state = SplitState(state.tasks, last_balance_ms=0)
    after = resplit({**weights, **fresh}, state, reports, now_ms, config)
    assert not after.moving
    touched = [i for i, held in after.tasks.items() if held != state.tasks.get(i, frozenset())]
    assert len(touched) <= len(fresh)
    assert all(held <= after.tasks[index] for index, held in state.tasks.items())


@given(st.dictionaries(PARTITION, WEIGHT), MAX, MAX)
def test_it_settles_and_then_stays(
    weights: dict[TopicPartition, float | None], max_tasks: int, new_max: int
) -> None:
    state, _ = settle(weights, SplitState(), SplitConfig(max_tasks))
    settled, rounds = settle(weights, state, SplitConfig(new_max, movement_budget=0.5))
    assert rounds <= 20
    assert len(settled.tasks) == min(new_max, len(weights))
    again, rounds = settle(weights, settled, SplitConfig(new_max))
    assert (again.tasks, rounds) == (settled.tasks, 0)


@given(st.dictionaries(PARTITION, WEIGHT), MAX, st.randoms(use_true_random=False))
def test_the_order_of_what_it_is_told_does_not_matter(
    weights: dict[TopicPartition, float | None], max_tasks: int, rng: random.Random
) -> None:
    state = SplitState(split(frozenset(weights), {}, 3))
    reports = {index: TaskReport(True, held) for index, held in state.tasks.items()}
    shuffled = list(weights.items())
    rng.shuffle(shuffled)
    backwards = SplitState(dict(reversed(state.tasks.items())))
    config = SplitConfig(max_tasks, movement_budget=0.5)
    assert resplit(dict(shuffled), backwards, reports, 0, config) == resplit(
        weights, state, reports, 0, config
    )


class TwoPhases(RuleBasedStateMachine):
    """A connector that splits, and tasks that read their spec when it suits them."""

    @initialize(max_tasks=MAX)
    def begin(self, max_tasks: int) -> None:
        self.config = SplitConfig(max_tasks, movement_budget=0.5)
        self.weights: dict[TopicPartition, float | None] = {}
        self.state = SplitState()
        self.now_ms = 0
        self.generation: Counter[int] = Counter()
        self.read: Counter[int] = Counter()
        self.running: dict[int, frozenset[TopicPartition]] = {}

    @rule(weights=st.dictionaries(PARTITION, WEIGHT, min_size=1))
    def partitions_come_or_change(self, weights: dict[TopicPartition, float | None]) -> None:
        self.weights = {**self.weights, **weights}

    @precondition(lambda self: self.weights)
    @rule(data=st.data())
    def partitions_go(self, data: st.DataObject) -> None:
        del self.weights[data.draw(st.sampled_from(sorted(self.weights)))]

    @rule(max_tasks=MAX)
    def the_number_of_tasks_changes(self, max_tasks: int) -> None:
        self.config = SplitConfig(max_tasks, movement_budget=0.5)

    @rule(ms=st.sampled_from([1_000, 10_000, 60_000]))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms

    @rule()
    def the_connector_restarts(self) -> None:
        self.state = SplitState(self.state.tasks)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def a_task_reads_its_spec(self, data: st.DataObject) -> None:
        index = data.draw(st.sampled_from(sorted(self.running)))
        self.running[index] = self.state.tasks.get(index, frozenset())
        self.read[index] = self.generation[index]

    @rule(publishes=st.booleans())
    def the_connector_looks(self, publishes: bool) -> None:
        reports = {
            index: TaskReport(self.read[index] == self.generation[index], held)
            for index, held in self.running.items()
        }
        following = resplit(self.weights, self.state, reports, self.now_ms, self.config)
        held = Counter(chain.from_iterable(following.tasks.values()))
        assert held + Counter(following.moving.keys()) == Counter(self.weights.keys())
        assert not following.taken.keys() & following.moving.keys()
        if not publishes:
            return
        for at, source in following.taken.items():
            move = self.state.moving[at]
            assert self.now_ms - move.since_ms >= self.config.acknowledge_within_ms
            self.running[source] -= {at}  # Fenced.
        for index in self.state.tasks.keys() | following.tasks.keys():
            if self.state.tasks.get(index) != following.tasks.get(index):
                self.generation[index] += 1
                self.running.setdefault(index, frozenset())
        self.state = following

    @invariant()
    def no_partition_is_copied_by_two_tasks(self) -> None:
        if hasattr(self, "running"):
            copied = Counter(chain.from_iterable(self.running.values()))
            assert all(tasks == 1 for tasks in copied.values())


TwoPhases.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestTwoPhases = TwoPhases.TestCase
