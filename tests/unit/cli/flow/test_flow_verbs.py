"""Output of the commands about running flows. The flows are answers from a table."""

import json
import subprocess
import sys
from typing import Any

import pytest

from headrace.api import ALARMS
from headrace.cli.flow.flow_verbs import LocalFlows
from headrace.cli.main import main
from headrace.cli.screen import output

LONG = "could not read topic orders of east: " + "no right " * 30
STATUS: dict[str, Any] = {
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
            "lag": {"records": 11671},
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


def test_status_prints_every_alarm_of_a_flow_that_is_ready(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = {"type": "Ready", "status": "True", "reason": "Running", "message": "copies"}
    alarms = [
        {"type": str(one), "status": "True", "reason": "Why", "message": f"why {number}"}
        for number, one in enumerate(ALARMS)
    ]
    over = {"type": "ForeignWriter", "status": "False", "reason": "Why", "message": "over"}
    status = {"conditions": [ready, *alarms, over]}
    monkeypatch.setitem(ANSWERS, "status", status)
    assert main(["status"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert rows[2:] == [f"orders: {one}: why {number}" for number, one in enumerate(ALARMS)]


def test_status_has_all_of_it_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == [{"metadata": {"name": "orders"}, "status": STATUS}]


@pytest.mark.parametrize("width", [80, 120])
def test_tasks_are_cut_at_the_width_and_their_errors_are_last(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
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


@pytest.mark.parametrize(
    "argv",
    [
        ["flow", "pause", "orders"],
        ["flow", "pause", "orders", "a/1"],
        ["flow", "resume", "orders"],
        ["flow", "resume", "orders", "a/1"],
        ["flow", "scale", "4"],
    ],
)
def test_change_of_an_invalid_spec_is_an_error(
    argv: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for verb in ("set-state", "pause-partitions", "scale"):
        monkeypatch.setitem(ANSWERS, verb, {**ANSWERS[verb], "notInForce": "spec.tasks is wrong"})
    assert main(argv) == 3
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "no effect until the spec of orders is corrected: spec.tasks is wrong" in printed.err


@pytest.mark.parametrize(
    ("task", "flow"),
    [
        ("orders-source-task-0", "orders"),
        ("orders-source-source-task-0", "orders-source"),
        ("orders-source-connector-0", "orders"),
        ("orders-source-source-watch-0", "orders-source"),
        ("orders-source-typo", "orders-source"),
    ],
)
def test_task_is_requested_from_its_flow_if_the_name_of_another_flow_fits_too(
    task: str, flow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def request(self: LocalFlows, flow: str, verb: str, **_: Any) -> dict[str, Any]:
        asked.append(flow)
        return {"driver": "driver-1"}

    monkeypatch.setattr(LocalFlows, "names", lambda self: ["orders", "orders-source"])
    monkeypatch.setattr(LocalFlows, "request", request)
    assert main(["task", "restart", task]) == 0
    assert asked == [flow]


def test_wide_output_has_all_columns_and_is_not_cut(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["task", "list", "-o", "wide"]) == 0
    header, row = capsys.readouterr().out.splitlines()
    assert "ASSIGNED TO" in header
    assert row.endswith(LONG.strip())
    assert main(["status", "-o", "wide"]) == 0
    assert "PARTITIONS" in capsys.readouterr().out.splitlines()[0]


def test_names_are_printed_one_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["task", "list", "-o", "name"]) == 0
    assert main(["status", "-o", "name"]) == 0
    assert (
        capsys.readouterr().out == "replicationtask/orders-source-task-0\nreplicationflow/orders\n"
    )


def test_watch_prints_again_after_a_change(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    states = iter(["Running", "Running", "Failed"])
    monkeypatch.setattr(output, "WATCH_INTERVAL_S", 0)

    def request(self: LocalFlows, flow: str, verb: str) -> dict[str, Any]:
        try:
            state = next(states)
        except StopIteration:
            raise KeyboardInterrupt from None
        return STATUS | {"units": [STATUS["units"][0] | {"phase": state}]}

    monkeypatch.setattr(LocalFlows, "request", request)
    assert main(["task", "list", "--watch", "-o", "json"]) == 130
    printed = capsys.readouterr().out
    assert printed.count('"phase": "Running"') == 1
    assert printed.count('"phase": "Failed"') == 1


def test_status_starts_without_asyncio_and_the_objects_of_the_api() -> None:
    """Their imports take longer than the whole command."""
    script = (
        "import sys\n"
        "from headrace.cli.main import main\n"
        "code = main(['status', 'nothing'])\n"
        "heavy = {'asyncio', 'pydantic', 'headrace.api', 'rich.table', 'yaml', 'structlog'}\n"
        "print(code, sorted(heavy & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "4 []\n"
