"""Result of a mirror test: verdict, findings and measurements.

The page is rendered from the result alone. The number of examples and points of a plot is limited,
so the result of the longest test has less than 512 KiB.
"""

from collections import defaultdict
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from headrace.api import (
    COMMIT_INTERVAL_ANNOTATION,
    FLOW_CHANGES_ANNOTATION,
    FLOW_LABEL,
    Budgets,
    LatencyMs,
    MirrorTest,
    MirrorTestCounts,
    Model,
    Verdict,
)
from headrace.mirror_test.audited import AuditOutcome
from headrace.mirror_test.faults import Fault, Rehearsed
from headrace.mirror_test.shown_record import ShownRecord

MAX_EXAMPLES = 10
"""Maximum number of examples of each type of finding."""
MAX_SHARES = 100
MAX_POINTS = 600
"""Maximum number of points of each plot."""


class FindingType(StrEnum):
    """Types of incorrect records."""

    MISSING = "missing"
    """The source acknowledged and contains the record. The target does not contain it."""
    DUPLICATED = "duplicated"
    """The target contains the record more than once. Each copy after the first counts."""
    REORDERED = "reordered"
    """The record arrived after a later message with the same topic, producer and key."""
    CORRUPTED = "corrupted"
    """The copy differs from the record on the source."""
    ALIEN = "alien"
    """The target's record names this run, but neither the manifest nor the source has it."""
    UNEQUAL_OFFSETS = "unequalOffsets"
    """The copy has another offset than the source's record.

    This is checked only if the test sets a budget for it.
    """
    REPLAYED = "replayed"
    """A record of an earlier run arrived on the target, but not on the source, during this run."""
    UNACKNOWLEDGED = "unacknowledged"
    """The source contains the record without having acknowledged it.

    The mirror may or may not contain it.
    """
    UNMANIFESTED = "unmanifested"
    """The source's record names this run, but is not in its manifest."""
    SOURCE_LOST = "sourceLost"
    """The source lost a record that it had acknowledged. The mirror is not responsible."""

    @property
    def field(self) -> str:
        """Name of the field of ``Counts`` for this type."""
        return self.name.lower()


def allowed_counts(budgets: Budgets) -> dict[FindingType, int | None]:
    """Return the maximum number of findings that a test allows, or None for any number.

    Types are left out if the source causes them, or if the test does not check them.
    """
    asked = (
        {}
        if budgets.unequal_offsets is None
        else {FindingType.UNEQUAL_OFFSETS: budgets.unequal_offsets}
    )
    return {
        FindingType.MISSING: budgets.missing,
        FindingType.DUPLICATED: budgets.duplicated,
        FindingType.REORDERED: budgets.reordered,
        FindingType.CORRUPTED: budgets.corrupted,
        FindingType.ALIEN: budgets.alien,
        **asked,
        FindingType.REPLAYED: budgets.replayed,
    }


class Place(Model):
    """Position of a record."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} offset {self.offset}"


class FieldDifference(Model):
    """Field of a target record that differs from the source's record."""

    what: str
    """``key``, ``value``, ``headers``, ``timestamp``, ``partition``, ``topic`` or ``offset``."""
    expected: str
    """Value on the source.

    For a value it is the CRC-32, for headers a hash, and for other fields the field itself.
    """
    found: str


class Example(Model):
    """Record with a finding."""

    topic: str
    """Topic on the target, or on the source if only the source has the record."""
    partition: int | None = None
    offset: int | None = None
    """Offset of the record. Absent if the record does not exist any more."""
    producer: str
    """Producer of the record. For an end sentinel it is the run."""
    seq: int | None
    """Sequence number. For an end sentinel it is the source's partition.

    Absent if neither headers nor body contain it.
    """
    differs: str = ""
    """Fields of a corrupted record that differ from the source, separated by commas.

    For a record at another offset it is ``offset``.
    """
    source: Place | None = None
    """Position of the original. Absent if it is not on the source."""
    changes: tuple[FieldDifference, ...] = ()
    """Expected and actual values of the fields in ``differs``."""


class FindingShare(Model):
    """Number of findings whose ``kind``, ``topic``, ``partition`` and ``differs`` are equal."""

    kind: FindingType
    topic: str
    """Topic on the target, or on the source if only the source has the records."""
    partition: int | None = None
    differs: str = ""
    count: int


class AuditDifference(Model):
    """Difference between the records of an application on source and target."""

    kind: FindingType
    source: Place | None = None
    """Position on the source. Absent if the source lacks the record."""
    target: Place | None = None
    """Position on the target. Absent if the target lacks the record."""
    differs: str = ""
    """Differing parts of a corrupted or duplicated record, separated by commas."""
    count: int = 1
    """Number of consecutive records with this difference. ``source`` and ``target`` are the first
    of these records."""
    changes: tuple[FieldDifference, ...] = ()
    """Hashes of the differing parts. Present with ``audit.examples: Hashes`` and ``Records``."""
    source_record: ShownRecord | None = None
    """Record on the source. Present only with ``audit.examples: Records``."""
    target_record: ShownRecord | None = None
    """Record on the target. Present only with ``audit.examples: Records``."""


class Phase(Model):
    """Part of a run, and its duration."""

    name: str
    seconds: float


class Counts(MirrorTestCounts):
    """Numbers of records for the status, and further numbers that explain them."""

    planned: int | None = None
    """Number of messages to send. Absent if the load is limited by time."""
    replayed: int = 0
    unacknowledged: int = 0
    unmanifested: int = 0
    source_lost: int = 0
    sentinels: int = 0
    """Number of source partitions. Each received an end sentinel."""
    sentinels_seen: int = 0
    """Number of partitions whose end sentinel arrived."""


class Latency(LatencyMs):
    """Latency from a message's timestamp until it is visible on the target, or a share of it."""

    measured: int
    """Number of measured arrivals, including duplicates."""
    histogram: Annotated[tuple[tuple[int, int], ...], Field(max_length=MAX_POINTS)]
    """Pairs of a bin's lower bound in ms and its arrivals. A bin ends where the next begins."""


class Point(Model):
    """Point in time of the plots."""

    at_seconds: float
    """Seconds since the first message."""
    acknowledged_per_second: float
    visible_per_second: float
    behind: int
    """Number of messages that were acknowledged and not yet visible."""
    p50_ms: int | None = None
    p99_ms: int | None = None
    max_ms: int | None = None
    own_p50_ms: int | None = None
    """Median of the mirror's own share."""
    own_p99_ms: int | None = None


class Check(Model):
    """One check of the verdict."""

    name: str
    """Type of finding such as ``missing``, or another stable name such as ``latency``."""
    verdict: Verdict
    sentences: tuple[str, ...] = ()
    """Reasons for the verdict, or warnings if the check passed."""


class ReportSignature(Model):
    """Signature of a report (``report/signing.py``)."""

    algorithm: Literal["Ed25519"]
    key_sha256: str
    """SHA-256 of the signer's public key in DER."""
    signed_ms: int
    """Time of the signature by the signer's clock, in ms since 1970."""
    value: str
    """Signature in hexadecimal digits."""


class MirroredTopic(Model):
    """Topic of the load or of an audit."""

    source: str
    """Topic name on the source."""
    target: str
    """Topic name on the target."""
    partitions: int
    """Number of partitions on the source."""
    acknowledged: int | None = None
    """Number of messages that the source acknowledged. In an audit: its records."""


class Result(Model):
    """Verdict, findings and measurements of one run of a MirrorTest."""

    version: Literal[1] = 1
    verdict: Verdict
    reasons: tuple[str, ...]
    """Sentences that explain the verdict. The most severe reasons come first."""
    warnings: tuple[str, ...] = ()
    """Sentences that warn the reader, in addition to the verdict."""
    checks: tuple[Check, ...] = ()
    """Checks that the test requires. Empty if the clusters could not be compared."""
    run: str
    flow: str | None = None
    """Name of the flow under test. Absent if the test names no flow."""
    test: MirrorTest
    """Resolved test, with all defaults."""
    topics: tuple[MirroredTopic, ...] = ()
    """Topics of the load or of the audit."""
    counts: Counts | None = None
    """Numbers of records. Absent if the clusters could not be compared."""
    examples: dict[FindingType, Annotated[tuple[Example, ...], Field(max_length=MAX_EXAMPLES)]] = (
        Field(default_factory=dict)
    )
    """Examples of each type of finding."""
    audit: AuditOutcome | None = None
    """Compared topics. Absent if the test sent a load, or if nothing could be compared."""
    differences: Annotated[
        tuple[AuditDifference, ...], Field(max_length=MAX_EXAMPLES * len(FindingType))
    ] = ()
    """Differences that an audit found, at most ``MAX_EXAMPLES`` of each type."""
    shares: Annotated[tuple[FindingShare, ...], Field(max_length=MAX_SHARES)] = ()
    """Findings by type, topic, partition and differing fields. The largest come first."""
    latency_ms: Latency | None = None
    """Latency. Absent if nothing was measured."""
    own_latency_ms: Latency | None = None
    """Mirror's own share of the latency.

    It is the time from a consumer of the source to a consumer of the target, by one clock.
    """
    acknowledged_per_second: float | None = None
    """Rate of the whole load, from the first message to the last acknowledgement."""
    points: Annotated[tuple[Point, ...], Field(max_length=MAX_POINTS)] = ()
    faults: tuple[Fault, ...] = ()
    rehearsal: Rehearsed | None = None
    """Outcome of the rehearsal. Absent if the test has none."""
    started_ms: int | None = None
    """Time of the first message, in ms since 1970. In an audit: its start."""
    finished_ms: int | None = None
    """Time of the last acknowledgement, in ms since 1970."""
    read_until_ms: int | None = None
    """Time at which the end of the compared offsets was fixed. Later records are ignored."""
    judged_ms: int
    """Time of the verdict, in ms since 1970."""
    phases: tuple[Phase, ...] = ()
    """Phases of the run, in the order in which they ended."""
    manifest_sha256: str | None = None
    """SHA-256 of ``manifest.json``."""
    test_sha256: str | None = None
    """SHA-256 of ``test.json``, the file with the resolved test."""
    versions: dict[str, str]
    """Versions of the software."""
    signature: ReportSignature | None = None

    @property
    def commits_every_ms(self) -> int | None:
        """Commit interval, in ms, of a flow with ``delivery.mode: ExactlyOnce``.

        None for other flows and mirrors.
        """
        annotations = self.test.metadata.annotations
        return int(annotations.get(COMMIT_INTERVAL_ANNOTATION, 0)) or None


_LISTED = 100
"""Maximum number of topics. With the longest names, two lists of them take 50 KB each."""
_SENTENCES, _OF_A_CHECK, _LETTERS = 20, 3, 1_000
_UNITS = 800
"""Maximum number of units, of all faults together. There are at most 100 faults."""
_OF_THE_FLOW = {FLOW_LABEL, COMMIT_INTERVAL_ANNOTATION, FLOW_CHANGES_ANNOTATION}
_ANNOTATION_LETTERS = 20_000
"""Maximum length of an annotation. A flow may rename 500 topics."""


def bounded(result: Result) -> Result:
    """Return the result with less than 512 KiB, so that it fits into a ConfigMap."""
    left_out = max(0, len(result.topics) - _LISTED)
    noted = (f"{left_out} more topics are not listed",) if left_out else ()
    return result.model_copy(
        update={
            "reasons": _few(result.reasons),
            "warnings": (*_few(result.warnings), *noted),
            "checks": tuple(
                check.model_copy(update={"sentences": _few(check.sentences, _OF_A_CHECK)})
                for check in result.checks
            ),
            "test": _without_what_grows(result.test),
            "topics": result.topics[:_LISTED],
            "faults": tuple(_short(fault, _UNITS // len(result.faults)) for fault in result.faults),
        }
    )


def _few(sentences: tuple[str, ...], limit: int = _SENTENCES) -> tuple[str, ...]:
    more = max(0, len(sentences) - limit)
    shown = tuple(sentence[:_LETTERS] for sentence in sentences[:limit])
    return (*shown, f"and {more} more like these") if more else shown


def _short(fault: Fault, max_units: int) -> Fault:
    units, error = fault.units[:max_units], fault.error
    if more := len(fault.units) - len(units):
        units = (*units, f"and {more} more")
    return fault.model_copy(update={"units": units, "error": error and error[:_LETTERS]})


def _without_what_grows(test: MirrorTest) -> MirrorTest:
    """Return the test without other tools' annotations, and with at most ``_LISTED`` topics.

    Other tools store whole manifests in annotations.
    """
    metadata, load = test.metadata, test.spec.load
    kept = {
        key: text
        for key, text in metadata.annotations.items()
        if key in _OF_THE_FLOW and len(text) <= _ANNOTATION_LETTERS
    }
    names = load.names and load.names[:_LISTED]
    return test.model_copy(
        update={
            "metadata": metadata.model_copy(update={"annotations": kept}),
            "spec": test.spec.model_copy(update={"load": load.model_copy(update={"names": names})}),
        }
    )


class Second(Model):
    """Latency of messages that became visible in one second."""

    second: int
    """Start of the second, in seconds since 1970."""
    visible: int
    """Number of messages that became visible."""
    p50_ms: int
    """Median of the latency."""
    p99_ms: int
    """Latency that 99 % of the messages did not exceed."""
    max_ms: int


class ProbeMeasurements(Model):
    """Latency of messages as measured by the probe.

    The latency is the time from a message's timestamp until it is visible on the target. The
    mirror's own share is the time from a consumer of the source to a consumer of the target, by one
    clock.
    """

    histogram: tuple[tuple[int, int], ...] = ()
    """Pairs of a latency in ms and the number of messages with that latency, sorted by latency.
    Duplicates are included."""
    seconds: tuple[Second, ...] = ()
    """Seconds with messages, in order. Latencies have two significant digits."""
    own_histogram: tuple[tuple[int, int], ...] = ()
    """Pairs for the mirror's own share of the latency.

    Each message counts once, at its first arrival.
    """
    own_seconds: tuple[Second, ...] = ()
    before_sent: int = 0
    """Number of messages that were received before their timestamp.

    Their latency counts as 0 ms. The cause is a difference between the machines' clocks.
    """
    behind: int = 0
    """Number of messages that may have waited for a probe consumer, which was busy for 1 s.

    Their latency may be the consumer's delay. If both clusters have such messages, each consumer
    counts only the cluster with more of them.
    """
    unmeasured_topics: tuple[str, ...] = ()
    """Topics that did not exist on the target when the load began."""
    late: tuple[str, ...] = ()
    """Source partitions whose end sentinel did not arrive in time, as ``topic-partition``."""

    @property
    def count(self) -> int:
        """Number of measured messages."""
        return sum(messages for _, messages in self.histogram)

    def quantile_ms(self, share: float) -> int:
        """Return the lowest latency that ``share`` of the messages did not exceed, or 0."""
        return quantile(self.histogram, share)


def quantile(histogram: tuple[tuple[int, int], ...], share: float) -> int:
    """Return the lowest value with at least ``share`` of the counted values at or below it.

    ``histogram`` has pairs of a value and its count, sorted by value.
    """
    wanted = share * sum(count for _, count in histogram)
    reached = 0
    value = 0
    for value, count in histogram:  # noqa: B007 - the last value is the result for share 1
        reached += count
        if reached >= wanted:
            break
    return value


def two_digits(number: int) -> int:
    """Round down to two significant digits, to limit the bins of a histogram: 1234 gives 1200."""
    step = 1
    while number >= 100 * step:
        step *= 10
    return number // step * step


_WIDTHS_S = (1, 2, 5, 10, 30, 60, 300, 900, 3_600)


def latency(histogram: tuple[tuple[int, int], ...]) -> Latency | None:
    """Return the quantiles of a histogram in ms, and bins with two significant digits.

    Return None if nothing was measured.
    """
    if not histogram:
        return None
    bins: dict[int, int] = defaultdict(int)
    for latency_ms, messages in histogram:
        bins[two_digits(latency_ms)] += messages
    return Latency(
        measured=sum(messages for _, messages in histogram),
        p50=quantile(histogram, 0.5),
        p99=quantile(histogram, 0.99),
        p999=quantile(histogram, 0.999),
        max=histogram[-1][0],
        histogram=tuple(sorted(bins.items())),
    )


def own_latency(measured: ProbeMeasurements | None) -> Latency | None:
    """Return the quantiles of the mirror's own share, or None if it was not measured.

    There are no bins, because they are not plotted.
    """
    found = latency(measured.own_histogram if measured else ())
    return found and found.model_copy(update={"histogram": ()})


def points(
    started_ms: int, acknowledged: Iterable[tuple[int, int]], measured: ProbeMeasurements | None
) -> tuple[Point, ...]:
    """Return the points of the plots, from the first message to the last arrival.

    ``acknowledged`` has pairs of a second since 1970 and its messages. If a point covers several
    seconds, rates are means, p50 is the mean weighted by messages, and p99 and max are the highest
    values.
    """
    sent = dict(acknowledged)
    seen = {s.second: s for s in (measured.seconds if measured else ())}
    own = {s.second: s for s in (measured.own_seconds if measured else ())}
    if not sent and not seen:
        return ()
    first, last = min(sent.keys() | seen.keys()), max(sent.keys() | seen.keys())
    span_s = last - first + 1
    width_s = next((w for w in _WIDTHS_S if span_s <= w * MAX_POINTS), span_s // MAX_POINTS + 1)
    found, behind = [], 0
    for start in range(first, last + 1, width_s):
        within = range(start, start + width_s)
        acknowledged_here = sum(sent.get(s, 0) for s in within)
        seen_here = [seen[s] for s in within if s in seen]
        visible_here = sum(s.visible for s in seen_here)
        behind = max(0, behind + acknowledged_here - visible_here)  # duplicates are visible as well
        found.append(
            Point(
                at_seconds=round(max(0.0, start - started_ms / 1000), 1),
                acknowledged_per_second=round(acknowledged_here / width_s, 1),
                visible_per_second=round(visible_here / width_s, 1),
                behind=behind,
                **_latencies(seen_here),
                **_own([own[s] for s in within if s in own]),
            )
        )
    return tuple(found)


def _own(seconds: list[Second]) -> dict[str, int]:
    found = _latencies(seconds)
    return {f"own_{name}": found[name] for name in ("p50_ms", "p99_ms") if found}


def _latencies(seconds: list[Second]) -> dict[str, int]:
    if not seconds:
        return {}
    total = sum(s.visible for s in seconds)
    return {
        "p50_ms": round(sum(s.p50_ms * s.visible for s in seconds) / total),
        "p99_ms": max(s.p99_ms for s in seconds),
        "max_ms": max(s.max_ms for s in seconds),
    }
