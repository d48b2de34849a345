"""Experiments that ``headrace verify`` can carry out, and their table of results."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import pytest
from support.manifests import mirror_test_of_another

from headrace.api import ChaosAction, ChaosStep, LatencyMs, MirrorTest, Verdict
from headrace.cli import compare_mirrors
from headrace.cli.compare_experiments import (
    EXPERIMENTS,
    Experiment,
    chaos_of,
    load_s,
    node_words,
    scale_words,
)
from headrace.cli.main import group, main
from headrace.mirror_test import Counts, Fault, Latency, Result
from headrace.report.pages import ExperimentResult, markdown, mirror_table


class Workers:
    """Commands for the workers of a mirror."""

    one_more: Sequence[str] = ("add", "one")
    one_less: Sequence[str] = ("kill", "one")

    def signal_all(self, signal: str) -> Sequence[str]:
        return ("kill", f"-{signal}")


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda one: one.name)
def test_each_experiment_is_a_test_of_any_mirror(experiment: Experiment) -> None:
    steps = chaos_of([experiment], Workers())
    load = {"durationSeconds": load_s(steps)}
    test = MirrorTest.model_validate(mirror_test_of_another(load=load, chaos=steps))
    assert len(test.spec.chaos) == len(experiment.steps(Workers()))


def test_all_of_them_fit_into_one_load() -> None:
    steps = chaos_of(EXPERIMENTS, Workers())
    MirrorTest.model_validate(
        mirror_test_of_another(load={"durationSeconds": load_s(steps)}, chaos=steps)
    )
    times = [step["atSeconds"] for step in steps]
    assert times == sorted(times)
    assert load_s(steps) > times[-1]
    assert len(steps) == sum(len(one.steps(Workers())) for one in EXPERIMENTS)


def test_in_one_load_each_experiment_has_its_own_recovery(tmp_path: Path) -> None:
    folder = tmp_path / "headrace"
    (folder / "together").mkdir(parents=True)
    (folder / "version").write_text("headrace 1")
    (folder / "together.json").write_text(
        '[["steady", 0], ["kill-source-broker", 2], ["new-topic", 1]]'
    )
    faults = [fault(at_ms=n, recovery_seconds=float(n)) for n in (5, 6, 7)]
    whole = result(faults=tuple(faults))
    (folder / "together" / "report.json").write_text(whole.model_dump_json(by_alias=True))
    compare_mirrors.write_comparison(tmp_path, 200, 3)
    rows = dict(
        line.strip("| ").split(" | ")
        for line in (tmp_path / "comparison.md").read_text().splitlines()
        if line.startswith("| ")
    )
    titles = {one.name: one.title for one in EXPERIMENTS}
    assert rows[titles["kill-source-broker"]] == "recovered in 5.0 s"
    assert rows[titles["new-topic"]] == "recovered in 7.0 s"
    assert rows[titles["kill-worker"]] == rows[titles["steady"]] == "not run"
    assert rows["These in one load"] == "Passed; all 12,000 arrived, once, in order"


def test_all_rows_of_the_peer_s_table_are_there() -> None:
    """PEERS lists kafka-mirror-tester's outcomes. All loads contain headers."""
    actions = {
        experiment.name: tuple(step["action"] for step in experiment.steps(Workers()))
        for experiment in EXPERIMENTS
    }
    assert actions == {
        "steady": (),
        "kill-source-broker": ("KillBroker", "StartBroker"),
        "kill-target-broker": ("KillBroker", "StartBroker"),
        "lose-target-broker": ("StopBroker",),
        "kill-worker": ("RunCommand",),
        "add-worker": ("RunCommand",),
        "under-capacity": ("RunCommand", "RunCommand"),
        "new-topic": ("AddTopic",),
        "more-partitions": ("AddPartitions",),
        "packet-loss": ("RunCommand", "RunCommand"),
    }


@pytest.mark.parametrize(
    "words", [scale_words("orders"), node_words("sandbox", {"listeners": "http://127.0.0.1:1"})]
)
def test_the_commands_that_add_a_worker_are_headrace_s_own(words: list[str]) -> None:
    command: click.Command = group
    context = None
    while isinstance(command, click.Group):
        context = click.Context(command, parent=context, info_name=command.name)
        _, found, words = command.resolve_command(context, list(words))
        assert found is not None
        command = found
    command.make_context(command.name, words)


def result(**more: Any) -> Result:
    return Result(
        **{
            "verdict": Verdict.PASSED,
            "reasons": ("all is there",),
            "run": "r",
            "test": MirrorTest.model_validate(mirror_test_of_another()),
            "counts": Counts(acknowledged=12_000),
            "judged_ms": 1,
            "versions": {},
        }
        | more
    )


def fault(**more: Any) -> Fault:
    return Fault(step=ChaosStep(action=ChaosAction.ADD_TOPIC, at_seconds=1), **more)


def test_a_cell_says_what_came_out() -> None:
    own = Latency(
        **LatencyMs(p50=3, p99=70, p999=80, max=1_500).model_dump(), measured=9, histogram=()
    )
    lost = result(
        verdict=Verdict.FAILED,
        counts=Counts(acknowledged=12_000, missing=3, duplicated=1_200),
        faults=(fault(at_ms=1, recovery_seconds=2.25), fault(at_ms=2)),
        own_latency_ms=own,
    )
    undone = result(faults=(fault(error="broker 2 is down already"),))
    unseen = result(faults=(fault(at_ms=1, error="it did not recover within 120 s"),))
    rows = {
        "a": [ExperimentResult(result()), ExperimentResult(lost)],
        "b": [ExperimentResult(undone), ExperimentResult(None)],
        "c": [ExperimentResult(unseen), ExperimentResult(None, "no report")],
    }
    table = mirror_table(["one", "two"], rows, ["where"])
    assert markdown(table).splitlines() == [
        "| experiment | one | two |",
        "| --- | --- | --- |",
        "| a | Passed; all 12,000 arrived, once, in order | Failed; 3 missing, 1,200 duplicated; "
        "recovered in 2.2 s; own latency 3 / 70 / 1,500 ms |",
        "| b | not injected: broker 2 is down already | not run |",
        "| c | Passed; all 12,000 arrived, once, in order; not recovered: it did not recover "
        "within 120 s | no report |",
        "",
        "where",
    ]


def test_one_broker_cannot_be_missed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["test", "compare-mirrors", "--brokers", "1"]) == 3
    assert "no broker can be missed; give 2 or more" in capsys.readouterr().err
