"""Conditions that a source task reports of its partitions."""

from datetime import UTC, datetime

from headrace.api import Condition, ConditionStatus, ConditionType, Reason, ReplicationFlowSpec
from headrace.movers import CopiedCounts, TokenBucket
from headrace.movers.verify import BatchComparison

_LONGEST_MESSAGE = 1024
"""Maximum length for one task: a flow shows the messages of all tasks."""


def observation(
    type: ConditionType,
    reason: Reason,
    message: str,
    status: ConditionStatus = ConditionStatus.TRUE,
) -> Condition:
    """Return a condition with its message, shortened to fit next to other tasks' messages."""
    return Condition(type=type, status=status, reason=reason, message=message[:_LONGEST_MESSAGE])


def not_stored(target: str, since_s: float) -> Condition:
    """``target`` has not stored progress since then (Unix time)."""
    since = datetime.fromtimestamp(int(since_s), UTC)
    message = (
        f"{target} has not stored progress since {since:%Y-%m-%dT%H:%M:%SZ}: nothing more is "
        "copied until it does, and what was copied last may be copied again"
    )
    return observation(ConditionType.PROGRESS_NOT_STORED, Reason.NOT_ACKNOWLEDGED, message)


def verification_failed(copied: CopiedCounts) -> tuple[Condition, ...]:
    """Return the condition of a task whose batches the helper in C joined wrongly."""
    if not copied.verified.get(BatchComparison.MISJOINED):
        return ()
    message = (
        "the helper for small batches made a batch that has not the records of its source, which "
        "was not sent; this driver copies without it now. Batches that it made before, for any "
        "task of this driver, may be wrong on the target: compare the topics (the driver's log "
        "has the partition and the time), and reset partitions whose copies are wrong"
    )
    return (observation(ConditionType.VERIFICATION_FAILED, Reason.HELPER_FAULTY, message),)


def bandwidth_used_up(flow: ReplicationFlowSpec, bandwidth: TokenBucket) -> tuple[Condition, ...]:
    """Return the condition of a flow whose reads are limited by ``spec.bandwidth``."""
    if (limit := flow.bandwidth) is None or not bandwidth.used_up:
        return ()
    message = (
        f"reads wait for spec.bandwidth ({limit.bytes_per_second} bytes a second for the flow): "
        "this driver's part of it is used up, and lag grows while the source's producers are faster"
    )
    return (observation(ConditionType.BANDWIDTH_USED_UP, Reason.BANDWIDTH_LIMIT, message),)
