"""Placement of units: the scheduler's view of objects, and its treatment of assignors."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

import pytest

from headrace.api import (
    Condition,
    ConditionStatus,
    ConditionType,
    ObjectMeta,
    Reason,
    ReplicationFlow,
    ReplicationTask,
    ReplicationTaskSpec,
    ReplicationTaskStatus,
    TaskError,
    TaskType,
)
from headrace.assign import (
    ApplicationState,
    AssignmentConfig,
    AssignmentUtils,
    DriverState,
    TaskId,
)
from headrace.placement import Placement, PlacementDecision, Placer
from headrace.placement.assignors import Decision

MINUTE_MS = 60_000


@pytest.fixture
def scheduler() -> Iterator[Placer]:
    opened = Placer()
    yield opened
    opened.close()


def flow(name: str = "orders", **tasks: object) -> ReplicationFlow:
    return ReplicationFlow.model_validate(
        {
            "apiVersion": "headrace.dev/v1beta1",
            "kind": "ReplicationFlow",
            "metadata": {"name": name},
            "spec": {
                "source": {"alias": "east", "bootstrapServers": "east:9092"},
                "target": {"alias": "west", "bootstrapServers": "west:9092"},
                "topics": {"include": [".*"]},
                "tasks": tasks,
            },
        }
    )


def unit(
    index: int, driver: str = "", *, flow: str = "orders", rate: int | None = None
) -> ReplicationTask:
    type = TaskType.SOURCE_TASK
    return ReplicationTask(
        metadata=ObjectMeta(name=TaskId(flow, type, index).name),
        spec=ReplicationTaskSpec(flow_name=flow, type=type, index=index, driver_name=driver),
        status=ReplicationTaskStatus(bytes_per_second=rate),
    )


def units(*drivers: str, flow: str = "orders") -> list[ReplicationTask]:
    return [unit(index, driver, flow=flow) for index, driver in enumerate(drivers)]


def task(index: int, flow: str = "orders") -> TaskId:
    return TaskId(flow, "SourceTask", index)


def drivers(names: str) -> list[DriverState]:
    return [DriverState(name) for name in names]


def counts(schedule: PlacementDecision) -> Counter[str]:
    return Counter(placement.driver for placement in schedule.placements.values())


def moved(before: Sequence[ReplicationTask], after: PlacementDecision) -> set[TaskId]:
    owners = {task(unit.spec.index, unit.spec.flow_name): unit.spec.driver_name for unit in before}
    return {id for id, owner in owners.items() if after.placements[id].driver != owner}


def applied(
    before: Sequence[ReplicationTask], schedule: PlacementDecision
) -> list[ReplicationTask]:
    """Return the units as the herder writes them after the decision."""
    return [
        one.model_copy(
            update={
                "spec": one.spec.model_copy(
                    update={
                        "driver_name": to.driver,
                        "standby_driver_names": to.standbys,
                    }
                )
            }
        )
        for one in before
        for to in [schedule.placements[task(one.spec.index, one.spec.flow_name)]]
    ]


def test_what_runs_on_a_driver_that_is_there_stays_and_the_rest_is_dealt(
    scheduler: Placer,
) -> None:
    before = units("a", "a", "gone", "")
    schedule = scheduler.decide([flow()], before, drivers("ab"), 0)
    assert schedule.placements[task(0)] == schedule.placements[task(1)] == Placement("a")
    assert schedule.placements[task(2)] == schedule.placements[task(3)] == Placement("b")
    assert schedule.problems == {}
    assert schedule.follow_up_ms == MINUTE_MS


def test_without_drivers_units_wait_and_the_flow_hears_of_it(scheduler: Placer) -> None:
    schedule = scheduler.decide([flow()], units("a", "b"), [], 0)
    assert set(schedule.placements.values()) == {Placement("")}
    assert schedule.problems == {"orders": "there is no driver: units wait for one"}
    assert schedule.follow_up_ms is None


def test_standbys_are_placed_and_stay(scheduler: Placer) -> None:
    first = scheduler.decide([flow(standbys=1)], units("a", "b", "c"), drivers("abc"), 0)
    assert all(len(to.standbys) == 1 for to in first.placements.values())
    assert all(to.driver not in to.standbys for to in first.placements.values())
    placed = applied(units("a", "b", "c"), first)
    assert scheduler.decide([flow(standbys=1)], placed, drivers("abc"), 1) == PlacementDecision(
        first.placements, {}, MINUTE_MS + 1
    )
    # The driver of a ends, and its standby takes over.
    took = scheduler.decide([flow(standbys=1)], placed, drivers("bc"), 2)
    assert took.placements[task(0)].driver == first.placements[task(0)].standbys[0]


def test_a_driver_that_has_nothing_is_filled_to_its_share_at_once(scheduler: Placer) -> None:
    before = units(*"aaaabbbb")
    joined = scheduler.decide([flow(movementBudget=0)], before, drivers("abcd"), 0)
    assert counts(joined) == {"a": 2, "b": 2, "c": 2, "d": 2}
    assert len(moved(before, joined)) == 4
    # This also holds right after another driver was filled.
    before = applied(before, joined)
    again = scheduler.decide([flow()], before, drivers("abcde"), 1_000)
    assert counts(again)["e"] == 1
    assert len(moved(before, again)) == 1


def test_between_drivers_that_work_the_budget_holds(scheduler: Placer) -> None:
    before = units(*"aaaaaaaaab")
    first = scheduler.decide([flow()], before, drivers("ab"), 0)
    assert len(moved(before, first)) == 1
    before = applied(before, first)
    assert moved(before, scheduler.decide([flow()], before, drivers("ab"), 1_000)) == set()
    later = scheduler.decide([flow()], before, drivers("ab"), MINUTE_MS)
    assert len(moved(before, later)) == 1


@pytest.mark.parametrize("assignor", ["sticky", "cooperative", "round-robin"])
def test_a_round_without_balance_moves_only_what_has_no_driver(
    scheduler: Placer, assignor: str
) -> None:
    before = units(*"aaaaaa", "gone")
    schedule = scheduler.decide([flow(assignor=assignor)], before, drivers("ab"), 0, balance=False)
    assert moved(before, schedule) == {task(6)}
    assert schedule.placements[task(6)].driver
    assert schedule.follow_up_ms is not None
    assert schedule.follow_up_ms >= 1_000  # an overruled assignor is not called again at once


ERROR = TaskError(reason="Unreachable", message="no broker", time=datetime.now(UTC))
UNSTORED = Condition(
    type=ConditionType.PROGRESS_NOT_STORED,
    status=ConditionStatus.TRUE,
    reason=Reason.NOT_ACKNOWLEDGED,
)


@pytest.mark.parametrize(
    "status",
    [ReplicationTaskStatus(last_error=ERROR), ReplicationTaskStatus(conditions=(UNSTORED,))],
    ids=["error", "unstored"],
)
def test_a_unit_that_is_held_up_does_not_move_for_balance_but_does_when_its_driver_is_gone(
    scheduler: Placer, status: ReplicationTaskStatus
) -> None:
    copying = [
        one.model_copy(update={"status": status}) if one.spec.index < 3 else one
        for one in units(*"aaaa")
    ]
    after = scheduler.decide([flow()], copying, drivers("ab"), 0)
    assert moved(copying, after) == {task(3)}
    after = scheduler.decide([flow()], copying, drivers("bc"), 0)
    assert counts(after) == {"b": 2, "c": 2}


@pytest.mark.parametrize("assignor", ["sticky", "cooperative", "round-robin"])
def test_a_pinned_unit_runs_where_it_is_pinned(scheduler: Placer, assignor: str) -> None:
    before = units(*"aabb")
    for now_ms in range(0, 5 * MINUTE_MS, MINUTE_MS):
        schedule = scheduler.decide(
            [flow(assignor=assignor)], before, drivers("ab"), now_ms, pins={task(0): "b"}
        )
        assert schedule.placements[task(0)].driver == "b"
        before = applied(before, schedule)
    back = scheduler.decide([flow(assignor=assignor)], before, drivers("a"), 0, pins={task(0): "b"})
    assert back.placements[task(0)].driver in ("a", "")


def test_others_are_balanced_around_pinned_units_but_not_at_once(scheduler: Placer) -> None:
    pins = {task(0): "b", task(1): "b", task(2): "b"}
    flows = [flow(movementBudget=1)]
    before = units(*"aaabbb")
    first = scheduler.decide(flows, before, drivers("ab"), 0, pins=pins)
    assert moved(before, first) == pins.keys()
    before = applied(before, first)
    later = scheduler.decide(flows, before, drivers("ab"), MINUTE_MS, pins=pins)
    assert counts(later) == {"a": 3, "b": 3}
    assert moved(before, later) == {task(3), task(4), task(5)}


def test_flows_with_one_assignor_are_decided_together(scheduler: Placer) -> None:
    flows = [flow("orders"), flow("users"), flow("logs", assignor="round-robin")]
    before = [unit(0, flow=name) for name in ("orders", "users", "logs")]
    schedule = scheduler.decide(flows, before, drivers("ab"), 0)
    assert len(schedule.placements) == 3
    assert {schedule.placements[task(0, name)].driver for name in ("orders", "users")} == set("ab")


def test_an_unknown_assignor_moves_nothing_and_says_so(scheduler: Placer) -> None:
    flows = [flow("orders", assignor="stikcy"), flow("users")]
    before = [*units("a", "a", "gone"), *units("", flow="users")]
    schedule = scheduler.decide(flows, before, drivers("ab"), 0)
    assert moved(before, schedule) == {task(2), task(0, "users")}
    assert schedule.placements[task(2)] == Placement("")
    assert schedule.problems.keys() == {"orders"}
    assert (
        "there is no assignor stikcy; known here are cooperative, " in schedule.problems["orders"]
    )


def observed(scheduler: Placer, rates: Mapping[int, int], placed: str) -> list[ReplicationTask]:
    seen = [unit(i, driver, rate=rates.get(i)) for i, driver in enumerate(placed)]
    for second in range(120):
        scheduler.observe(seen, second * 1_000)
    return seen


def test_weights_are_what_units_report_over_time(scheduler: Placer) -> None:
    seen = observed(scheduler, dict(enumerate([9_000, 1_000, 1_000, 1_000])), "aabb")
    # A short-term rate is not the weight.
    seen[0] = unit(0, "a", rate=1_000)
    seen[3] = unit(3, "b", rate=90_000)
    schedule = scheduler.decide([flow(movementBudget=1)], seen, drivers("ab"), 120_000)
    assert schedule.placements[task(0)] == Placement("a")
    assert counts(schedule) == {"a": 2, "b": 2}


def test_a_unit_that_has_just_begun_weighs_like_the_others(scheduler: Placer) -> None:
    seen = [unit(i, "ab"[i % 2], rate=10 ** (i + 3)) for i in range(4)]
    schedule = scheduler.decide([flow(movementBudget=1)], seen, drivers("ab"), 0)
    assert moved(seen, schedule) == set()


def test_facts_that_nothing_fills_are_those_that_their_types_name() -> None:
    """If you set one of them, change the list in ``headrace/assign/assignor.py``."""
    asked: list[ApplicationState] = []

    class Asked:
        def decide(self, state: ApplicationState) -> Decision:
            asked.append(state)
            return Decision(AssignmentUtils.identity(state))

        def close(self) -> None: ...

    placer = Placer(open_decider=lambda *_: Asked())
    placer.decide([flow(standbys=1)], units("a", "b"), drivers("ab"), 0)
    (state,) = asked
    assert {info.racks for info in state.tasks.values()} == {()}
    for driver in state.drivers.values():
        assert driver.active
        assert driver == DriverState(driver.name, active=driver.active)
    assert state.config == AssignmentConfig()
