"""How far a mirror test is, and what it found."""

from enum import StrEnum

from headrace.api.meta import Conditions
from headrace.api.model import Count, Model, Text, Timestamp


class Verdict(StrEnum):
    """What a test found."""

    PASSED = "Passed"
    FAILED = "Failed"
    INCONCLUSIVE = "Inconclusive"


class MirrorTestPhase(StrEnum):
    """How far a test is."""

    PENDING = "Pending"
    RUNNING = "Running"
    VERIFYING = "Verifying"
    FINISHED = "Finished"


class MirrorTestCounts(Model):
    """Messages, by outcome."""

    acknowledged: Count = 0
    """Acknowledged by the source's brokers: what the target must have."""
    missing: Count = 0
    """Never arrived."""
    duplicated: Count = 0
    """Arrived again."""
    reordered: Count = 0
    """Arrived out of order."""
    corrupted: Count = 0
    """Arrived changed."""
    alien: Count = 0
    """Have this run's name, and were not sent by it."""
    unequal_offsets: Count | None = None
    """Arrived at another offset than on the source; absent: offsets were not compared."""


class LatencyMs(Model):
    """Quantiles of the mirror's latency, in milliseconds."""

    p50: Count
    """Median."""
    p99: Count
    """99 % took at most this."""
    p999: Count
    """99.9 % took at most this."""
    max: Count
    """The slowest."""


class MirrorTestStatus(Model):
    """How far the test is, and what it found."""

    observed_generation: Count | None = None
    """The metadata.generation that this status describes."""
    phase: MirrorTestPhase | None = None
    """How far the test is."""
    verdict: Verdict | None = None
    """What it found."""
    counts: MirrorTestCounts | None = None
    """Messages, by outcome."""
    latency_ms: LatencyMs | None = None
    """Quantiles of the mirror's latency."""
    report: Text | None = None
    """Where the report is."""
    start_time: Timestamp | None = None
    """When the test began."""
    completion_time: Timestamp | None = None
    """When it ended, however it did; ttlSecondsAfterFinished counts from here."""
    last_schedule_time: Timestamp | None = None
    """With a schedule: the time of the last run that was begun."""
    conditions: Conditions = ()
    """Observations about the test."""
