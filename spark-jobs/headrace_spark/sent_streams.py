"""What one producer sends to each topic of the load, and what of it was acknowledged."""

from collections import Counter
from dataclasses import dataclass, replace

from headrace.api import Load
from headrace.mirror_test import PartitionSummary, Stream
from headrace_spark import messages
from headrace_spark.topics import LoadTopic


class PartitionTotals:
    """What one producer got acknowledged in one partition of a topic."""

    __slots__ = ("checksum", "count", "first", "last")

    def __init__(self) -> None:
        self.first = self.last = -1
        self.count = self.checksum = 0

    def add(self, seq: int, checksum: int) -> None:
        """One message."""
        # Acknowledgements of one partition come in the order of sending.
        if not self.count:
            self.first = seq
        self.last = seq
        self.count += 1
        self.checksum += checksum


class SentStream:
    """A dense sequence of messages to one topic, over all of its partitions."""

    def __init__(self, topic: LoadTopic, limit: int | None = None) -> None:
        """``limit``: how many messages it may have; any number by default."""
        self.topic = topic
        self.sent = 0
        """The number of the next message."""
        self.failed: set[int] = set()
        self.totals = [PartitionTotals() for _ in range(topic.partitions)]
        self._limit = limit

    @property
    def acknowledged(self) -> int:
        """Messages."""
        return sum(totals.count for totals in self.totals)

    def next_numbers(self, granted: int) -> range:
        """Of the messages to send, where so many are granted."""
        beyond = self.sent + granted
        return range(self.sent, beyond if self._limit is None else min(beyond, self._limit))

    def grow(self, partitions: int) -> None:
        """The topic has so many partitions by now."""
        self.topic = replace(self.topic, partitions=partitions)
        self.totals += [PartitionTotals() for _ in range(partitions - len(self.totals))]

    def summary(self, producer: str) -> Stream:
        """For the manifest."""
        return Stream(
            producer=producer,
            topic=self.topic.name,
            sent=self.sent,
            failed=tuple(messages.ranges(self.failed)),
            partitions=tuple(
                PartitionSummary(
                    partition=partition,
                    first=totals.first,
                    last=totals.last,
                    count=totals.count,
                    checksum=totals.checksum,
                )
                for partition, totals in enumerate(self.totals)
                if totals.count
            ),
        )


def first_streams(load: Load, load_topics: tuple[LoadTopic, ...], index: int) -> list[SentStream]:
    """Those with which a producer begins: its part of the messages, where the load has a number."""
    parts, first = load.producers * len(load_topics), index * len(load_topics)
    return [
        SentStream(
            topic,
            None if load.messages is None else messages.share(load.messages, parts, first + number),
        )
        for number, topic in enumerate(load_topics)
    ]


@dataclass(frozen=True)
class Report:
    """What a producer did; bounded, whatever the number of records."""

    streams: tuple[Stream, ...]
    seconds: Counter[int]
    started_ms: int
    finished_ms: int
    errors: tuple[str, ...]
    was_ended: bool
    """Whether it had more to send when somebody ended the load."""
