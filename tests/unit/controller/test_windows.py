"""A load without end in a cluster runs a test for each window, one after the other."""

from datetime import UTC, datetime, timedelta
from typing import Any

from support.manifests import mirror_test_of_another

from headrace.api import MirrorTest, MirrorTestPhase, MirrorTestStatus, Readiness, Reason, Verdict
from headrace.controller.mirror_tests.schedule import next_window
from headrace.controller.mirror_tests.stages import with_conditions

NOW = datetime(2026, 11, 24, 12, 0, tzinfo=UTC)
LOAD = {"durationSeconds": 0, "windowSeconds": 300, "topics": 2, "messagesPerSecond": 10}


def canary(**spec: Any) -> MirrorTest:
    test = mirror_test_of_another("canary", load=LOAD, **spec)
    test["metadata"]["uid"] = "1-2-3"
    return MirrorTest.model_validate(test)


def window(
    minutes_ago: int, phase: MirrorTestPhase | None, verdict: Verdict | None = None
) -> MirrorTest:
    at = NOW - timedelta(minutes=minutes_ago)
    test = mirror_test_of_another(f"canary-{int(at.timestamp()) // 60}")
    test["metadata"]["creationTimestamp"] = at.isoformat()
    status = MirrorTestStatus(phase=phase, verdict=verdict)
    return MirrorTest.model_validate(test).model_copy(update={"status": status})


def test_the_next_window_begins_when_the_load_of_the_last_has_ended() -> None:
    first = next_window(canary(), [], NOW)
    assert first.create is not None
    assert first.create["metadata"]["name"] == f"canary-{int(NOW.timestamp()) // 60}"
    load = first.create["spec"]["load"]
    assert load == {
        "names": ["canary-0", "canary-1"],
        "durationSeconds": 300,
        "messagesPerSecond": 10,
    }
    assert not MirrorTest.model_validate(first.create).spec.repeats
    for phase in (None, MirrorTestPhase.PENDING, MirrorTestPhase.RUNNING):
        assert next_window(canary(), [window(4, phase)], NOW).create is None
    assert next_window(canary(), [window(6, MirrorTestPhase.VERIFYING)], NOW).create is not None


def test_a_window_that_ends_at_once_is_not_followed_before_the_next_minute() -> None:
    ended = window(0, MirrorTestPhase.FINISHED, Verdict.INCONCLUSIVE)
    assert next_window(canary(), [ended], NOW).create is None
    assert next_window(canary(), [ended], NOW + timedelta(minutes=1)).create is not None


def test_a_suspended_test_begins_none_and_says_what_the_last_one_found() -> None:
    ended = window(9, MirrorTestPhase.FINISHED, Verdict.FAILED)
    step = next_window(canary(suspend=True), [ended], NOW)
    assert step.create is None
    assert step.status.conditions[0].message == (
        f"spec.suspend is true: no further windows start; {ended.metadata.name}: Failed"
    )


def test_windows_beyond_the_history_limits_are_deleted() -> None:
    runs = [window(ago, MirrorTestPhase.FINISHED, Verdict.PASSED) for ago in (40, 30, 20)]
    runs += [window(ago, MirrorTestPhase.FINISHED, Verdict.FAILED) for ago in (35, 25)]
    step = next_window(canary(successfulTestsHistoryLimit=1), runs, NOW)
    names = [run.metadata.name for run in runs]
    assert set(step.delete) == {names[0], names[1], names[3]}


def test_a_window_that_waits_for_a_person_stalls_the_test() -> None:
    run = window(4, MirrorTestPhase.PENDING)
    forbidden = Readiness.stalled(Reason.FORBIDDEN, "may not list jobs")
    run = run.model_copy(update={"status": with_conditions(run, forbidden, NOW)})
    step = next_window(canary(), [run], NOW)
    ready = step.status.conditions[0]
    assert (ready.reason, ready.message) == (
        Reason.FORBIDDEN,
        f"window {run.metadata.name} is stalled: may not list jobs",
    )
