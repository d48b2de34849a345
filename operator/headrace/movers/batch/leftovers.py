"""Records that were committed, and whose partition has no marker of it: they are committed there.

Brokers lose the marker of a partition that has no leader at that moment (KAFKA-20734, it seems), on
4.3.1 at least. The last stable offset stays in front of the records, and the next abort of their
producer drops them. Below the target offset that committed progress names, all was committed.
"""

from collections.abc import Collection, Mapping

from headrace.api import TopicPartition
from headrace.errors import HeadraceError, Retriable
from headrace.kafka.wire import LATEST, ClusterClient, list_offsets
from headrace.logs import get_logger
from headrace.movers.batch.marking import LEADER_S, READ_S, failed_with, write_markers
from headrace.movers.lane import Before
from headrace.replication import OwnerProducer

log = get_logger(__name__)

_POLL_S = 0.05


async def commit_leftovers(
    target: ClusterClient, own: OwnerProducer, partitions: Collection[Before]
) -> dict[TopicPartition, Retriable]:
    """Commit earlier owners' open transactions before a marker aborts them.

    Return the partitions that must be retried, by target.
    """
    ours = {
        before.target: before
        for before in partitions
        if before.progress is not None and before.writers
    }
    open_, failed = await _open(target, ours)
    if not open_:
        return failed_with(ours.values(), failed)
    log.warning("committed records are in an open transaction", partitions=sorted(map(str, open_)))
    closing: dict[str, set[TopicPartition]] = {}
    for at in open_:
        for writer in ours[at].writers:
            closing.setdefault(writer.transactional_id, set()).add(at)
    await write_markers(target, own, closing, commit=True)
    deadline_s = target.loop.now_s() + READ_S
    while open_ and target.loop.now_s() < deadline_s:
        await target.loop.sleep(_POLL_S)
        open_, failed = await _open(target, ours)
    still = {at: Retriable(f"a transaction is open below offset {open_[at]}") for at in open_}
    return failed_with(ours.values(), {**failed, **still})


async def _open(
    target: ClusterClient, ours: Mapping[TopicPartition, Before]
) -> tuple[dict[TopicPartition, int], Mapping[TopicPartition, HeadraceError]]:
    """Return the target offset of each partition that has an open transaction below it."""
    ends = await list_offsets(target, ours, LATEST, read_committed=True, timeout_s=LEADER_S)
    return {
        at: ours[at].target_offset
        for at, end in ends.found.items()
        if end.offset < ours[at].target_offset
    }, ends.failed
