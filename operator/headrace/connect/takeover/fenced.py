"""Takeover of partitions on the target: claim, fence, compare, and claim again.

Two owners that take over at the same time must detect each other. Therefore each one first writes
its identity to progress, and then reads the other claims. At least one of them sees the other. An
owner that sees a later claim stops. An owner that sees an earlier claim fences that writer, even if
it has appended nothing yet.
"""

from collections.abc import Mapping, Set

from headrace.api import TopicPartition
from headrace.connect.runtime.both_clusters import target_partition
from headrace.connect.runtime.context import FlowContext
from headrace.connect.runtime.ownership import Ownership, OwnershipLost
from headrace.connect.takeover.offset_syncing import new_contiguity_id
from headrace.connect.takeover.preserving import fitting, with_data_writers
from headrace.connect.takeover.starts import UNKNOWN, Restored, Start, Starts, records
from headrace.datapath import Before, Fencing
from headrace.errors import Fatal, HeadraceError, Retriable
from headrace.logs import get_logger
from headrace.replication import OwnerProducer, Progress, with_runs
from headrace.replication.reconcile import Resume, ResumeReason

log = get_logger(__name__)

_UNFENCED_MS = 3_600_000
"""Time in ms for which an owner that could not be fenced may append. A frozen process sends nothing
more after it resumes, and the network drops data in flight within about 15 minutes (tcp_retries2).
"""
_ROUNDS = 5
_NOT_ALLOWED = (
    "the target does not let this flow fence earlier owners: grant Write on transactional ids with "
    "the prefix headrace-"
)
_NOT_FENCED = (
    "an earlier owner could not be fenced (an earlier headrace, an expired "
    "transactional id, or no right to read the target), and may append for an hour"
)


def take_over(
    context: FlowContext,
    ownership: Ownership,
    starts: Starts,
    stored: Mapping[TopicPartition, Progress],
    *,
    moved: Set[TopicPartition],
) -> Restored:
    """Fence earlier owners; return where to resume without copying unstored records again.

    If a partition cannot be fenced now, its error is returned, and its progress still names the
    owners to fence.

    Args:
        context: The flow.
        ownership: Claim of the unit.
        starts: Offsets at which partitions resume, according to progress.
        stored: Stored progress of partitions that have any.
        moved: Partitions that do not begin at their stored offset.

    Raises:
        OwnershipLost: A later owner exists.
        Retriable: A cluster does not respond.
    """
    fencing = context.mover.fencing
    if fencing is None:
        return Restored(starts, {})
    own = _identify(context, ownership, fencing)
    starts = with_data_writers(context, ownership, fencing, starts, stored)
    claims = {
        at: _unfenced(
            start._replace(writer=own, fencing=tuple(earlier_writers(context, at, stored.get(at)))),
            stored.get(at),
            context.now_ms,
            _not_fencing(fencing),
        )
        for at, start in starts.items()
    }
    if own is None:
        return Restored(claims, {})
    first = starts.keys() - stored.keys()
    claims = _claimed(context, ownership, own, claims, first=first)
    before = {
        at: Before(
            target_partition(context, at),
            claim.source_offset,
            claim.target_offset,
            frozenset(claim.fencing),
            frozenset(claim.unfenced),
            compare=at not in moved,
            data_writer=claim.data_writer,
            progress=progress_partition(context, at, stored.get(at)),
        )
        for at, claim in claims.items()
        if (claim.fencing or claim.data_writer) and not claim.waits
    }
    before, refused = fitting(context, before)
    resumes = {**(fencing.resume(own, before) if before else {}), **refused}
    if resumes:
        # The compared records may belong to a later owner, or to an owner of another herder with
        # the same epoch. Then this owner must not store their end.
        context.progress.read_to_end()
        for at in claims:
            _check_owner(context, ownership, at)
    put_off: dict[TopicPartition, HeadraceError] = {}
    for at, found in resumes.items():
        if isinstance(found, HeadraceError):
            put_off[at] = found
            del claims[at]
            continue
        resume, leader_epoch = found
        claim = claims[at]
        another = resume.unfenced - set(claim.unfenced)
        hour_ms = context.now_ms + _UNFENCED_MS
        until_ms = hour_ms if another else claim.unfenced_until_ms
        claims[at] = claim._replace(
            source_offset=resume.source_offset,
            target_offset=resume.target_offset,
            leader_epoch=(
                leader_epoch
                if resume.copied or resume.source_offset != claim.source_offset
                else claim.leader_epoch
            ),
            fencing=(),
            unfenced=tuple(sorted(resume.unfenced)),
            unfenced_until_ms=until_ms,
            doubt=_doubt(resume, first=at in first),
            doubt_until_ms=until_ms if resume.unfenced else hour_ms,
            pairs=with_runs(claim.pairs, resume.runs, new_contiguity_id),
        )
    return Restored(claims, put_off)


def with_new_epoch(context: FlowContext, ownership: Ownership, starts: Starts) -> Starts:
    """Return the same offsets with a new producer epoch for another lane.

    The outcome of all sent records is known, so nothing must be fenced. Sequences begin with 0
    again, which requires a new epoch.
    """
    fencing = context.mover.fencing
    if fencing is None or not any(start.writer for start in starts.values()):
        return starts
    own = _identify(context, ownership, fencing)
    following = {at: start._replace(writer=own) for at, start in starts.items()}
    if own is not None and any(
        start.writer and start.writer.id != own.id for start in starts.values()
    ):
        # The id has expired, or its epochs are used up. A later owner must learn the new id to
        # fence it.
        context.progress.write(records(context, ownership, following))
    return following


def _identify(context: FlowContext, ownership: Ownership, fencing: Fencing) -> OwnerProducer | None:
    """Return this owner's writer with a new epoch, or None if the target does not allow it."""
    driver = ownership.driver
    # The name belongs to this process only, because two runs of one flow must fence each other by
    # their progress.
    name = f"headrace-{ownership.name}-{driver.name}-{driver.incarnation}"
    try:
        return fencing.identify(name)
    except Fatal as error:
        if context.exactly_once:
            raise Fatal(
                f"spec.delivery.mode: ExactlyOnce takes a transactional id: {error}"
            ) from error
        if context.preserved:
            raise Fatal(f"spec.offsets.mode: Preserved takes transactional ids: {error}") from error
        log.warning("earlier owners are not fenced", flow=context.name, why=str(error))
        return None


def _claimed(
    context: FlowContext,
    ownership: Ownership,
    own: OwnerProducer,
    claims: Starts,
    *,
    first: Set[TopicPartition],
) -> Starts:
    """Write the claims again until each one names all earlier writers in its partition's progress.

    If a partition was never claimed before, another owner may already have appended when the
    target's end was read.
    """
    for _ in range(_ROUNDS):
        context.progress.write(records(context, ownership, claims))
        context.progress.read_to_end()
        late = {}
        for at, claim in claims.items():
            _check_owner(context, ownership, at)
            known = {writer.id for writer in claim.fencing} | {own.id}
            found = context.progress.writers(context.progress_key(at))
            if others := [writer for writer in found if writer.id not in known]:
                offset = 0 if at in first else claim.target_offset
                late[at] = claim._replace(fencing=(*claim.fencing, *others), target_offset=offset)
        if not late:
            return claims
        claims = {**claims, **late}
    raise Retriable("other owners claim the same partitions again and again")


def _doubt(resume: Resume, *, first: bool) -> str:
    if resume.outcome is ResumeReason.UNFENCED:
        return _NOT_FENCED
    # After a reset, all records are copied again on purpose. This does not apply if two owners
    # claim a partition for the first time.
    reset = resume.outcome is ResumeReason.FILTER_CHANGED and not first
    again = 0 if reset else resume.doubled_at_most
    return f"copied again up to {again} records ({resume.outcome})" if again else ""


def _check_owner(context: FlowContext, ownership: Ownership, at: TopicPartition) -> None:
    stored = context.stored(at)
    if stored is None or stored.owner != ownership.signature:
        who = f"{stored.owner} (epoch {stored.epoch})" if stored else "nobody"
        raise OwnershipLost(f"{who} took {at}")


def progress_partition(
    context: FlowContext, at: TopicPartition, stored: Progress | None
) -> TopicPartition | None:
    """Return the partition of the progress topic in which earlier owners may have transactions.

    Return None if earlier owners used no transactions.
    """
    if context.exactly_once or (stored is not None and stored.in_transaction):
        return context.progress.partition_of(context.progress_key(at))
    return None


def earlier_writers(
    context: FlowContext, at: TopicPartition, stored: Progress | None
) -> Set[OwnerProducer]:
    """Return the writers that must be fenced for a partition."""
    writers = {one.id: one for one in context.progress.writers(context.progress_key(at))}
    if stored is not None:
        own = (stored.writer,) if stored.writer is not None else ()
        writers |= {one.id: one for one in (*stored.fencing, *own)}
    return frozenset(writers.values())


def _not_fencing(fencing: Fencing) -> str:
    """Return why an owner without an identity cannot fence earlier owners."""
    if fencing.impossible:
        return f"earlier owners cannot be fenced: {fencing.impossible}"
    return _NOT_ALLOWED


def _unfenced(start: Start, stored: Progress | None, now_ms: int, not_fencing: str) -> Start:
    """Return the start with the earlier owners that may still append.

    An earlier owner is listed for an hour after its ownership has ended.
    """
    if start.writer is None:
        start = start._replace(doubt=not_fencing)
    if stored is None:
        return start
    hour_ms = now_ms + _UNFENCED_MS
    until_ms = min(stored.unfenced_until_ms or hour_ms, hour_ms)
    unfenced = set(stored.unfenced if now_ms < until_ms else ())
    if stored.writer is None:
        unfenced.add(UNKNOWN)
        until_ms = hour_ms
    return start._replace(
        unfenced=tuple(sorted(unfenced)),
        unfenced_until_ms=until_ms if unfenced else 0,
        doubt=start.doubt or _NOT_FENCED * bool(unfenced),
        doubt_until_ms=until_ms,
    )


def end_open_transactions(context: FlowContext, partitions: Set[TopicPartition]) -> None:
    """End the transactions of all owners that may write these partitions.

    Afterwards the committed progress of these transactions is read. Progress that was not committed
    never counts. Call this function after the claim of the unit and before the claim in progress. A
    commit of an earlier owner after the claim in progress does not count. A comparison of the
    target's last records cannot replace this call, because the source may have been compacted.

    Raises:
        Retriable: The target does not respond.
    """
    stored = {at: context.stored(at) for at in partitions}
    if not context.exactly_once:
        stored = {at: known for at, known in stored.items() if known and known.in_transaction}
    names = {
        writer.transactional_id
        for at, known in stored.items()
        for writer in earlier_writers(context, at, known)
    }
    if names and (fencing := context.mover.fencing) is not None:
        fencing.end_transactions(names)
        context.progress.read_to_end()
