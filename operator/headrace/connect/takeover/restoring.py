"""Restore of a task: progress is read and compared with both clusters.

All functions wait for brokers. They run in a pool, not in the loop that moves data.
"""

from collections.abc import Iterable, Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from headrace.api import TopicPartition
from headrace.connect.runtime.both_clusters import (
    KnownOffsets,
    TopicIds,
    describe_topics,
    find_offsets,
    target_epochs,
)
from headrace.connect.runtime.context import FlowContext
from headrace.connect.runtime.ownership import Ownership
from headrace.connect.takeover.fenced import end_open_transactions, take_over
from headrace.connect.takeover.preserving import begun_again, of_another_kind
from headrace.connect.takeover.starts import Restored, Start, Starts, first_positions, records
from headrace.connect.topics.losses import (
    PartitionState,
    find_loss,
    resolve,
    restart_as_new_topic,
    restart_at_log_start,
    sentence,
)
from headrace.errors import Fatal, Retriable
from headrace.kafka import replaced
from headrace.logs import get_logger
from headrace.replication import Confirmed, Progress, ProgressKey, Switch

log = get_logger(__name__)

_SHORTEST_MS = 60_000
"""Minimum age of progress, in ms, for a check of tombstones. Topics keep tombstones for longer, so
a usual takeover with recent progress reads no topic settings."""
_CALLS = 8


def not_copied_since(
    context: FlowContext,
    stored: Mapping[TopicPartition, Progress],
    ends: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Return partitions whose source may have dropped tombstones after the stored offset.

    A log cleaner keeps a tombstone for at least ``delete.retention.ms``. A partition is therefore
    returned only if its progress is older than this time, and if its next record is not younger
    than this time.

    Args:
        context: The flow.
        stored: Stored progress by partition of the source.
        ends: End offsets of the source.

    Returns:
        Unix time in ms at which the offset of each returned partition was stored.

    Raises:
        Retriable: The source does not respond.
    """
    now_ms = context.now_ms
    old = {}
    for at, progress in stored.items():
        stored_ms = context.progress.stored_ms(context.progress_key(at))
        unread = progress.source_offset < ends[at] and not progress.tombstones_since_ms
        if unread and 0 < stored_ms < now_ms - _SHORTEST_MS:
            old[at] = stored_ms
    topics = sorted({at.topic for at in old})
    with ThreadPoolExecutor(_CALLS) as pool:
        kept = zip(topics, pool.map(partial(_tombstones_kept_ms, context), topics), strict=True)
    found = {}
    for topic, kept_ms in kept:
        if kept_ms is None:
            continue
        since_ms = now_ms - kept_ms
        at_risk = {at for at, ms in old.items() if at.topic == topic and ms < since_ms}
        young = context.source.offsets_at(at_risk, since_ms)
        for at in at_risk:
            if not 0 <= young[at] <= stored[at].source_offset:
                found[at] = old[at]
    return found


def _tombstones_kept_ms(context: FlowContext, topic: str) -> int | None:
    """Return how long the topic keeps tombstones, in ms.

    Return None if it keeps them forever, or if the permission to read the settings is missing.
    """
    try:
        config = context.source.topic_config(topic)
    except Fatal as error:
        log.info("delete.retention.ms is not checked", topic=topic, why=str(error))
        return None
    compacted = "compact" in config.get("cleanup.policy", "")
    return int(config["delete.retention.ms"]) if compacted else None


def epoch_floor(context: FlowContext, partitions: Iterable[TopicPartition]) -> int:
    """Return the highest known epoch in the progress of these partitions.

    The progress topic is read to its end only on the first call. ``restore`` always reads it, and
    claims again if it finds a higher epoch.
    """
    context.progress.start()
    if not context.progress.was_read:
        context.progress.read_to_end()
    stored = map(context.stored, partitions)
    return max((progress.epoch for progress in stored if progress), default=0)


def warm_up(context: FlowContext, partitions: Set[TopicPartition]) -> None:
    """Send the requests of a takeover without writing, so that its connections exist."""
    epoch_floor(context, partitions)
    _, leaderless = describe_topics(context, partitions)
    reachable = partitions - leaderless.keys()
    find_offsets(context, reachable)
    log.debug("standing by", flow=context.name, mover=type(context.mover).__name__)


def restore(
    context: FlowContext,
    ownership: Ownership,
    partitions: Set[TopicPartition],
    settled: Mapping[TopicPartition, Start],
    *,
    during_transactions: bool = False,
) -> Restored:
    """Find where partitions resume, and write claims to progress.

    Call it after the claim of the unit. A claim contains the old offsets and the new epoch. If
    stored progress does not match the clusters, ``spec.onDataLoss`` decides. Stored progress does
    not count if a later reset is requested. A mover that can fence earlier writers resumes after
    their records. Another mover resumes at the stored offsets. Partitions without a leader are
    returned in ``put_off``.

    Args:
        context: The flow.
        ownership: Claim of the unit.
        partitions: Partitions to restore.
        settled: Results of this instance's closed lanes. They replace stored progress of the same
            owner.
        during_transactions: Whether the lane copies other partitions in transactions. Then only
            leaders are looked up, and the result requests a new lane.

    Raises:
        Retriable: No broker responds.
        OwnershipLost: A later owner exists.
    """
    with ThreadPoolExecutor(1) as restore_pool:
        reading = restore_pool.submit(context.progress.read_to_end)
        ids, leaderless = describe_topics(context, partitions)
        reading.result()
    reachable = partitions - leaderless.keys()
    if during_transactions:
        return Restored({}, leaderless, renew=bool(reachable))
    end_open_transactions(context, reachable)
    stored = _stored(context, reachable, records(context, ownership, settled))
    # The offsets are read after progress, because an earlier owner may have appended until then.
    offsets = find_offsets(context, reachable, target_epochs(stored))
    put_off = {**leaderless, **offsets.failed, **failed_over(context, stored)}
    put_off |= of_another_kind(context, stored)
    reachable -= put_off.keys()
    stored = {at: progress for at, progress in stored.items() if at in reachable}
    if _lost(context, stored, offsets, ids):
        context.check_brokers()  # a broker of another cluster may have responded
        ids, _ = describe_topics(context, reachable)
        offsets = find_offsets(context, reachable, target_epochs(stored))
        put_off |= offsets.failed
        reachable -= offsets.failed.keys()
        stored = {at: progress for at, progress in stored.items() if at in reachable}
    starts = _starts(context, reachable, stored, offsets, ids)
    # A partition of another task may have a higher epoch than this unit's claim.
    owner = ownership.signature
    highest = max((p.epoch for p in stored.values() if p.owner != owner), default=0)
    if highest >= ownership.epoch:
        ownership.claim(above=highest)
    moved = {
        at
        for at, start in starts.items()
        if at not in stored
        or start.source_offset != stored[at].source_offset
        or start.reset_ms != stored[at].reset_ms
    }
    restored = take_over(context, ownership, starts, stored, moved=moved)
    context.progress.write(records(context, ownership, restored.starts))
    return Restored(restored.starts, {**put_off, **restored.put_off})


def _lost(
    context: FlowContext,
    stored: Mapping[TopicPartition, Progress],
    offsets: KnownOffsets,
    ids: TopicIds,
) -> bool:
    """Return whether a partition has a loss that is not stored yet."""
    return any(
        progress.loss is None
        and find_loss(restart_at_log_start(progress, found), found, context.now_ms) is not None
        for at, progress in stored.items()
        for found in [_found(at, offsets, ids)]
    )


def _found(at: TopicPartition, offsets: KnownOffsets, ids: TopicIds) -> PartitionState:
    return PartitionState(
        *ids[at.topic],
        offsets.starts[at],
        offsets.ends[at],
        offsets.target_ends[at],
        offsets.target_epoch_ends.get(at),
    )


def _starts(
    context: FlowContext,
    partitions: Set[TopicPartition],
    stored: Mapping[TopicPartition, Progress],
    offsets: KnownOffsets,
    ids: TopicIds,
) -> Starts:
    """Return the starts according to progress and both clusters."""
    resets = context.resets
    again = {at for at, known in stored.items() if resets.time_ms(at) > known.reset_ms}
    since_ms = not_copied_since(context, stored, offsets.stable_ends)
    starts = {}
    for at in stored.keys() - again:
        progress = stored[at]
        if at in since_ms:
            progress = replace(progress, tombstones_since_ms=since_ms[at])
        resolved = _without_loss(context, at, progress, _found(at, offsets, ids))
        starts[at] = _start(resolved, offsets.stable_ends[at])
    new = partitions - stored.keys()
    for at, position in first_positions(context, new | again, again).items():
        end = offsets.stable_ends[at]
        # A reset copies existing records again, so they are not lost. Records of other writers do
        # not count as copied.
        acknowledged = offsets.target_ends[at]
        starts[at] = Start(
            position,
            acknowledged,
            -1,
            *ids[at.topic],
            end,
            end,
            Confirmed(position, position, acknowledged),
            reset_ms=resets.time_ms(at),
            tombstones_since_ms=_not_cured(context, stored.get(at), _found(at, offsets, ids)),
            first_offset=position,
        )
    for at in sorted(again):
        before, after = stored[at].source_offset, starts[at].source_offset
        log.warning("reset", flow=context.name, partition=str(at), before=before, after=after)
    return starts


def _not_cured(context: FlowContext, before: Progress | None, found: PartitionState) -> int:
    """Return since when tombstones may be missing in a copy that a reset did not rebuild.

    The result is a Unix time in ms, or 0. With ``offsets.mode: Preserved``, a reset compares a copy
    and appends nothing again. ``rebuild`` deletes the topic, or the records of a copy that ends
    before its source begins.
    """
    if before is None or not context.preserved:
        return 0
    made_again = replaced(before.target_topic_id, found.target_topic_id)
    return 0 if made_again or found.target_end <= found.start else before.tombstones_since_ms


def _start(progress: Progress, stable_end: int) -> Start:
    """Return where a partition with this progress resumes.

    The ends were requested after the topic ids, so the next topic check confirms them.
    """
    waits = progress.loss is not None and progress.loss.unresolved
    here = replace(progress, confirmed=None)
    return Start(
        progress.source_offset,
        progress.target_offset,
        progress.leader_epoch,
        progress.source_topic_id,
        progress.target_topic_id,
        stable_end,
        max(stable_end, progress.source_end),
        progress.known_good if waits else here.known_good,
        progress.loss,
        progress.reset_ms,
        progress.tombstones_since_ms,
        progress.target_seen,
        progress.pairs,
        earlier_losses=progress.earlier_losses,
        skipped=progress.skipped,
        first_offset=progress.first_offset,
    )


def _without_loss(
    context: FlowContext, at: TopicPartition, progress: Progress, found: PartitionState
) -> Progress:
    """Return the progress with which to resume, according to ``spec.onDataLoss``.

    Several losses may be found one after the other. Each loss is logged once.
    """
    now_ms = context.now_ms
    progress = restart_as_new_topic(restart_at_log_start(progress, found), found)
    if context.preserved:
        progress = begun_again(progress, found, now_ms)
    while (loss := find_loss(progress, found, now_ms)) is not None:
        before, progress = progress, resolve(progress, loss, found, context.spec.on_data_loss)
        assert progress.loss is not None
        if progress != before:
            why = sentence(context, at, progress.loss)
            log.error("data loss", flow=context.name, partition=str(at), why=why)
        if progress.loss.unresolved:
            break
    return progress


def _stored(
    context: FlowContext,
    partitions: Set[TopicPartition],
    settled: Mapping[ProgressKey, Progress],
) -> dict[TopicPartition, Progress]:
    """Return the progress of partitions that have any.

    A result in ``settled`` replaces stored progress of the same owner.
    """
    stored = {}
    for at in partitions:
        key = context.progress_key(at)
        if (progress := context.stored(at)) is not None:
            mine = settled.get(key, progress)
            same_owner = (mine.owner, mine.epoch) == (progress.owner, progress.epoch)
            # A later transaction was committed although its outcome was unknown.
            later = progress.in_transaction and progress.source_offset > mine.source_offset
            stored[at] = mine if same_owner and not later else progress
    return stored


class FailedOver(Retriable):
    """A partition is failed over. The class name is the reason of the flow's condition."""


def failed_over(
    context: FlowContext, stored: Mapping[TopicPartition, Progress]
) -> dict[TopicPartition, FailedOver]:
    """Return an error for each partition that is failed over and therefore not copied."""
    return {
        at: FailedOver(
            f"{at} was failed over to {context.target.name} at offset {known.switch.target_end}"
            f"{_with_accepted(known.switch)}: it is not copied until `headrace failover "
            f"{context.name} --abort`; `headrace flow reverse {context.name}` copies back"
        )
        for at, known in stored.items()
        if known.switch is not None
    }


def _with_accepted(switch: Switch) -> str:
    count = len(switch.accepted)
    return f" with {count} accepted loss{'es' * (count > 1)}" if count else ""
