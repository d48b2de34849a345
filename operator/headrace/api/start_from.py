"""``spec.startFrom``: the first offset of a partition without progress."""

from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from headrace.api.choices import OnlyWith
from headrace.api.extensions import BY_PARTITION, FILLED_IN_BY_SERVER
from headrace.api.model import Breach, Count, Model, Timestamp, Topic
from headrace.api.partitions import TopicPartition


class StartMode(StrEnum):
    """How the first offset of a partition without progress is found."""

    EARLIEST = "Earliest"
    LATEST = "Latest"
    TIMESTAMP = "Timestamp"
    OFFSETS = "Offsets"


class StartOffset(Model):
    """The first offset of one partition of the source."""

    topic: Topic
    """Name of the topic on the source."""
    partition: Annotated[Count, Field(le=999_999)]
    """Number of the partition."""
    offset: Count
    """First offset that is copied. It must be an offset that the source has, or its end."""

    @property
    def at(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)


_TIMESTAMP = OnlyWith("timestamp", "mode", StartMode.TIMESTAMP)
_OFFSETS = OnlyWith("offsets", "mode", StartMode.OFFSETS)


class StartFrom(Model):
    """The first offset of a partition without progress."""

    mode: Annotated[StartMode, FILLED_IN_BY_SERVER] = StartMode.EARLIEST
    """Earliest: the first record that the source has. Latest: the first record that is not older
    than the flow (in headrace run: than that run), by the record's timestamp, else the end. A topic
    that is created later is therefore copied whole, unless it has records with older timestamps, as
    restored and mirrored topics do: these are skipped. To copy them, change to Earliest when all
    present partitions have progress, which they keep. Timestamp: the first record that is not older
    than timestamp. Offsets: the offsets that are listed; partitions that are not listed begin as
    with Earliest."""
    timestamp: Timestamp | None = None
    """With mode: Timestamp: the first record that is not older than this moment, in RFC 3339."""
    offsets: (
        Annotated[
            tuple[StartOffset, ...],
            Field(min_length=1, max_length=1000),
            BY_PARTITION,
        ]
        | None
    ) = None
    """With mode: Offsets: the first offsets of partitions, for example
    [{topic: orders, partition: 0, offset: 1200}]. A partition that has progress ignores its entry.
    An offset that the source does not have fails the task."""

    rules = (*_TIMESTAMP.rules, *_OFFSETS.rules)

    def _breaches(self) -> Iterator[Breach]:
        yield from _TIMESTAMP.breaches(self.timestamp, self.mode)
        yield from _OFFSETS.breaches(self.offsets, self.mode)
        counts = Counter(one.at for one in self.offsets or ())
        for index, one in enumerate(self.offsets or ()):
            if counts[one.at] > 1:
                yield Breach(("offsets", index), f"must list partition {one.at} only once")
