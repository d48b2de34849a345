"""End of a partition of the target, and the only sequence that can be appended there."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from headrace.api import TopicPartition
from headrace.errors import HeadraceError, Retriable
from headrace.kafka.wire import (
    LATEST,
    ClusterClient,
    ProducerIdentity,
    ProducerState,
    UnsupportedBroker,
    describe_producers,
    list_offsets,
    log_ends,
    sequence_after,
)
from headrace.movers.batch.appender import CopiesLost

_LEADER_S = 10.0
_REPLICATED_WITHIN_S = 20.0
_POLL_S = 0.01


class End(NamedTuple):
    """End of one partition."""

    offset: int
    """All below is on all in-sync replicas."""
    identity: ProducerIdentity
    """Identity of the data, in the epoch that the partition has, so that the broker compares the
    sequence. The first batch of a newer epoch would have sequence 0 and could be appended anywhere.
    """
    sequence: int
    """Sequence of the next batch of data."""


async def ends_of(
    target: ClusterClient, producers: Mapping[TopicPartition, int]
) -> dict[TopicPartition, End | HeadraceError]:
    """Return the ends of partitions; ``producers`` has the producer id of each partition's data.

    The producers' state is read first, then the leaders' log ends. If an earlier owner's batch
    arrives in between, the sequence is stale, and the broker rejects it. In the other order the end
    would be stale, which no broker rejects. The *leader's* end is needed, because a high watermark
    may be below records that the state includes already.
    """
    try:
        states = await describe_producers(target, producers, timeout_s=_LEADER_S)
    except UnsupportedBroker as error:
        raise UnsupportedBroker(f"offsets: Preserved is not possible here: {error}") from error
    epochs = {at: _leader_epoch(target, at) for at in producers}
    ends = await log_ends(target, states.found, timeout_s=_LEADER_S)
    found: dict[TopicPartition, End | HeadraceError] = {**states.failed, **ends.failed}
    waiting = {at: end.end_offset for at, end in ends.found.items()}
    late = await not_replicated(target, waiting)
    for at, offset in waiting.items():
        if (why := late.get(at)) is not None:
            found[at] = why
        elif _leader_epoch(target, at) != epochs[at]:
            found[at] = Retriable(f"the leader of {at} on {target.name} moved")
        else:
            found[at] = _end(at, offset, producers[at], states.found[at])
    return found


def _end(
    at: TopicPartition, offset: int, producer_id: int, states: Collection[ProducerState]
) -> End | HeadraceError:
    for state in states:
        if state.current_txn_start_offset >= 0:
            return Retriable(
                f"a transaction of producer id {state.producer_id} is open on {at} since offset "
                f"{state.current_txn_start_offset}: its marker was lost, or another client writes "
                "there"
            )
    own = next((one for one in states if one.producer_id == producer_id), None)
    if own is None:
        # Brokers accept any first sequence of an unknown producer, and compare from then on. The
        # sequence of the offset is the same for all owners that find the partition in this state.
        return End(offset, ProducerIdentity(producer_id, 0), sequence_after(0, offset))
    sequence = 0 if own.last_sequence < 0 else sequence_after(own.last_sequence, 1)
    return End(offset, ProducerIdentity(producer_id, own.producer_epoch), sequence)


async def not_replicated(
    target: ClusterClient, ends: Mapping[TopicPartition, int]
) -> Mapping[TopicPartition, HeadraceError]:
    """Return the partitions whose high watermark does not reach, or exceeds, these ends."""
    loop = target.loop
    deadline_s = loop.now_s() + _REPLICATED_WITHIN_S
    failed: dict[TopicPartition, HeadraceError] = {}
    waiting = dict(ends)
    while waiting:
        listed = await list_offsets(target, waiting, LATEST, timeout_s=_LEADER_S)
        failed |= listed.failed
        for at, found in listed.found.items():
            if found.offset > waiting[at]:
                failed[at] = Retriable(
                    f"{at} on {target.name} grew from {waiting[at]} to {found.offset} meanwhile"
                )
        done = {at for at, found in listed.found.items() if found.offset >= waiting[at]}
        waiting = {at: end for at, end in waiting.items() if at not in done | failed.keys()}
        if waiting and loop.now_s() > deadline_s:
            late = Retriable(f"the replicas of {target.name} lag behind their leaders")
            return failed | dict.fromkeys(waiting, late)
        if waiting:
            await loop.sleep(_POLL_S)
    return failed


async def copies_lost(
    target: ClusterClient, acknowledged: Mapping[TopicPartition, int]
) -> dict[TopicPartition, HeadraceError]:
    """Return the partitions whose new leader lacks records below these offsets, or is silent.

    An unclean election may have lost the producer's state with the records. The next batch would
    then be appended with any sequence, at a wrong offset.
    """
    ends = await log_ends(target, acknowledged, timeout_s=_LEADER_S)
    lost = {
        at: CopiesLost(
            f"{at} on {target.name} ends at offset {found.end_offset}, but all below "
            f"{acknowledged[at]} was acknowledged: those records no longer exist, and are copied "
            "again (possible causes: an unclean election, or a disk that was lost or restored)"
        )
        for at, found in ends.found.items()
        if found.end_offset < acknowledged[at]
    }
    return {**ends.failed, **lost}


def _leader_epoch(target: ClusterClient, at: TopicPartition) -> int:
    known = target.view.leadership(at)
    return -1 if known is None else known.epoch
