"""Random loads under mirrors with random faults, judged by the checks and by an oracle.

The oracle goes through the records one by one. ``HEADRACE_MUTATIONS=2000`` sets the number of cases
for each promise about partitions.
"""

import os
from collections import Counter

import pytest
from pyspark.sql import Row, SparkSession
from support.bad_mirrors import NOW_MS, RUN, Case, random_case
from support.manifests import mirror_test_of_another
from support.mirror_oracle import EXACT, Identity, Place, findings, open_ends, verdict
from support.raw_records import recognised

from headrace.api import MirrorTest, Partitioning, Verdict
from headrace.mirror_test import (
    Counts,
    FindingType,
    LoadManifest,
    MirrorTestRun,
    ProbeMeasurements,
    Stream,
)
from headrace_spark import blocks, checks, comparison
from headrace_spark.blocks import Block, doubts
from headrace_spark.verdict import Evidence, judge

CASES = int(os.environ.get("HEADRACE_MUTATIONS", "30"))
BLOCK = 4
AT_ONCE = 60  # in one comparison: its plan has the name of every topic


@pytest.mark.timeout(900 + CASES)
@pytest.mark.parametrize("same_offsets", [False, pytest.param(True, marks=pytest.mark.long)])
def test_sums_of_blocks_leave_in_doubt_whatever_is_wrong(
    spark: SparkSession, same_offsets: bool
) -> None:
    """Place faults also at the edges of blocks, and leave out as many good blocks as possible."""
    wrong, kept = [], [0, 0]
    for first in range(0, CASES, AT_ONCE):
        seeds = range(first, min(first + AT_ONCE, CASES))
        cases = [
            random_case(seed, Partitioning.PRESERVED, same_offsets=same_offsets) for seed in seeds
        ]
        rows = _compared_in_doubt(spark, cases, kept)
        wrong += [error for case in cases if (error := _error(case, rows[case.name]))]
    assert not wrong, "\n\n".join(wrong[:5])
    in_doubt, all_of_them = kept
    assert in_doubt < 0.8 * all_of_them


@pytest.mark.timeout(900 + CASES)
@pytest.mark.parametrize("partitioning", Partitioning)
def test_what_is_wrong_with_a_random_mirror_is_found_and_nothing_else(
    spark: SparkSession, partitioning: Partitioning
) -> None:
    wrong = []
    for first in range(0, CASES, AT_ONCE):
        seeds = range(first, min(first + AT_ONCE, CASES))
        cases = [random_case(seed, partitioning) for seed in seeds]
        rows = _compared(spark, cases, partitioning)
        wrong += [error for case in cases if (error := _error(case, rows[case.name]))]
    assert not wrong, "\n\n".join(wrong[:5])


def test_what_lies_between_records_in_a_log_leaves_none_of_them_in_doubt(
    spark: SparkSession,
) -> None:
    """Add transaction markers and foreign records, which leave no doubt; the reverse order does."""
    cases = [random_case(seed, Partitioning.PRESERVED) for seed in range(5)]
    names, manifest = {t.name: t.name for case in cases for t in case.topics}, _manifest(*cases)
    sent = [record for case in cases for record in case.source]
    source, spread, reverse = (
        {block.place: block for block in blocks.collected(blocks.summarised(side, RUN, BLOCK))}
        for factor in (1, 3, -1)
        for side in [
            recognised(spark, (r._replace(offset=factor * r.offset) for r in sent), names, manifest)
        ]
    )
    assert spread.keys() == source.keys() == reverse.keys()
    assert all(source[place].agrees_with(block) for place, block in spread.items())
    assert not any(
        source[place].agrees_with(block) for place, block in reverse.items() if block.count > 1
    )


def test_the_cases_have_every_class_of_finding() -> None:
    """An oracle that finds nothing would agree with checks that find nothing."""
    cases = [random_case(seed, promise) for promise in Partitioning for seed in range(CASES)]
    same = [random_case(seed, Partitioning.PRESERVED, same_offsets=True) for seed in range(CASES)]
    found = Counter(finding.kind for case in cases + same for finding in findings(case))
    assert found.keys() == set(FindingType)
    assert {verdict(case, findings(case)) for case in cases} == set(Verdict)


def _compared(
    spark: SparkSession, cases: list[Case], partitioning: Partitioning
) -> dict[str, list[Row]]:
    names = {topic.name: topic.name for case in cases for topic in case.topics}
    manifest = _manifest(*cases)
    # As the verifier does: a row for every number only where the source lacks something.
    lacking = _manifest(*(case for case in cases if case.source_has_lost))
    sent = comparison.acknowledged_frame(spark, lacking)
    rows = checks.compare(
        comparison.sentinels_frame(spark, manifest).unionByName(sent),
        comparison.refused_frame(spark, manifest),
        recognised(spark, (r for case in cases for r in case.source), names, manifest),
        recognised(spark, (r for case in cases for r in case.target), names, manifest),
        run=RUN,
        keys={topic.name: topic.keys for case in cases for topic in case.topics},
        partitioning=partitioning,
    ).collect()
    found: dict[str, list[Row]] = {case.name: [] for case in cases}
    for row in rows:
        found[(row.found_in or row.topic).partition(".")[0]].append(row)
    return found


def _compared_in_doubt(
    spark: SparkSession, cases: list[Case], kept: list[int]
) -> dict[str, list[Row]]:
    """Compare records in doubt as the verifier does.

    ``kept`` receives the number of the target's records in doubt, and of all of them.
    """
    names = {topic.name: topic.name for case in cases for topic in case.topics}
    manifest, same = _manifest(*cases), cases[0].same_offsets
    source = recognised(spark, (r for case in cases for r in case.source), names, manifest)
    target = recognised(spark, (r for case in cases for r in case.target), names, manifest)
    here, there = (
        blocks.collected(blocks.summarised(side, RUN, BLOCK, by_offset=same))
        for side in (source, target)
    )
    manifest = manifest.model_copy(
        update={"streams": tuple(_with_checksums(stream, here) for stream in manifest.streams)}
    )
    doubted = doubts(here, there, manifest, same_offsets=same)
    streams = tuple(s for s in manifest.streams if (s.topic, s.producer) in doubted.streams)
    whole = manifest.model_copy(update={"streams": streams})
    ends = doubted.of(comparison.sentinels_frame(spark, manifest), RUN, BLOCK)
    kept[0] += doubted.of(target, RUN, BLOCK).count()
    kept[1] += target.count()
    rows = checks.compare(
        ends.unionByName(comparison.acknowledged_frame(spark, whole)),
        comparison.refused_frame(spark, whole),
        doubted.of(source, RUN, BLOCK),
        doubted.of(target, RUN, BLOCK),
        run=RUN,
        keys={topic.name: topic.keys for case in cases for topic in case.topics},
        partitioning=Partitioning.PRESERVED,
        same_offsets=same,
    ).collect()
    found: dict[str, list[Row]] = {case.name: [] for case in cases}
    for row in rows:
        found[(row.found_in or row.topic).partition(".")[0]].append(row)
    return found


def _with_checksums(stream: Stream, source: list[Block]) -> Stream:
    """Return the stream as if the source had lost nothing, without the values of its records."""
    return stream.model_copy(
        update={
            "partitions": tuple(
                p.model_copy(
                    update={
                        "checksum": sum(
                            b.checksum
                            for b in source
                            if (b.topic, b.producer, b.partition)
                            == (stream.topic, stream.producer, p.partition)
                        )
                    }
                )
                for p in stream.partitions
            )
        }
    )


def _error(case: Case, rows: list[Row]) -> str | None:
    """Return the differences between the checks and the oracle, in findings and verdict."""
    expected = findings(case)
    left = {_name(f.kind, f.number, f.identity, f.differs, f.places): f for f in expected}
    problems = []
    for row in rows:
        place: Place = (row.found_in, row.partition, row.offset)
        identity = (row.topic, row.producer, row.seq)
        name = _name(FindingType(row.kind), row["count"], identity, row.differs, frozenset({place}))
        finding = left.pop(name, None)
        if finding is None or place not in finding.places:
            problems.append(f"found: {row}, and not {finding}")
    problems += [f"not found: {finding}" for finding in left.values()]
    judged = _judged(case, rows)
    if judged != verdict(case, expected):
        problems.append(f"judged {judged}, and not {verdict(case, expected)}")
    return f"case {case.name} ({case.done}):\n" + "\n".join(problems) if problems else None


def _name(
    kind: FindingType, count: int, identity: Identity, differs: str, places: frozenset[Place]
) -> tuple[object, ...]:
    """Return the identity of a finding.

    A finding about all copies of a message may name any of their places.
    """
    return (kind, count, identity, differs, places if kind in EXACT else None)


def _judged(case: Case, rows: list[Row]) -> Verdict:
    counted = Counter[FindingType]()
    for row in rows:
        counted[FindingType(row.kind)] += row["count"]
    manifest, none = _manifest(case), {"duplicated": 0, "replayed": 0}
    if case.same_offsets:
        none["unequalOffsets"] = 0
    names = [topic.name for topic in case.topics]
    test = mirror_test_of_another("t", load={"names": names}, budgets=none)
    evidence = Evidence(
        run=MirrorTestRun(name=RUN, test=MirrorTest.model_validate(test)),
        manifest=manifest,
        counts=Counts(
            acknowledged=manifest.acknowledged,
            **{kind.field: total for kind, total in counted.items()},
        ),
        examples={},
        open_sentinels=open_ends(case),
        contradictions=(),
        measured=ProbeMeasurements(histogram=((5, manifest.acknowledged),)),
        faults=(),
    )
    return judge(evidence)[0]


def _manifest(*cases: Case) -> LoadManifest:
    return LoadManifest(
        run=RUN,
        topics=tuple(topic for case in cases for topic in case.topics),
        streams=tuple(stream for case in cases for stream in case.streams),
        started_ms=NOW_MS,
        finished_ms=NOW_MS,
        acknowledged_per_second=(),
    )
