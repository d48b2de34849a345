"""The assignors: from tasks, drivers, previous assignment to the next one. Pure.

No I/O, no clock, no randomness; usable on its own. The shape is Kafka Streams' (KIP-924).
"""

from collections.abc import Mapping

from headrace.assign.assignor import (
    ApplicationState,
    AssignmentConfig,
    AssignmentError,
    DriverAssignment,
    DriverName,
    DriverState,
    FlowConfig,
    TaskAssignment,
    TaskAssignmentError,
    TaskAssignor,
    TaskId,
    TaskInfo,
    weigh,
)
from headrace.assign.connect_assignors import CooperativeAssignor, RoundRobinAssignor
from headrace.assign.sticky import StickyAssignor
from headrace.assign.task_assignment_utils import AssignmentUtils, Violation

SHIPPED: Mapping[str, type[TaskAssignor]] = {
    "cooperative": CooperativeAssignor,
    "round-robin": RoundRobinAssignor,
    "sticky": StickyAssignor,
}
"""Assignors by the name that a flow chooses them by; others come by entry point."""

__all__ = [
    "SHIPPED",
    "ApplicationState",
    "AssignmentConfig",
    "AssignmentError",
    "AssignmentUtils",
    "CooperativeAssignor",
    "DriverAssignment",
    "DriverName",
    "DriverState",
    "FlowConfig",
    "RoundRobinAssignor",
    "StickyAssignor",
    "TaskAssignment",
    "TaskAssignmentError",
    "TaskAssignor",
    "TaskId",
    "TaskInfo",
    "Violation",
    "weigh",
]
