"""Producer identities: one for the data of all owners, and ids of each task for gaps.

All owners append data with the same producer id, in the epoch that the partition has, and with the
next sequence there. A batch is therefore appended only after the batch that it follows on the
source, whichever owner sends it, and the second sender gets an error. No fencing is needed for
that, and no marker occupies an offset for it.

A marker is appended anywhere. An owner therefore writes markers with transactional ids of its task,
and the next owner raises the epochs of those ids first. From then on the earlier owner writes none.

An owner's first marker has the data's producer id, in a higher epoch. A later batch of an earlier
owner is then rejected. By the sequence alone it would be appended after that marker, if compaction
has removed its first record since it was read. Until then both give each offset the same sequence.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headrace.kafka.wire import ClusterClient, ProducerIdentity, Transactions, start
from headrace.movers.batch.marking import new_epoch

HELPERS = 3
"""Ids besides the first: each writes a marker of a hole of several offsets at the same time."""
_PADDING = "padding"
_AGAIN_S = 0.002
"""A coordinator takes no transaction while it writes the markers of the last one: a millisecond or
two, and each marker of a hole is a transaction."""


class Closer(NamedTuple):
    """Writer of a marker that closes partitions to data that earlier owners have sent.

    A partition that has its epoch is closed. Either the coordinator has written the end of an
    earlier transaction there, in the epoch that it raised for that, or no other owner had the id
    before. After another marker in this epoch, data would continue with its sequence instead of
    beginning with 0.
    """

    transactional_id: str
    identity: ProducerIdentity
    """The data's, in an epoch that no earlier owner has had."""


@dataclass(frozen=True)
class TaskProducers:
    """The ids of a task, with their producer ids in this owner's epoch."""

    ids: Sequence[str]
    """Transactional ids for gaps."""
    identities: Sequence[ProducerIdentity]
    padding_id: str
    """Transactional id for filling a partition before its copy begins. Gaps of others are filled at
    the same time.
    """
    padding: ProducerIdentity

    def transactions(self, cluster: ClusterClient) -> list[Transactions]:
        """Return the transactions of each id, with a client of the target."""
        return [Transactions(cluster, one, again_s=_AGAIN_S) for one in self.ids]


async def identified(target: ClusterClient, name: str) -> TaskProducers:
    """Return the producers of a new owner, with a higher epoch than any owner before.

    All transactions of these ids have ended, with their markers, when the call returns. Brokers
    lose markers of partitions without a leader.
    """
    holes = [name, *(f"{name}-holes-{number}" for number in range(1, HELPERS + 1))]
    ids = [*holes, f"{name}-{_PADDING}"]
    replies = [start(new_epoch(target, one)) for one in ids]
    *identities, padding = [await reply for reply in replies]
    return TaskProducers(holes, identities, ids[-1], padding)


async def data_producer(target: ClusterClient, data_id: str) -> int:
    """Return the producer id of data for partitions that were never written.

    It is the same for all callers within a week (``transactional.id.expiration.ms``). A partition
    keeps its producer id permanently, in its progress.
    """
    return (await new_epoch(target, data_id)).producer_id
