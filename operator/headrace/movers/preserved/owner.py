"""Who writes: data with one producer id for all owners, holes with ids of each task.

All owners append data with the same producer id, in the epoch that the partition knows, and with
the sequence that comes next there: so a batch is appended only behind the one that it follows on
the source, whoever sends it, and whoever is second has an error. Nobody has to be fenced for that,
and no marker takes an offset for it.

A marker is appended anywhere. So an owner writes them with transactional ids of its task, and who
takes over raises the epochs of those ids first: from then on the earlier owner writes none.

An owner's first marker has the data's producer id, in a higher epoch. An earlier owner's batch that
comes later is refused then. By the sequence alone it would be appended behind that marker: if
compaction has removed its first record since it was read. Until then both give each offset the same
sequence.
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
    """Whose marker closes partitions to data that earlier owners have sent.

    A partition that knows its epoch is closed: the coordinator has written there what ends an
    earlier transaction, in the epoch that it raised for that, or nobody had the id before. Behind
    another marker in this epoch data would go on with its sequence, not begin again with 0.
    """

    transactional_id: str
    identity: ProducerIdentity
    """The data's, in an epoch that no earlier owner has had."""


@dataclass(frozen=True)
class TaskProducers:
    """The ids of a task, with their producer ids in this owner's epoch."""

    ids: Sequence[str]
    """Of holes."""
    identities: Sequence[ProducerIdentity]
    padding_id: str
    """Of what fills a partition before its copy begins: others have holes filled meanwhile."""
    padding: ProducerIdentity

    def transactions(self, cluster: ClusterClient) -> list[Transactions]:
        """Of each id, with a client of the target."""
        return [Transactions(cluster, one, again_s=_AGAIN_S) for one in self.ids]


async def identified(target: ClusterClient, name: str) -> TaskProducers:
    """With a higher epoch than any owner before. All transactions of these ids have ended, with
    their markers, when it returns; but brokers lose those of partitions without a leader."""
    holes = [name, *(f"{name}-holes-{number}" for number in range(1, HELPERS + 1))]
    ids = [*holes, f"{name}-{_PADDING}"]
    replies = [start(new_epoch(target, one)) for one in ids]
    *identities, padding = [await reply for reply in replies]
    return TaskProducers(holes, identities, ids[-1], padding)


async def data_producer(target: ClusterClient, data_id: str) -> int:
    """The producer id of data for partitions that were never written: the same for all who ask
    within a week (``transactional.id.expiration.ms``). A partition keeps its own for ever: progress
    has it."""
    return (await new_epoch(target, data_id)).producer_id
