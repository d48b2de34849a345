"""Units that must not run because of ``spec.state`` and ``spec.sourceWatch``."""

import pytest
from support import manifests

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
    TaskType,
)
from headrace.placement import stopped_units

ENDED = Condition(
    type=ConditionType.SOURCE_STILL_WRITTEN,
    status=ConditionStatus.FALSE,
    reason=Reason.REVERSE_FLOW_RUNS,
)


def unit(type: TaskType, *conditions: Condition) -> ReplicationTask:
    return ReplicationTask(
        metadata=ObjectMeta(name=str(type).lower()),
        spec=ReplicationTaskSpec(flow_name="orders", type=type),
        status=ReplicationTaskStatus(conditions=conditions),
    )


TASK, WATCH = TaskType.SOURCE_TASK, TaskType.SOURCE_WATCH


@pytest.mark.parametrize(
    ("state", "watches", "conditions", "stopped"),
    [
        ("Running", True, (), {WATCH}),
        ("Paused", True, (), {WATCH}),
        ("Stopped", False, (), {TASK, WATCH}),
        ("Stopped", True, (), {TASK}),
        ("Stopped", True, (ENDED,), {TASK, WATCH}),
    ],
)
def test_a_stopped_flow_runs_its_watch_only(
    state: str, *, watches: bool, conditions: tuple[Condition, ...], stopped: set[TaskType]
) -> None:
    of = manifests.flow("orders", state=state, sourceWatch={"enabled": watches})
    found = stopped_units(
        ReplicationFlow.model_validate(of), [unit(TASK), unit(WATCH, *conditions)]
    )
    assert {one.type for one in found} == stopped
