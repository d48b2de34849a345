"""A partition that data loss stopped is reset as the runbook describes, on real brokers."""

import re
from collections.abc import Callable
from functools import partial
from operator import eq
from pathlib import Path
from typing import Any

import pytest
from support.flows import FlowRun, manifest, spec
from support.patience import WITHIN_S
from support.records import arrived, delete_records, make_topic, numbered, produce, read, unique

from headrace.cli.main import main
from headrace.sandbox import SandboxCluster

WaitUntil = Callable[..., Any]
RUNBOOK = Path(__file__).parents[2] / "docs" / "runbook.md"
OLD, NEW, NEXT = numbered(100, 1), numbered(50, 1, first=100), numbered(10, 1, first=150)


def remedy(flow: str, topic: str) -> list[list[str]]:
    """Return the commands of the runbook for a flow of this machine."""
    lines = re.findall(r"^headrace (flow reset .+)$", RUNBOOK.read_text(), re.MULTILINE)
    words = {"FLOW": flow, "TOPIC/PARTITION": f"{topic}/0"}
    return [[words.get(word, word) for word in line.split()] for line in lines]


def test_the_runbook_s_remedy_for_a_loss(
    east: SandboxCluster,
    west: SandboxCluster,
    tmp_path: Path,
    wait_until: WaitUntil,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lost, other = (make_topic(spec(east), unique(word), 1) for word in ("cut", "whole"))
    one_task = {"tasks": {"max": 1}, "drivers": {"replicas": 1}}
    flow = manifest("reset", east, west, lost, other, **one_task)
    produce(spec(east), lost, OLD)
    produce(spec(east), other, OLD)
    with FlowRun(tmp_path, [flow], "--until-caught-up") as run:
        assert run.end(WITHIN_S) == 0, run.output
    produce(spec(east), lost, NEW)
    delete_records(spec(east), lost, {0: 120})

    def copies(topic: str) -> Any:
        return read(spec(west), f"east.{topic}").get(0)

    with FlowRun(tmp_path, [flow]) as run:
        wait_until(lambda: run.condition("DataLossDetected"))
        wait_until(lambda: run.condition("Ready").get("reason") == "DataLost")
        dry_run, reset = remedy("reset", lost)
        assert main(dry_run) == 0
        printed = capsys.readouterr().out
        assert [f"{lost}/0", "100", "120", "150", "0"] in [
            row.split() for row in printed.split("\n")
        ]
        assert run.condition("Ready").get("reason") == "DataLost", "nothing was changed"
        assert main(reset) == 0
        wait_until(partial(copies, lost), until=partial(eq, OLD + NEW[20:]))
        wait_until(run.ready)
        wait_until(
            lambda: run.condition("PartitionsReset").get("message", ""),
            until=lambda said: f"{lost}/0@" in said,
        )
        wait_until(lambda: not run.condition("DataLossDetected"))
        produce(spec(east), other, NEXT)
        wait_until(partial(arrived, spec(west), f"east.{other}"), until=partial(eq, 110))

        # One that nothing is wrong with is copied again, and the first one is not.
        dry_run, reset = remedy("reset", other)

        def repeated() -> bool:  # progress is written after the records
            assert main(dry_run) == 0
            return "110 offsets would be copied again" in capsys.readouterr().out

        wait_until(repeated)
        assert main(reset) == 0
        twice = OLD + NEXT + OLD + NEXT
        wait_until(partial(copies, other), until=partial(eq, twice))
        (task,) = wait_until(
            run.units, until=lambda units: {one.get("phase") for one in units} == {"Running"}
        )
        assert task["restarts"] == 0
        assert run.stop() == 0, run.output

    # Git has an old annotation: its partitions were reset later.
    flow["metadata"]["annotations"] = {"headrace.dev/reset": f"{lost} {other}@2026-01-01T00:00:00Z"}
    produce(spec(east), lost, NEXT)
    with FlowRun(tmp_path, [flow], "--until-caught-up") as run:
        assert run.end(WITHIN_S) == 3, "the annotation lacks a time"
        assert "is not of the form TOPIC[/PARTITIONS]@TIME" in run.output
    asked = " ".join(f"{topic}@2026-01-01T00:00:00Z" for topic in (lost, other))
    flow["metadata"]["annotations"] = {"headrace.dev/reset": asked}
    with FlowRun(tmp_path, [flow], "--until-caught-up") as run:
        assert run.end(WITHIN_S) == 0, run.output
    assert (copies(lost), copies(other)) == (OLD + NEW[20:] + NEXT, twice)
