"""Who runs what: pure functions from tasks, drivers and what was, to an assignment.

No I/O, no clock, no randomness; usable on its own. The shape is Kafka Streams' (KIP-924).
"""

from headrace.assign.round_robin import RoundRobinAssignor
from headrace.assign.state import ApplicationState, DriverName, TaskAssignment, TaskAssignor, TaskId

__all__ = [
    "ApplicationState",
    "DriverName",
    "RoundRobinAssignor",
    "TaskAssignment",
    "TaskAssignor",
    "TaskId",
]
