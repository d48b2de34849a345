"""The take-over of partitions at the target: claim, fence those before, reconcile, claim again.

Two who take over at the same time must not miss each other. So each writes to progress who it is,
and only then reads who else is there: of two, one at least sees the other. Who sees a later claim
stops; who sees an earlier one fences its writer, even one that has appended nothing yet.
"""

from collections.abc import Mapping, Set

from headrace.api import TopicPartition
from headrace.connect.both_clusters import target_partition
from headrace.connect.context import FlowContext
from headrace.connect.ownership import Ownership, OwnershipLost
from headrace.connect.starts import UNKNOWN, Restored, Starts, records
from headrace.errors import Fatal, Retriable
from headrace.logs import get_logger
from headrace.movers import Before, Fencing
from headrace.replication import Progress, Writer
from headrace.replication.reconcile import Outcome, Resume

log = get_logger(__name__)

_UNFENCED_S = 3600.0
"""So long an owner that could not be fenced may append: its process sends nothing more once it has
thawed, and the network gives up what was on its way within 15 minutes or so (tcp_retries2)."""
_ROUNDS = 5
_NOT_ALLOWED = (
    "the target does not let this flow fence earlier owners: grant Write on transactional ids with "
    "the prefix headrace-"
)
_NOT_FENCED = (
    "an earlier owner could not be fenced (mover Record or an earlier headrace, an expired "
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
    """Where to go on, behind a fence: what was appended and not stored is not copied again.

    ``starts`` are the positions by progress; those that ``moved`` do not begin where it was stored.
    One that cannot be fenced now is put off: progress goes on naming whom to fence. Raises
    ``OwnershipLost`` for a later owner, and ``Retriable``.
    """
    fencing = context.mover.fencing
    if fencing is None:
        return Restored(starts, {})
    own = _identify(context, ownership, fencing)
    until_s = context.clock.monotonic() + _UNFENCED_S
    claims = {
        at: start._replace(
            writer=own,
            fencing=tuple(_writers(context, at, stored.get(at))),
            unfenced=(unfenced := _unfenced(stored.get(at))),
            unfenced_until_s=until_s,
            doubt=_NOT_ALLOWED if own is None else _NOT_FENCED * bool(unfenced),
        )
        for at, start in starts.items()
    }
    if own is None:
        return Restored(claims, {})
    claims = _claimed(context, ownership, own, claims)
    before = {
        at: Before(
            target_partition(context, at),
            claim.source_offset,
            claim.target_offset,
            frozenset(claim.fencing),
            frozenset(claim.unfenced),
            compare=at not in moved,
        )
        for at, claim in claims.items()
        if claim.fencing and not claim.waits
    }
    resumes = fencing.resume(own, before) if before else {}
    if resumes:
        # What was compared may be a later owner's, of the same epoch by another herder: this one
        # must not store then where it ends.
        context.progress.read_to_end()
        for at in claims:
            _check_owner(context, ownership, at)
    put_off = {}
    for at, found in resumes.items():
        if isinstance(found, Retriable):
            put_off[at] = found
            del claims[at]
            continue
        resume, leader_epoch = found
        claims[at] = claims[at]._replace(
            source_offset=resume.source_offset,
            target_offset=resume.target_offset,
            leader_epoch=leader_epoch if resume.copied else claims[at].leader_epoch,
            fencing=(),
            unfenced=tuple(sorted(resume.unfenced)),
            doubt=_doubt(resume),
        )
    return Restored(claims, put_off)


def with_new_epoch(context: FlowContext, ownership: Ownership, starts: Starts) -> Starts:
    """The same positions for another lane: the outcome of all that was sent is known, so that
    nothing is to be fenced. But sequences begin with 0 again, which takes another epoch."""
    fencing = context.mover.fencing
    if fencing is None or not any(start.writer for start in starts.values()):
        return starts
    own = _identify(context, ownership, fencing)
    return {at: start._replace(writer=own) for at, start in starts.items()}


def _identify(context: FlowContext, ownership: Ownership, fencing: Fencing) -> Writer | None:
    """Our writer with a new epoch; ``None`` where the target does not allow it."""
    driver = ownership.driver
    # Of this process alone: two runs of one flow must fence each other by what progress says, and
    # not by chance.
    name = f"headrace-{ownership.name}-{driver.name}-{driver.incarnation}"
    try:
        return fencing.identify(name)
    except Fatal as error:
        log.warning("earlier owners are not fenced", flow=context.name, why=str(error))
        return None


def _claimed(context: FlowContext, ownership: Ownership, own: Writer, claims: Starts) -> Starts:
    """Progress names us, and all those that it named before us are known."""
    for _ in range(_ROUNDS):
        context.progress.write(records(context, ownership, claims))
        context.progress.read_to_end()
        late = {}
        for at, claim in claims.items():
            _check_owner(context, ownership, at)
            known = {writer.id for writer in claim.fencing} | {own.id}
            found = context.progress.writers(context.progress_key(at))
            if others := [writer for writer in found if writer.id not in known]:
                late[at] = claim._replace(fencing=(*claim.fencing, *others))
        if not late:
            return claims
        claims = {**claims, **late}
    raise Retriable("other owners claim the same partitions again and again")


def _doubt(resume: Resume) -> str:
    if resume.outcome is Outcome.UNFENCED:
        return _NOT_FENCED
    # After a reset all is to be copied again: nobody doubts that.
    again = 0 if resume.outcome is Outcome.FILTER_CHANGED else resume.doubled_at_most
    return f"copied again up to {again} records ({resume.outcome})" if again else ""


def _check_owner(context: FlowContext, ownership: Ownership, at: TopicPartition) -> None:
    stored = context.stored(at)
    if stored is None or stored.owner != ownership.signature:
        who = f"{stored.owner} (epoch {stored.epoch})" if stored else "nobody"
        raise OwnershipLost(f"{who} took {at}")


def _writers(context: FlowContext, at: TopicPartition, stored: Progress | None) -> Set[Writer]:
    writers = {one.id: one for one in context.progress.writers(context.progress_key(at))}
    if stored is not None:
        own = (stored.writer,) if stored.writer is not None else ()
        writers |= {one.id: one for one in (*stored.fencing, *own)}
    return frozenset(writers.values())


def _unfenced(stored: Progress | None) -> tuple[int, ...]:
    if stored is None:
        return ()
    unknown = {UNKNOWN} if stored.writer is None else set()
    return tuple(sorted(unknown.union(stored.unfenced)))
