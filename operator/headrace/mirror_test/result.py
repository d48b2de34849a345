"""A mirror test's result: ``report.json``, and the only source of the exit code.

The page is made from it alone. Everything in it is bounded (examples, points of a plot), so that
the document of the longest test stays below 512 KiB.
"""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from headrace.api import (
    COMMIT_INTERVAL_ANNOTATION,
    Budgets,
    LatencyMs,
    MirrorTest,
    MirrorTestCounts,
    Model,
    Verdict,
)
from headrace.mirror_test.faults import Fault
from headrace.mirror_test.rehearsed import Rehearsed

MAX_EXAMPLES = 10
"""Of each class."""
MAX_SHARES = 100
MAX_POINTS = 600
"""Of each plot."""


class Kind(StrEnum):
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
    """Of an earlier run: it came to the target while this one ran, and not to the source."""
    UNACKNOWLEDGED = "unacknowledged"
    """Sent and not acknowledged, and on the source all the same: the mirror may carry it or not."""
    UNMANIFESTED = "unmanifested"
    """On the source, of this run, and not in its manifest: nobody knows whether it was sent."""
    SOURCE_LOST = "sourceLost"
    """Acknowledged, and not on the source: no mirror can be blamed."""

    @property
    def field(self) -> str:
        """Of ``Counts``."""
        return self.name.lower()


def allowed_counts(budgets: Budgets) -> dict[Kind, int | None]:
    """The most records of each class that a test allows; ``None``: any number. Of the classes that
    are missing here the source is the cause, or the test does not ask for them."""
    asked = (
        {} if budgets.unequal_offsets is None else {Kind.UNEQUAL_OFFSETS: budgets.unequal_offsets}
    )
    return {
        Kind.MISSING: budgets.missing,
        Kind.DUPLICATED: budgets.duplicated,
        Kind.REORDERED: budgets.reordered,
        Kind.CORRUPTED: budgets.corrupted,
        Kind.ALIEN: 0,
        **asked,
        Kind.REPLAYED: budgets.replayed,
    }


class Place(Model):
    """Where a record lies."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} offset {self.offset}"


class Change(Model):
    """One thing in which a record of the target is not as on the source."""

    what: str
    """``key``, ``value``, ``headers``, ``timestamp``, ``partition``, ``topic`` or ``offset``."""
    expected: str
    """As on the source; of the value its CRC-32, of the headers a hash."""
    found: str


class Example(Model):
    """One record that something is wrong with."""

    topic: str
    """Topic on the target; of a record that is only on the source, there."""
    partition: int | None = None
    offset: int | None = None
    """Where it lies; absent: nowhere any more."""
    producer: str
    """Of an end sentinel: the run."""
    seq: int | None
    """Its number; absent: neither headers nor body have it. Of an end sentinel: the source's
    partition."""
    differs: str = ""
    """Of a corrupted record: what is not as on the source, separated by commas. Of one at another
    offset: ``offset``."""
    source: Place | None = None
    """Where its original lies; absent: not on the source."""
    changes: tuple[Change, ...] = ()
    """The same, with what was expected and found."""


class Share(Model):
    """How much of a class lies in one partition, and differs in the same."""

    kind: Kind
    topic: str
    """As of an ``Example``."""
    partition: int | None = None
    differs: str = ""
    count: int


class Phase(Model):
    """A part of the run, and how long it took."""

    name: str
    seconds: float


class Counts(MirrorTestCounts):
    """The counts of the status, and those that explain them."""

    planned: int | None = None
    """What the load was to send; absent: it was bounded by time."""
    replayed: int = 0
    unacknowledged: int = 0
    unmanifested: int = 0
    source_lost: int = 0
    sentinels: int = 0
    """Partitions of the source, each of which got an end sentinel."""
    sentinels_seen: int = 0
    """Those whose sentinel arrived."""


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
    """What a reader should know beside the verdict."""
    run: str
    """Name of this run."""
    flow: str | None = None
    """Name of the flow under test; absent: a mirror that someone else runs."""
    test: MirrorTest
    """What was tested, and how: resolved, with every default filled in."""
    topics: tuple[MirroredTopic, ...] = ()
    """Where the load went."""
    counts: Counts | None = None
    """Absent: the clusters could not be compared."""
    examples: dict[Kind, Annotated[tuple[Example, ...], Field(max_length=MAX_EXAMPLES)]] = Field(
        default_factory=dict
    )
    """Of each class that has some."""
    shares: Annotated[tuple[Share, ...], Field(max_length=MAX_SHARES)] = ()
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
    """Of ``manifest.json``."""
    versions: dict[str, str]
    """Of the software that took part."""

    @property
    def commits_every_ms(self) -> int | None:
        """Commit interval of a flow with ``delivery.mode: ExactlyOnce``, in milliseconds."""
        annotations = self.test.metadata.annotations
        return int(annotations.get(COMMIT_INTERVAL_ANNOTATION, 0)) or None
