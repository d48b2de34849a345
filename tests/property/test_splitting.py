"""Invariants of every split of partitions into tasks, and of each change from one to the next."""

import random
from collections import Counter
from dataclasses import replace
from itertools import chain

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.api.partitions import TopicPartition
from headrace.replication.splitting import SplitConfig, SplitState, TaskReport, resplit

Partitions = frozenset[TopicPartition]
Weights = dict[TopicPartition, float | None]

PARTITION = st.builds(TopicPartition, st.sampled_from(["a", "b", "c"]), st.integers(0, 9))
PARTITIONS = st.frozensets(PARTITION, max_size=25)
MAX = st.integers(1, 8)
WEIGHT = st.one_of(st.none(), st.sampled_from([0.0, 1.0, 10.0, 10.0, 200.0]), st.floats(0, 1e6))
WEIGHTS = st.dictionaries(PARTITION, WEIGHT)


def acknowledged(state: SplitState) -> dict[int, TaskReport]:
    """Return the reports of tasks that have all applied their spec."""
    return {index: TaskReport(True, held) for index, held in state.tasks.items()}


def first_split(weights: Weights, max_tasks: int) -> SplitState:
    return resplit(weights, SplitState(last_balance_ms=0), {}, 0, SplitConfig(max_tasks))


def settle(weights: Weights, state: SplitState, config: SplitConfig) -> tuple[SplitState, int]:
    """Run a minute at a time with tasks that obey until nothing changes, and return the rounds."""
    for round in range(60):
        following = resplit(weights, state, acknowledged(state), 60_000 * round, config)
        if following.tasks == state.tasks and following.settled:
            return following, round
        state = following
    raise AssertionError("still moving after an hour")


@given(WEIGHTS, MAX)
def test_a_first_split_is_complete_disjoint_and_of_the_right_number(
    weights: Weights, max_tasks: int
) -> None:
    tasks = first_split(weights, max_tasks).tasks
    assert sorted(chain.from_iterable(tasks.values())) == sorted(weights)
    assert len(tasks) == min(max_tasks, len(weights))
    assert all(0 <= index < max_tasks and held for index, held in tasks.items())


@given(PARTITIONS, MAX)
def test_without_weights_tasks_are_even(partitions: Partitions, max_tasks: int) -> None:
    tasks = first_split(dict.fromkeys(partitions), max_tasks).tasks
    sizes = [len(held) for held in tasks.values()]
    assert not sizes or max(sizes) - min(sizes) <= 1


@given(WEIGHTS, PARTITIONS, MAX, st.integers(0, 59_999))
def test_a_new_topic_touches_one_task_a_partition_and_moves_nothing(
    weights: Weights, new: Partitions, max_tasks: int, now_ms: int
) -> None:
    config = SplitConfig(max_tasks)
    state, _ = settle(weights, SplitState(), config)
    fresh: Weights = {TopicPartition("new", at.partition): None for at in new}
    # Not a balance round, for which other limits apply.
    state = replace(state, last_balance_ms=0)
    after = resplit({**weights, **fresh}, state, acknowledged(state), now_ms, config)
    assert after.settled
    touched = [i for i, held in after.tasks.items() if held != state.tasks.get(i, frozenset())]
    assert len(touched) <= len(fresh)
    assert all(held <= after.tasks[index] for index, held in state.tasks.items())


@given(WEIGHTS, MAX, MAX)
def test_it_settles_and_then_stays(weights: Weights, max_tasks: int, new_max: int) -> None:
    measured: Weights = {at: weight or 0.0 for at, weight in weights.items()}
    state, _ = settle(measured, SplitState(), SplitConfig(max_tasks))
    settled, rounds = settle(measured, state, SplitConfig(new_max, movement_budget=0.5))
    assert rounds <= 20
    assert len(settled.tasks) == min(new_max, len(weights))
    again, rounds = settle(measured, settled, SplitConfig(new_max))
    assert (again.tasks, rounds) == (settled.tasks, 0)


@given(st.dictionaries(PARTITION, st.floats(0, 1e6), min_size=1), MAX, st.floats(0, 1))
def test_what_leaves_for_balance_is_within_the_budget(
    weights: Weights, max_tasks: int, budget: float
) -> None:
    state = SplitState({0: frozenset(weights)})
    config = SplitConfig(max_tasks, movement_budget=budget)
    after = resplit(weights, state, acknowledged(state), 0, config)
    assert len(after.leaving) <= max(1 if budget else 0, budget * len(weights))


@given(WEIGHTS, MAX, st.randoms(use_true_random=False))
def test_the_order_of_what_it_is_told_does_not_matter(
    weights: Weights, max_tasks: int, rng: random.Random
) -> None:
    state = first_split(dict.fromkeys(weights), 3)
    shuffled = list(weights.items())
    rng.shuffle(shuffled)
    backwards = SplitState(dict(reversed(list(state.tasks.items()))))
    config = SplitConfig(max_tasks, movement_budget=0.5)
    assert resplit(dict(shuffled), backwards, acknowledged(backwards), 120_000, config) == resplit(
        weights, SplitState(state.tasks), acknowledged(state), 120_000, config
    )


class TwoPhases(RuleBasedStateMachine):
    """A connector that splits, and tasks that read their spec and report it at any later time.

    Three moments of a task can be apart: the connector writes its spec, the task applies it, its
    status reports it. A driver that takes over a task has reported nothing yet.
    """

    @initialize(max_tasks=MAX)
    def begin(self, max_tasks: int) -> None:
        self.config = SplitConfig(max_tasks, movement_budget=0.5)
        self.weights: Weights = {}
        self.state = SplitState()
        """State as the connector sees it."""
        self.specs: dict[int, tuple[int, Partitions]] = {}
        """Published generation and partitions of each task."""
        self.running: dict[int, tuple[int, Partitions]] = {}
        """Generation and partitions that each task runs."""
        self.reports: dict[int, tuple[int, Partitions]] = {}
        """Generation and partitions in each task's status."""
        self.now_ms = 0

    @rule(weights=st.dictionaries(PARTITION, WEIGHT, min_size=1))
    def partitions_come_or_change(self, weights: Weights) -> None:
        self.weights = {**self.weights, **weights}

    @precondition(lambda self: self.weights)
    @rule(data=st.data())
    def a_partition_goes(self, data: st.DataObject) -> None:
        del self.weights[data.draw(st.sampled_from(sorted(self.weights)))]

    @rule(max_tasks=MAX)
    def the_number_of_tasks_changes(self, max_tasks: int) -> None:
        self.config = SplitConfig(max_tasks, movement_budget=0.5)

    @rule(ms=st.sampled_from([500, 10_000, 60_000]))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms

    @rule()
    def the_connector_restarts(self) -> None:
        specs = {index: held for index, (_, held) in self.specs.items()}
        self.state = SplitState(specs, resumed_ms=self.now_ms)

    @precondition(lambda self: self.specs)
    @rule(data=st.data())
    def a_task_reads_its_spec(self, data: st.DataObject) -> None:
        index = data.draw(st.sampled_from(sorted(self.specs)))
        self.running[index] = self.specs[index]

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def a_task_says_what_it_does(self, data: st.DataObject) -> None:
        index = data.draw(st.sampled_from(sorted(self.running)))
        self.reports[index] = self.running[index]

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def a_task_gets_another_driver(self, data: st.DataObject) -> None:
        index = data.draw(st.sampled_from(sorted(self.running)))
        generation, held = self.specs[index]
        self.specs[index] = generation + 1, held
        self.running[index] = self.specs[index]
        self.reports[index] = 0, frozenset()  # it has only claimed the task

    @rule(answer_is_lost=st.booleans())
    def the_connector_polls(self, answer_is_lost: bool) -> None:
        reports = {
            index: TaskReport(observed == generation, held)
            for index, (generation, _) in self.specs.items()
            for observed, held in [self.reports.get(index, (0, frozenset[TopicPartition]()))]
        }
        before, following = self.state, self._poll(reports)
        for at, task in following.taken.items():
            assert self._late(before.leaving[at].since_ms)
            self._fence(at, task)
        for at, task in following.returned.items():
            assert self._late(before.leaving[at].since_ms)
            assert (before.leaving[at].task, self._task_of(following, at)) == (task, task)
        if before.resumed_ms is not None and self._late(before.resumed_ms):
            entered = set(chain.from_iterable(following.tasks.values()))
            for at in entered - set(chain.from_iterable(before.tasks.values())):
                for task in set(self.running) - {self._task_of(following, at)}:
                    self._fence(at, task)
        for index in self.specs.keys() - following.tasks.keys():
            self._delete(index, before)
        for index, held in following.tasks.items():
            generation, published = self.specs.get(index, (0, None))
            if held != published:
                self.specs[index] = generation + 1, held
        self.state = following
        if answer_is_lost:
            self.the_connector_restarts()

    def _poll(self, reports: dict[int, TaskReport]) -> SplitState:
        following = resplit(self.weights, self.state, reports, self.now_ms, self.config)
        placed = Counter(chain.from_iterable(following.tasks.values()))
        placed.update(following.leaving.keys() & self.weights.keys())
        assert not placed - Counter(self.weights.keys())  # each at most once
        if following.resumed_ms is None:
            assert placed == Counter(self.weights.keys())
        return following

    def _late(self, since_ms: int) -> bool:
        return self.now_ms - since_ms >= self.config.acknowledge_within_ms

    def _delete(self, index: int, before: SplitState) -> None:
        """End the task because its object was deleted, early only if it holds no partition."""
        _, held = self.running.pop(index, (0, frozenset()))
        for at in held:
            left = before.leaving.get(at)
            since_ms = before.resumed_ms if left is None else left.since_ms
            assert since_ms is not None, "deleted while it held something"
            assert self._late(since_ms)
        self.specs.pop(index)
        self.reports.pop(index, None)

    def _fence(self, at: TopicPartition, task: int) -> None:
        """Stop a late owner by the higher epoch in the progress of the partition."""
        if task in self.running:
            generation, held = self.running[task]
            self.running[task] = generation, held - {at}

    def _task_of(self, state: SplitState, at: TopicPartition) -> int:
        return next(task for task, held in state.tasks.items() if at in held)

    @invariant()
    def no_partition_is_copied_by_two_tasks(self) -> None:
        if hasattr(self, "running"):
            copied = Counter(chain.from_iterable(held for _, held in self.running.values()))
            assert all(tasks == 1 for tasks in copied.values()), copied


TwoPhases.TestCase.settings = settings(stateful_step_count=40)
TestTwoPhases = TwoPhases.TestCase
