"""Offsets at which partitions start: stored progress, first offsets and resets."""

from collections.abc import Mapping, Set
from typing import NamedTuple

from headrace.api import (
    RESET_ANNOTATION,
    Condition,
    ConditionType,
    Reason,
    Resets,
    StartMode,
    TopicPartition,
)
from headrace.connect.runtime.both_clusters import known_topic_ids
from headrace.connect.runtime.contested_partitions import observation
from headrace.connect.runtime.context import FlowContext
from headrace.connect.runtime.ownership import Ownership, OwnershipLost
from headrace.connect.takeover.first_start import origins_of
from headrace.errors import Fatal, HeadraceError
from headrace.kafka import Position, replaced
from headrace.logs import get_logger
from headrace.replication import (
    Confirmed,
    Loss,
    OffsetPair,
    OwnerProducer,
    Progress,
    ProgressKey,
    SkippedRange,
    TargetSeen,
    losses_before,
)
from headrace.replication.first_start import Origin

log = get_logger(__name__)

UNKNOWN = -1
"""Producer id that stands for an owner that has stored no producer id."""


class Start(NamedTuple):
    """Offset at which one partition resumes, with its state.

    Fields without a description have the meaning of the field of ``Progress`` with the same name.
    """

    source_offset: int
    target_offset: int
    """Target offset after the last acknowledged record. Without such a record, it is the end of the
    target's log when the partition was first claimed."""
    leader_epoch: int
    source_topic_id: str
    target_topic_id: str
    end: int
    """Last stable offset of the source when the partition was restored."""
    seen_end: int
    """Highest end of the source's log that was seen."""
    confirmed: Confirmed
    loss: Loss | None = None
    """Last loss, or None."""
    reset_ms: int = 0
    """Unix time in ms of the last reset that was done."""
    tombstones_since_ms: int = 0
    target_seen: TargetSeen | None = None
    pairs: tuple[OffsetPair, ...] = ()
    writer: OwnerProducer | None = None
    """Producer identity with which one lane copies the partition, or None."""
    fencing: tuple[OwnerProducer, ...] = ()
    data_writer: OwnerProducer | None = None
    unfenced: tuple[int, ...] = ()
    unfenced_until_ms: int = 0
    doubt: str = ""
    """Reason why records may be on the target twice; empty if there is none. Without a ``writer``
    it is always reported."""
    doubt_until_ms: int = 0
    """Unix time in ms until which ``doubt`` is reported."""
    earlier_losses: tuple[Loss, ...] = ()
    """Resolved losses before the last one."""
    skipped: tuple[SkippedRange, ...] = ()
    first_offset: int = -1
    """Offset at which the partition began by ``spec.startFrom``; -1 if it is not known."""

    @property
    def waits(self) -> bool:
        """Whether the partition must not resume, because its loss is unresolved."""
        return self.loss is not None and self.loss.unresolved

    def with_loss(self, loss: Loss) -> "Start":
        """Return the start with this loss as the last one."""
        earlier = losses_before(loss, self.loss, self.earlier_losses)
        return self._replace(loss=loss, earlier_losses=earlier)

    @property
    def here(self) -> Confirmed:
        """Offsets that are confirmed if the topics still have the ids that were read."""
        return Confirmed(self.source_offset, self.seen_end, self.target_offset)


Starts = dict[TopicPartition, Start]


class Restored(NamedTuple):
    """Result of a restore."""

    starts: Starts
    put_off: Mapping[TopicPartition, HeadraceError]
    """Errors of partitions that must be restored later, such as partitions without a leader. They
    do not delay other partitions."""
    renew: bool = False
    """Whether the lane must be replaced first. Partitions that are restored during its transactions
    would share its epoch, and a fence would abort the transactions."""


def records(
    context: FlowContext,
    ownership: Ownership,
    starts: Mapping[TopicPartition, Start],
) -> dict[ProgressKey, Progress]:
    """Return the progress to store for these partitions, under this ownership.

    Raises:
        OwnershipLost: The ownership has ended. A delayed step in a pool must store nothing after
            the claim of the next owner.
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
        skipped=start.skipped,
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


def resets_done(resets: Resets, starts: Mapping[TopicPartition, Start]) -> tuple[Condition, ...]:
    """Return condition ``PartitionsReset`` for partitions of the task that were reset.

    It is reported as long as the annotation names such partitions.
    """
    done = resets.among(at for at in starts if starts[at].reset_ms >= resets.time_ms(at))
    if not done.times:
        return ()
    message = f"copied again from spec.startFrom on, as {RESET_ANNOTATION} asks: {done}"
    return (observation(ConditionType.PARTITIONS_RESET, Reason.RESET_BY_ANNOTATION, message),)


def first_positions(
    context: FlowContext,
    partitions: Set[TopicPartition],
    again: Set[TopicPartition] = frozenset(),
) -> dict[TopicPartition, int]:
    """Return the first offset of each partition, by ``spec.startFrom``.

    With ``Latest``, a topic that the flow selected at its first start is copied from the first
    record since the flow was created, by timestamps. A partition that was created later is copied
    from its beginning. A topic that existed at the first start, and that ``spec.topics`` selected
    later, begins at its end. Partitions in ``again`` are treated as selected at the first start.

    Raises:
        Fatal: The source does not have an offset that ``spec.startFrom.offsets`` lists.
    """
    source, start = context.source, context.spec.start_from
    if not partitions:
        return {}
    if start.mode is StartMode.EARLIEST:
        return source.offsets(partitions, Position.EARLIEST)
    if start.mode is StartMode.OFFSETS:
        return _listed(context, partitions)
    if start.mode is StartMode.LATEST:
        origins = origins_of(context, partitions)
        created = {at for at, origin in origins.items() if origin is Origin.CREATED_LATER}
        late = {at for at, origin in origins.items() if origin is Origin.NOT_SELECTED} - again
        return {
            **(source.offsets(created, Position.EARLIEST) if created else {}),
            **_ends(context, late),
            **_by_time(context, partitions - created - late),
        }
    return _by_time(context, partitions)


def _ends(context: FlowContext, partitions: Set[TopicPartition]) -> dict[TopicPartition, int]:
    if not partitions:
        return {}
    ends = context.source.offsets(partitions, Position.LATEST)
    for at, end in sorted(ends.items()):
        log.warning(
            "begins at its end: the topic existed at the flow's first start, and spec.topics "
            "selected it later",
            flow=context.name,
            partition=str(at),
            offset=end,
        )
    return ends


def _by_time(context: FlowContext, partitions: Set[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the offsets of the first records since the time of ``spec.startFrom``."""
    if not partitions:
        return {}
    source, start = context.source, context.spec.start_from
    # The ends are read first. A record that arrives between the two requests is then found by its
    # time, or is above the end.
    ends = source.offsets(partitions, Position.LATEST)
    moment = start.timestamp or context.flow.metadata.creation_timestamp
    found = source.offsets_at(partitions, int(moment.timestamp() * 1000)) if moment else {}
    return {at: ends[at] if found.get(at, -1) < 0 else found[at] for at in partitions}


def _listed(context: FlowContext, partitions: Set[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the listed offsets, and the earliest offset of each unlisted partition."""
    source = context.source
    earliest = source.offsets(partitions, Position.EARLIEST)
    listed = {one.at: one.offset for one in context.spec.start_from.offsets or ()}
    starts = {at: listed[at] for at in partitions & listed.keys()}
    latest = source.offsets(starts.keys(), Position.LATEST) if starts else {}
    for at, offset in sorted(starts.items()):
        if not earliest[at] <= offset <= latest[at]:
            raise Fatal(
                f"spec.startFrom.offsets lists offset {offset} of {at}, and {source.name} has "
                f"offsets {earliest[at]} to {latest[at]} there: list an offset in that range, or "
                "remove the entry to copy the partition from its earliest record"
            )
    return earliest | starts


class Preview(NamedTuple):
    """Effect of a reset on one partition, in source offsets."""

    stored: int | None
    """Next offset to copy according to progress, or None."""
    start: int
    """Next offset to copy after the reset."""
    end: int
    repeated: int
    """Number of offsets that are copied a second time."""


def preview_reset(
    context: FlowContext, partitions: Set[TopicPartition]
) -> dict[TopicPartition, Preview]:
    """Return the effect of a reset on each partition.

    Unreadable progress counts as missing.

    Raises:
        Retriable: Brokers do not respond.
    """
    stored = _stored(context, partitions)
    starts = first_positions(context, partitions, partitions)
    ends = context.source.offsets(partitions, Position.LATEST)
    ids = known_topic_ids(context, {at.topic for at in partitions})
    return {
        at: Preview(
            known.source_offset if (known := stored.get(at)) else None,
            start,
            ends[at],
            _repeated(known, start, ids[at.topic]) if known else 0,
        )
        for at, start in starts.items()
    }


def _repeated(known: Progress, start: int, ids: tuple[str, str]) -> int:
    """Return the number of repeated offsets; 0 for a topic that was created again."""
    same = not (replaced(known.source_topic_id, ids[0]) or replaced(known.target_topic_id, ids[1]))
    return max(0, known.source_offset - start) if same else 0


def _stored(
    context: FlowContext, partitions: Set[TopicPartition]
) -> dict[TopicPartition, Progress]:
    progress = context.progress
    if not progress.exists():
        return {}  # following it would create the topic
    progress.start()
    progress.read_to_end()
    now_ms = context.now_ms
    found = {at: progress.get(context.progress_key(at), now_ms) for at in partitions}
    return {at: known for at, known in found.items() if known is not None}
