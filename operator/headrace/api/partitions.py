"""Partitions of a topic, written as ranges."""

from collections.abc import Iterable
from itertools import groupby
from typing import Annotated, NamedTuple, Self

from pydantic import AfterValidator, Field

from headrace.api.model import Matching, Model, Topic, refusal
from headrace.api.ranges import RANGES, format_ranges, parse_ranges

_LIKE = 'must be partition numbers like "0-3,7"'


def _ranges(text: str) -> str:
    try:
        parse_ranges(text)
    except ValueError as error:
        raise refusal(f"{_LIKE}: {error}") from None
    return text


class TopicPartition(NamedTuple):
    """One partition; prints as Kafka's own logs do: ``orders-3``."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


PartitionRanges = Annotated[
    str,
    Field(max_length=16384),
    Matching(RANGES, _LIKE, pattern=True),
    AfterValidator(_ranges),
]


class TopicPartitions(Model):
    """Some partitions of one topic."""

    topic: Topic
    """Name of the topic."""
    partitions: PartitionRanges
    """Partition numbers and ranges of them, like 0-3,7."""

    @property
    def numbers(self) -> tuple[int, ...]:
        """The partition numbers, sorted."""
        return parse_ranges(self.partitions)

    @classmethod
    def pack(cls, partitions: Iterable[TopicPartition]) -> tuple[Self, ...]:
        """Partitions -> one object a topic, sorted by name."""
        return tuple(
            cls(topic=topic, partitions=format_ranges(at.partition for at in same_topic))
            for topic, same_topic in groupby(sorted(partitions), key=lambda at: at.topic)
        )

    @staticmethod
    def unpack(packed: "Iterable[TopicPartitions]") -> frozenset[TopicPartition]:
        """What :meth:`pack` took, each once."""
        return frozenset(
            TopicPartition(item.topic, number) for item in packed for number in item.numbers
        )
