"""What the source's brokers acknowledged: the truth that a mirror is judged by.

Written beside the report and into the journal. A run without it cannot be judged: what was sent and
not acknowledged may or may not be on the source.
``docs/mirror-test-formats.md`` describes the format.
"""

from typing import Literal

from headrace.api import Model

FORMAT: Literal[2] = 2
"""Version of the manifest, and of the messages and sentinels that it describes."""


class PartitionSummary(Model):
    """What one producer got acknowledged in one partition."""

    partition: int
    first: int
    """Lowest acknowledged sequence number."""
    last: int
    """Highest."""
    count: int
    checksum: int
    """Sum of the CRC-32 of every acknowledged value: the same in whatever order one adds them."""


class Stream(Model):
    """What one producer sent to one topic: 0 up to ``sent``, without the ends."""

    producer: str
    topic: str
    sent: int
    failed: tuple[tuple[int, int], ...] = ()
    """Ranges (both ends in) that were never acknowledged; they may have been written."""
    partitions: tuple[PartitionSummary, ...] = ()


class LoadedTopic(Model):
    """A topic of the source as the load found it, and left it."""

    name: str
    keys: int
    """Different keys: enough to reach every partition of the source, and of the target."""
    start_offsets: tuple[int, ...]
    """End of each partition before the load."""
    end_offsets: tuple[int, ...]
    """End of each partition behind its end sentinel."""
    target_start_offsets: tuple[int, ...]
    """End of each partition of the target's topic before the load; empty: it was not there yet."""

    @property
    def partitions(self) -> int:
        """Partitions on the source."""
        return len(self.start_offsets)


class LoadManifest(Model):
    """All streams of a run."""

    version: Literal[2] = FORMAT
    run: str
    topics: tuple[LoadedTopic, ...]
    streams: tuple[Stream, ...]
    started_ms: int
    """First message, in ms since 1970."""
    finished_ms: int
    """Last acknowledgement; ``settleSeconds`` counts from here."""
    acknowledged_per_second: tuple[tuple[int, int], ...]
    """Pairs of a second since 1970 and messages acknowledged in it, ascending."""
    errors: tuple[str, ...] = ()
    """Why producers stopped early, in sentences."""
    warnings: tuple[str, ...] = ()
    """What a reader of the report should know, in sentences."""

    @property
    def acknowledged(self) -> int:
        """Messages that the target must have."""
        return sum(p.count for stream in self.streams for p in stream.partitions)

    @property
    def adds_up(self) -> bool:
        """Whether the partitions of each stream have all that it sent and that did not fail."""
        return all(
            sum(p.count for p in stream.partitions)
            == stream.sent - sum(last - first + 1 for first, last in stream.failed)
            for stream in self.streams
        )

    def acknowledged_in(self, topic: str) -> int:
        """Those of one topic."""
        return sum(p.count for s in self.streams if s.topic == topic for p in s.partitions)
