"""Fail-over on the target, and offsets that a command stores before a flow starts.

The switch is stored in progress on the target, so it remains without the source, the flow and its
Kubernetes cluster. It is a claim with a higher epoch, so that a driver that was disconnected finds
a later owner. An interrupted switch is repeated, except for partitions whose switch is stored.
"""

from collections.abc import Mapping, Set
from dataclasses import replace
from typing import NamedTuple

from headrace.api import LossAction, TopicPartition
from headrace.connect.runtime.both_clusters import known_topic_ids, target_partition
from headrace.connect.runtime.context import FlowContext
from headrace.connect.takeover.fenced import earlier_writers, progress_partition
from headrace.connect.takeover.starts import UNKNOWN
from headrace.datapath import Before, Closed
from headrace.errors import Fatal, HeadraceError, Retriable
from headrace.kafka import Position
from headrace.logs import get_logger
from headrace.replication import Loss, OwnerProducer, Progress, Switch

log = get_logger(__name__)

_ROUNDS = 5
_SYNCS_TIMEOUT_S = 15.0
"""Time in seconds that a fail-over waits for the acknowledgement of offset syncs."""
_NOBODY: frozenset[int] = frozenset()
_BY = " by "
"""Text in an owner's name that only commands use. Names of units and drivers have no spaces."""


class Wish(NamedTuple):
    """Known state of a partition to switch."""

    stored: Progress
    source_end: int


class Switched(NamedTuple):
    """Partition that is failed over."""

    progress: Progress
    switch: Switch
    unstored: int = 0
    """Number of records on the target whose progress was not stored."""


def switch(
    context: FlowContext, wishes: Mapping[TopicPartition, Wish], *, planned: bool
) -> dict[TopicPartition, Switched | Retriable]:
    """Fence all writers of these target partitions, and store their log ends as a fail-over.

    Return an error for each partition that must be tried again. Partitions that are already failed
    over are not changed. The caller must have checked that all losses are accepted.

    Raises:
        Retriable: An error concerns all partitions.
    """
    done = {
        at: Switched(one, one.switch)
        for at, (one, _) in wishes.items()
        if one.switch and not context.progress.overtaken(context.progress_key(at))
    }
    open_ = {at: wish for at, wish in wishes.items() if at not in done}
    return done | (_switched(context, open_, planned=planned) if open_ else {})


def _switched(
    context: FlowContext, wishes: Mapping[TopicPartition, Wish], *, planned: bool
) -> dict[TopicPartition, Switched | Retriable]:
    owner, own = _owner(context, "fail-over"), identify(context, "failover")
    claims = _claimed(
        context,
        {
            at: replace(
                # In an ExactlyOnce flow, stored progress counts only if its transaction was
                # committed. This progress was read as committed, and is now stored outside a
                # transaction.
                stored.of_no_transaction(),
                owner=owner,
                epoch=stored.epoch + 1,
                writer=own,
            )
            for at, (stored, _) in wishes.items()
        },
    )
    closed = _closed(context, own, claims, wishes)
    put_off = {at: one for at, one in closed.items() if isinstance(one, Retriable)}
    ends = context.target.offsets(
        {target_partition(context, at) for at in closed.keys() - put_off.keys()}, Position.LATEST
    )
    found = {}
    for at, one in closed.items():
        if isinstance(one, Retriable):
            continue
        stored, source_end = wishes[at]
        end = ends[target_partition(context, at)]
        made = stored.switch or Switch(
            context.now_ms, planned, source_end, end, accepted=gaps(stored)
        )
        unfenced = tuple(sorted(one.unfenced | _unknown(stored)))
        progress = replace(claims[at], fencing=(), unfenced=unfenced, switch=made)
        found[at] = Switched(progress, made, one.records)
    _store(context, {at: one.progress for at, one in found.items()})
    _end_hops(context, {at.topic for at in found})
    _write_offset_syncs(context, found)
    return found | put_off


def _end_hops(context: FlowContext, topics: Set[str]) -> None:
    """Delete the stored ancestry of the copies, so that a flow may copy them back.

    The flow's manifest may lack its namespace, so the ancestry from all flows that write these
    copies is deleted.
    """
    copies = {topic: context.policy.target_topic(topic) for topic in topics}
    ended: dict[bytes, bytes | None] = {
        key.encode(): None
        for key, one in context.progress.all_hops().items()
        if key.source_cluster_id == context.source_cluster_id
        and copies.get(key.topic) == one.hop.target.topic
    }
    if ended:
        context.progress.send_ancestry(ended).wait()


def _write_offset_syncs(context: FlowContext, found: Mapping[TopicPartition, Switched]) -> None:
    """Write offset syncs that a killed driver has not written, to translate groups' offsets."""
    writer, waiting = context.offset_syncs, {at: one.progress.pairs for at, one in found.items()}
    if context.spec.checkpoints.enabled and any(waiting.values()):
        try:
            writer.prepare()
        except HeadraceError:  # the source may be lost; progress keeps the syncs
            return
        for at, pairs in waiting.items():
            for pair in pairs:
                writer.send(at, pair)
        writer.flush(_SYNCS_TIMEOUT_S)


def switch_deleted(
    context: FlowContext, stored: Mapping[TopicPartition, Progress], *, planned: bool
) -> None:
    """Store the fail-over of partitions that no longer exist on the source.

    Their losses are accepted. No owner copies them, so there is no writer to fence.

    Raises:
        Retriable: The target does not store it in time.
    """
    owner = _owner(context, "fail-over")
    _store(
        context,
        {
            at: replace(
                one.of_no_transaction(),
                owner=owner,
                epoch=one.epoch + 1,
                switch=Switch(
                    context.now_ms, planned, one.source_end, one.target_offset, accepted=gaps(one)
                ),
            )
            for at, one in stored.items()
            if one.switch is None
        },
    )


def is_of_command(owner: str) -> bool:
    """Return True if a command stored progress with this owner, and not a driver's task."""
    return _BY in owner


def gaps(stored: Progress) -> tuple[Loss, ...]:
    """Return the losses because of which the copy of a partition lacks records."""
    return tuple(one for one in stored.losses if one.leaves_gap)


def abort(context: FlowContext, switched: Mapping[TopicPartition, Progress]) -> None:
    """Undo a switch, so that the flow may resume at its stored offsets.

    A flow that runs claims a partition as soon as its switch is removed. Raise ``Retriable`` if a
    partition still has a switch.
    """
    if not switched:
        return
    without = {context.progress_key(at): replace(one, switch=None) for at, one in switched.items()}
    context.progress.write(without)
    context.progress.read_to_end()
    for at in switched:
        there = context.stored(at)
        if there is None or there.switch is not None:
            raise Retriable(f"{at} is still failed over: try again")


def _owner(context: FlowContext, verb: str) -> str:
    return f"{verb}{_BY}{context.driver.incarnation}"


def _unknown(stored: Progress) -> frozenset[int]:
    """Return the writers that cannot be fenced, because the owner has no identity."""
    return _NOBODY if stored.writer else frozenset({UNKNOWN})


def identify(context: FlowContext, verb: str) -> OwnerProducer | None:
    """Return a command's identity; None if the mover or the target does not support fences."""
    if (fencing := context.mover.fencing) is None:
        return None
    try:
        return fencing.identify(f"headrace-{context.name}-{verb}")
    except Fatal as error:
        log.warning("writers are not fenced", flow=context.name, why=str(error))
        return None


def _claimed(
    context: FlowContext, claims: Mapping[TopicPartition, Progress]
) -> dict[TopicPartition, Progress]:
    """Store claims again until each one names all earlier writers in its partition's progress."""
    claims = dict(claims)
    for _ in range(_ROUNDS):
        for at, claim in claims.items():
            claims[at] = replace(claim, fencing=tuple(_others(context, at, claim)))
        _store(context, claims)
        if all(
            {one.id for one in _others(context, at, claim)} <= {one.id for one in claim.fencing}
            for at, claim in claims.items()
        ):
            return claims
    raise Retriable("drivers claim partitions of the flow again and again: stop it first")


def _others(context: FlowContext, at: TopicPartition, claim: Progress) -> list[OwnerProducer]:
    own = claim.writer and claim.writer.id
    return [one for one in earlier_writers(context, at, claim) if one.id != own]


def _closed(
    context: FlowContext,
    own: OwnerProducer | None,
    claims: Mapping[TopicPartition, Progress],
    wishes: Mapping[TopicPartition, Wish],
) -> Mapping[TopicPartition, Closed | Retriable]:
    if (fencing := context.mover.fencing) is None or own is None:
        return {at: Closed(0, frozenset({UNKNOWN})) for at in claims}
    now_ms = context.now_ms
    lost = {target_partition(context, at) for at, (stored, _) in wishes.items() if gaps(stored)}
    ends = context.target.known_ends(lost)
    return fencing.close(
        own,
        {
            at: Before(
                there := target_partition(context, at),
                claim.source_offset,
                # A copy that has lost records can end before its stored offset.
                min(claim.target_offset, ends.get(there, claim.target_offset)),
                frozenset(claim.fencing),
                frozenset(claim.unfenced) if now_ms < claim.unfenced_until_ms else _NOBODY,
                data_writer=claim.data_writer,
                progress=progress_partition(context, at, wishes[at].stored),
            )
            for at, claim in claims.items()
        },
    )


def _store(context: FlowContext, entries: Mapping[TopicPartition, Progress]) -> None:
    """Store progress and read it again; raise ``Retriable`` if another owner stored later."""
    if not entries:
        return
    context.progress.write({context.progress_key(at): one for at, one in entries.items()})
    context.progress.read_to_end()
    for at, one in entries.items():
        there = context.stored(at)
        if there is None or there.owner != one.owner:
            raise Retriable(f"{_conflict(at, there)}: stop the flow first, then try again")


class Beginning(NamedTuple):
    """Offsets at which a partition begins."""

    source_offset: int
    """Next source offset to copy."""
    target_offset: int
    """End of the copy's log."""
    before: Progress | None = None
    """Progress that is already stored, or None."""


def _resolved(before: Progress | None) -> tuple[Loss, ...]:
    """Return the earlier losses. A loss that had stopped the partition becomes resolved."""
    if before is None:
        return ()
    return tuple(
        replace(one, action=LossAction.CONTINUED) if one.unresolved else one
        for one in before.losses
    )


def store_beginnings(
    context: FlowContext, verb: str, beginnings: Mapping[TopicPartition, Beginning]
) -> None:
    """Store the offsets at which partitions begin, as progress with the next epoch.

    Raises:
        Retriable: The target does not respond.
        Fatal: Another owner claimed a partition at the same time.
    """
    if not beginnings:
        return
    ids = known_topic_ids(context, {at.topic for at in beginnings})
    context.progress.start()  # creates the topic if it is missing
    own, owner = identify(context, verb), _owner(context, verb)
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
                skipped=one.before.skipped if one.before else (),
            )
            for at, one in beginnings.items()
        }
    )
    context.progress.read_to_end()
    for at in beginnings:
        stored = context.stored(at)
        if stored is None or stored.owner != owner:
            raise Fatal(f"{_conflict(at, stored)}: stop that process")


def _conflict(at: TopicPartition, stored: Progress | None) -> str:
    who = stored.owner if stored else "another process"
    return f"{who} claimed {at} at the same time"
