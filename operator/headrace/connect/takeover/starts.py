"""Offsets at which a source task's partitions resume, and their progress."""

from collections.abc import Mapping
from typing import NamedTuple

from headrace.api import TopicPartition
from headrace.connect.runtime.context import FlowContext
from headrace.connect.runtime.ownership import Ownership, OwnershipLost
from headrace.errors import HeadraceError
from headrace.replication import (
    Confirmed,
    Loss,
    OffsetPair,
    OwnerProducer,
    Progress,
    ProgressKey,
    TargetSeen,
    losses_before,
)

UNKNOWN = -1
"""In the place of the producer id of an owner that has not stored it."""


class Start(NamedTuple):
    """Offset at which one partition resumes, with its state.

    Fields without a description here have the meaning of the same fields of ``Progress``.
    """

    source_offset: int
    target_offset: int
    """End of what the target had acknowledged, or contained when it was first claimed."""
    leader_epoch: int
    source_topic_id: str
    target_topic_id: str
    end: int
    """The last stable offset of the source when this was read."""
    seen_end: int
    """The highest end of the source's log that was seen since."""
    confirmed: Confirmed
    loss: Loss | None = None
    """The last loss."""
    reset_ms: int = 0
    """The last reset, which need not be repeated."""
    tombstones_since_ms: int = 0
    target_seen: TargetSeen | None = None
    pairs: tuple[OffsetPair, ...] = ()
    writer: OwnerProducer | None = None
    """Identity with which it is copied, of one lane alone."""
    fencing: tuple[OwnerProducer, ...] = ()
    data_writer: OwnerProducer | None = None
    unfenced: tuple[int, ...] = ()
    unfenced_until_ms: int = 0
    doubt: str = ""
    """Why records may be on the target twice; without a ``writer`` it is shown always."""
    doubt_until_ms: int = 0
    """Unix time until which it is shown."""
    earlier_losses: tuple[Loss, ...] = ()
    """Resolved losses before the last one."""
    first_offset: int = -1
    """Where ``spec.startFrom`` let the partition begin; -1 if that is not known."""

    @property
    def waits(self) -> bool:
        """Whether the partition must not resume: its loss is unresolved."""
        return self.loss is not None and self.loss.unresolved

    def with_loss(self, loss: Loss) -> "Start":
        """Return the same with this loss as the last one."""
        earlier = losses_before(loss, self.loss, self.earlier_losses)
        return self._replace(loss=loss, earlier_losses=earlier)

    @property
    def here(self) -> Confirmed:
        """State that is confirmed if the topics still have these ids."""
        return Confirmed(self.source_offset, self.seen_end, self.target_offset)


Starts = dict[TopicPartition, Start]


class Restored(NamedTuple):
    """Result of a restore."""

    starts: Starts
    put_off: Mapping[TopicPartition, HeadraceError]
    """Partitions to restore later, with the reason: a leader is unreachable. They delay no others.
    """
    renew: bool = False
    """Whether the lane has to be given up first: partitions that are restored beside its
    transactions would share their epoch, and a fence would abort them."""


def records(
    context: FlowContext,
    ownership: Ownership,
    starts: Mapping[TopicPartition, Start],
) -> dict[ProgressKey, Progress]:
    """Return the progress to store for these partitions, under this ownership.

    Raise ``OwnershipLost`` after its end, so that work that hung in a pool stores nothing after the
    next owner.
    """
    if ownership.released:
        raise OwnershipLost(f"{ownership.name} was released")
    owner, now_ms = ownership.signature, context.now_ms
    return {
        context.progress_key(at): _record(start, ownership.epoch, owner, now_ms)
        for at, start in starts.items()
    }


def _record(start: Start, epoch: int, owner: str, now_ms: int) -> Progress:
    progress = Progress(
        source_topic_id=start.source_topic_id,
        source_offset=start.source_offset,
        leader_epoch=start.leader_epoch,
        target_topic_id=start.target_topic_id,
        target_offset=start.target_offset,
        epoch=epoch,
        owner=owner,
        source_end=start.seen_end,
        confirmed=start.confirmed,
        loss=start.loss,
        earlier_losses=start.earlier_losses,
        first_offset=start.first_offset,
        reset_ms=start.reset_ms,
        tombstones_since_ms=start.tombstones_since_ms,
        writer=start.writer,
        unfenced=start.unfenced if now_ms < start.unfenced_until_ms else (),
        unfenced_until_ms=start.unfenced_until_ms if now_ms < start.unfenced_until_ms else 0,
        target_seen=start.target_seen,
        fencing=start.fencing,
        pairs=start.pairs,
    )
    return progress if start.data_writer is None else progress.preserving(start.data_writer)
