"""Mutation tests: each way a mirror can break a record is found, named, and found by nothing else."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.report import Kind
from headrace_spark import checks, messages, records
from headrace_spark.manifest import Manifest, PartitionSummary, Stream

TOPICS = {"orders": 4, "users": 2}
PRODUCERS = ("run-0-0", "run-1-0")
SENT = 12

SCHEMA = (
    "topic string, producer string, seq bigint, partition int, offset bigint, key binary, "
    "value_hash bigint, headers_hash bigint, timestamp_ms bigint, checksum bigint"
)


@dataclass(frozen=True)
class Record:
    topic: str
    producer: str
    seq: int | None
    partition: int
    offset: int
    key: bytes
    value_hash: int
    headers_hash: int
    timestamp_ms: int
    checksum: int


def source_of(topics: dict[str, int]) -> list[Record]:
    """A load as it lies on the source: dense sequences, interleaved in every partition."""
    ends: Counter[tuple[str, int]] = Counter()
    laid = []
    for seq in range(SENT):
        for topic, partitions in topics.items():
            for number, producer in enumerate(PRODUCERS):
                partition = messages.partition_of(seq, partitions, partitions)
                laid.append(
                    Record(
                        topic,
                        producer,
                        seq,
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


def manifest_of(source: list[Record], failed: tuple[tuple[int, int], ...] = ()) -> Manifest:
    """What was acknowledged: all of it but ``failed`` of the first producer in ``orders``."""
    streams = []
    for topic in TOPICS:
        for producer in PRODUCERS:
            gone = failed if (topic, producer) == ("orders", "run-0-0") else ()
            kept = [
                r
                for r in source
                if (r.topic, r.producer) == (topic, producer)
                and not any(first <= (r.seq or 0) <= last for first, last in gone)
            ]
            partitions = [
                PartitionSummary(
                    partition=p,
                    first=min(r.seq or 0 for r in kept if r.partition == p),
                    last=max(r.seq or 0 for r in kept if r.partition == p),
                    count=sum(r.partition == p for r in kept),
                    checksum=sum(r.checksum for r in kept if r.partition == p),
                )
                for p in sorted({r.partition for r in kept})
            ]
            streams.append(
                Stream(
                    producer=producer,
                    topic=topic,
                    sent=SENT,
                    failed=gone,
                    partitions=tuple(partitions),
                )
            )
    return Manifest(
        run="run",
        streams=tuple(streams),
        started_ms=0,
        finished_ms=0,
        acknowledged_per_second=(),
        end_offsets={},
    )


SOURCE = source_of(TOPICS)
MANIFEST = manifest_of(SOURCE)

Found = dict[Kind, set[tuple[str, str, int | None]]]


class Judge:
    """Compares lists of records as the verifier compares clusters."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.findings: list[tuple[Kind, str, int, str]] = []

    def frame(self, rows: list[Record]) -> DataFrame:
        return self._spark.createDataFrame([tuple(vars(r).values()) for r in rows], SCHEMA)

    def __call__(
        self,
        target: list[Record],
        source: list[Record] = SOURCE,
        manifest: Manifest = MANIFEST,
        preserved: bool = True,
    ) -> Found:
        rows = checks.compare(
            records.acknowledged(self._spark, manifest),
            records.refused(self._spark, manifest),
            self.frame(source),
            self.frame(target),
            TOPICS,
            preserved,
        ).collect()
        self.findings = [(Kind(r.kind), r.topic, r.offset, r.differs) for r in rows]
        found: Found = {}
        for row in rows:
            found.setdefault(Kind(row.kind), set()).add((row.topic, row.producer, row.seq))
        return found

    def contradictions(
        self, source: list[Record], manifest: Manifest = MANIFEST
    ) -> set[tuple[str, str, int]]:
        rows = checks.contradictions(
            records.summaries(self._spark, manifest),
            records.acknowledged(self._spark, manifest),
            self.frame(source),
        ).collect()
        return {(r.topic, r.producer, r.partition) for r in rows}


@pytest.fixture(scope="module")
def judge(spark: SparkSession) -> Judge:
    return Judge(spark)


def at(records: list[Record], topic: str, producer: str, seq: int) -> int:
    return next(
        i for i, r in enumerate(records) if (r.topic, r.producer, r.seq) == (topic, producer, seq)
    )


def without(
    lost: Callable[[Record], bool],
) -> tuple[list[Record], set[tuple[str, str, int | None]]]:
    """A mirror that leaves records out (offsets close up), and who they are."""
    kept = [r for r in SOURCE if not lost(r)]
    ends: Counter[tuple[str, int]] = Counter()
    target = []
    for r in kept:
        target.append(replace(r, offset=ends[r.topic, r.partition]))
        ends[r.topic, r.partition] += 1
    return target, {(r.topic, r.producer, r.seq) for r in SOURCE if lost(r)}


def test_a_perfect_copy_has_no_finding(judge: Judge) -> None:
    assert judge(SOURCE) == {}
    assert judge.contradictions(SOURCE) == set()


def test_other_offsets_on_the_target_are_no_finding(judge: Judge) -> None:
    assert judge([replace(r, offset=3 * r.offset + 100) for r in SOURCE]) == {}


@pytest.mark.parametrize(
    "lost",
    [
        pytest.param(lambda r: (r.topic, r.seq) == ("orders", 5), id="in the middle"),
        pytest.param(lambda r: (r.topic, r.seq) == ("users", 0), id="the first"),
        pytest.param(lambda r: (r.topic, r.seq) == ("users", SENT - 1), id="the last"),
        pytest.param(lambda r: (r.topic, r.partition) == ("orders", 2), id="a whole partition"),
        pytest.param(lambda r: r.producer == "run-1-0", id="a whole producer"),
        pytest.param(lambda r: r.topic == "users", id="a whole topic"),
        pytest.param(lambda r: True, id="everything"),
    ],
)
def test_lost_records_are_missing(judge: Judge, lost: Callable[[Record], bool]) -> None:
    target, gone = without(lost)
    assert judge(target) == {Kind.MISSING: gone}


def test_a_missing_record_is_named_by_where_it_lies_on_the_source(judge: Judge) -> None:
    target, _ = without(lambda r: (r.topic, r.producer, r.seq) == ("orders", "run-0-0", 5))
    judge(target)
    original = SOURCE[at(SOURCE, "orders", "run-0-0", 5)]
    assert judge.findings == [(Kind.MISSING, "orders", original.offset, "")]


def test_every_copy_after_the_first_is_duplicated_and_none_is_reordered(judge: Judge) -> None:
    again = SOURCE[at(SOURCE, "orders", "run-0-0", 5)]
    target = [*SOURCE, replace(again, offset=50), replace(again, offset=51)]
    assert judge(target) == {Kind.DUPLICATED: {("orders", "run-0-0", 5)}}
    assert [offset for _, _, offset, _ in judge.findings] == [50, 51]


def test_a_replayed_tail_is_duplicated_and_not_reordered(judge: Judge) -> None:
    tail = [replace(r, offset=r.offset + 100) for r in SOURCE if (r.seq or 0) > 7]
    assert set(judge([*SOURCE, *tail])) == {Kind.DUPLICATED}
    assert len(judge.findings) == len(tail)


def test_swapped_records_are_reordered_once(judge: Judge) -> None:
    target = list(SOURCE)
    one, two = at(target, "orders", "run-0-0", 1), at(target, "orders", "run-0-0", 5)
    target[one], target[two] = (
        replace(target[one], offset=target[two].offset),
        replace(target[two], offset=target[one].offset),
    )
    assert judge(target) == {Kind.REORDERED: {("orders", "run-0-0", 1)}}


def test_order_between_producers_and_keys_is_free(judge: Judge) -> None:
    """Each producer's records of a key behind those of the other: nobody promised otherwise."""
    target = [replace(r, offset=r.offset + 100 * (r.producer == "run-0-0")) for r in SOURCE]
    assert judge(target) == {}


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        ({"key": b"other"}, "key"),
        ({"value_hash": -1}, "value"),
        ({"headers_hash": -1}, "headers"),
        ({"timestamp_ms": 1}, "timestamp"),
        ({"partition": 3, "offset": 99}, "partition"),
        ({"key": None, "timestamp_ms": 1}, "key, timestamp"),
    ],
)
def test_a_changed_record_is_corrupted_and_said_in_what(
    judge: Judge, change: dict[str, object], differs: str
) -> None:
    target = list(SOURCE)
    i = at(target, "orders", "run-1-0", 6)
    target[i] = replace(target[i], **change)  # type: ignore[arg-type]
    assert judge(target) == {Kind.CORRUPTED: {("orders", "run-1-0", 6)}}
    assert judge.findings[0][3] == differs


def test_a_corrupted_second_copy_is_both(judge: Judge) -> None:
    copy = replace(SOURCE[at(SOURCE, "users", "run-0-0", 3)], offset=50, value_hash=-1)
    whose = {("users", "run-0-0", 3)}
    assert judge([*SOURCE, copy]) == {Kind.DUPLICATED: whose, Kind.CORRUPTED: whose}


def test_another_partition_is_no_corruption_where_none_was_promised(judge: Judge) -> None:
    target = [replace(r, partition=r.partition + 1) for r in SOURCE]
    assert judge(target, preserved=False) == {}


@pytest.mark.parametrize(
    "stranger",
    [
        replace(SOURCE[0], producer="run-7-0", offset=70),
        replace(SOURCE[0], seq=SENT, offset=70),
        replace(SOURCE[0], seq=None, offset=70),
    ],
    ids=["unknown producer", "never sent", "unreadable number"],
)
def test_records_that_nobody_sent_are_alien(judge: Judge, stranger: Record) -> None:
    whose = (stranger.topic, stranger.producer, stranger.seq)
    assert judge([*SOURCE, stranger]) == {Kind.ALIEN: {whose}}


def test_what_was_not_acknowledged_may_be_there_or_not(judge: Judge) -> None:
    manifest = manifest_of(SOURCE, failed=((4, 5), (9, 9)))
    unsure = {("orders", "run-0-0", seq) for seq in (4, 5, 9)}

    def is_unsure(r: Record) -> bool:
        return (r.topic, r.producer, r.seq) in unsure

    absent, _ = without(is_unsure)
    assert judge(absent, absent, manifest) == {}, "written nowhere"
    assert judge.contradictions(absent, manifest) == set()
    assert judge(SOURCE, SOURCE, manifest) == {Kind.UNACKNOWLEDGED: unsure}, "written and mirrored"
    assert judge(absent, SOURCE, manifest) == {Kind.UNACKNOWLEDGED: unsure}, "written, not mirrored"
    assert judge.contradictions(SOURCE, manifest) == set()


def test_what_the_source_lost_is_not_blamed_on_the_mirror(judge: Judge) -> None:
    lost, whose = without(lambda r: (r.topic, r.producer, r.seq) == ("orders", "run-0-0", 7))
    assert judge(lost, lost) == {Kind.SOURCE_LOST: whose}
    assert judge(SOURCE, lost) == {Kind.SOURCE_LOST: whose}, "mirrored before the source lost it"
    assert judge.contradictions(lost) == {("orders", "run-0-0", 3)}


def test_a_source_that_changed_what_was_acknowledged_contradicts_the_manifest(judge: Judge) -> None:
    source = list(SOURCE)
    source[0] = replace(source[0], checksum=-1)
    assert judge.contradictions(source) == {("orders", "run-0-0", 0)}


def test_ranges_of_any_length_unfold_to_every_number_once(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "_CHUNK", 4)
    manifest = manifest_of(SOURCE, failed=((0, 0), (3, 8), (11, 11)))
    rows = records.acknowledged(spark, manifest).where("producer = 'run-0-0'").collect()
    numbers = Counter((r.topic, r.seq) for r in rows)
    assert numbers == {
        **{("orders", seq): 1 for seq in (1, 2, 9, 10)},
        **{("users", seq): 1 for seq in range(SENT)},
    }
    refused = {(r.topic, r.producer, r.seq) for r in records.refused(spark, manifest).collect()}
    assert refused == {("orders", "run-0-0", seq) for seq in (0, 3, 4, 5, 6, 7, 8, 11)}
