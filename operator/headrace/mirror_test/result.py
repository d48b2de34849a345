"""Result of a mirror test: verdict, findings and measurements.

The page is made from it alone. Everything in it is bounded (examples, points of a plot), so that
the document of the longest test stays below 512 KiB.
"""

from collections import defaultdict
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from headrace.api import (
    COMMIT_INTERVAL_ANNOTATION,
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

MAX_EXAMPLES = 10
"""Maximum number of examples of each class."""
MAX_SHARES = 100
MAX_POINTS = 600
"""Maximum number of points of each plot."""


class FindingType(StrEnum):
    """Classes of what can be wrong with a record."""

    MISSING = "missing"
    """Acknowledged and on the source, and not on the target."""
    DUPLICATED = "duplicated"
    """On the target once more; every copy after the first counts."""
    REORDERED = "reordered"
    """First arrived after a later message of its topic, producer and key."""
    CORRUPTED = "corrupted"
    """A copy that differs from the source's record."""
    ALIEN = "alien"
    """On the target, of this run, known neither to the manifest nor to the source."""
    UNEQUAL_OFFSETS = "unequalOffsets"
    """A copy at another offset than its original on the source; only where the test asks for it."""
    REPLAYED = "replayed"
    """A record of an earlier run that arrived on the target, but not on the source, during this
    run.
    """
    UNACKNOWLEDGED = "unacknowledged"
    """Sent without an acknowledgement, but on the source: the mirror may contain it or not."""
    UNMANIFESTED = "unmanifested"
    """On the source, of this run, and not in its manifest: nobody knows whether it was sent."""
    SOURCE_LOST = "sourceLost"
    """Acknowledged, and not on the source: no mirror can be blamed."""

    @property
    def field(self) -> str:
        """Name of the field of ``Counts``."""
        return self.name.lower()


def allowed_counts(budgets: Budgets) -> dict[FindingType, int | None]:
    """Return the maximum number of records that a test allows for each class; None for any.

    Classes that are missing here are caused by the source, or the test does not require them.
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
    """One thing in which a record of the target is not as on the source."""

    what: str
    """``key``, ``value``, ``headers``, ``timestamp``, ``partition``, ``topic`` or ``offset``."""
    expected: str
    """Value on the source: the CRC-32 of a value, a hash of headers, and any other field itself."""
    found: str


class Example(Model):
    """A record with a finding."""

    topic: str
    """Topic on the target, or on the source if the record is only there."""
    partition: int | None = None
    offset: int | None = None
    """Offset of the record. Absent: it no longer exists."""
    producer: str
    """Producer of the record; the run for an end sentinel."""
    seq: int | None
    """Sequence number. Absent: neither headers nor body have it. For an end sentinel it is the
    source's partition.
    """
    differs: str = ""
    """Fields of a corrupted record that differ from the source, separated by commas. For a record
    at another offset it is ``offset``.
    """
    source: Place | None = None
    """Position of the original. Absent: it is not on the source."""
    changes: tuple[FieldDifference, ...] = ()
    """The same, with what was expected and found."""


class FindingShare(Model):
    """Number of records of a class with the same difference in one partition."""

    kind: FindingType
    topic: str
    """Topic, as in an ``Example``."""
    partition: int | None = None
    differs: str = ""
    count: int


class AuditDifference(Model):
    """A record of an application that is not on both sides as it should be."""

    kind: FindingType
    source: Place | None = None
    """Absent: not on the source."""
    target: Place | None = None
    """Absent: not on the target."""
    differs: str = ""
    """Parts of a corrupted or duplicated record that differ, separated by commas."""
    count: int = 1
    """Number of records, of which this is the first."""
    changes: tuple[FieldDifference, ...] = ()
    """Hashes of what differs; only with ``audit.examples: Hashes``."""


class Phase(Model):
    """A part of the run, and how long it took."""

    name: str
    seconds: float


class Counts(MirrorTestCounts):
    """The counts of the status, and those that explain them."""

    planned: int | None = None
    """Number of messages that the load was to send. Absent: it was limited by time."""
    replayed: int = 0
    unacknowledged: int = 0
    unmanifested: int = 0
    source_lost: int = 0
    sentinels: int = 0
    """Partitions of the source, each of which got an end sentinel."""
    sentinels_seen: int = 0
    """Partitions whose end sentinel arrived."""


class Latency(LatencyMs):
    """Latency from a message's timestamp to its being visible on the target, or a share of it."""

    measured: int
    """Arrivals that went into the quantiles, repetitions included."""
    histogram: Annotated[tuple[tuple[int, int], ...], Field(max_length=MAX_POINTS)]
    """Pairs: a bin's lower bound in ms (it reaches to the next), and arrivals."""


class Point(Model):
    """One moment of the plots."""

    at_seconds: float
    """Since the first message."""
    acknowledged_per_second: float
    visible_per_second: float
    behind: int
    """Messages acknowledged and not yet visible."""
    p50_ms: int | None = None
    p99_ms: int | None = None
    max_ms: int | None = None
    own_p50_ms: int | None = None
    """The same of the mirror's own share."""
    own_p99_ms: int | None = None


class Check(Model):
    """One check of the verdict."""

    name: str
    """A class of records such as ``missing``, or another stable name such as ``latency``."""
    verdict: Verdict
    sentences: tuple[str, ...] = ()
    """Reasons for the verdict, or warnings if the check passed."""


class ReportSignature(Model):
    """Signature of a report (``report/signing.py``)."""

    algorithm: Literal["Ed25519"]
    key_sha256: str
    """SHA-256 of the signer's public key in DER."""
    signed_ms: int
    """When it was signed, by the signer's clock, in ms since 1970."""
    value: str
    """Signature in hexadecimal digits."""


class MirroredTopic(Model):
    """A topic of the load."""

    source: str
    """Its name on the source."""
    target: str
    """Its name on the target."""
    partitions: int
    """Partitions on the source."""
    acknowledged: int | None = None
    """Messages that the source acknowledged."""


class Result(Model):
    """One run of a MirrorTest, judged."""

    version: Literal[1] = 1
    verdict: Verdict
    reasons: tuple[str, ...]
    """Why, in sentences; the heaviest first."""
    warnings: tuple[str, ...] = ()
    """Warnings for a reader, in addition to the verdict."""
    checks: tuple[Check, ...] = ()
    """Checks that the test asks for; empty if the clusters could not be compared."""
    run: str
    """Name of this run."""
    flow: str | None = None
    """Name of the flow under test; absent: a mirror that someone else runs."""
    test: MirrorTest
    """Resolved test, with every default filled in."""
    topics: tuple[MirroredTopic, ...] = ()
    """Where the load went."""
    counts: Counts | None = None
    """Absent: the clusters could not be compared."""
    examples: dict[FindingType, Annotated[tuple[Example, ...], Field(max_length=MAX_EXAMPLES)]] = (
        Field(default_factory=dict)
    )
    """Examples of each class that has some."""
    audit: AuditOutcome | None = None
    """Topics that were compared; absent: the test sent a load, or nothing could be compared."""
    differences: Annotated[
        tuple[AuditDifference, ...], Field(max_length=MAX_EXAMPLES * len(FindingType))
    ] = ()
    """Differences of an audit, at most ``MAX_EXAMPLES`` of each class."""
    shares: Annotated[tuple[FindingShare, ...], Field(max_length=MAX_SHARES)] = ()
    """All that was found, by class, topic, partition and what differs; the largest first."""
    latency_ms: Latency | None = None
    """Absent: nothing was measured."""
    own_latency_ms: Latency | None = None
    """The mirror's own share: from a consumer of the source to one of the target, by one clock."""
    acknowledged_per_second: float | None = None
    """Rate of the whole load, from its first message to its last acknowledgement."""
    points: Annotated[tuple[Point, ...], Field(max_length=MAX_POINTS)] = ()
    faults: tuple[Fault, ...] = ()
    rehearsal: Rehearsed | None = None
    """Absent: the test asks for none."""
    started_ms: int | None = None
    """First message, in ms since 1970."""
    finished_ms: int | None = None
    """Last acknowledgement."""
    read_until_ms: int | None = None
    """When the end of what is judged on the target was fixed; what came later is not judged."""
    judged_ms: int
    """When the verdict was given."""
    phases: tuple[Phase, ...] = ()
    """In the order of time."""
    manifest_sha256: str | None = None
    """SHA-256 of ``manifest.json``."""
    test_sha256: str | None = None
    """SHA-256 of ``test.json``, the manifest of the resolved test."""
    versions: dict[str, str]
    """Versions of the software involved."""
    signature: ReportSignature | None = None

    @property
    def commits_every_ms(self) -> int | None:
        """Commit interval of a flow with ``delivery.mode: ExactlyOnce``, in milliseconds."""
        annotations = self.test.metadata.annotations
        return int(annotations.get(COMMIT_INTERVAL_ANNOTATION, 0)) or None


_LISTED = 100
"""Topics; 50 KB of those with the longest names, twice."""
_SENTENCES, _OF_A_CHECK, _LETTERS = 20, 3, 1_000
_UNITS = 800
"""Total length for all faults, of which there are at most 100."""
_OF_THE_FLOW = {FLOW_LABEL, COMMIT_INTERVAL_ANNOTATION}


def bounded(result: Result) -> Result:
    """Return the result limited to 512 KiB, so that it fits into a ConfigMap."""
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


def _few(sentences: tuple[str, ...], most: int = _SENTENCES) -> tuple[str, ...]:
    more = max(0, len(sentences) - most)
    shown = tuple(sentence[:_LETTERS] for sentence in sentences[:most])
    return (*shown, f"and {more} more of the kind") if more else shown


def _short(fault: Fault, most: int) -> Fault:
    units, error = fault.units[:most], fault.error
    if more := len(fault.units) - len(units):
        units = (*units, f"and {more} more")
    return fault.model_copy(update={"units": units, "error": error and error[:_LETTERS]})


def _without_what_grows(test: MirrorTest) -> MirrorTest:
    """Tools keep whole manifests in annotations; of topics as many as are listed."""
    metadata, load = test.metadata, test.spec.load
    kept = {key: text for key, text in metadata.annotations.items() if key in _OF_THE_FLOW}
    names = load.names and load.names[:_LISTED]
    return test.model_copy(
        update={
            "metadata": metadata.model_copy(update={"annotations": kept}),
            "spec": test.spec.model_copy(update={"load": load.model_copy(update={"names": names})}),
        }
    )


class Second(Model):
    """One second of the target, as a consumer saw it."""

    second: int
    """Seconds since 1970."""
    visible: int
    """Messages that became visible."""
    p50_ms: int
    """Median of their latency."""
    p99_ms: int
    """99 % of them took at most this."""
    max_ms: int
    """The slowest."""


class ProbeMeasurements(Model):
    """Latency of messages as measured by the probe.

    It extends from a message's timestamp to its visibility on the target. The mirror's own share
    extends from a consumer of the source to a consumer of the target, by one clock.
    """

    histogram: tuple[tuple[int, int], ...] = ()
    """Pairs of milliseconds and messages, ascending; exact to 1 ms. Repetitions count as well."""
    seconds: tuple[Second, ...] = ()
    """Ascending; seconds without a message are left out. Their latency has two digits."""
    own_histogram: tuple[tuple[int, int], ...] = ()
    """Pairs for the mirror's own share of the latency. Each message counts once, at its first
    arrival.
    """
    own_seconds: tuple[Second, ...] = ()
    before_sent: int = 0
    """Messages seen before their timestamp (counted as 0 ms): the clocks differ."""
    behind: int = 0
    """Messages that may have waited for the probe, which had had others without a pause for a
    second: their latency may be its own. Of the side where that was so of more."""
    unmeasured_topics: tuple[str, ...] = ()
    """Topics that were not on the target when the load began."""
    late: tuple[str, ...] = ()
    """Partitions of the source whose end sentinel was not on the target when the mirror's time was
    over, as ``topic-partition``."""

    @property
    def count(self) -> int:
        """Messages measured."""
        return sum(messages for _, messages in self.histogram)

    def quantile_ms(self, share: float) -> int:
        """Return the lowest latency that ``share`` of the messages did not exceed, or 0."""
        return quantile(self.histogram, share)


def quantile(histogram: tuple[tuple[int, int], ...], share: float) -> int:
    """Return the lowest value that reaches ``share`` of ascending pairs of value and count."""
    wanted = share * sum(count for _, count in histogram)
    reached = 0
    value = 0
    for value, count in histogram:  # noqa: B007 - the last value is the answer for share 1
        reached += count
        if reached >= wanted:
            break
    return value


def two_digits(number: int) -> int:
    """Round down to two significant digits (1234 is 1200), to limit the bins of a histogram."""
    step = 1
    while number >= 100 * step:
        step *= 10
    return number // step * step


_WIDTHS_S = (1, 2, 5, 10, 30, 60, 300, 900, 3_600)


def latency(histogram: tuple[tuple[int, int], ...]) -> Latency | None:
    """Return quantiles, and bins of two digits, of a histogram that is exact to 1 ms.

    The result is None if nothing was measured.
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
    """Return the quantiles of the mirror's own share, without bins, which are not drawn."""
    found = latency(measured.own_histogram if measured else ())
    return found and found.model_copy(update={"histogram": ()})


def points(
    started_ms: int, acknowledged: Iterable[tuple[int, int]], measured: ProbeMeasurements | None
) -> tuple[Point, ...]:
    """Return the test over time, from the first message to the last arrival.

    ``acknowledged`` has pairs of a second since 1970 and messages. If a point stands for several
    seconds, rates are means, p50 is the mean weighted by messages, and p99 and max are the highest.
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
        behind = max(0, behind + acknowledged_here - visible_here)  # repetitions are visible, too
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
