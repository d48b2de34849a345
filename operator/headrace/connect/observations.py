"""Conditions that a source task reports of its partitions."""

from datetime import UTC, datetime

from headrace.api import Condition, ConditionStatus, ConditionType, Reason
from headrace.movers import Choice

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


def not_stored(target: str, since_s: float) -> Condition:
    """``target`` has not stored progress since then (Unix time)."""
    since = datetime.fromtimestamp(int(since_s), UTC)
    message = (
        f"{target} has not stored progress since {since:%Y-%m-%dT%H:%M:%SZ}: nothing more is "
        "copied until it does, and what was copied last may be copied again"
    )
    return observation(ConditionType.PROGRESS_NOT_STORED, Reason.NOT_ACKNOWLEDGED, message)


def batch_not_possible(choice: Choice | None) -> tuple[Condition, ...]:
    """Of a flow with ``mover: Auto`` that has the record mover."""
    if choice is None or choice.reason is None:
        return ()
    message = f"records are copied one by one (mover Record): {choice.why}"
    return (observation(ConditionType.BATCH_NOT_POSSIBLE, choice.reason, message),)
