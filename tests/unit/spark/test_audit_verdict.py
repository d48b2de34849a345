"""Sentences and verdicts of audits."""

from typing import Any

import pytest

from headrace.api import MirrorTest, Verdict
from headrace.mirror_test import (
    AuditedPast,
    AuditedTopic,
    ChangedRange,
    ExcludedRange,
    Exclusion,
    FindingType,
    MirrorTestRun,
)
from headrace_spark.audit.comparing import Found, Totals
from headrace_spark.audit.differences import HashedRecord, RecordDifference
from headrace_spark.audit.judging import counts_of, judge, objections
from headrace_spark.verdict import checks

ORDERS = AuditedTopic(source="orders", target="orders", source_partitions=1, target_partitions=1)
RECORD = HashedRecord("orders", 0, 7, 1_000, 1, 2, 3, 4)


def run(**budgets: int) -> MirrorTestRun:
    spec = {
        "source": {"alias": "east", "bootstrapServers": "e:1"},
        "target": {"alias": "west", "bootstrapServers": "w:1"},
        "targetTopic": "{topic}",
        "audit": {"topics": [".*"]},
        "budgets": budgets,
    }
    test = MirrorTest.model_validate({"metadata": {"name": "t"}, "spec": spec})
    return MirrorTestRun(name="r", test=test)


def judged(
    *differences: RecordDifference,
    test: MirrorTestRun | None = None,
    topic: AuditedTopic = ORDERS,
    records: int = 100,
    **facts: Any,
) -> tuple[Verdict, tuple[str, ...], tuple[str, ...]]:
    known: dict[str, Any] = {
        "excluded": (),
        "source": {"orders": Totals(records)},
        "target": {"orders": Totals(records)},
        "lag": 0,
        "after_frontier": 0,
        "stamped": frozenset(),
    }
    found = Found(differences=differences, **known | facts)
    return judge(test or run(), [topic], found, counts_of(found))


def test_equal_topics_pass() -> None:
    assert judged() == (
        Verdict.PASSED,
        ("all 100 records of 1 topic are on the target, within every budget",),
        (),
    )


def test_records_after_the_frontier_are_not_called_copied() -> None:
    verdict, [reason], [warning] = judged(lag=5, after_frontier=4)
    assert verdict is Verdict.PASSED
    assert reason.startswith("all 96 records")
    assert warning.startswith("the source received 5 offsets during the audit")


def test_a_count_above_its_budget_fails_with_a_place() -> None:
    changed = RecordDifference(FindingType.CORRUPTED, RECORD, RECORD._replace(offset=9), "value")
    assert judged(changed)[:2] == (
        Verdict.FAILED,
        (
            "1 record is changed on the target (allowed: 0), for example orders-0 offset 9 of the "
            "target (value)",
        ),
    )
    verdict, _, warnings = judged(changed, test=run(corrupted=1))
    assert verdict is Verdict.PASSED
    assert warnings == ("1 record is changed on the target (allowed)",)


def test_alien_records_have_a_budget() -> None:
    alien = RecordDifference(FindingType.ALIEN, None, RECORD)
    assert judged(alien)[0] is Verdict.FAILED
    assert judged(alien, test=run(alien=1))[0] is Verdict.PASSED


def test_what_the_target_may_have_deleted_is_inconclusive() -> None:
    part = {"cluster": "east", "topic": "orders", "partition": 0, "first": 0, "last": 4, "count": 5}
    gone = ExcludedRange(reason=Exclusion.DELETED_ON_TARGET, **part)
    assert judged(excluded=(gone,))[:2] == (
        Verdict.INCONCLUSIVE,
        ("5 records were not compared (deleted on the target): orders-0 offsets 0 to 4 of east",),
    )
    old = ExcludedRange(reason=Exclusion.DELETED_ON_SOURCE, **part)
    assert judged(excluded=(old,))[0] is Verdict.PASSED


def test_no_record_is_no_proof() -> None:
    verdict, [reason], _ = judged(records=0)
    assert verdict is Verdict.INCONCLUSIVE
    assert reason == "the topics have no records on east: nothing was compared"


def test_a_topic_that_the_target_does_not_have_is_named() -> None:
    absent = ORDERS.model_copy(update={"target_partitions": 0})
    lost = RecordDifference(FindingType.MISSING, RECORD, None, records=100)
    verdict, reasons, _ = judged(lost, topic=absent, target={})
    assert verdict is Verdict.FAILED
    assert reasons[0] == "topic orders does not exist on west: 100 records are missing there"


def test_every_audit_has_the_same_checks() -> None:
    found = Found(
        differences=(RecordDifference(FindingType.MISSING, RECORD, None),),
        excluded=(),
        source={"orders": Totals(100)},
        target={"orders": Totals(99)},
        lag=0,
        after_frontier=0,
        stamped=frozenset(),
    )
    found_checks = checks(objections(run(), [ORDERS], found, counts_of(found)))
    assert {check.name: check.verdict for check in found_checks} == {
        "topics": Verdict.PASSED,
        "missing": Verdict.FAILED,
        "reordered": Verdict.PASSED,
        "corrupted": Verdict.PASSED,
        "duplicated": Verdict.PASSED,
        "alien": Verdict.PASSED,
        "evidence": Verdict.PASSED,
    }


CHANGED = ChangedRange(
    cluster="west", topic="orders", partition=0, first=5, last=9, expected=5, found=4
)


@pytest.mark.parametrize(
    ("past", "records", "verdict", "reasons"),
    [
        (AuditedPast(), 0, Verdict.INCONCLUSIVE, ["the topics have no records on east: nothing"]),
        (AuditedPast(), 9, Verdict.PASSED, ["all 9 records of 1 topic"]),
        (AuditedPast(since_ms=1), 9, Verdict.PASSED, ["all 9 new records of 1 topic"]),
        (AuditedPast(since_ms=1), 0, Verdict.PASSED, ["the source has no new records since"]),
        (
            AuditedPast(since_ms=1, is_stored=False),
            9,
            Verdict.INCONCLUSIVE,
            ["another audit has changed the frontier in topic mm2-headrace-audits.east.internal"],
        ),
        (
            AuditedPast(since_ms=1, changed=(CHANGED,)),
            9,
            Verdict.FAILED,
            [
                "records have changed since an earlier audit compared them: orders-0 offsets 5 to "
                "9 of west"
            ],
        ),
        (
            AuditedPast(since_ms=1, blocks=7, unchecked=2, begun_again=("orders",)),
            9,
            Verdict.PASSED,
            [
                "all 9 new records",
                "topics were created again since the last audit, and compared from their first "
                "record: orders",
                "2 of 7 blocks of earlier audits could not be checked again",
            ],
        ),
    ],
)
def test_ranges_of_earlier_audits_are_judged(
    past: AuditedPast, records: int, verdict: Verdict, reasons: list[str]
) -> None:
    found, why, warnings = judged(past=past, records=records)
    assert found is verdict
    assert [
        text[: len(expected)] for text, expected in zip((*why, *warnings), reasons, strict=True)
    ] == reasons
