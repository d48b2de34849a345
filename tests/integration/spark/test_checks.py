"""Mutation tests: each fault of a mirror is found and named, and nothing else is found.

A case is a pair of topics of its own, so that one comparison judges all of them.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.api import Partitioning
from headrace.mirror_test import FindingType
from headrace.mirror_test.load import LoadManifest, PartitionSummary, Stream
from headrace_spark import checks, comparison, messages
from headrace_spark.checks import IDENTITY

PARTITIONS = {"orders": 4, "users": 2}
PRODUCERS = ("run-0-0", "run-1-0")
SENT = 12

SCHEMA = (
    "topic string, producer string, seq bigint, own boolean, found_in string, partition int, "
    "offset bigint, key binary, value_hash bigint, headers_hash bigint, timestamp_ms bigint, "
    "checksum bigint"
)

Who = tuple[str, str, int | None]
"""Identity of a message: topic, producer, sequence number."""


@dataclass(frozen=True)
class Record:
    topic: str
    producer: str
    seq: int | None
    own: bool
    found_in: str
    partition: int
    offset: int
    key: bytes | None
    value_hash: int
    headers_hash: int
    timestamp_ms: int
    checksum: int

    @property
    def who(self) -> Who:
        return self.topic, self.producer, self.seq


def source_of() -> list[Record]:
    """Return a load on the source: dense sequences, interleaved in every partition."""
    ends: Counter[tuple[str, int]] = Counter()
    laid = []
    for seq in range(SENT):
        for topic, partitions in PARTITIONS.items():
            for number, producer in enumerate(PRODUCERS):
                partition = messages.partition_of(seq, partitions, partitions)
                laid.append(
                    Record(
                        topic,
                        producer,
                        seq,
                        True,
                        topic,
                        partition,
                        ends[topic, partition],
                        b"%d" % messages.key_of(seq, partitions),
                        value_hash=1000 * number + seq,
                        headers_hash=2000 * number + seq,
                        timestamp_ms=5_000 + seq,
                        checksum=3000 * number + seq,
                    )
                )
                ends[topic, partition] += 1
    return laid


SOURCE = source_of()
BY_WHO = {r.who: r for r in SOURCE}
REFUSED = ((4, 5), (9, 9))
"""Refused sequences of the first producer in ``orders``, in the cases that name them."""
UNSURE: set[Who] = {("orders", "run-0-0", seq) for seq in (4, 5, 9)}


def lost(rule: Callable[[Record], bool]) -> list[Record]:
    """Return the copies of a mirror that leaves records out: it has no gaps in its offsets."""
    ends: Counter[tuple[str, int]] = Counter()
    kept = []
    for r in SOURCE:
        if not rule(r):
            kept.append(replace(r, offset=ends[r.topic, r.partition]))
            ends[r.topic, r.partition] += 1
    return kept


def changed(who: Who, **change: Any) -> list[Record]:
    return [replace(r, **change) if r.who == who else r for r in SOURCE]


def swapped(one: Who, two: Who) -> list[Record]:
    place = {one: BY_WHO[two].offset, two: BY_WHO[one].offset}
    return [replace(r, offset=place.get(r.who, r.offset)) for r in SOURCE]


@dataclass(frozen=True)
class Case:
    name: str
    target: list[Record]
    finds: dict[FindingType, set[Who]] = field(default_factory=dict)
    source: list[Record] = field(default_factory=lambda: SOURCE)
    refused: tuple[tuple[int, int], ...] = ()
    differs: str = ""
    contradicts: frozenset[tuple[str, str, int]] = frozenset()


def whose(rule: Callable[[Record], bool]) -> set[Who]:
    return {r.who for r in SOURCE if rule(r)}


def losing(name: str, rule: Callable[[Record], bool]) -> Case:
    return Case(f"lost-{name}", lost(rule), {FindingType.MISSING: whose(rule)})


def corrupting(differs: str, **change: object) -> Case:
    who = ("orders", "run-1-0", 6)
    return Case(
        f"changed-{differs.replace(', ', '-')}",
        changed(who, **change),
        {FindingType.CORRUPTED: {who}},
        differs=differs,
    )


def adding(name: str, stranger: Record) -> Case:
    return Case(f"alien-{name}", [*SOURCE, stranger], {FindingType.ALIEN: {stranger.who}})


FIFTH = ("orders", "run-0-0", 5)
OLD = [
    replace(SOURCE[0], own=False, producer="earlier-0-0", seq=seq, offset=70 + seq)
    for seq in range(3)
]
LOST_BY_SOURCE = lost(lambda r: r.who == FIFTH)

CASES = [
    Case("perfect", SOURCE),
    Case("other-offsets", [replace(r, offset=3 * r.offset + 100) for r in SOURCE]),
    # No order is promised between producers, or between keys.
    Case(
        "producers-apart",
        [replace(r, offset=r.offset + 100 * (r.producer == "run-0-0")) for r in SOURCE],
    ),
    losing("middle", lambda r: (r.topic, r.seq) == ("orders", 5)),
    losing("first", lambda r: (r.topic, r.seq) == ("users", 0)),
    losing("last", lambda r: (r.topic, r.seq) == ("users", SENT - 1)),
    losing("partition", lambda r: (r.topic, r.partition) == ("orders", 2)),
    losing("producer", lambda r: r.producer == "run-1-0"),
    losing("topic", lambda r: r.topic == "users"),
    losing("everything", lambda r: True),
    Case(
        "copied-three-times",
        [*SOURCE, replace(BY_WHO[FIFTH], offset=50), replace(BY_WHO[FIFTH], offset=51)],
        {FindingType.DUPLICATED: {FIFTH}},
    ),
    # A killed at-least-once mirror leaves repeats, but no wrong order.
    Case(
        "replayed-tail",
        [*SOURCE, *(replace(r, offset=r.offset + 100) for r in SOURCE if (r.seq or 0) > 7)],
        {FindingType.DUPLICATED: whose(lambda r: (r.seq or 0) > 7)},
    ),
    Case(
        "swapped",
        swapped(("orders", "run-0-0", 1), FIFTH),
        {FindingType.REORDERED: {("orders", "run-0-0", 1)}},
    ),
    corrupting("key", key=b"other"),
    corrupting("value", value_hash=-1),
    corrupting("headers", headers_hash=-1),
    corrupting("timestamp", timestamp_ms=1),
    corrupting("partition", partition=3, offset=99),
    corrupting("key, timestamp", key=None, timestamp_ms=1),
    Case(
        "corrupted-copy",
        [*SOURCE, replace(BY_WHO[FIFTH], offset=50, value_hash=-1)],
        {FindingType.DUPLICATED: {FIFTH}, FindingType.CORRUPTED: {FIFTH}},
        differs="value",
    ),
    Case(
        "copied-to-a-smaller-partition",
        [*SOURCE, replace(BY_WHO[FIFTH], partition=0, offset=50)],
        {FindingType.DUPLICATED: {FIFTH}, FindingType.CORRUPTED: {FIFTH}},
        differs="partition",
    ),
    Case(
        "copied-to-a-larger-partition",
        [*SOURCE, replace(BY_WHO[FIFTH], partition=3, offset=1)],
        {FindingType.DUPLICATED: {FIFTH}, FindingType.CORRUPTED: {FIFTH}},
        differs="partition",
    ),
    # Nothing but the topic differs: the bytes of the two are equal.
    Case(
        "exchanged-topics",
        [replace(r, found_in="users" if r.topic == "orders" else "orders") for r in SOURCE],
        {FindingType.CORRUPTED: set(BY_WHO)},
        differs="topic",
    ),
    Case(
        "copied-to-another-topic",
        [*SOURCE, replace(BY_WHO[FIFTH], found_in="users", partition=1, offset=0)],
        {FindingType.DUPLICATED: {FIFTH}, FindingType.CORRUPTED: {FIFTH}},
        differs="topic",
    ),
    Case(
        "copied-from-an-earlier-run", [*SOURCE, *OLD], {FindingType.REPLAYED: {r.who for r in OLD}}
    ),
    Case("earlier-run-still-under-way", [*SOURCE, *OLD], source=[*SOURCE, *OLD]),
    adding("producer", replace(SOURCE[0], producer="run-7-0", offset=70)),
    adding("number", replace(SOURCE[0], seq=SENT, offset=70)),
    adding("unreadable", replace(SOURCE[0], seq=None, offset=70)),
    # Records that were not acknowledged may exist or not.
    Case(
        "refused-and-nowhere",
        lost(lambda r: r.who in UNSURE),
        source=lost(lambda r: r.who in UNSURE),
        refused=REFUSED,
    ),
    Case("refused-and-mirrored", SOURCE, {FindingType.UNACKNOWLEDGED: UNSURE}, refused=REFUSED),
    Case(
        "refused-and-not-mirrored",
        lost(lambda r: r.who in UNSURE),
        {FindingType.UNACKNOWLEDGED: UNSURE},
        refused=REFUSED,
    ),
    Case(
        "refused-and-only-on-the-target",
        SOURCE,
        source=lost(lambda r: r.who in UNSURE),
        refused=REFUSED,
    ),
    # The manifest's gaps are not the mirror's.
    Case(
        "not-in-the-manifest",
        [*SOURCE, replace(SOURCE[0], producer="run-7-0", offset=70)],
        {FindingType.UNMANIFESTED: {("orders", "run-7-0", 0)}},
        source=[*SOURCE, replace(SOURCE[0], producer="run-7-0", offset=70)],
    ),
    # The source's losses are not the mirror's.
    Case(
        "source-lost-before",
        LOST_BY_SOURCE,
        {FindingType.SOURCE_LOST: {FIFTH}},
        source=LOST_BY_SOURCE,
        contradicts=frozenset({("orders", "run-0-0", 1)}),
    ),
    Case(
        "source-lost-after",
        SOURCE,
        {FindingType.SOURCE_LOST: {FIFTH}},
        source=LOST_BY_SOURCE,
        contradicts=frozenset({("orders", "run-0-0", 1)}),
    ),
    Case(
        "source-changed",
        changed(FIFTH, checksum=-1),
        source=changed(FIFTH, checksum=-1),
        contradicts=frozenset({("orders", "run-0-0", 1)}),
    ),
]


def streams_of(case: Case) -> Iterable[Stream]:
    """Return the acknowledged records: all that were ever on the source, except refused ones."""
    for topic in PARTITIONS:
        for producer in PRODUCERS:
            refused = case.refused if (topic, producer) == ("orders", "run-0-0") else ()
            kept = [
                r
                for r in SOURCE
                if (r.topic, r.producer) == (topic, producer)
                and not any(first <= (r.seq or 0) <= last for first, last in refused)
            ]
            yield Stream(
                producer=producer,
                topic=f"{case.name}/{topic}",
                sent=SENT,
                failed=refused,
                partitions=tuple(
                    PartitionSummary(
                        partition=p,
                        first=min(r.seq or 0 for r in kept if r.partition == p),
                        last=max(r.seq or 0 for r in kept if r.partition == p),
                        count=sum(r.partition == p for r in kept),
                        checksum=sum(r.checksum for r in kept if r.partition == p),
                    )
                    for p in sorted({r.partition for r in kept})
                ),
            )


def manifest_of(cases: Iterable[Case]) -> LoadManifest:
    return LoadManifest(
        run="run",
        topics=(),
        streams=tuple(stream for case in cases for stream in streams_of(case)),
        started_ms=0,
        finished_ms=0,
        acknowledged_per_second=(),
    )


def frame(spark: SparkSession, records_of: dict[str, list[Record]]) -> DataFrame:
    rows = [
        tuple(vars(replace(r, topic=f"{name}/{r.topic}", found_in=f"{name}/{r.found_in}")).values())
        for name, records in records_of.items()
        for r in records
    ]
    return spark.createDataFrame(rows, SCHEMA).cache()


@dataclass(frozen=True)
class Finding:
    kind: FindingType
    who: Who
    count: int
    partition: int | None
    offset: int | None
    differs: str


Judged = dict[str, list[Finding]]


def judge(
    spark: SparkSession,
    cases: list[Case],
    partitioning: Partitioning = Partitioning.PRESERVED,
) -> Judged:
    """Judge cases as ``verifier`` does.

    The claims of the load are expanded where the source lacks some records. Otherwise each record
    carries its own.
    """
    manifest = manifest_of(cases)
    lacking = manifest_of(case for case in cases if case.contradicts)
    claims = comparison.claims_frame(spark, manifest)

    def claimed(records_of: dict[str, list[Record]]) -> DataFrame:
        return comparison.claimed(frame(spark, records_of), claims)

    rows = checks.compare(
        comparison.acknowledged_frame(spark, lacking),
        comparison.refused_frame(spark, manifest),
        claimed({case.name: case.source for case in cases}),
        claimed({case.name: case.target for case in cases}),
        run="run",
        keys={f"{case.name}/{topic}": n for case in cases for topic, n in PARTITIONS.items()},
        partitioning=partitioning,
    ).collect()
    found: Judged = {case.name: [] for case in cases}
    for row in rows:
        name, topic = row.topic.split("/")
        who = (topic, row.producer, row.seq)
        finding = Finding(
            FindingType(row.kind), who, row["count"], row.partition, row.offset, row.differs
        )
        found[name].append(finding)
    return found


@pytest.fixture(scope="module")
def judged(spark: SparkSession) -> Judged:
    return judge(spark, CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_is_broken_is_found_and_nothing_else(judged: Judged, case: Case) -> None:
    found: dict[FindingType, set[Who]] = {}
    for finding in judged[case.name]:
        found.setdefault(finding.kind, set()).add(finding.who)
    assert found == case.finds
    assert {f.differs for f in judged[case.name] if f.kind is FindingType.CORRUPTED} <= {
        case.differs
    }


def test_every_copy_too_many_counts(judged: Judged) -> None:
    assert [f.count for f in judged["copied-three-times"]] == [2]
    assert all(f.count == 1 for name in judged for f in judged[name] if name.startswith("lost"))


def test_a_finding_says_where_the_record_lies(judged: Judged) -> None:
    source_offsets = {f.who: f.offset for f in judged["lost-middle"]}
    assert source_offsets == {who: BY_WHO[who].offset for who in source_offsets}
    assert [f.offset for f in judged["copied-three-times"]] == [51]
    assert [f.offset for f in judged["source-lost-after"]] == [None]


@pytest.mark.parametrize(
    ("case", "place"),
    [
        ("copied-to-a-smaller-partition", (0, 50)),
        ("copied-to-a-larger-partition", (3, 1)),
        ("copied-to-another-topic", (1, 0)),
    ],
)
def test_a_copy_in_another_partition_is_named_where_it_lies(
    judged: Judged, case: str, place: tuple[int, int]
) -> None:
    assert {(f.partition, f.offset) for f in judged[case]} == {place}


def end(partition: int, offset: int, lies_in: int) -> Record:
    """Return a sentinel of ``orders``."""
    key, topic = b"%d" % partition, "orders"
    return Record(topic, "run", partition, True, topic, lies_in, offset, key, 0, 0, 9_000, 0)


ENDS = [end(partition, 99, partition) for partition in range(PARTITIONS["orders"])]
"""Sentinels outside the manifest of these cases: only the order is judged."""


def moved(rule: Callable[[Record], bool], to: int) -> list[Record]:
    """Return records moved to the end of another partition."""
    return [replace(r, partition=to, offset=r.offset + 100) if rule(r) else r for r in SOURCE]


def by_key(records: list[Record]) -> list[Record]:
    """Return the records with all keys in other partitions, two of them in the same one."""
    return [replace(r, partition=(2, 0, 1, 1)[r.partition], offset=3 * r.offset) for r in records]


def judged_as(spark: SparkSession, partitioning: Partitioning, **targets: list[Record]) -> Judged:
    ends = {name: [r for r in target if r.producer == "run"] for name, target in targets.items()}
    cases = [
        Case(
            name, target, source=[*SOURCE, *(replace(r, partition=r.seq or 0) for r in ends[name])]
        )
        for name, target in targets.items()
    ]
    found = judge(spark, cases, partitioning)
    return {
        name: [f for f in findings if f.kind is not FindingType.UNMANIFESTED]
        for name, findings in found.items()
    }


@pytest.mark.long
def test_by_key_all_records_of_a_key_are_in_one_partition(spark: SparkSession) -> None:
    strayed = ("orders", "run-0-0", 6)
    split = [
        replace(r, partition=3, offset=r.offset + 100) if r.who == strayed else r
        for r in by_key(SOURCE)
    ]
    # Key 1 is in partition 0, and ends there; key 0, in partition 2, ends too early.
    behind = [*by_key(SOURCE), end(1, 99, 0), end(0, 7, 2)]
    found = judged_as(
        spark,
        Partitioning.BY_KEY,
        perfect=[*by_key(SOURCE), *by_key([replace(r, offset=99) for r in ENDS])],
        preserved=SOURCE,
        split=split,
        behind=behind,
        swapped=by_key(swapped(("orders", "run-0-0", 1), FIFTH)),
        lost=by_key(lost(lambda r: r.who == FIFTH)),
        # Neither is the other's.
        changed=by_key(changed(FIFTH, key=b"other")),
    )
    assert found["perfect"] == found["preserved"] == []
    (stray,) = found["split"]
    assert (stray.kind, stray.who, stray.partition) == (FindingType.CORRUPTED, strayed, 3)
    assert stray.differs == "partition"
    kinds = {name: {f.kind for f in findings} for name, findings in found.items()}
    late = {f.who[1:] for f in found["behind"]}
    assert kinds["behind"] == {FindingType.REORDERED}
    assert late == {(who, seq) for who, seq in late if seq in {4, 8}} != set()
    assert kinds["swapped"] == {FindingType.REORDERED}
    assert kinds["lost"] == {FindingType.MISSING}
    assert {f.differs for f in found["changed"]} == {"key"}


@pytest.mark.long
def test_another_partition_is_no_corruption_where_none_was_promised(spark: SparkSession) -> None:
    found = judged_as(
        spark,
        Partitioning.ANY,
        moved=[replace(r, partition=r.partition + 1) for r in SOURCE],
        one=moved(lambda r: r.who == FIFTH, to=0),
        # A sentinel is only one of the records.
        behind=[*SOURCE, end(0, 1, 3), end(1, 1, 1)],
        lost=lost(lambda r: r.who == FIFTH),
        changed=changed(FIFTH, value_hash=-1, partition=3, offset=99),
        swapped=swapped(("orders", "run-0-0", 1), FIFTH),
    )
    assert found["moved"] == found["one"] == found["behind"] == []
    assert [(f.kind, f.who) for f in found["lost"]] == [(FindingType.MISSING, FIFTH)]
    assert [(f.kind, f.differs) for f in found["changed"]] == [(FindingType.CORRUPTED, "value")]
    assert [f.kind for f in found["swapped"]] == [FindingType.REORDERED]


def test_a_source_that_does_not_hold_what_was_acknowledged_is_told(spark: SparkSession) -> None:
    manifest = manifest_of(CASES)
    source = frame(spark, {case.name: case.source for case in CASES})
    held = source.join(comparison.acknowledged_frame(spark, manifest), IDENTITY, "left_semi")
    rows = checks.contradictions(comparison.summaries_frame(spark, manifest), held).collect()
    assert {(r.topic, r.producer, r.partition) for r in rows} == {
        (f"{case.name}/{topic}", producer, partition)
        for case in CASES
        for topic, producer, partition in case.contradicts
    }


def test_ranges_of_any_length_unfold_to_every_number_once(spark: SparkSession) -> None:
    manifest = manifest_of([Case("", [], refused=((0, 0), (3, 8), (11, 11)))])
    acknowledged = comparison.acknowledged_frame(spark, manifest, chunk=4)
    rows = acknowledged.where("producer = 'run-0-0'").collect()
    assert Counter((r.topic, r.seq) for r in rows) == {
        **{("/orders", seq): 1 for seq in (1, 2, 9, 10)},
        **{("/users", seq): 1 for seq in range(SENT)},
    }
    refused = {
        (r.topic, r.producer, r.seq)
        for r in comparison.refused_frame(spark, manifest, chunk=4).collect()
    }
    assert refused == {("/orders", "run-0-0", seq) for seq in (0, 3, 4, 5, 6, 7, 8, 11)}
