"""Live view on terminals of two sizes, as displayed to a user."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from io import StringIO

import pytest
from rich.cells import cell_len
from rich.console import Console, ConsoleDimensions
from rich.live import Live
from support.terminal import Terminal

from headrace.api import (
    Condition,
    ConditionStatus,
    ConditionType,
    Lag,
    ObjectMeta,
    Reason,
    ReplicationFlowStatus,
    ReplicationTask,
    ReplicationTaskSpec,
    ReplicationTaskStatus,
    TaskCounts,
    TaskError,
    TaskPhase,
    TaskType,
)
from headrace.cli.run import LiveScreen, print_summary
from headrace.cli.screen.output import show_flows, show_tasks
from headrace.cli.screen.screen import FlowView, screen
from headrace.standalone import StandaloneHerder

SIZES = [(80, 24), (120, 40)]
NOW = datetime.now(UTC)


def task(flow: str, index: int, lag: int = 0, error: str = "") -> ReplicationTask:
    return ReplicationTask(
        metadata=ObjectMeta(name=f"{flow}-source-task-{index}"),
        spec=ReplicationTaskSpec(flow_name=flow, type=TaskType.SOURCE_TASK, index=index),
        status=ReplicationTaskStatus(
            phase=TaskPhase.FAILED if error else TaskPhase.RUNNING,
            driver_name="driver-1",
            lag=Lag(records=lag),
            bytes_per_second=lag * 1000,
            last_error=TaskError(reason="Fatal", message=error, time=NOW) if error else None,
        ),
    )


def flow(name: str, tasks: Sequence[ReplicationTask], wrong: str = "") -> FlowView:
    ready = Condition(
        type=ConditionType.READY,
        status=ConditionStatus.FALSE if wrong else ConditionStatus.TRUE,
        reason=Reason.TASK_FAILED if wrong else Reason.RUNNING,
        message=wrong or "all tasks run",
        last_transition_time=NOW,
    )
    lag = sum(one.status.lag.records for one in tasks if one.status.lag)
    status = ReplicationFlowStatus(
        conditions=(ready,),
        topics=3,
        partitions=24,
        tasks=TaskCounts(total=len(tasks), running=len(tasks), restoring=0, paused=0, failed=0),
        lag=Lag(records=lag, seconds=3),
        bytes_per_second=1_234_567,
        ready_replicas=2,
    )
    return FlowView(name, status, tasks)


BUSY = [
    flow("orders", [task("orders", n, lag=1_667 * (n % 3)) for n in range(30)]),
    flow("payments", [task("payments", n) for n in range(20)]),
    flow(
        "zebra",
        [
            task("zebra", 0, error="could not read topic z of east: " + "very " * 40 + "long"),
            task("zebra", 1),
        ],
        wrong="zebra-source-task-0 failed: could not read topic z of east",
    ),
]


class Herder(StandaloneHerder):
    """Herder of a run, as far as the screen shows it."""

    def __init__(self) -> None:
        self.notices = lambda: ["flow.yaml changed and was not read again: `kill -HUP 17` does it"]

    shown: Sequence[FlowView] = BUSY

    def flows(self) -> list[str]:
        return [one.name for one in self.shown]

    def status(self, name: str) -> ReplicationFlowStatus:
        return next(one.status for one in self.shown if one.name == name)

    def tasks(self, name: str) -> list[ReplicationTask]:
        return next(list(one.tasks) for one in self.shown if one.name == name)


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_every_flow_is_visible_and_failures_come_first(width: int, height: int) -> None:
    lines = [str(line) for line in screen(BUSY, ["edited"], 3723, width, height)]
    assert len(lines) <= height
    assert max(map(cell_len, lines)) <= width
    assert lines[:2] == ["headrace run: 3 flows, elapsed 1:02:03", "edited"]
    assert [line.split()[0] for line in lines[2:5]] == ["zebra", "orders", "payments"]
    assert "50,010 records behind, 3 s" in lines[3]
    assert "0 records behind" in lines[4]
    assert lines[5].startswith("zebra: zebra-source-task-0 failed: could not read topic z of east")
    assert lines[7].split()[:3] == ["zebra", "task", "0"]
    assert "could not" in lines[7]
    assert lines[7].endswith("…")
    assert "31 idle: `headrace task list` lists all" in lines[-1]
    assert ("more" in lines[-1]) == (height == 24)


def test_more_flows_than_lines_are_counted() -> None:
    many = [flow(f"flow-{n}", [task(f"flow-{n}", 0)]) for n in range(40)]
    many.append(flow("zebra", [task("zebra", 0)], wrong="no driver"))
    lines = [str(line) for line in screen(many, [], 0, 80, 24)]
    assert len(lines) == 24
    assert lines[1].startswith("zebra")
    assert lines[-1] == "and 19 more flows"


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_a_terminal_shows_it_and_keeps_nothing_of_another_size(width: int, height: int) -> None:
    out = StringIO()
    console = Console(file=out, force_terminal=True, width=100, height=30, legacy_windows=False)
    terminal = Terminal(100, 30)
    with Live(LiveScreen(Herder()), console=console, auto_refresh=False, screen=True) as live:
        live.refresh()
        terminal.feed(out.getvalue())
        first = terminal.display
        out.truncate(0)
        out.seek(0)
        console.size = ConsoleDimensions(width, height)
        terminal.resize(width, height)
        live.refresh()
        terminal.feed(out.getvalue())
    assert first[0].startswith("headrace run: 3 flows, elapsed 0:00:0")
    expected = [str(line) for line in screen(BUSY, Herder().notices(), 0, width, height)]
    assert [line for line in terminal.display[1:] if line] == [
        line.rstrip() for line in expected[1:]
    ]
    assert terminal.scrolled == 0


def test_the_end_says_stopped(capsys: pytest.CaptureFixture[str]) -> None:
    print_summary(BUSY[1:], 61, "as it was asked to")
    rest = "progress is on the target, the next run resumes there"
    stopped = "stopped as it was asked to after 0:01:01: 0 records behind"
    why = "(TaskFailed): zebra-source-task-0 failed: could not read topic z of east"
    assert capsys.readouterr().err.splitlines() == [
        f"payments: {stopped}; {rest}",
        f"zebra: {stopped}; it was not Ready {why}; {rest}",
    ]


def test_an_unknown_lag_is_a_dash() -> None:
    running = ReplicationTaskStatus(phase=TaskPhase.RUNNING, driver_name="driver-1")
    silent = task("orders", 0).model_copy(update={"status": running})
    unknown = FlowView("orders", ReplicationFlowStatus(tasks=TaskCounts()), [silent])
    lines = [str(line) for line in screen([unknown], [], 61, 160, 40)]

    assert any("lag unknown" in line for line in lines)
    assert any(line.split()[4:5] == ["-"] for line in lines if "driver-1" in line), lines


def test_tables_show_a_dash_for_an_unknown_lag(capsys: pytest.CaptureFixture[str]) -> None:
    metadata = {"name": "orders", "namespace": "default"}
    show_flows([{"metadata": metadata, "status": {}}])
    unit = {"name": "a", "namespace": "default", "type": "SourceTask", "standbys": []}
    show_tasks([{**unit, "driverName": "d", "assignedTo": "d"}])

    flows, tasks = capsys.readouterr().out.split("TASK ", 1)
    assert flows.splitlines()[1].split()[2:4] == ["-", "-"]
    assert tasks.splitlines()[1].split()[3:5] == ["-", "-"], tasks


def test_a_full_disk_behind_standard_error_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    class Full(StringIO):
        def write(self, text: str) -> int:
            if text:  # click writes nothing first, to detect a binary file
                tried.append(text)
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(sys, "stderr", Full())
    print_summary(BUSY[:2], 61, "by itself")
    assert [text.partition(":")[0] for text in tried] == ["orders", "payments"]
