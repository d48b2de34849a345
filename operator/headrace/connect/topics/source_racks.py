"""In which racks the source's partitions can be read, as the source connector reports it."""

from collections import defaultdict
from collections.abc import Mapping, Set

from headrace.api import RackPartitions, TopicPartition
from headrace.connect.runtime.context import FlowContext

_READ_AGAIN_S = 300.0
"""Replicas are reassigned by people, and rarely (Kafka's clients: ``metadata.max.age.ms``)."""


class SourceRacks:
    """Asks brokers only where drivers know their own racks: nobody else needs the answer."""

    def __init__(self, context: FlowContext) -> None:
        self._context = context
        self._partitions: Set[TopicPartition] = frozenset()
        self._again_s = 0.0
        self.known: tuple[RackPartitions, ...] = ()

    def poll(self, partitions: Set[TopicPartition]) -> bool:
        """Read them when that is due; whether what is known has changed."""
        now_s = self._context.clock.monotonic()
        if not self._context.driver.rack or (
            partitions == self._partitions and now_s < self._again_s
        ):
            return False
        before, topics = self.known, {at.topic for at in partitions}
        self.known = pack(
            {
                at: racks
                for at, racks in self._context.source.racks(topics).items()
                if at in partitions
            }
        )
        self._partitions, self._again_s = frozenset(partitions), now_s + _READ_AGAIN_S
        return self.known != before


def pack(racks: Mapping[TopicPartition, Set[str]]) -> tuple[RackPartitions, ...]:
    """By rack, in order."""
    found: defaultdict[str, list[TopicPartition]] = defaultdict(list)
    for at, of_one in racks.items():
        for rack in of_one:
            found[rack].append(at)
    return tuple(RackPartitions.pack(rack, found[rack]) for rack in sorted(found))
