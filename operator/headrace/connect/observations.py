"""Conditions that a source task reports of its partitions."""

from datetime import UTC, datetime

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


def not_stored(target: str, since_s: float, longest_s: float) -> Condition:
    """``target`` has not stored progress since then (Unix time); it copies on for ``longest_s``."""
    since = datetime.fromtimestamp(int(since_s), UTC)
    message = (
        f"{target} has not stored progress since {since:%Y-%m-%dT%H:%M:%SZ}: what is copied is "
        f"copied again if the driver fails, and nothing more is copied after {longest_s:.0f} s "
        "until it is stored"
    )
    return observation(ConditionType.PROGRESS_NOT_STORED, Reason.NOT_ACKNOWLEDGED, message)
