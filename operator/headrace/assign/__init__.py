"""The assignors: from tasks, drivers, previous assignment to the next one. Pure.

No I/O, no clock, no randomness; usable on its own. The shape is Kafka Streams' (KIP-924).
"""

from collections.abc import Mapping

from headrace.assign.assignment import DriverAssignment, TaskAssignment, TaskAssignor
from headrace.assign.assignment_utils import AssignmentUtils
from headrace.assign.cooperative import CooperativeAssignor
from headrace.assign.errors import AssignmentError, TaskAssignmentError
from headrace.assign.ids import DriverName, TaskId
from headrace.assign.round_robin import RoundRobinAssignor
from headrace.assign.state import (
    ApplicationState,
    AssignmentConfig,
    DriverState,
    FlowConfig,
    TaskInfo,
    weigh,
)
from headrace.assign.sticky import StickyAssignor
from headrace.assign.validation import Violation

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
