"""State machine of a mirror test's stages, shared by the local command and the operator."""

from pathlib import Path
from typing import Any

import pytest
from support.manifests import mirror_test_of_another

from headrace.api import MirrorTest
from headrace.mirror_test.sequence import (
    Activity,
    RunState,
    Stage,
    StageState,
    Transition,
    advance,
    compiler_options,
    java_options,
    planned_messages,
)

DOCS = Path(__file__).parents[3] / "docs" / "mirror-tests-on-kubernetes.md"
RUNS, READY, ENDED = StageState(age_s=1), StageState(age_s=1, ready=True), StageState(ended_s=0)
BEFORE = {Stage.PROBE: READY}
WITH_CHAOS = BEFORE | {Stage.CHAOS: READY}


QUICK = "-XX:TieredStopAtLevel=1"


def at(stages: dict[Stage, StageState], **facts: Any) -> Transition:
    limits = {"settle_s": 120, "probe_start_s": 420, "chaos_start_s": 300, "has_chaos": False}
    return advance(RunState(**limits | {"stages": stages} | facts))


def test_a_run_without_chaos_has_three_stages_in_order() -> None:
    assert at({}) == Transition(Activity.STARTING_PROBE, Stage.PROBE)
    assert at({Stage.PROBE: RUNS}) == Transition(Activity.AWAITING_PROBE)
    assert at(BEFORE) == Transition(Activity.SENDING, Stage.PRODUCE)
    loading = BEFORE | {Stage.PRODUCE: RUNS}
    assert at(loading) == Transition(Activity.SENDING)
    loaded = BEFORE | {Stage.PRODUCE: ENDED}
    assert at(loaded) == Transition(Activity.AWAITING_ARRIVALS)
    measured = loaded | {Stage.PROBE: ENDED}
    assert at(measured) == Transition(Activity.COMPARING, Stage.VERIFY)
    assert at(measured | {Stage.VERIFY: RUNS}) == Transition(Activity.COMPARING)
    compared = measured | {Stage.VERIFY: ENDED}
    assert at(compared) == Transition(Activity.UNREPORTED)
    assert at(compared, reported=True) == Transition(Activity.REPORTED)


def test_an_audit_only_compares() -> None:
    assert at({}, has_load=False) == Transition(Activity.COMPARING, Stage.VERIFY)
    assert at({Stage.VERIFY: RUNS}, has_load=False) == Transition(Activity.COMPARING)
    ended = {Stage.VERIFY: ENDED}
    assert at(ended, has_load=False) == Transition(Activity.UNREPORTED)
    assert at(ended, has_load=False, reported=True) == Transition(Activity.REPORTED)


def test_chaos_is_ready_before_the_load_and_recovered_before_the_comparison() -> None:
    assert at(BEFORE, has_chaos=True) == Transition(Activity.STARTING_CHAOS, Stage.CHAOS)
    starting = BEFORE | {Stage.CHAOS: RUNS}
    assert at(starting, has_chaos=True) == Transition(Activity.AWAITING_CHAOS)
    assert at(WITH_CHAOS, has_chaos=True) == Transition(Activity.SENDING, Stage.PRODUCE)
    loaded = WITH_CHAOS | {Stage.PROBE: ENDED, Stage.PRODUCE: ENDED}
    assert at(loaded, has_chaos=True) == Transition(Activity.AWAITING_RECOVERY)
    recovered = loaded | {Stage.CHAOS: ENDED}
    assert at(recovered, has_chaos=True) == Transition(Activity.COMPARING, Stage.VERIFY)


def test_a_fail_over_is_rehearsed_when_nothing_else_runs_beside_the_load_any_more() -> None:
    def at_(stages: dict[Stage, StageState]) -> Transition:
        return at(stages, has_chaos=True, has_rehearsal=True)

    assert at_({Stage.PROBE: RUNS, Stage.CHAOS: READY}) == Transition(Activity.AWAITING_PROBE)
    assert at_(WITH_CHAOS) == Transition(Activity.STARTING_REHEARSAL, Stage.REHEARSAL)
    starting = WITH_CHAOS | {Stage.REHEARSAL: RUNS}
    assert at_(starting) == Transition(Activity.AWAITING_REHEARSAL)
    reading = WITH_CHAOS | {Stage.REHEARSAL: READY}
    assert at_(reading) == Transition(Activity.SENDING, Stage.PRODUCE)
    loaded = reading | {Stage.PROBE: ENDED, Stage.PRODUCE: ENDED}
    assert at_(loaded) == Transition(Activity.AWAITING_RECOVERY)
    recovered = loaded | {Stage.CHAOS: ENDED}
    assert at_(recovered) == Transition(Activity.REHEARSING)
    rehearsed = recovered | {Stage.REHEARSAL: ENDED}
    assert at_(rehearsed) == Transition(Activity.COMPARING, Stage.VERIFY)


@pytest.mark.parametrize("rehearsal", [ENDED, StageState(age_s=301)])
def test_a_load_does_not_do_without_the_rehearsal(rehearsal: StageState) -> None:
    failed = at(BEFORE | {Stage.REHEARSAL: rehearsal}, has_rehearsal=True)
    assert failed == Transition(Activity.REHEARSAL_FAILED)


@pytest.mark.parametrize("probe", [ENDED, StageState(age_s=421)])
def test_a_load_does_without_a_probe(probe: StageState) -> None:
    assert at({Stage.PROBE: probe}).start is Stage.PRODUCE
    assert at({Stage.PROBE: StageState(age_s=420)}).start is None


@pytest.mark.parametrize("chaos", [ENDED, StageState(age_s=301)])
def test_a_load_does_not_do_without_chaos(chaos: StageState) -> None:
    failed = at(BEFORE | {Stage.CHAOS: chaos}, has_chaos=True)
    assert failed == Transition(Activity.CHAOS_FAILED)


def test_a_load_is_sent_once() -> None:
    assert at(BEFORE, load_sent=True) == Transition(Activity.LOAD_LOST)


@pytest.mark.parametrize(("ended_s", "start"), [(179, None), (180, Stage.VERIFY)])
@pytest.mark.parametrize("beside", [Stage.PROBE, Stage.CHAOS])
def test_the_comparison_waits_for_what_runs_beside_the_load_for_a_time(
    beside: Stage, ended_s: float, start: Stage | None
) -> None:
    stages = {beside: READY, Stage.PRODUCE: StageState(ended_s=ended_s)}
    assert at(stages).start is start


@pytest.mark.parametrize(("ended_s", "start"), [(1_979, None), (1_980, Stage.VERIFY)])
def test_the_comparison_waits_for_a_rehearsal_that_does_not_end_for_half_an_hour(
    ended_s: float, start: Stage | None
) -> None:
    stages = {Stage.REHEARSAL: READY, Stage.PRODUCE: StageState(ended_s=ended_s)}
    assert at(stages).start is start


def test_a_probe_that_no_manifest_ends_is_not_waited_for() -> None:
    loaded = BEFORE | {Stage.PRODUCE: ENDED}
    assert at(loaded, has_manifest=False) == Transition(Activity.COMPARING, Stage.VERIFY)


def test_the_docs_have_every_state_with_its_phase() -> None:
    rows = [line for line in DOCS.read_text().splitlines() if line.startswith("| `")]
    states = [tuple(cell.strip(" `") for cell in row.split("|")[1:3]) for row in rows]
    assert [(state.name, state.phase.value) for state in Activity] == [
        state for state in states if state[0] in Activity.__members__
    ]


def test_only_small_comparisons_run_without_the_optimizing_compiler() -> None:
    assert compiler_options(10_000) == QUICK
    assert compiler_options(1_000_000) == ""
    assert compiler_options(None) == ""


@pytest.mark.parametrize(
    ("spec", "messages"),
    [
        ({"load": {"messages": 2_000}}, 2_000),
        ({"load": {}}, 1_000_000),
        ({"load": {"topics": 2, "durationSeconds": 60, "messagesPerSecond": 10}}, 1_200),
        ({"load": {"durationSeconds": 60}}, None),
        ({"load": {"durationSeconds": 0, "messagesPerSecond": 10}}, None),
        ({"audit": {"topics": ["orders"]}}, None),
    ],
)
def test_messages_are_planned_by_a_number_or_by_duration_and_rate(
    spec: dict[str, Any], messages: int | None
) -> None:
    assert planned_messages(mirror_test(**spec)) == messages


def test_jobs_of_a_cluster_start_the_verifier_with_the_compiler_for_the_planned_messages() -> None:
    small, large = (mirror_test(load={"messages": n}) for n in (2_000, 2_000_000))
    assert QUICK in java_options(small, Stage.VERIFY).split()
    assert QUICK not in java_options(large, Stage.VERIFY).split()
    assert QUICK in java_options(large, Stage.PRODUCE).split()


def mirror_test(**spec: Any) -> MirrorTest:
    return MirrorTest.model_validate(mirror_test_of_another("nightly", **spec))
