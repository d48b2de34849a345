"""What can be wrong with an assignment, by name."""

from enum import StrEnum

from headrace.errors import Retriable


class AssignmentError(StrEnum):
    """Names that Kafka Streams shipped (``TaskAssignor.AssignmentError``), and three more.

    A process is a driver here, a Kafka Streams client too.
    """

    NONE = "NONE"
    ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES = "ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES"
    INVALID_STANDBY_TASK = "INVALID_STANDBY_TASK"
    """A standby or warm-up of a stateless task."""
    MISSING_PROCESS_ID = "MISSING_PROCESS_ID"
    """A driver of the state is left out: it would not know that it is to stop what it runs."""
    UNKNOWN_PROCESS_ID = "UNKNOWN_PROCESS_ID"
    UNKNOWN_TASK_ID = "UNKNOWN_TASK_ID"
    ACTIVE_AND_STANDBY_TASK_ASSIGNED_TO_SAME_KAFKASTREAMS = (
        "ACTIVE_AND_STANDBY_TASK_ASSIGNED_TO_SAME_KAFKASTREAMS"
    )
    """On the KIP's page; not in Kafka, where a client's tasks are a map by task."""
    TASK_NOT_ASSIGNED = "TASK_NOT_ASSIGNED"
    """Ours: a task has no driver and is not known to wait. In Kafka that is no error."""


class TaskAssignmentError(Retriable):
    """Raised by an assignor: keep the assignment in force and ask again at once (KIP-924)."""
