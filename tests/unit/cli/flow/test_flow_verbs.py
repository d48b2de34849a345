"""What the commands about running flows print; the flows are answers from a table."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

from headrace.cli.flow.flows import LocalFlows
from headrace.cli.main import main
from headrace.cli.screen import tables

LONG = "could not read topic orders of east: " + "no right " * 30
STATUS = {
    "conditions": [
        {"type": "Ready", "status": "False", "reason": "TaskFailed", "message": "orders-x failed"}
    ],
    "tasks": {"total": 3, "running": 2},
    "lag": {"records": 11671, "seconds": 4},
    "bytesPerSecond": 1_500_000,
    "readyReplicas": 2,
    "units": [
        {
            "name": "orders-source-task-0",
            "type": "SourceTask",
            "phase": "Failed",
            "assignedTo": "driver-1",
            "driverName": "driver-1",
            "standbys": [],
            "lagRecords": 11671,
            "restarts": 2,
            "lastError": {"message": LONG},
        }
    ],
    "notices": ["flow.yaml changed and was not read again"],
}
ANSWERS: dict[str, dict[str, Any]] = {
    "status": STATUS,
    "set-state": {"changed": False, "meant": 0, "paused": ["a/1"], "state": "Running"},
    "pause-partitions": {"changed": False, "meant": 1, "paused": ["a/1"], "state": "Running"},
    "scale": {"before": 2},
    "move": {"from": "driver-1"},
}


@pytest.fixture(autouse=True)
def flows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalFlows, "names", lambda self: ["orders"])
    monkeypatch.setattr(LocalFlows, "request", lambda self, flow, verb, **_: ANSWERS[verb])


def test_status_is_a_short_table_and_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status"]) == 0
    rows = capsys.readouterr().out.splitlines()
    header = "FLOW READY REASON BEHIND SECONDS MB/S TASKS DRIVERS"
    assert " ".join(rows[0].split()) == header
    assert rows[1].split() == ["orders", "False", "TaskFailed", "11,671", "4", "1.5", "2/3", "2"]
    assert rows[2] == "orders: orders-x failed"
    assert rows[3].startswith("orders-source-task-0: could not read topic orders of east: ")
    assert rows[4:] == ["flow.yaml changed and was not read again"]


def test_status_has_all_of_it_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == [{"metadata": {"name": "orders"}, "status": STATUS}]


def terminal(width: int) -> Callable[..., Console]:
    return lambda **given: Console(**{"width": width, **given}, force_terminal=True, no_color=True)


@pytest.mark.parametrize("width", [80, 120])
def test_tasks_are_cut_at_the_width_and_their_errors_are_last(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int
) -> None:
    monkeypatch.setattr(tables, "Console", terminal(width))
    assert main(["task", "list"]) == 0
    header, row = capsys.readouterr().out.splitlines()
    assert "ERROR" in header
    assert "orders-source-task-0" in row
    assert len(row) <= width
    assert row.rstrip().endswith("…")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["flow", "pause", "orders"], "orders is paused already: nothing is changed.\n"),
        (["flow", "pause", "--stop", "orders"], "orders is stopped already: nothing is changed.\n"),
        (
            ["flow", "pause", "orders", "a/1"],
            "a/1 of orders is paused already: nothing is changed.\n",
        ),
        (
            ["flow", "resume", "orders"],
            "orders runs already: nothing is changed.\n"
            "Still paused: a/1. Name them to resume them.\n",
        ),
        (["flow", "scale", "2"], "There are 2 drivers already: nothing is changed.\n"),
        (
            ["task", "move", "orders-source-task-0", "driver-1"],
            "orders-source-task-0 is on driver-1 already: nothing is changed.\n",
        ),
    ],
)
def test_verb_that_changes_nothing_ends_with_0_and_says_so(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 0
    assert capsys.readouterr().out == message
