"""Losses as a unit reports them, for as long as they matter: in words, as a condition, as data."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from headrace.api import (
    Condition,
    ConditionType,
    LossAction,
    LossCause,
    LostOffsets,
    Reason,
    TopicPartition,
)
from headrace.connect.runtime.both_clusters import target_partition
from headrace.connect.runtime.context import FlowContext
from headrace.connect.runtime.observations import observation
from headrace.replication import Loss

_SHOWN_S = 86_400
"""So long a loss that the flow has dealt with is shown: a person sees it the next morning."""
_MOST_LOSSES = 100


class Shown(NamedTuple):
    """What a unit reports of losses."""

    listed: tuple[LostOffsets, ...]
    conditions: tuple[Condition, ...]


def is_shown(loss: Loss, now_s: float) -> bool:
    """``now_s``: Unix time."""
    return loss.unresolved or loss.time_ms > (now_s - _SHOWN_S) * 1000


def shown_losses(
    losses: Mapping[TopicPartition, Loss],
    now_s: float,
    sentence: Callable[[TopicPartition, Loss], str],
) -> Shown:
    """Those that are to be seen at ``now_s`` (Unix time)."""
    shown = {at: loss for at, loss in sorted(losses.items()) if is_shown(loss, now_s)}
    if not shown:
        return Shown((), ())
    listed = [lost_offsets(at, loss) for at, loss in shown.items()]
    message = "; ".join(sentence(at, loss) for at, loss in shown.items())
    lost = observation(ConditionType.DATA_LOSS_DETECTED, Reason.DATA_LOST, message)
    return Shown(tuple(listed[:_MOST_LOSSES]), (lost,))


def lost_offsets(at: TopicPartition, loss: Loss) -> LostOffsets:
    """The same, as data."""
    return LostOffsets(
        topic=at.topic,
        partition=at.partition,
        cause=loss.cause,
        first_offset=loss.first,
        last_offset=loss.last if loss.last >= loss.first else None,
        lower_bound=loss.lower_bound,
        action=loss.action,
        time=datetime.fromtimestamp(loss.time_ms // 1000, UTC),
    )


def sentence(context: FlowContext, at: TopicPartition, loss: Loss) -> str:
    """What was lost, where and why, and what was or can be done."""
    outcomes = _OF_DELETED if loss.cause is LossCause.SOURCE_DELETED else _OUTCOMES
    outcome = outcomes[loss.action]
    if context.preserved and loss.cause is not LossCause.SOURCE_DELETED:
        there = context.policy.target_topic(at.topic)
        outcome = _OF_PRESERVED[loss.action].format(there=there, target=context.target.name)
    return f"{_WORDS[loss.cause](context, at, loss)}; {outcome}"


_OUTCOMES = {
    LossAction.STOPPED: (
        "the partition is stopped: set spec.onDataLoss to Restart (copy it again from the earliest "
        "offset) or Continue (go on behind the loss), reset the partition (`headrace flow reset`), "
        "or exclude the topic"
    ),
    LossAction.RESTARTED: "copied again from the earliest offset (spec.onDataLoss: Restart)",
    LossAction.CONTINUED: "gone on behind it (spec.onDataLoss: Continue)",
}


_OF_PRESERVED = {
    LossAction.STOPPED: (
        "the partition is stopped, as its copy could not go on with the same offsets "
        "(spec.offsets.mode: Preserved): have {there} on {target} copied again, by `headrace flow "
        "rebuild`, or exclude the topic"
    ),
    LossAction.RESTARTED: "copied again from there on (spec.offsets.mode: Preserved)",
    LossAction.CONTINUED: "gone on behind it",
}


_OF_DELETED = {
    LossAction.STOPPED: (
        "to accept that, set spec.onDataLoss to Continue or Restart, or exclude the topic"
    ),
    LossAction.RESTARTED: "accepted (spec.onDataLoss: Restart)",
    LossAction.CONTINUED: "accepted (spec.onDataLoss: Continue)",
}


def _truncated(context: FlowContext, at: TopicPartition, loss: Loss) -> str:
    return (
        f"{at} on {context.source.name} begins at offset {loss.last + 1}, the next to copy was "
        f"{loss.first}: offsets {loss.first} to {loss.last} are lost (retention was shorter than "
        "the flow's pause)"
    )


def _diverged(context: FlowContext, at: TopicPartition, loss: Loss) -> str:
    return (
        f"{at} on {context.source.name} ended at offset {loss.first}, but offsets up to "
        f"{loss.last} were copied: the source lost them and may write others in their place (an "
        "unclean election)"
    )


def _recreated_on_source(context: FlowContext, at: TopicPartition, loss: Loss) -> str:
    seen = f" (at least to offset {loss.last})" if loss.last >= loss.first else ""
    return (
        f"topic {at.topic} on {context.source.name} was deleted and created again: what its old "
        f"partition {at.partition} held from offset {loss.first} on{seen} is lost, as far as it "
        "was not copied before that was noticed"
    )


def _deleted_on_source(context: FlowContext, at: TopicPartition, loss: Loss) -> str:
    topic = f"topic {at.topic} on {context.source.name} was deleted"
    if loss.last < loss.first:
        return (
            f"{topic}: what its partition {at.partition} held from offset {loss.first} on was not "
            "copied, and is lost"
        )
    return (
        f"{topic}: offsets {loss.first} to (at least) {loss.last} of its partition {at.partition} "
        "were not copied, and are lost"
    )


def _truncated_on_target(context: FlowContext, at: TopicPartition, loss: Loss) -> str:
    target = target_partition(context, at)
    return (
        f"{target} on {context.target.name} went on at offset {loss.first}, but all below "
        f"{loss.last + 1} were acknowledged: offsets {loss.first} to {loss.last} are gone from the "
        "target (an unclean election, or the topic was truncated)"
    )


def _recreated_on_target(context: FlowContext, at: TopicPartition, loss: Loss) -> str:
    offsets = f"its offsets 0 to {loss.last}, " if loss.last >= 0 else ""
    return (
        f"topic {context.policy.target_topic(at.topic)} on {context.target.name} was deleted and "
        f"created again: {offsets}all copies of {at} until then, are gone"
    )


_WORDS: dict[LossCause, Callable[[FlowContext, TopicPartition, Loss], str]] = {
    LossCause.SOURCE_TRUNCATED: _truncated,
    LossCause.SOURCE_DIVERGED: _diverged,
    LossCause.SOURCE_RECREATED: _recreated_on_source,
    LossCause.SOURCE_DELETED: _deleted_on_source,
    LossCause.TARGET_TRUNCATED: _truncated_on_target,
    LossCause.TARGET_RECREATED: _recreated_on_target,
}
