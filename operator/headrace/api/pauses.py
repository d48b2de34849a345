"""Partitions that a user pauses: the items of ``spec.pausedPartitions`` and their sum."""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Self

from headrace.api.model import Model, Topic
from headrace.api.partitions import PartitionRanges, TopicPartition, TopicPartitions
from headrace.api.ranges import format_ranges, parse_ranges
from headrace.errors import InvalidSpec


class PausedPartitions(Model):
    """A topic, or some of its partitions; prints as commands take it: ``orders/0-3``."""

    topic: Topic
    """Name of the topic on the source."""
    partitions: PartitionRanges | None = None
    """Partition numbers and ranges of them, like 0-3,7. Without it the whole topic is paused, also
    what is added to it later."""

    def __str__(self) -> str:
        return self.topic if self.partitions is None else f"{self.topic}/{self.partitions}"


@dataclass(frozen=True)
class Pauses:
    """What is paused, by topic: the numbers of partitions, or None for the whole topic."""

    topics: Mapping[str, frozenset[int] | None]

    @classmethod
    def of(cls, items: Iterable[PausedPartitions]) -> Self:
        """Items may repeat, and overlap."""
        topics: dict[str, frozenset[int] | None] = {}
        for item in items:
            known = topics.get(item.topic, frozenset())
            whole = known is None or item.partitions is None
            topics[item.topic] = None if whole else _numbers(item) | (known or frozenset())
        return cls(topics)

    @property
    def items(self) -> tuple[PausedPartitions, ...]:
        """For a manifest: one a topic, sorted."""
        return tuple(
            PausedPartitions(topic=topic)
            if numbers is None
            else PausedPartitions(topic=topic, partitions=format_ranges(numbers))
            for topic, numbers in sorted(self.topics.items())
        )

    def among(self, partitions: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        """Those of them that are paused."""
        none: frozenset[int] = frozenset()
        return frozenset(
            at
            for at in partitions
            if (numbers := self.topics.get(at.topic, none)) is None or at.partition in numbers
        )

    def with_also(self, item: PausedPartitions) -> Self:
        """Pause these, too."""
        return self.of([*self.items, item])

    def without(self, item: PausedPartitions) -> Self:
        """Resume these; ``InvalidSpec`` where that is impossible, or nothing of it is paused."""
        left = {topic: numbers for topic, numbers in self.topics.items() if topic != item.topic}
        if item.topic not in self.topics:
            paused = ", ".join(map(str, self.items)) or "nothing"
            raise InvalidSpec(f"{item} is not paused; spec.pausedPartitions has {paused}")
        paused_numbers = self.topics[item.topic]
        if item.partitions is None:
            return type(self)(left)
        if paused_numbers is None:
            raise InvalidSpec(
                f"{item.topic} is paused as a whole: resume {item.topic}, then pause those of its "
                "partitions that are not to be copied"
            )
        if not paused_numbers & _numbers(item):
            raise InvalidSpec(
                f"{item} is not paused; of {item.topic} are {format_ranges(paused_numbers)}"
            )
        rest = paused_numbers - _numbers(item)
        return type(self)(left | ({item.topic: rest} if rest else {}))


def partitions_text(partitions: Set[TopicPartition]) -> str:
    """``orders/0-3, payments/7``."""
    packed = TopicPartitions.pack(partitions)
    return ", ".join(f"{item.topic}/{item.partitions}" for item in packed)


def _numbers(item: PausedPartitions) -> frozenset[int]:
    return frozenset(parse_ranges(item.partitions or ""))
