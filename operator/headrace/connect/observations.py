"""Conditions that a source task reports of its partitions."""

from headrace.api import Condition, ConditionStatus, ConditionType, Reason

_LONGEST_MESSAGE = 1024
"""Of each task: a flow shows those of all."""


def observation(
    type: ConditionType,
    reason: Reason,
    message: str,
    status: ConditionStatus = ConditionStatus.TRUE,
) -> Condition:
    """A condition with its message, cut where it would be too long beside those of other tasks."""
    return Condition(type=type, status=status, reason=reason, message=message[:_LONGEST_MESSAGE])
