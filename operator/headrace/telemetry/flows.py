"""The metrics of a flow: what its status says."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headrace.api import ConditionType
from headrace.telemetry.metrics import Described

Object = Mapping[str, Any]
Sample = tuple[Described, tuple[str, ...], float]
"""What is measured, the values of its labels, the value."""

_FLOW = ("namespace", "flow")

FLOW_CONDITION = Described(
    "headrace_flow_condition",
    "gauge",
    "1 while the condition of the flow is True, else 0.",
    (*_FLOW, "condition"),
)
FLOW_TASKS = Described(
    "headrace_flow_tasks",
    "gauge",
    "Tasks of the flow (connectors are none), by phase; Other: they begin or go.",
    (*_FLOW, "phase"),
)
DRIVERS_READY = Described("headrace_flow_drivers_ready", "gauge", "Drivers that are alive.", _FLOW)
DRIVERS_DESIRED = Described(
    "headrace_flow_drivers_desired",
    "gauge",
    "Drivers that the spec asks for; 0 of a flow that is stopped.",
    _FLOW,
)
FLOW_LAG_RECORDS = Described(
    "headrace_flow_lag_records",
    "gauge",
    "Records on the source that the target has not acknowledged, in the coarse steps of the "
    "status; the drivers' metrics are exact.",
    _FLOW,
)
FLOW_LAG_S = Described(
    "headrace_flow_lag_seconds", "gauge", "Age of the oldest of them, in the same steps.", _FLOW
)
FLOW_METRICS: Sequence[Described] = (
    FLOW_CONDITION,
    FLOW_TASKS,
    DRIVERS_READY,
    DRIVERS_DESIRED,
    FLOW_LAG_RECORDS,
    FLOW_LAG_S,
)

_CONDITIONS = (
    ConditionType.READY,
    ConditionType.RECONCILING,
    ConditionType.STALLED,
    ConditionType.DATA_LOSS_DETECTED,
    ConditionType.FOREIGN_WRITER,
    ConditionType.DRIVERS_AVAILABLE,
    ConditionType.PARTITIONS_PAUSED,
    ConditionType.PARTITIONS_RESET,
    ConditionType.RECORDS_LEFT_OUT,
    ConditionType.PARTITION_CONTESTED,
    ConditionType.TRANSACTION_HANGING,
    ConditionType.TOMBSTONES_AT_RISK,
    ConditionType.RECORDS_MAY_REPEAT,
    ConditionType.PROGRESS_NOT_STORED,
    ConditionType.VERIFICATION_FAILED,
    ConditionType.BANDWIDTH_USED_UP,
    ConditionType.REQUIREMENTS_MISSING,
    ConditionType.TOPIC_DELETION,
    ConditionType.TOPIC_CONFIGS_REFUSED,
    ConditionType.ASSIGNMENT_FAILED,
    ConditionType.DRIVER_UNRESPONSIVE,
    ConditionType.RECONCILIATION_PAUSED,
)
_PHASES = ("Running", "Restoring", "Paused", "Failed")


def flow_samples(flow: Object) -> Iterator[Sample]:
    """Of a ReplicationFlow, as the API server has it."""
    name = (flow["metadata"]["namespace"], flow["metadata"]["name"])
    status = flow.get("status") or {}
    conditions = status.get("conditions") or ()
    true = {one["type"] for one in conditions if one["status"] == "True"}
    for condition in _CONDITIONS:
        yield FLOW_CONDITION, (*name, condition.value), condition in true
    if (tasks := status.get("tasks")) is not None:
        phases = {phase: tasks.get(phase.lower(), 0) for phase in _PHASES}
        # A connector that failed is not in total.
        phases["Other"] = max(tasks.get("total", 0) - sum(phases.values()), 0)
        for phase, count in phases.items():
            yield FLOW_TASKS, (*name, phase), count
    yield DRIVERS_READY, name, status.get("readyReplicas", 0)
    yield DRIVERS_DESIRED, name, status.get("desiredReplicas", 0)
    if (lag := status.get("lag")) is not None:
        yield FLOW_LAG_RECORDS, name, lag.get("records", 0)
        yield FLOW_LAG_S, name, lag.get("seconds", 0)
