"""Load of a mirror test: topics, progress, manifest and windows."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from headrace.api import Load, MirrorTest, Model
from headrace.mirror_test import documents

_IDLE_TIMEOUT_S = 120.0
"""Time without reports after which producers count as ended. They report twice a second."""

Poll = Callable[[float], Iterable[tuple[str, Any]]]
"""Function that waits up to the given seconds for journal records of the run.

It returns their keys and values.
"""


@dataclass(frozen=True)
class LoadProgress:
    """Progress of the load."""

    acknowledged: int
    """Number of acknowledged messages."""
    percent: float
    """Percentage of the load's messages, or of its duration if messages are not limited."""
    elapsed_s: float
    """Seconds since the first message."""


class LoadClock:
    """Progress of the load, from its acknowledged messages and the elapsed time."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._started_s: float | None = None
        self.acknowledged = 0
        """Number of acknowledged messages, set by the receiver of reports."""

    def progress(self) -> LoadProgress | None:
        """Return the progress, or None before the first acknowledged message."""
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
    """Latest report of each producer."""

    def __init__(self) -> None:
        self._by_key: dict[str, int] = {}

    def receive(self, key: str, value: Any) -> bool:
        """Process a journal record. Return True if it is a producer's report."""
        if not documents.is_progress(key):
            return False
        self._by_key[key] = value["acknowledged"]
        return True

    @property
    def total(self) -> int:
        """Number of messages that the source acknowledged."""
        return sum(self._by_key.values())


class LoadTail:
    """Reader of the load's progress in the run's journal."""

    def __init__(self, poll: Poll, load: Load, *, idle_timeout_s: float = _IDLE_TIMEOUT_S) -> None:
        """Create a reader. ``idle_timeout_s`` is the time limit without reports, in seconds."""
        self._poll = poll
        self._idle_timeout_s = idle_timeout_s
        self._acknowledged = ProducerReports()
        self._reported_s: float | None = None
        self._has_ended = False
        self.clock = LoadClock(load)

    @property
    def ended(self) -> bool:
        """True if the journal contains the load's manifest or failure, or the producers are silent.

        Producers that report nothing for ``idle_timeout_s`` count as ended.
        """
        reported_s = self._reported_s
        silent = reported_s is not None and time.monotonic() - reported_s > self._idle_timeout_s
        return self._has_ended or silent

    def receive(self, for_s: float) -> None:
        """Process the journal records of the next ``for_s`` seconds."""
        until = time.monotonic() + for_s
        while (left_s := until - time.monotonic()) > 0:
            for key, value in self._poll(left_s):
                if self._acknowledged.receive(key, value):
                    self._reported_s = time.monotonic()
                self._has_ended |= key in (documents.MANIFEST_KEY, documents.LOAD_FAILED_KEY)
        self.clock.acknowledged = self._acknowledged.total


def load_topics(test: MirrorTest) -> tuple[str, ...]:
    """Return the topics that the load names, or else the names of the test's own topics."""
    load = test.spec.load
    return load.names or tuple(f"{test.metadata.name}-{n}" for n in range(load.topics or 0))


# The manifest: the messages that the source's brokers acknowledged. The verifier compares the
# target with it. It is written next to the report and into the journal. A run without a manifest
# cannot be judged, because an unacknowledged message may or may not be on the source.
# ``docs/mirror-test-formats.md`` describes the format.

FORMAT: Literal[2] = 2
"""Format version of the manifest, and of the messages and sentinels."""


class PartitionSummary(Model):
    """Acknowledged messages of one producer in one partition."""

    partition: int
    first: int
    """Lowest acknowledged sequence number."""
    last: int
    """Highest acknowledged sequence number."""
    count: int
    checksum: int
    """Sum of the CRC-32 of all acknowledged values, in any order."""


class Stream(Model):
    """Messages from one producer to one topic, numbered from 0 to ``sent`` - 1.

    Sentinels are not included.
    """

    producer: str
    topic: str
    sent: int
    failed: tuple[tuple[int, int], ...] = ()
    """Inclusive ranges of messages that were not acknowledged. They may have been written."""
    partitions: tuple[PartitionSummary, ...] = ()


class LoadedTopic(Model):
    """A source topic before and after the load."""

    name: str
    keys: int
    """Number of different keys: enough for messages in every partition of both clusters."""
    start_offsets: tuple[int, ...]
    """End offset of each source partition before the load."""
    end_offsets: tuple[int, ...]
    """End offset of each source partition after its end sentinel."""
    target_start_offsets: tuple[int, ...]
    """End offset of each target partition before the load.

    Empty if the target topic did not exist, or if the producer did not know the target.
    """

    @property
    def partitions(self) -> int:
        """Number of partitions on the source."""
        return len(self.start_offsets)


class LoadManifest(Model):
    """All messages that a run sent, and whether the source acknowledged them."""

    version: Literal[2] = FORMAT
    run: str
    topics: tuple[LoadedTopic, ...]
    streams: tuple[Stream, ...]
    started_ms: int
    """Time of the first message, in ms since 1970."""
    finished_ms: int
    """Time of the last acknowledgement. ``settleSeconds`` begins here."""
    acknowledged_per_second: tuple[tuple[int, int], ...]
    """Pairs of a second since 1970 and the messages acknowledged in it, in order."""
    errors: tuple[str, ...] = ()
    """Sentences that explain why producers stopped early."""
    warnings: tuple[str, ...] = ()
    """Sentences that warn the reader of the report."""

    @property
    def acknowledged(self) -> int:
        """Number of messages that the target must have."""
        return sum(p.count for stream in self.streams for p in stream.partitions)

    @property
    def records(self) -> int:
        """Number of offsets that the source's topics received during the load."""
        return sum(sum(t.end_offsets) - sum(t.start_offsets) for t in self.topics)

    @property
    def adds_up(self) -> bool:
        """True if the partition counts of each stream equal its sent minus its failed messages."""
        return all(
            sum(p.count for p in stream.partitions)
            == stream.sent - sum(last - first + 1 for first, last in stream.failed)
            for stream in self.streams
        )

    def acknowledged_in(self, topic: str) -> int:
        """Return the number of acknowledged messages in one topic."""
        return sum(p.count for s in self.streams if s.topic == topic for p in s.partitions)


def window_load(test: MirrorTest) -> Load:
    """Return the load of one window, which reuses the topics of the first window."""
    load = test.spec.load
    return Load.model_validate(
        load.model_dump(by_alias=True, exclude_unset=True, exclude={"topics", "window_seconds"})
        | {"names": load_topics(test), "durationSeconds": load.window_seconds}
    )


def window_of(test: MirrorTest) -> MirrorTest:
    spec = test.spec.model_copy(update={"load": window_load(test)})
    return test.model_copy(update={"spec": spec})
