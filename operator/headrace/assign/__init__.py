"""Assignors, which decide which driver runs each task.

An assignor returns the next assignment for the current tasks, drivers and assignment. This package
has no I/O, no clock and no randomness, and can be used on its own. The interface follows Kafka
Streams (KIP-924).
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
"""Built-in assignors, by the name that a flow sets. Others are found by entry point."""

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
