"""Status of a MirrorTest."""

from enum import StrEnum

from headrace.api.meta import Conditions
from headrace.api.model import Count, Model, Text, Timestamp


class Verdict(StrEnum):
    """Result of a test."""

    PASSED = "Passed"
    FAILED = "Failed"
    INCONCLUSIVE = "Inconclusive"


class MirrorTestPhase(StrEnum):
    """Progress of a test."""

    PENDING = "Pending"
    RUNNING = "Running"
    VERIFYING = "Verifying"
    FINISHED = "Finished"


class MirrorTestCounts(Model):
    """Numbers of messages by outcome."""

    acknowledged: Count = 0
    """Messages acknowledged by the source's brokers. The target must have all of them."""
    missing: Count = 0
    """Messages that never arrived."""
    duplicated: Count = 0
    """Messages that arrived again."""
    reordered: Count = 0
    """Messages that arrived out of order."""
    corrupted: Count = 0
    """Messages that arrived changed."""
    alien: Count = 0
    """Messages with the name of this run that it did not send."""
    unequal_offsets: Count | None = None
    """Messages with another offset than on the source. Absent if offsets were not compared."""


class LatencyMs(Model):
    """Quantiles of the mirror's latency, in milliseconds."""

    p50: Count
    """Median."""
    p99: Count
    """Maximum latency of 99 % of the messages."""
    p999: Count
    """Maximum latency of 99.9 % of the messages."""
    max: Count
    """Maximum latency."""


class MirrorTestStatus(Model):
    """Progress of the test, and its results."""

    observed_generation: Count | None = None
    """The metadata.generation that this status describes."""
    phase: MirrorTestPhase | None = None
    """Progress of the test."""
    verdict: Verdict | None = None
    """Result of the test."""
    counts: MirrorTestCounts | None = None
    """Numbers of messages by outcome."""
    latency_ms: LatencyMs | None = None
    """Quantiles of the mirror's latency."""
    report: Text | None = None
    """Location of the report."""
    start_time: Timestamp | None = None
    """Start of the test."""
    completion_time: Timestamp | None = None
    """End of the test, with any result. ttlSecondsAfterFinished starts here."""
    last_schedule_time: Timestamp | None = None
    """Time of the last scheduled run that was started. Absent without spec.schedule."""
    conditions: Conditions = ()
    """Observations about the test."""
