"""The Job of chaos: facts about the load that it reads in the journal, and facts it writes."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.api import ChaosAction, ChaosStep, MirrorTest
from headrace.chaos import Chaos, Injection
from headrace.cli.mirror_test import jobs as job
from headrace.errors import InvalidSpec, Retriable
from headrace.kafka import journal
from headrace.mirror_test import Fault, Faults, LoadTail, MirrorTestRun
from headrace.mirror_test.faults import build_plan, read_plan

TEST = MirrorTest.model_validate(
    {
        "metadata": {"name": "nightly", "namespace": "shop"},
        "spec": {
            "source": {"alias": "east", "bootstrapServers": "e:1"},
            "target": {"alias": "west", "bootstrapServers": "w:1"},
            "load": {"messages": 1000},
        },
    }
)
RUN = MirrorTestRun(name="r1", test=TEST)
KILL = ChaosStep(action=ChaosAction.KILL_DRIVER, at_percent=50)
ROLL = ChaosStep(action=ChaosAction.ROLL_DRIVERS, at_percent=90)
PLAN = read_plan(build_plan((KILL, ROLL), "nobody did it"), "the plan")


class Journal:
    """Journal of the producers, with a list of facts for each poll, and of the Job's own writes."""

    def __init__(self, *polls: list[tuple[str, Any]]) -> None:
        self._polls = list(polls)
        self.written: list[Faults] = []
        self.away = 0

    def poll(self, timeout_s: float) -> Iterator[tuple[str, Any]]:
        time.sleep(timeout_s)  # as if the facts came at its end
        yield from self._polls.pop(0) if self._polls else [("manifest", {})]

    def write(self, cluster: Any, run: str, key: str, value: str) -> None:
        assert (run, key) == ("r1", "faults")
        if self.away:
            self.away -= 1
            raise Retriable("east is away")
        self.written.append(Faults.model_validate_json(value))


class Flow:
    """Flow that has recovered at the second check."""

    def __init__(self) -> None:
        self.polls = 0

    def inject(self, step: ChaosStep) -> Injection:
        return Injection(at_ms=5_000, recovered=self.recovered, driver="a", units=("task-0",))

    def recovered(self) -> bool:
        self.polls += 1
        return self.polls > 1


def acknowledged(*counts: int) -> list[tuple[str, Any]]:
    return [(f"r1-{n}-0/progress", {"acknowledged": count}) for n, count in enumerate(counts)]


def run(journal_of: Journal, monkeypatch: pytest.MonkeyPatch, away: int = 0) -> tuple[Fault, ...]:
    monkeypatch.setattr(journal, "write", journal_of.write)
    chaos, reporter = Chaos(PLAN.steps, Flow(), 30), job.FaultReporter(RUN, PLAN)
    reporter.report(())
    journal_of.away = away
    load = LoadTail(journal_of.poll, TEST.spec.load)
    job.inject_during_load(chaos, load, reporter, poll_s=0.001)
    reporter.report(chaos.faults)
    return journal_of.written[-1].faults


def test_a_step_is_done_when_the_producers_together_are_so_far(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = Journal(acknowledged(300, 100), acknowledged(300, 250))
    killed, rolled = run(found, monkeypatch)
    assert (killed.at_ms, killed.acknowledged, killed.percent) == (5_000, 550, 55)
    assert killed.recovery_seconds is not None
    assert rolled.error == "the load ended before it was due"
    assert [f.error for f in found.written[0].faults] == ["nobody did it"] * 2


def test_all_that_is_planned_is_told_of_at_any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Journal(acknowledged(600))
    run(found, monkeypatch)
    assert {len(document.faults) for document in found.written} == {2}
    under_way = found.written[1].faults
    assert under_way[0].at_ms == 5_000
    assert under_way[0].error == "the Job that watched it ended before it did"
    assert not under_way[0].watched
    assert all(fault.watched for fault in found.written[-1].faults)
    assert under_way[1] == PLAN.faults[1]


def test_a_source_that_is_away_is_told_later(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Journal(acknowledged(600), acknowledged(600), acknowledged(600))
    assert run(found, monkeypatch, away=1)[0].recovery_seconds is not None
    assert found.away == 0


@pytest.mark.parametrize(("limits", "ended"), [({}, False), ({"idle_timeout_s": -1.0}, True)])
def test_a_load_of_whose_producers_nothing_is_heard_has_ended(
    limits: dict[str, float], *, ended: bool
) -> None:
    quiet = Journal(acknowledged(1), *([[]] * 9_999))
    load = LoadTail(quiet.poll, TEST.spec.load, **limits)
    assert not load.ended, "it may take its time to begin"
    load.receive(0.001)
    assert load.ended is ended


def test_the_plan_is_read_or_refused(tmp_path: Path) -> None:
    plan = tmp_path / "chaos.json"
    plan.write_text(build_plan((KILL, ROLL), "nobody did it"))
    assert read_plan(job.plan_text(plan), str(plan)) == PLAN
    plan.write_text(json.dumps({"faults": [{"step": {"action": "Burn", "atPercent": 1}}]}))
    with pytest.raises(InvalidSpec, match="is not a plan of this version of headrace"):
        read_plan(job.plan_text(plan), str(plan))
