"""Load of a mirror test: topics, progress, manifest and windows."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from headrace.api import Load, MirrorTest, Model
from headrace.mirror_test import documents

_SILENCE_S = 120.0
"""Producers report twice a second: after so long without a report they are dead."""

Poll = Callable[[float], Iterable[tuple[str, Any]]]
"""Poll of new records of the run's journal, as key and value, with the maximum wait in seconds."""


@dataclass(frozen=True)
class LoadProgress:
    """The progress of the load."""

    acknowledged: int
    """Messages."""
    percent: float
    """Percentage of the load's messages, or of its time if time is its limit."""
    elapsed_s: float
    """Seconds since the first message."""


class LoadClock:
    """Derives the progress from the number of acknowledged messages and from the clock."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._started_s: float | None = None
        self.acknowledged = 0
        """Number of acknowledged messages, set by the receiver of reports."""

    def progress(self) -> LoadProgress | None:
        """``None`` before the first message."""
        if not self.acknowledged:
            return None
        if self._started_s is None:
            self._started_s = time.monotonic()
        elapsed_s = time.monotonic() - self._started_s
        share = (
            self.acknowledged / self._load.messages
            if self._load.messages
            else elapsed_s / (self._load.duration_seconds or 1)
        )
        return LoadProgress(self.acknowledged, min(100.0, 100 * share), elapsed_s)


class ProducerReports:
    """The latest report of each producer."""

    def __init__(self) -> None:
        self._by_key: dict[str, int] = {}

    def receive(self, key: str, value: Any) -> bool:
        """Take a record of the journal; whether it was a producer's report."""
        if not documents.is_progress(key):
            return False
        self._by_key[key] = value["acknowledged"]
        return True

    @property
    def total(self) -> int:
        """Messages acknowledged by the source."""
        return sum(self._by_key.values())


class LoadTail:
    """Follows the load in the run's journal."""

    def __init__(self, poll: Poll, load: Load) -> None:
        self._poll = poll
        self._acknowledged = ProducerReports()
        self._reported_s: float | None = None
        self._has_ended = False
        self.clock = LoadClock(load)

    @property
    def ended(self) -> bool:
        """Whether the load has ended, with or without a manifest, or its producers are dead."""
        reported_s = self._reported_s
        silent = reported_s is not None and time.monotonic() - reported_s > _SILENCE_S
        return self._has_ended or silent

    def receive(self, for_s: float) -> None:
        """Take the records of the next ``for_s`` seconds."""
        until = time.monotonic() + for_s
        while (left_s := until - time.monotonic()) > 0:
            for key, value in self._poll(left_s):
                if self._acknowledged.receive(key, value):
                    self._reported_s = time.monotonic()
                self._has_ended |= key in (documents.MANIFEST_KEY, documents.LOAD_FAILED_KEY)
        self.clock.acknowledged = self._acknowledged.total


def load_topics(test: MirrorTest) -> tuple[str, ...]:
    """Return the topics that the load names, or the names of its own topics."""
    load = test.spec.load
    return load.names or tuple(f"{test.metadata.name}-{n}" for n in range(load.topics or 0))


# The messages that the source's brokers acknowledged: the truth by which a mirror is judged. They
# are written next to the report and into the journal. A run without them cannot be judged, because
# an unacknowledged message may or may not be on the source. ``docs/mirror-test-formats.md``
# describes the format.

FORMAT: Literal[2] = 2
"""Version of the manifest, and of the messages and sentinels that it describes."""


class PartitionSummary(Model):
    """Messages of one producer that were acknowledged in one partition."""

    partition: int
    first: int
    """Lowest acknowledged sequence number."""
    last: int
    """Highest acknowledged sequence number."""
    count: int
    checksum: int
    """Sum of the CRC-32 of every acknowledged value. It does not depend on their order."""


class Stream(Model):
    """Messages that one producer sent to one topic, numbered from 0 to ``sent`` - 1.

    Sentinels do not count.
    """

    producer: str
    topic: str
    sent: int
    failed: tuple[tuple[int, int], ...] = ()
    """Inclusive ranges of messages that were never acknowledged. They may have been written."""
    partitions: tuple[PartitionSummary, ...] = ()


class LoadedTopic(Model):
    """A source topic before and after the load."""

    name: str
    keys: int
    """Different keys: enough to reach every partition of the source, and of the target."""
    start_offsets: tuple[int, ...]
    """End of each partition before the load."""
    end_offsets: tuple[int, ...]
    """End of each partition behind its end sentinel."""
    target_start_offsets: tuple[int, ...]
    """End of each partition of the target's topic before the load. Empty: it did not exist yet."""

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
    """Warnings for a reader of the report, in sentences."""

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
        """Return the number of acknowledged messages in one topic."""
        return sum(p.count for s in self.streams if s.topic == topic for p in s.partitions)


def window_load(test: MirrorTest) -> Load:
    """Return the load of one window, which uses the first window's topics again."""
    load = test.spec.load
    return Load.model_validate(
        load.model_dump(by_alias=True, exclude_unset=True, exclude={"topics", "window_seconds"})
        | {"names": load_topics(test), "durationSeconds": load.window_seconds}
    )


def window_of(test: MirrorTest) -> MirrorTest:
    """Return the test of one window."""
    spec = test.spec.model_copy(update={"load": window_load(test)})
    return test.model_copy(update={"spec": spec})
