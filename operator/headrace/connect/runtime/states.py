"""The life of a unit: one table, drawn in ``docs/architecture.md``.

Kafka Streams' states (``StreamTask``), plus Connect's Paused and Failed.
"""

from headrace.api import TaskPhase

TRANSITIONS: dict[TaskPhase, frozenset[TaskPhase]] = {
    TaskPhase.CREATED: frozenset({TaskPhase.RESTORING, TaskPhase.CLOSED, TaskPhase.FAILED}),
    TaskPhase.RESTORING: frozenset({TaskPhase.RUNNING, TaskPhase.SUSPENDED, TaskPhase.FAILED}),
    TaskPhase.RUNNING: frozenset({TaskPhase.PAUSED, TaskPhase.SUSPENDED, TaskPhase.FAILED}),
    TaskPhase.PAUSED: frozenset({TaskPhase.RUNNING, TaskPhase.SUSPENDED, TaskPhase.FAILED}),
    TaskPhase.SUSPENDED: frozenset(
        {
            TaskPhase.RESTORING,
            TaskPhase.RUNNING,
            TaskPhase.PAUSED,
            TaskPhase.CLOSED,
            TaskPhase.FAILED,
        }
    ),
    TaskPhase.FAILED: frozenset({TaskPhase.CLOSED}),
    TaskPhase.CLOSED: frozenset(),
}


def check_transition(before: TaskPhase, after: TaskPhase) -> None:
    """Raise ``ValueError`` for a step that the table does not have."""
    if after not in TRANSITIONS[before]:
        raise ValueError(f"a unit cannot go from {before} to {after}")
