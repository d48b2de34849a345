"""Helpers for user-defined assignors."""

from dataclasses import replace

import pytest

from headrace.assign import (
    ApplicationState,
    AssignmentError,
    AssignmentUtils,
    DriverAssignment,
    DriverState,
    FlowConfig,
    TaskAssignment,
    TaskId,
    TaskInfo,
)

T = [TaskId("orders", "SourceTask", n) for n in range(4)]


def read_from(*racks: str) -> list[TaskInfo]:
    """Return tasks of one partition, each with a replica in one rack."""
    return [TaskInfo(T[n], True, 1.0, (frozenset({rack}),)) for n, rack in enumerate(racks)]


def test_active_tasks_come_to_the_racks_they_read_from() -> None:
    state = ApplicationState.of(
        read_from("r1", "r2", "r3"),
        [DriverState(name, rack=rack) for name, rack in (("a", "r3"), ("b", "r1"), ("c", "r2"))],
    )
    given = TaskAssignment(
        {name: DriverAssignment(frozenset({task})) for name, task in zip("abc", T, strict=False)}
    )
    better = AssignmentUtils.optimize_rack_aware_active(state, given)
    assert better.owners == {T[0]: "b", T[1]: "c", T[2]: "a"}
    only_two = AssignmentUtils.optimize_rack_aware_active(state, given, T[:2])
    assert only_two.owners == {T[0]: "b", T[1]: "a", T[2]: "c"}


def test_what_runs_where_it_ran_is_worth_something_too() -> None:
    state = ApplicationState.of(
        read_from("r1", "r2"),
        [
            DriverState("a", rack="r2", active=frozenset({T[0]})),
            DriverState("b", rack="r1", active=frozenset({T[1]})),
        ],
    )
    stays = AssignmentUtils.identity(state)
    optimize = AssignmentUtils.optimize_rack_aware_active
    assert optimize(state, stays, traffic_cost=1, non_overlap_cost=10) == stays
    assert optimize(state, stays).owners == {T[0]: "b", T[1]: "a"}


def test_no_task_comes_to_its_own_standby() -> None:
    state = ApplicationState.of(
        read_from("r1", "r2"), [DriverState("a", rack="r2"), DriverState("b", rack="r1")]
    )
    given = TaskAssignment(
        {
            "a": DriverAssignment(frozenset({T[0]})),
            "b": DriverAssignment(frozenset({T[1]}), standby=frozenset({T[0]})),
        }
    )
    assert AssignmentUtils.optimize_rack_aware_active(state, given) == given


def test_without_racks_nothing_is_optimised() -> None:
    state = ApplicationState.of(read_from("r1"), [DriverState("a")])
    given = TaskAssignment({"a": DriverAssignment(frozenset(T[:1]))})
    assert AssignmentUtils.optimize_rack_aware_active(state, given) is given
    assert AssignmentUtils.optimize_rack_aware_standby(state, given) is given


def test_standbys_come_to_the_racks_they_read_from_and_stay_apart() -> None:
    state = ApplicationState.of(
        [
            TaskInfo(T[0], True, 1.0, (frozenset({"r1", "r3"}),)),
            TaskInfo(T[1], True, 1.0, (frozenset({"r2"}),)),
        ],
        [DriverState(n, rack=r) for n, r in (("a", "r1"), ("b", "r2"), ("c", "r3"), ("d", "r1"))],
    )
    given = TaskAssignment(
        {
            "a": DriverAssignment(frozenset({T[0]})),
            "b": DriverAssignment(standby=frozenset({T[0]})),
            "c": DriverAssignment(standby=frozenset({T[1]})),
            "d": DriverAssignment(frozenset({T[1]})),
        }
    )
    better = AssignmentUtils.optimize_rack_aware_standby(state, given)
    assert better.drivers["c"].standby == {T[0]}
    assert better.drivers["b"].standby == {T[1]}
    assert AssignmentUtils.validate(state, better) is AssignmentError.NONE


def test_standbys_go_where_least_is_to_do() -> None:
    state = ApplicationState.of(
        read_from("r", "r", "r"),
        [DriverState("a"), DriverState("b"), DriverState("c")],
        flows={"orders": FlowConfig(standbys=1)},
    )
    active = {"a": frozenset(T[:2]), "b": frozenset({T[2]}), "c": frozenset[TaskId]()}
    assert AssignmentUtils.place_standbys(state, active) == {
        "a": frozenset(),
        "b": frozenset({T[1]}),
        "c": frozenset({T[0], T[2]}),
    }


def test_standbys_differ_by_rack_where_they_can() -> None:
    zones = {"a": "z1", "b": "z1", "c": "z2", "d": "z3"}
    state = ApplicationState.of(
        read_from("r"),
        [DriverState(name, rack=zone) for name, zone in zones.items()],
        flows={"orders": FlowConfig(standbys=2)},
    )
    nothing = dict.fromkeys(zones, frozenset[TaskId]())
    placed = AssignmentUtils.place_standbys(state, nothing | {"a": frozenset(T[:1])})
    assert [name for name, standby in placed.items() if standby] == ["c", "d"]
    # There are only three racks, but a second standby in a rack is better than none.
    flows = {"orders": FlowConfig(standbys=3)}
    placed = AssignmentUtils.place_standbys(
        replace(state, flows=flows), nothing | {"a": frozenset(T[:1])}
    )
    assert [name for name, standby in placed.items() if standby] == ["b", "c", "d"]


def test_a_standby_stays_and_the_last_owner_is_the_next_best() -> None:
    state = ApplicationState.of(
        read_from("r"),
        [DriverState("a"), DriverState("b"), DriverState("c", standby=frozenset(T[:1]))],
        flows={"orders": FlowConfig(standbys=1)},
    )
    active = {"a": frozenset(T[:1]), "b": frozenset[TaskId](), "c": frozenset[TaskId]()}
    assert AssignmentUtils.place_standbys(state, active)["c"] == {T[0]}
    handed_over = replace(
        state,
        drivers={
            "a": DriverState("a"),
            "b": DriverState("b"),
            "c": DriverState("c", active=frozenset(T[:1])),
        },
    )
    assert AssignmentUtils.place_standbys(handed_over, active)["c"] == {T[0]}


@pytest.mark.parametrize("cost", ["traffic_cost", "non_overlap_cost"])
def test_a_cost_below_zero_is_refused(cost: str) -> None:
    state = ApplicationState.of(read_from("r1"), [DriverState("a", rack="r1")])
    nothing = TaskAssignment({"a": DriverAssignment()})
    for optimize in (
        AssignmentUtils.optimize_rack_aware_active,
        AssignmentUtils.optimize_rack_aware_standby,
    ):
        with pytest.raises(ValueError, match=f"{cost} must be 0 or more, got -1"):
            optimize(state, nothing, **{cost: -1})


def test_what_is_wrong_with_an_assignment_is_left_to_its_validation() -> None:
    gone = TaskId("gone", "SourceTask", 0)
    state = ApplicationState.of(
        read_from("r1", "r2"), [DriverState("a", rack="r2"), DriverState("b", rack="r1")]
    )
    both = frozenset({T[0], gone})
    given = TaskAssignment(
        {"a": DriverAssignment(both, standby=both), "b": DriverAssignment(frozenset({T[1], gone}))}
    )
    active = AssignmentUtils.optimize_rack_aware_active(state, given, [*T, gone])
    assert active.owners == {T[0]: "b", T[1]: "a", gone: "b"}
    assert AssignmentUtils.optimize_rack_aware_standby(state, given) == given
