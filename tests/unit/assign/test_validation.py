"""Assignments that are rejected, with their error codes and sentences."""

import math

import pytest

from headrace.assign import (
    ApplicationState,
    AssignmentConfig,
    AssignmentError,
    AssignmentUtils,
    DriverAssignment,
    DriverState,
    FlowConfig,
    TaskAssignment,
    TaskId,
    TaskInfo,
    weigh,
)

SOURCE = [TaskId("orders", "SourceTask", n) for n in range(3)]
BEAT = TaskId("orders", "HeartbeatTask", 0)
STATE = ApplicationState.of(
    weigh(dict.fromkeys([*SOURCE, BEAT])).values(), [DriverState("a"), DriverState("b")]
)
ALL = frozenset([*SOURCE, BEAT])
ONE = frozenset(SOURCE[:1])
GOOD = TaskAssignment({"a": DriverAssignment(ALL), "b": DriverAssignment(standby=ONE)})


@pytest.mark.parametrize(
    ("drivers", "error", "sentence"),
    [
        ({**GOOD.drivers, "c": DriverAssignment()}, "UNKNOWN_PROCESS_ID", "there is no driver c"),
        ({"a": DriverAssignment(ALL)}, "MISSING_PROCESS_ID", "driver b is left out"),
        (
            {"a": DriverAssignment(ALL), "b": DriverAssignment(ONE)},
            "ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES",
            "orders-source-task-0 is given to driver a and to driver b",
        ),
        (
            {"a": DriverAssignment(ALL, standby=ONE), "b": DriverAssignment()},
            "ACTIVE_AND_STANDBY_TASK_ASSIGNED_TO_SAME_KAFKASTREAMS",
            "driver a is given orders-source-task-0 to run and as a standby",
        ),
        (
            {"a": DriverAssignment(ALL), "b": DriverAssignment(standby=frozenset({BEAT}))},
            "INVALID_STANDBY_TASK",
            "driver b is given a standby of orders-heartbeat-task-0, which keeps no state",
        ),
        (
            {"a": DriverAssignment(ALL | {TaskId("x", "SourceTask", 7)}), "b": DriverAssignment()},
            "UNKNOWN_TASK_ID",
            "driver a is given x-source-task-7, which is no task",
        ),
        (
            {"a": DriverAssignment(ONE), "b": DriverAssignment()},
            "TASK_NOT_ASSIGNED",
            "3 tasks have no driver, orders-heartbeat-task-0 among them",
        ),
    ],
)
def test_each_rule(drivers: dict[str, DriverAssignment], error: str, sentence: str) -> None:
    assert AssignmentUtils.validate(STATE, TaskAssignment(drivers)) == AssignmentError[error]
    violation = AssignmentUtils.find_violation(STATE, TaskAssignment(drivers))
    assert violation is not None
    assert violation.message == sentence


def test_what_breaks_no_rule() -> None:
    assert AssignmentUtils.validate(STATE, GOOD) is AssignmentError.NONE
    waits = TaskAssignment({"a": DriverAssignment(ONE), "b": DriverAssignment()}, waiting=ALL - ONE)
    assert AssignmentUtils.validate(STATE, waits) is AssignmentError.NONE


def test_every_name_of_kafka_is_there() -> None:
    shipped = {
        "NONE",
        "ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES",
        "INVALID_STANDBY_TASK",
        "MISSING_PROCESS_ID",
        "UNKNOWN_PROCESS_ID",
        "UNKNOWN_TASK_ID",
    }
    of_the_kip = {"ACTIVE_AND_STANDBY_TASK_ASSIGNED_TO_SAME_KAFKASTREAMS"}
    assert set(AssignmentError.__members__) == shipped | of_the_kip | {"TASK_NOT_ASSIGNED"}


def test_identity_keeps_what_is_left_of_what_was() -> None:
    gone = TaskId("orders", "SourceTask", 9)
    state = ApplicationState.of(
        STATE.tasks.values(),
        [
            DriverState("a", active=ONE | {gone}, standby=frozenset({SOURCE[2], gone})),
            DriverState("b", active=frozenset(SOURCE[:2]), standby=ONE),
        ],
    )
    kept = AssignmentUtils.identity(state)
    assert kept.drivers["a"] == DriverAssignment(ONE, standby=frozenset({SOURCE[2]}))
    assert kept.drivers["b"] == DriverAssignment(frozenset({SOURCE[1]}), standby=ONE)
    assert kept.waiting == {SOURCE[2], BEAT}
    assert AssignmentUtils.validate(state, kept) is AssignmentError.NONE


@pytest.mark.parametrize("weight", [-1.0, math.nan, math.inf])
def test_a_weight_that_is_none(weight: float) -> None:
    tasks = [TaskInfo(SOURCE[0], True, 1.0), TaskInfo(SOURCE[1], True, weight)]
    with pytest.raises(ValueError, match=r"weight of orders-source-task-1 must be 0 or more, got"):
        ApplicationState.of(tasks, [])


@pytest.mark.parametrize("config", [FlowConfig(standbys=-1), FlowConfig(movement_budget=1.1)])
def test_what_a_flow_cannot_ask_for(config: FlowConfig) -> None:
    with pytest.raises(ValueError, match="flow orders: standbys must be 0 or more"):
        ApplicationState.of([], [], flows={"orders": config})


def test_what_was_not_measured_weighs_as_the_median_of_its_kind() -> None:
    weighed = weigh({SOURCE[0]: 10.0, SOURCE[1]: 30.0, SOURCE[2]: None, BEAT: None})
    assert [weighed[task].weight for task in [*SOURCE, BEAT]] == [10.0, 30.0, 20.0, 0.0]


def test_what_waits_has_to_be_a_task() -> None:
    state = ApplicationState.of([], [DriverState("a")])
    answer = TaskAssignment({"a": DriverAssignment()}, waiting=ONE)
    violation = AssignmentUtils.find_violation(state, answer)
    assert violation is not None
    assert violation.error is AssignmentError.UNKNOWN_TASK_ID
    assert violation.message == "orders-source-task-0 waits, which is no task"


def test_nothing_is_there_twice_or_under_another_name() -> None:
    task, a, b = TaskInfo(SOURCE[0], True), DriverState("a"), DriverState("b")
    with pytest.raises(ValueError, match="task orders-source-task-0 is given twice"):
        ApplicationState.of([task, task._replace(weight=1.0)], [a])
    with pytest.raises(ValueError, match="driver a is given twice"):
        ApplicationState.of([task], [a, b, a])
    with pytest.raises(ValueError, match="key orders-source-task-1 has task orders-source-task-0"):
        ApplicationState({SOURCE[1]: task}, {})
    with pytest.raises(ValueError, match="key b has driver a"):
        ApplicationState({}, {"b": a})


@pytest.mark.parametrize("setting", ["tolerance", "balance_interval_ms"])
def test_a_setting_below_zero_is_refused(setting: str) -> None:
    with pytest.raises(ValueError, match=f"{setting} must be 0 or more, got -1"):
        AssignmentConfig(**{setting: -1})
