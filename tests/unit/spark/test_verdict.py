"""Verdicts, and the sentence for each."""

from dataclasses import replace
from typing import Any

import pytest
from support.manifests import mirror_test_of_another

from headrace.api import ChaosAction, ChaosStep, MirrorTest, Verdict
from headrace.api.mirror_test import Budgets
from headrace.mirror_test import (
    Counts,
    Example,
    Fault,
    FindingType,
    MirrorTestRun,
    Place,
    ProbeMeasurements,
    Rehearsed,
    RehearsedGroup,
)
from headrace.mirror_test.load import LoadedTopic, LoadManifest, PartitionSummary, Stream
from headrace_spark.verdict import Evidence, checks, judge, objections

STEP = ChaosStep(action=ChaosAction.KILL_DRIVER, at_percent=50)


def run(**spec: Any) -> MirrorTestRun:
    """Return a run. Its budgets may judge steps and a rehearsal that its spec lacks."""
    spec["load"] = {"topics": 1} | spec.get("load", {})
    budgets = Budgets.model_validate(spec.pop("budgets", {}))
    test = MirrorTest.model_validate(mirror_test_of_another("t", **spec))
    spec_with_budgets = test.spec.model_copy(update={"budgets": budgets})
    return MirrorTestRun(name="r", test=test.model_copy(update={"spec": spec_with_budgets}))


def manifest(**more: Any) -> LoadManifest:
    partition = PartitionSummary(partition=0, first=0, last=999, count=1_000, checksum=1)
    return LoadManifest(
        run="r",
        topics=(
            LoadedTopic(
                name="t-0",
                keys=1,
                start_offsets=(0,),
                end_offsets=(1_001,),
                target_start_offsets=(),
            ),
        ),
        streams=(Stream(producer="r-0-0", topic="t-0", sent=1_000, partitions=(partition,)),),
        started_ms=0,
        finished_ms=1_000,
        acknowledged_per_second=((0, 1_000),),
        **more,
    )


GOOD = Evidence(
    run=run(),
    manifest=manifest(),
    counts=Counts(acknowledged=1_000, sentinels=1, sentinels_seen=1),
    examples={},
    open_sentinels=(),
    contradictions=(),
    measured=ProbeMeasurements(histogram=((5, 990), (80, 10))),
    faults=(),
)


def counts(**wrong: int) -> Counts:
    return GOOD.counts.model_copy(update=wrong)


def test_nothing_wrong_passes() -> None:
    verdict, reasons, warnings = judge(GOOD)
    assert verdict is Verdict.PASSED
    assert reasons == ("all 1,000 acknowledged messages are on the target, within every budget",)
    assert warnings == ()


def test_a_manifest_without_a_topic_is_inconclusive() -> None:
    """Its streams are also missing, so that all the rest adds up and is on the target."""
    verdict, reasons, _ = judge(
        replace(GOOD, manifest=manifest().model_copy(update={"topics": ()}))
    )
    assert verdict is Verdict.INCONCLUSIVE
    assert reasons == (
        "the manifest does not have t-0, which the test names: it is unknown what was sent there",
    )


@pytest.mark.parametrize("kind", ["missing", "reordered", "corrupted", "alien"])
def test_one_record_too_many_fails(kind: str) -> None:
    verdict, reasons, _ = judge(replace(GOOD, counts=counts(**{kind: 1})))
    assert verdict is Verdict.FAILED
    assert reasons[0].startswith("1 message is ")


@pytest.mark.parametrize("kind", ["missing", "reordered", "corrupted"])
def test_what_the_budget_allows_is_a_warning(kind: str) -> None:
    evidence = replace(GOOD, run=run(budgets={kind: 3}), counts=counts(**{kind: 3}))
    verdict, _, warnings = judge(evidence)
    assert verdict is Verdict.PASSED
    assert warnings[0].startswith("3 messages are ")
    assert judge(replace(evidence, counts=counts(**{kind: 4})))[0] is Verdict.FAILED


def test_repetitions_are_free_unless_bounded() -> None:
    repeated = counts(duplicated=7)
    verdict, _, warnings = judge(replace(GOOD, counts=repeated))
    assert (verdict, warnings) == (
        Verdict.PASSED,
        ("7 messages are repeated on the target (allowed)",),
    )
    bounded = replace(GOOD, run=run(budgets={"duplicated": 0}), counts=repeated)
    assert judge(bounded)[0] is Verdict.FAILED


def test_records_of_earlier_runs_are_told_and_blamed_only_where_the_test_asks_for_it() -> None:
    replayed = replace(GOOD, counts=counts(replayed=200))
    verdict, _, warnings = judge(replayed)
    assert verdict is Verdict.PASSED
    assert warnings == (
        "200 messages are of earlier runs, and arrived on the target during this run (allowed)",
    )
    assert judge(replace(replayed, run=run(budgets={"replayed": 199})))[0] is Verdict.FAILED


def test_offsets_are_judged_only_where_the_test_asks_for_it() -> None:
    example = Example(
        topic="east.t-0",
        partition=0,
        offset=12,
        producer="r-0-0",
        seq=11,
        differs="offset",
        source=Place(topic="t-0", partition=0, offset=13),
    )
    asked, moved = run(budgets={"unequalOffsets": 1}), counts(unequal_offsets=2)
    evidence = replace(
        GOOD, run=asked, counts=moved, examples={FindingType.UNEQUAL_OFFSETS: (example,)}
    )
    verdict, reasons, _ = judge(evidence)
    assert verdict is Verdict.FAILED
    assert reasons == (
        "2 messages are at another offset than on the source (allowed: 1), for example number 11 "
        "of producer r-0-0 at east.t-0-0 offset 12, and at 13 on the source",
    )
    verdict, reasons, warnings = judge(replace(evidence, counts=counts(unequal_offsets=1)))
    assert verdict is Verdict.PASSED
    assert warnings == ("1 message is at another offset than on the source (allowed)",)
    assert "offset" not in reasons[0]
    _, reasons, _ = judge(replace(evidence, counts=counts(unequal_offsets=0)))
    assert reasons == (
        "all 1,000 acknowledged messages are on the target at their source's offsets, within every "
        "budget",
    )


def test_a_failure_names_a_record() -> None:
    example = Example(
        topic="east.t-0", partition=0, offset=12, producer="r-0-0", seq=11, differs="key, value"
    )
    evidence = replace(
        GOOD, counts=counts(corrupted=1), examples={FindingType.CORRUPTED: (example,)}
    )
    assert judge(evidence)[1] == (
        "1 message is changed on the target (allowed: 0), for example number 11 of producer r-0-0 "
        "at east.t-0-0 offset 12 (key, value)",
    )


def test_a_missing_sentinel_fails_even_with_nothing_else_missing() -> None:
    verdict, reasons, _ = judge(replace(GOOD, open_sentinels=("t-0-0", "t-0-1")))
    assert verdict is Verdict.FAILED
    assert "t-0-0, t-0-1 did not arrive within 120 s" in reasons[0]


def test_a_sentinel_that_came_late_fails_though_all_is_there_by_now() -> None:
    late = GOOD.measured.model_copy(update={"late": ("t-0-0",)}) if GOOD.measured else None
    verdict, reasons, _ = judge(replace(GOOD, measured=late, open_sentinels=("t-0-0",)))
    assert verdict is Verdict.FAILED
    assert reasons == ("the last record of t-0-0 did not arrive within 120 s (settleSeconds)",)
    assert judge(replace(GOOD, measured=late))[1] == reasons


def test_messages_that_nobody_saw_arrive_are_told() -> None:
    slow = ProbeMeasurements(histogram=((5, 900),))
    (warning,) = judge(replace(GOOD, measured=slow, counts=counts(missing=0)))[2]
    assert warning == "latency was not measured of 100 messages that arrived"
    budget = run(budgets={"latencyP99Ms": 10})
    assert judge(replace(GOOD, measured=slow, run=budget))[0] is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("evidence", "reason"),
    [
        (replace(GOOD, counts=counts(acknowledged=0)), "acknowledged no message at all"),
        (replace(GOOD, manifest=manifest(errors=("no leader",))), "stopped early: no leader"),
        (replace(GOOD, counts=counts(source_lost=2)), "so the mirror is not responsible"),
        (replace(GOOD, counts=counts(unmanifested=2)), "not in its manifest"),
        (replace(GOOD, contradictions=("producer p in t-0",)), "by number and checksum"),
        (replace(GOOD, faults=(Fault(step=STEP, error="no driver"),)), "not injected: no driver"),
        (replace(GOOD, measured=None, run=run(budgets={"latencyP99Ms": 1})), "was not measured"),
        (
            replace(GOOD, measured=ProbeMeasurements(), run=run(budgets={"latencyP99Ms": 1})),
            "not measured of 1,000 messages",
        ),
    ],
)
def test_what_cannot_be_known_is_inconclusive(evidence: Evidence, reason: str) -> None:
    verdict, reasons, _ = judge(evidence)
    assert verdict is Verdict.INCONCLUSIVE
    assert reason in reasons[0]


@pytest.mark.parametrize("lost", [{"partitions": ()}, {"sent": 999}, {"failed": ((3, 3),)}])
def test_a_truncated_manifest_is_inconclusive(lost: dict[str, Any]) -> None:
    whole = manifest()
    stream = whole.streams[0].model_copy(update=lost)
    evidence = replace(GOOD, manifest=whole.model_copy(update={"streams": (stream,)}))
    verdict, reasons, _ = judge(evidence)
    assert verdict is Verdict.INCONCLUSIVE
    assert any("the manifest is not consistent" in reason for reason in reasons)


def test_failed_outweighs_inconclusive_and_both_are_said() -> None:
    evidence = replace(GOOD, counts=counts(missing=1, source_lost=1))
    verdict, reasons, _ = judge(evidence)
    assert verdict is Verdict.FAILED
    assert len(reasons) == 2


def test_latency_is_judged_at_its_99th_percentile() -> None:
    assert judge(replace(GOOD, run=run(budgets={"latencyP99Ms": 5})))[0] is Verdict.PASSED
    verdict, reasons, _ = judge(replace(GOOD, run=run(budgets={"latencyP99Ms": 4})))
    assert (verdict, reasons) == (Verdict.FAILED, ("latency p99 is 5 ms (allowed: 4 ms)",))


@pytest.mark.parametrize(
    ("budget", "recovery", "verdict"),
    [
        (None, 99.0, Verdict.PASSED),
        (None, None, Verdict.PASSED),
        (10, 9.9, Verdict.PASSED),
        (10, 10.1, Verdict.FAILED),
        (10, None, Verdict.FAILED),
    ],
)
def test_recovery_has_a_budget(
    budget: int | None, recovery: float | None, verdict: Verdict
) -> None:
    fault = Fault(step=STEP, at_ms=1, recovery_seconds=recovery, error="it took too long")
    budgets = {} if budget is None else {"recoverySeconds": budget}
    assert judge(replace(GOOD, run=run(budgets=budgets), faults=(fault,)))[0] is verdict


@pytest.mark.parametrize("budgets", [{}, {"recoverySeconds": 9}])
def test_a_recovery_that_nobody_watched_is_inconclusive(budgets: dict[str, int]) -> None:
    fault = Fault(step=STEP, at_ms=1, error="its Job ended", watched=False)
    evidence = replace(GOOD, run=run(budgets=budgets), faults=(fault,))
    assert judge(evidence)[0] is Verdict.INCONCLUSIVE


def test_a_rate_that_was_not_reached_is_a_warning() -> None:
    assert judge(replace(GOOD, run=run(load={"messagesPerSecond": 1_000})))[2] == ()
    verdict, _, warnings = judge(replace(GOOD, run=run(load={"messagesPerSecond": 2_000})))
    assert verdict is Verdict.PASSED
    assert "reached 1,000 messages/s a topic, not the 2,000 requested" in warnings[0]


def test_a_low_rate_is_told_from_the_one_asked_for() -> None:
    slow = manifest().model_copy(update={"finished_ms": 531_915})  # 1.88 messages a second
    evidence = replace(GOOD, manifest=slow, run=run(load={"messagesPerSecond": 2}))
    assert "reached 1.88 messages/s a topic, not the 2 requested" in judge(evidence)[2][0]


def rehearsed(reread: int, skipped: int) -> Rehearsed:
    """Return a rehearsal in which the second of two groups reread or skipped records."""
    groups = [(0, 0), (reread, skipped)]
    return Rehearsed(
        groups=tuple(
            RehearsedGroup(group=f"g-{n}", committed=9, reread=again, skipped=never)
            for n, (again, never) in enumerate(groups)
        ),
        seconds=5.0,
    )


@pytest.mark.parametrize(
    ("budgets", "found", "verdict"),
    [
        ({}, rehearsed(0, 0), Verdict.PASSED),
        ({}, rehearsed(1, 0), Verdict.FAILED),
        ({"rereadPerGroup": 1}, rehearsed(1, 0), Verdict.PASSED),
        ({}, rehearsed(0, 1), Verdict.FAILED),
        ({"skipped": 1}, rehearsed(0, 1), Verdict.PASSED),
        ({"rereadPerGroup": 9}, rehearsed(0, 1), Verdict.FAILED),
        ({}, Rehearsed(error="consumers of billing still run at east"), Verdict.INCONCLUSIVE),
    ],
)
def test_a_rehearsed_fail_over_has_budgets(
    budgets: dict[str, int], found: Rehearsed, verdict: Verdict
) -> None:
    evidence = replace(GOOD, run=run(budgets=budgets), rehearsed=found)
    given, reasons, warnings = judge(evidence)
    assert given is verdict
    if found.error:
        assert reasons == (f"the fail-over was not rehearsed: {found.error}",)
    said = " ".join((*reasons, *warnings))
    assert ("g-1 was delivered 1 messages again" in said) == any(g.reread for g in found.groups)
    assert ("not delivered to groups" in said) == any(g.skipped for g in found.groups)


def test_a_flow_that_stays_failed_over_is_no_end_of_a_rehearsal() -> None:
    found = rehearsed(0, 0).model_copy(update={"not_undone": "west does not answer"})
    given, reasons, _ = judge(replace(GOOD, rehearsed=found))
    assert given is Verdict.INCONCLUSIVE
    assert "could not be undone (west does not answer)" in reasons[0]


def test_what_the_probe_was_late_for_is_not_blamed_on_the_mirror() -> None:
    slow = ProbeMeasurements(histogram=((5, 900), (40_000, 100)), behind=11)
    sentence = "11 messages are seen late by the probe, which did not keep up"
    assert judge(replace(GOOD, measured=slow))[0] is Verdict.PASSED
    assert any(one.startswith(sentence) for one in judge(replace(GOOD, measured=slow))[2])
    budget = run(budgets={"latencyP99Ms": 4})
    verdict, reasons, _ = judge(replace(GOOD, measured=slow, run=budget))
    assert verdict is Verdict.INCONCLUSIVE
    assert reasons[0].startswith(sentence)
    few = slow.model_copy(update={"behind": 10})
    assert judge(replace(GOOD, measured=few, run=budget))[0] is Verdict.FAILED


def test_checks_are_those_that_the_test_asks_for() -> None:
    always = ["missing", "reordered", "corrupted", "duplicated", "alien", "replayed"]
    always += ["arrival", "source", "load"]
    assert [one.name for one in checks(objections(GOOD))] == always
    asked = replace(
        GOOD,
        run=run(budgets={"latencyP99Ms": 10, "unequalOffsets": 0}),
        counts=GOOD.counts.model_copy(update={"missing": 1, "unequal_offsets": 0}),
        measured=None,
    )
    found = {one.name: one for one in checks(objections(asked))}
    assert found.keys() == {*always, "unequalOffsets", "latency"}
    assert (found["missing"].verdict, found["latency"].verdict) == (
        Verdict.FAILED,
        Verdict.INCONCLUSIVE,
    )
    assert found["missing"].sentences == ("1 message is missing on the target (allowed: 0)",)
