"""Invariants of every assignment and of every course of events."""

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from math import ceil, floor

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.assign import (
    SHIPPED,
    ApplicationState,
    AssignmentError,
    AssignmentUtils,
    DriverState,
    FlowConfig,
    StickyAssignor,
    TaskAssignment,
    TaskId,
    TaskInfo,
)
from headrace.assign.draft import Allowance, Balance, DraftAssignment

NAMES = [f"driver-{n}" for n in range(9)]
IDS = st.builds(
    TaskId,
    st.sampled_from(["orders", "users"]),
    st.sampled_from(["SourceTask", "CheckpointTask", "SourceConnector", "HeartbeatTask"]),
    st.integers(0, 15),
)
WEIGHTS = st.one_of(st.sampled_from([0.0, 1.0, 2.0, 3.5]), st.floats(0, 1e9))
RACKS = st.sampled_from([None, "r1", "r2", "r3"])
CONFIGS = st.builds(FlowConfig, st.integers(0, 2), st.sampled_from([0.0, 0.1, 0.5, 1.0]))
HOLDER = st.one_of(st.none(), st.sampled_from(NAMES))


@st.composite
def states(draw: st.DrawFn) -> ApplicationState:
    """Draw any state, even one that no assignor produces: tasks held twice, copies beside tasks."""
    # Owner, second owner and standby of a task.
    units = draw(st.dictionaries(IDS, st.tuples(WEIGHTS, *[HOLDER] * 3), max_size=40))
    gone = draw(st.sets(st.sampled_from(sorted(units)), max_size=5)) if units else set()
    roles = draw(st.dictionaries(st.sampled_from(NAMES), RACKS))

    def held(name: str, *roles: int) -> frozenset[TaskId]:
        return frozenset(id for id, unit in units.items() if name in [unit[r] for r in roles])

    drivers = [
        DriverState(name, held(name, 1, 2), held(name, 3), rack) for name, rack in roles.items()
    ]
    return ApplicationState.of(
        [TaskInfo(id, id.is_stateful, u[0]) for id, u in units.items() if id not in gone],
        drivers,
        flows={"orders": draw(CONFIGS)},
        now_ms=draw(st.integers(0, 200_000)),
        last_balance_ms=draw(st.sampled_from([None, 0, 100_000])),
    )


def is_even(state: ApplicationState) -> bool:
    """Return whether all tasks are assigned and each driver's number is within the bounds."""
    draft = DraftAssignment(state)
    return not draft.orphans and Balance(draft, Allowance(draft, due=False)).is_reached


def next_state(state: ApplicationState, answer: TaskAssignment) -> ApplicationState:
    """Return the state after all drivers have applied the assignment."""
    return replace(
        state,
        drivers={
            name: replace(
                driver,
                active=answer.drivers[name].active,
                standby=answer.drivers[name].standby,
            )
            for name, driver in state.drivers.items()
        },
        last_balance_ms=state.now_ms if answer.balanced else state.last_balance_ms,
    )


def moves(state: ApplicationState, answer: TaskAssignment) -> list[TaskId]:
    """Return the tasks that moved away from a driver of the state."""
    owners = answer.owners
    return [
        task
        for name, driver in state.drivers.items()
        for task in driver.active
        if task in state.tasks and owners.get(task) != name
    ]


@given(states(), st.sampled_from(sorted(SHIPPED)))
def test_an_answer_is_complete_and_breaks_no_rule(state: ApplicationState, name: str) -> None:
    answer = SHIPPED[name]().assign(state)
    assert AssignmentUtils.find_violation(state, answer) is None
    owned = [task for driver in answer.drivers.values() for task in driver.active]
    assert sorted([*owned, *answer.waiting]) == sorted(state.tasks)
    if name != "cooperative" and state.drivers:
        assert not answer.waiting


@given(states(), st.randoms(use_true_random=False))
def test_the_same_state_gives_the_same_answer(state: ApplicationState, rng: random.Random) -> None:
    tasks, drivers = list(state.tasks.values()), list(state.drivers.values())
    rng.shuffle(tasks)
    rng.shuffle(drivers)
    shuffled = replace(state, tasks={i.id: i for i in tasks}, drivers={d.name: d for d in drivers})
    for assignor in SHIPPED.values():
        assert assignor().assign(shuffled) == assignor().assign(state)


@given(states())
def test_standbys_are_as_many_as_asked_for(state: ApplicationState) -> None:
    answer = StickyAssignor().assign(state)
    copies = Counter(task for driver in answer.drivers.values() for task in driver.standby)
    for info in state.tasks.values():
        room = len(state.drivers) - 1
        wanted = state.flow(info.id.flow).standbys if info.stateful else 0
        assert copies[info.id] == max(0, min(wanted, room))


@given(states())
def test_inside_the_bounds_nothing_moves(state: ApplicationState) -> None:
    state = replace(
        state,
        drivers={n: replace(d, rack=None) for n, d in state.drivers.items()},
    )
    if not state.drivers:
        return
    answer = StickyAssignor().assign(state)
    after = next_state(state, answer)
    if is_even(after):
        assert answer.follow_up_ms is None
        again = StickyAssignor().assign(replace(after, now_ms=after.now_ms + 60_000))
        assert again.owners == answer.owners


@given(states())
def test_a_round_moves_no_more_than_the_budget_allows(state: ApplicationState) -> None:
    due = state.last_balance_ms is None or state.now_ms - state.last_balance_ms >= 60_000
    # A task that two drivers report was never owned by the second.
    claims = Counter(task for driver in state.drivers.values() for task in driver.active)
    moved = Counter(
        task.flow for task in moves(state, StickyAssignor().assign(state)) if claims[task] == 1
    )
    for flow, count in moved.items():
        units = sum(task.flow == flow for task in state.tasks)
        budget = state.flow(flow).movement_budget
        assert due
        assert budget > 0
        assert count <= max(2, budget * units)  # two: a swap


@given(states())
def test_it_settles(state: ApplicationState) -> None:
    """Consecutive rounds converge, with counts in their bounds."""
    config = replace(state.config, balance_interval_ms=0)
    flows = {flow: FlowConfig(standbys=1, movement_budget=0.25) for flow in ("orders", "users")}
    state = replace(state, flows=flows, config=config, last_balance_ms=None)
    if not state.drivers:
        return
    for _ in range(12):
        answer = StickyAssignor().assign(state)
        state = next_state(state, answer)
        if answer.follow_up_ms is None:
            break
    else:
        raise AssertionError("still moving after 12 rounds of a quarter of all tasks")
    share = len(state.tasks) / len(state.drivers)
    for driver in state.drivers.values():
        assert floor(share) <= len(driver.active) <= ceil(share)
    assert StickyAssignor().assign(state).owners == answer.owners


@given(st.integers(1, 6), st.integers(30, 60), st.randoms(use_true_random=False))
def test_many_tasks_weigh_the_same_on_every_driver(
    drivers: int, each: int, rng: random.Random
) -> None:
    """They are within 10 % of the mean, on the first assignment and after a driver left."""
    ids = [TaskId("orders", "SourceTask", n) for n in range(drivers * each)]
    state = ApplicationState.of(
        [TaskInfo(id, True, rng.uniform(0, 1e6)) for id in ids],
        [DriverState(name) for name in NAMES[:drivers]],
    )
    first = StickyAssignor().assign(state)
    assert is_even(next_state(state, first))
    if drivers == 1:
        return
    gone = rng.choice(NAMES[:drivers])
    left = next_state(state, first)
    left = replace(left, drivers={n: d for n, d in left.drivers.items() if n != gone})
    answer = StickyAssignor().assign(left)
    assert not moves(left, answer)
    assert is_even(next_state(left, answer))


class CourseOfEvents(RuleBasedStateMachine):
    """Drivers and tasks start and stop, loads change and time passes under a herder that obeys."""

    @initialize(standbys=st.integers(0, 1))
    def begin(self, standbys: int) -> None:
        self.state = ApplicationState.of(
            [], [], flows={flow: FlowConfig(standbys) for flow in ("orders", "users")}
        )
        self.answer = TaskAssignment({})
        self.reported_at = -1

    @rule(ids=st.lists(IDS, min_size=1, max_size=20), data=st.data())
    def tasks_come(self, ids: list[TaskId], data: st.DataObject) -> None:
        new = {id: TaskInfo(id, id.is_stateful, data.draw(WEIGHTS)) for id in ids}
        self.decide(tasks={**self.state.tasks, **new})

    @precondition(lambda self: self.state.tasks)
    @rule(data=st.data())
    def tasks_go(self, data: st.DataObject) -> None:
        gone = data.draw(st.sets(st.sampled_from(sorted(self.state.tasks)), max_size=10))
        self.decide(tasks={id: i for id, i in self.state.tasks.items() if id not in gone})

    @rule(name=st.sampled_from(NAMES))
    def a_driver_joins(self, name: str) -> None:
        if name not in self.state.drivers:
            self.decide(drivers=[*self.state.drivers.values(), DriverState(name)])

    @precondition(lambda self: self.state.drivers)
    @rule(data=st.data())
    def a_driver_leaves(self, data: st.DataObject) -> None:
        gone = data.draw(st.sampled_from(sorted(self.state.drivers)))
        lost = self.state.drivers[gone].active
        before = self.answer
        was_even = is_even(self.state)
        self.decide(drivers=[d for d in self.state.drivers.values() if d.name != gone])
        if not self.state.drivers:
            assert self.answer.waiting == self.state.tasks.keys()
        elif was_even and not self.answer.balanced:
            moved = {t for t, d in before.owners.items() if self.answer.owners[t] != d}
            assert moved <= lost

    @precondition(lambda self: self.state.tasks)
    @rule(data=st.data())
    def loads_change(self, data: st.DataObject) -> None:
        changed = data.draw(st.dictionaries(st.sampled_from(sorted(self.state.tasks)), WEIGHTS))
        tasks = {
            id: i._replace(weight=changed.get(id, i.weight)) for id, i in self.state.tasks.items()
        }
        self.decide(tasks=tasks)

    @rule(ms=st.sampled_from([0, 1_000, 30_000, 60_000]))
    def time_passes(self, ms: int) -> None:
        self.decide(now_ms=self.state.now_ms + ms)

    def decide(
        self,
        tasks: dict[TaskId, TaskInfo] | None = None,
        drivers: Iterable[DriverState] | None = None,
        now_ms: int | None = None,
    ) -> None:
        state = self.state
        if tasks is not None:
            state = replace(state, tasks=tasks)
        if drivers is not None:
            state = replace(state, drivers={driver.name: driver for driver in drivers})
        if now_ms is not None:
            state = replace(state, now_ms=now_ms)
        self.answer = StickyAssignor().assign(state)
        assert AssignmentUtils.validate(state, self.answer) is AssignmentError.NONE
        if moves(state, self.answer):
            assert self.answer.balanced
            assert not is_even(state), "moved without a reason"
        if self.answer.balanced:
            last = state.last_balance_ms
            assert last is None or state.now_ms - last >= state.config.balance_interval_ms
        if self.answer.follow_up_ms is not None:
            assert self.answer.follow_up_ms > state.now_ms
        self.state = next_state(state, self.answer)

    @invariant()
    def every_task_has_one_driver(self) -> None:
        if not hasattr(self, "state") or not self.state.drivers:
            return
        held = Counter(task for driver in self.state.drivers.values() for task in driver.active)
        assert held == Counter(dict.fromkeys(self.state.tasks, 1))

    def teardown(self) -> None:
        """Without further events, it becomes stable and then balanced by count."""
        if not hasattr(self, "state") or not self.state.drivers:
            return
        for _ in range(60):
            if self.answer.follow_up_ms is None:
                break
            self.decide(now_ms=self.answer.follow_up_ms)
        assert self.answer.follow_up_ms is None
        self.decide(now_ms=self.state.now_ms + 60_000)
        assert not self.answer.balanced
        share = len(self.state.tasks) / len(self.state.drivers)
        for driver in self.state.drivers.values():
            assert floor(share) <= len(driver.active) <= ceil(share)


CourseOfEvents.TestCase.settings = settings(stateful_step_count=25)
TestCourseOfEvents = CourseOfEvents.TestCase
