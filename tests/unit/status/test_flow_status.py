"""Status of a flow, computed from its units."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headrace.api import (
    Condition,
    ConditionStatus,
    ConditionType,
    Lag,
    ObjectMeta,
    Reason,
    ReplicationFlow,
    ReplicationTask,
    ReplicationTaskSpec,
    ReplicationTaskStatus,
    TaskError,
    TaskPhase,
    TaskType,
    TopicPartitions,
)
from headrace.api.conditions import find_condition
from headrace.connect.takeover.restoring import FailedOver
from headrace.control.flow_actions import task_row
from headrace.controller.events import occurrences
from headrace.status import FlowFacts, flow_status

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FLOW = ReplicationFlow.model_validate(
    {
        "metadata": {"name": "orders", "generation": 1},
        "spec": {
            "source": {"alias": "east", "bootstrapServers": "e:9092"},
            "target": {"alias": "west", "bootstrapServers": "w:9092"},
            "topics": {"include": ["orders"]},
        },
    }
)


def unit(
    type: TaskType, phase: TaskPhase = TaskPhase.RUNNING, index: int = 0, **status: Any
) -> ReplicationTask:
    partitions = (TopicPartitions(topic="orders", partitions="0-3"),)
    return ReplicationTask(
        metadata=ObjectMeta(name=f"orders-{type.lower()}-{index}"),
        spec=ReplicationTaskSpec(
            flow_name="orders",
            type=type,
            index=index,
            partitions=partitions if type is TaskType.SOURCE_TASK else (),
        ),
        status=ReplicationTaskStatus(driver_name="d", epoch=1, phase=phase, **status),
    )


def says(ready: ConditionStatus, reason: Reason, message: str = "m") -> tuple[Condition, ...]:
    return (Condition(type=ConditionType.READY, status=ready, reason=reason, message=message),)


UNREACHABLE = Reason.SOURCE_UNREACHABLE
CONNECTOR = unit(TaskType.SOURCE_CONNECTOR, conditions=says(ConditionStatus.TRUE, Reason.RUNNING))


def facts(*tasks: ReplicationTask, alive: int = 2, **more: Any) -> FlowFacts:
    return FlowFacts(NOW, FLOW, tasks, alive=alive, **more)


def readiness(*tasks: ReplicationTask, alive: int = 2) -> tuple[str, str, str]:
    ready = find_condition(flow_status(facts(*tasks, alive=alive)).conditions, ConditionType.READY)
    assert ready is not None
    return ready.status.value, ready.reason.value, ready.message


def test_numbers_are_sums_over_the_source_tasks() -> None:
    tasks = [
        CONNECTOR,
        unit(TaskType.SOURCE_TASK, lag=Lag(records=10, seconds=2), bytes_per_second=100),
        unit(TaskType.SOURCE_TASK, index=1, lag=Lag(records=5, seconds=7), bytes_per_second=50),
    ]
    status = flow_status(facts(*tasks))
    assert status.lag is not None
    assert (status.lag.records, status.lag.seconds, status.bytes_per_second) == (15, 7, 150)
    assert status.tasks is not None
    assert (status.tasks.total, status.tasks.running) == (2, 2)
    assert (status.topics, status.partitions, status.ready_replicas) == (1, 8, 2)


def test_figures_of_a_lost_driver_are_unknown_and_not_counted() -> None:
    def held(driver: str, index: int) -> ReplicationTask:
        task = unit(TaskType.SOURCE_TASK, index=index, lag=Lag(records=7), bytes_per_second=50)
        status = task.status.model_copy(
            update={"driver_name": driver, "driver_incarnation": f"{driver}-1"}
        )
        return task.model_copy(update={"status": status})

    tasks = [CONNECTOR, held("a", 0), held("b", 1)]
    alive = flow_status(facts(*tasks))
    assert (alive.lag, alive.lost_drivers) == (Lag(records=14), ())

    frozen = facts(
        *tasks, is_lost=lambda driver, incarnation: (driver, incarnation) == ("b", "b-1")
    )
    status = flow_status(frozen)
    assert status.tasks is not None
    assert (status.tasks.total, status.tasks.running) == (2, 1)
    assert (status.lag, status.bytes_per_second) == (None, 50)
    assert status.lost_drivers == ("b",)
    ready = find_condition(status.conditions, ConditionType.READY)
    assert ready is not None
    assert (ready.status, ready.reason) == (ConditionStatus.FALSE, Reason.STARTING)

    rows = [task_row(task, status.lost_drivers) for task in tasks[1:]]
    assert [row["phase"] for row in rows] == ["Running", "Unknown"]
    assert [row.get("lag", {}).get("records") for row in rows] == [7, None]
    assert [row.get("bytesPerSecond") for row in rows] == [50, None]


def test_the_lag_of_a_flow_is_unknown_before_its_connector_has_polled() -> None:
    polls = unit(TaskType.SOURCE_CONNECTOR)
    assert flow_status(facts(polls)).lag is None
    assert flow_status(facts(CONNECTOR)).lag == Lag()


def test_the_lag_of_a_flow_is_unknown_while_that_of_a_task_is() -> None:
    known = unit(TaskType.SOURCE_TASK, lag=Lag(records=10, seconds=2))
    silent = unit(
        TaskType.SOURCE_TASK, index=1, conditions=says(ConditionStatus.FALSE, UNREACHABLE)
    )
    starts = unit(TaskType.SOURCE_TASK, TaskPhase.CREATED, index=1)

    assert flow_status(facts(CONNECTOR, known, silent)).lag is None
    assert readiness(CONNECTOR, known, silent) == ("False", "SourceUnreachable", "m")
    assert flow_status(facts(CONNECTOR, known, starts)).lag is None


def test_a_connector_that_failed_is_counted() -> None:
    """The message names it, and the number of failed tasks beside it must not be 0."""
    connector = unit(TaskType.SOURCE_CONNECTOR, TaskPhase.FAILED)
    tasks = flow_status(facts(connector, unit(TaskType.SOURCE_TASK))).tasks
    assert tasks is not None
    assert (tasks.total, tasks.running, tasks.failed) == (1, 1, 1)


def test_a_connector_that_nobody_runs_polls_nothing() -> None:
    polls = unit(TaskType.SOURCE_CONNECTOR)
    waits = polls.model_copy(update={"status": polls.status.model_copy(update={"driver_name": ""})})
    assert readiness(waits)[2] == "the source connector waits for a driver"
    assert readiness(polls)[2] == "the source connector polls the source for the first time"
    known = flow_status(facts(CONNECTOR, unit(TaskType.SOURCE_TASK)))
    again = replace(facts(polls), flow=FLOW.model_copy(update={"status": known}))
    ready = find_condition(flow_status(again).conditions, ConditionType.READY)
    assert ready is not None
    assert ready.message == "the source connector polls the source"


def test_a_flow_without_drivers_waits() -> None:
    assert readiness(CONNECTOR, alive=0)[:2] == ("False", "NoDrivers")


def test_units_that_no_assignor_places_make_the_flow_not_ready() -> None:
    problem = "assignor mine raised KeyError: 1; the assignment in force stays"
    placed = CONNECTOR.model_copy(
        update={"spec": CONNECTOR.spec.model_copy(update={"driver_name": "d"})}
    )
    status = flow_status(facts(placed, unit(TaskType.SOURCE_TASK), placement_problem=problem))
    ready = find_condition(status.conditions, ConditionType.READY)
    assert ready is not None
    assert (ready.status, ready.reason) == (ConditionStatus.FALSE, Reason.NOT_PLACED)
    assert ready.message == f"1 of 2 units wait for a driver: {problem}"

    # The flow is ready as long as all units have a driver, and reports the problem.
    status = flow_status(facts(placed, placement_problem=problem))
    ready = find_condition(status.conditions, ConditionType.READY)
    failed = find_condition(status.conditions, ConditionType.ASSIGNMENT_FAILED)
    assert ready is not None
    assert ready.status is ConditionStatus.TRUE
    assert failed is not None
    assert failed.message == problem


def test_a_driver_that_did_not_release_in_time_is_named_with_this_flow_s_units() -> None:
    overdue = {"driver-2": {CONNECTOR.metadata.name, "users-source-task-0"}, "driver-3": {"other"}}
    status = flow_status(facts(CONNECTOR, overdue=overdue))
    found = find_condition(status.conditions, ConditionType.DRIVER_UNRESPONSIVE)
    assert found is not None
    assert "driver-2 (orders-sourceconnector-0);" in found.message
    assert "users" not in found.message
    assert "driver-3" not in found.message
    status = flow_status(facts(CONNECTOR))
    assert find_condition(status.conditions, ConditionType.DRIVER_UNRESPONSIVE) is None


def test_a_failed_task_makes_the_flow_not_ready_and_says_why() -> None:
    error = TaskError(reason="Fatal", message="disk on fire", time=NOW)
    first, second = (
        unit(TaskType.SOURCE_TASK, TaskPhase.FAILED, index, last_error=error) for index in (0, 1)
    )
    name = first.metadata.name
    assert readiness(CONNECTOR, first) == ("False", "TaskFailed", f"{name} failed: disk on fire")
    assert readiness(CONNECTOR, first, second)[2] == f"{name} failed (and 1 more): disk on fire"


def test_a_unit_that_does_not_run_yet_is_named_and_one_with_an_error_first() -> None:
    waiting = [unit(TaskType.SOURCE_TASK, TaskPhase.RESTORING, index) for index in (0, 1)]
    message = "orders-sourcetask-0 does not run yet"
    assert readiness(CONNECTOR, waiting[0]) == ("False", "Starting", message)
    error = TaskError(reason="Retriable", message="no answer", time=NOW)
    retrying = unit(TaskType.SOURCE_TASK, TaskPhase.RESTORING, 2, last_error=error)
    message = "orders-sourcetask-2 does not run yet (and 2 more): no answer"
    assert readiness(CONNECTOR, *waiting, retrying)[2] == message


def test_a_failed_connector_stalls_the_flow() -> None:
    failed = unit(
        TaskType.SOURCE_CONNECTOR,
        TaskPhase.FAILED,
        conditions=says(ConditionStatus.FALSE, Reason.SAME_CLUSTER),
    )
    conditions = flow_status(facts(failed)).conditions
    stalled = find_condition(conditions, ConditionType.STALLED)
    assert stalled is not None
    assert stalled.reason is Reason.SAME_CLUSTER
    assert find_condition(conditions, ConditionType.RECONCILING) is None


@pytest.mark.parametrize(
    ("reason", "type"),
    [
        (Reason.SECRET_MISSING, ConditionType.STALLED),
        (Reason.AUTHENTICATION_FAILED, ConditionType.STALLED),
        (Reason.TLS_FAILED, ConditionType.STALLED),
        (Reason.SOURCE_UNREACHABLE, ConditionType.RECONCILING),
    ],
)
def test_a_cluster_that_somebody_has_to_open_stalls_the_flow(
    reason: Reason, type: ConditionType
) -> None:
    shut_out = unit(
        TaskType.SOURCE_CONNECTOR,
        TaskPhase.RESTORING,
        conditions=says(ConditionStatus.FALSE, reason),
    )
    found = find_condition(flow_status(facts(shut_out)).conditions, type)
    assert found is not None
    assert found.reason is reason


def test_a_warning_stays_visible_on_a_ready_flow() -> None:
    warns = unit(
        TaskType.SOURCE_CONNECTOR,
        conditions=says(ConditionStatus.TRUE, Reason.NO_TOPIC_MATCHES, "no topic matches x"),
    )
    assert readiness(warns) == ("True", "NoTopicMatches", "no topic matches x")


def test_a_condition_keeps_its_time_while_its_status_stays() -> None:
    first = flow_status(facts(CONNECTOR))
    later = replace(
        facts(CONNECTOR),
        flow=FLOW.model_copy(update={"status": first}),
        now=NOW + timedelta(minutes=5),
    )
    assert flow_status(later).conditions[0].last_transition_time == NOW
    lost = flow_status(replace(later, alive=0))
    assert lost.conditions[0].last_transition_time == NOW + timedelta(minutes=5)


def test_contested_partitions_of_all_tasks_are_a_condition_of_the_flow() -> None:
    def contested(index: int) -> ReplicationTask:
        found = Condition(
            type=ConditionType.PARTITION_CONTESTED,
            status=ConditionStatus.TRUE,
            reason=Reason.TAKEN_AGAIN,
            message=f"orders-{index}",
        )
        return unit(TaskType.SOURCE_TASK, index=index, conditions=(found,))

    tasks = [CONNECTOR, contested(0), contested(1)]
    status = flow_status(FlowFacts(now=NOW, flow=FLOW, tasks=tasks, alive=1))
    found = find_condition(status.conditions, ConditionType.PARTITION_CONTESTED)
    assert found is not None
    assert (found.reason, found.message) == (Reason.TAKEN_AGAIN, "orders-0; orders-1")
    ready = find_condition(status.conditions, ConditionType.READY)
    assert ready is not None
    assert ready.status is ConditionStatus.TRUE


def reset_condition(annotation: str, *done: str) -> Condition | None:
    metadata = FLOW.metadata.model_copy(update={"annotations": {"headrace.dev/reset": annotation}})
    tasks = [
        unit(
            TaskType.SOURCE_TASK,
            index=index,
            conditions=(
                Condition(
                    type=ConditionType.PARTITIONS_RESET,
                    status=ConditionStatus.TRUE,
                    reason=Reason.RESET_BY_ANNOTATION,
                    message=message,
                ),
            ),
        )
        for index, message in enumerate(done)
    ]
    tasks = [CONNECTOR, *(tasks or [unit(TaskType.SOURCE_TASK)])]
    flow = FLOW.model_copy(update={"metadata": metadata})
    status = flow_status(FlowFacts(now=NOW, flow=flow, tasks=tasks, alive=1))
    return find_condition(status.conditions, ConditionType.PARTITIONS_RESET)


AT = "2026-01-31T18:00:00Z"


@pytest.mark.parametrize(
    ("annotation", "done", "status", "said"),
    [
        (f"orders/3@{AT}", ["3 is done"], "True", "3 is done"),
        (f"orders@{AT}", ["3 is done", "7 is done"], "True", "3 is done; 7 is done"),
        (f"orders/3@{AT} order@{AT}", ["3 is done"], "True", "(yet): order@2026-01-31T18:00:00Z"),
        (f"orders/4@{AT}", [], "False", "(yet): orders/4@2026-01-31T18:00:00Z"),
        ("orders/3", [], "False", "resets nothing: 'orders/3' is not of the form"),
    ],
)
def test_what_was_reset_and_what_cannot_be_is_a_condition(
    annotation: str, done: list[str], status: str, said: str
) -> None:
    found = reset_condition(annotation, *done)
    assert found is not None
    assert (found.status, said in found.message) == (status, True)
    reason = Reason.RESET_BY_ANNOTATION if done else Reason.INVALID_RESET
    assert found.reason is reason


def test_a_reset_that_is_not_done_yet_is_no_condition() -> None:
    assert reset_condition(f"orders/3@{AT}") is None
    assert reset_condition("") is None


def test_flow_that_runs_after_a_fail_over_waits_for_a_user() -> None:
    words = "orders/0 was failed over to west at offset 5: it is not copied until `headrace ..."
    error = TaskError(reason=FailedOver.__name__, message=words, time=NOW)
    waiting = unit(TaskType.SOURCE_TASK, TaskPhase.RESTORING, last_error=error)
    conditions = flow_status(facts(CONNECTOR, waiting)).conditions
    assert {one.type for one in conditions} >= {"Ready", "Stalled"}
    assert readiness(CONNECTOR, waiting) == ("False", "FailedOver", words)
    events = [one for one in occurrences((), conditions) if one.reason == Reason.FAILED_OVER]
    assert [one.warning for one in events] == [True]
    again = unit(TaskType.SOURCE_TASK, last_error=error)
    assert readiness(CONNECTOR, again)[0] == "True", "aborted"
