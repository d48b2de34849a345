"""Where partitions of a flow begin, stored as its progress by a command, before the flow runs."""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from headrace.api import LossAction, TopicPartition
from headrace.connect.runtime.both_clusters import known_topic_ids
from headrace.connect.runtime.context import FlowContext
from headrace.connect.takeover.switching import identify
from headrace.errors import Fatal
from headrace.replication import Loss, Progress


class Beginning(NamedTuple):
    """Offsets at which a partition begins."""

    source_offset: int
    """The next to be copied."""
    target_offset: int
    """Where the log of the copy ends."""
    before: Progress | None = None
    """Progress that is already stored."""


def _resolved(before: Progress | None) -> tuple[Loss, ...]:
    """Return the losses before. The partition continues after a loss that had stopped it."""
    if before is None:
        return ()
    return tuple(
        replace(one, action=LossAction.CONTINUED) if one.unresolved else one
        for one in before.losses
    )


def store_beginnings(
    context: FlowContext, verb: str, beginnings: Mapping[TopicPartition, Beginning]
) -> None:
    """Store a claim with a higher epoch.

    Raise ``Retriable``, and ``Fatal`` if another owner took a partition in the meantime.
    """
    if not beginnings:
        return
    ids = known_topic_ids(context, {at.topic for at in beginnings})
    context.progress.start()  # makes the topic where it is absent
    own, owner = identify(context, verb), f"{verb} by {context.driver.incarnation}"
    context.progress.write(
        {
            context.progress_key(at): Progress(
                source_topic_id=ids[at.topic][0],
                source_offset=one.source_offset,
                leader_epoch=-1,
                target_topic_id=ids[at.topic][1],
                target_offset=one.target_offset,
                epoch=one.before.epoch + 1 if one.before else 1,
                owner=owner,
                writer=own,
                earlier_losses=_resolved(one.before),
            )
            for at, one in beginnings.items()
        }
    )
    context.progress.read_to_end()
    for at in beginnings:
        stored = context.stored(at)
        if stored is None or stored.owner != owner:
            raise Fatal(f"{stored.owner if stored else 'nobody'} took {at} meanwhile: stop that")
