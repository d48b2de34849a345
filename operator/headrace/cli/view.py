"""The live view of a run: a table on a terminal, plain lines elsewhere."""

import asyncio
import time

import click
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headrace.api import (
    ConditionType,
    ReplicationFlowStatus,
    ReplicationTask,
    TaskPhase,
    TaskType,
    condition,
)
from headrace.standalone import StandaloneHerder

_REFRESH_S = 0.5
_PLAIN_INTERVAL_S = 5.0

_COLOURS = {
    TaskPhase.RUNNING: "green",
    TaskPhase.RESTORING: "yellow",
    TaskPhase.PAUSED: "cyan",
    TaskPhase.FAILED: "red",
}
_ALARMS = (
    ConditionType.DATA_LOSS_DETECTED,
    ConditionType.FOREIGN_WRITER,
    ConditionType.PARTITIONS_PAUSED,
    ConditionType.RECORDS_LEFT_OUT,
    ConditionType.PARTITION_CONTESTED,
    ConditionType.TRANSACTION_HANGING,
    ConditionType.TOMBSTONES_AT_RISK,
    ConditionType.ASSIGNMENT_FAILED,
    ConditionType.DRIVER_UNRESPONSIVE,
)


async def show(herder: StandaloneHerder) -> None:
    """Show until cancelled."""
    console = Console(stderr=True)
    if console.is_terminal:
        await _show_table(console, herder)
    else:
        await _show_lines(console, herder)


def farewell(herder: StandaloneHerder) -> None:
    """A last line a flow: how it stands when it is asked to stop."""
    for flow in herder.flows():
        status = herder.status(flow)
        click.echo(f"{flow}: stopping; {_readiness(status)}; {_summary(status)}", err=True)


async def _show_table(console: Console, herder: StandaloneHerder) -> None:
    with Live(console=console, auto_refresh=False, transient=False) as live:
        while True:
            parts = [
                _flow_table(flow, herder.status(flow), herder.tasks(flow))
                for flow in herder.flows()
            ]
            notices = [Text(notice, style="yellow") for notice in herder.notices()]
            live.update(Group(*notices, *parts), refresh=True)
            await asyncio.sleep(_REFRESH_S)


async def _show_lines(console: Console, herder: StandaloneHerder) -> None:
    """A line a flow every few seconds, and at once when its readiness changes."""
    shown: dict[str, tuple[str, float]] = {}
    while True:
        for flow in herder.flows():
            status = herder.status(flow)
            word = _readiness(status)
            last_word, at = shown.get(flow, ("", 0.0))
            if word != last_word or time.monotonic() - at >= _PLAIN_INTERVAL_S:
                shown[flow] = (word, time.monotonic())
                console.print(f"{flow}: {word}; {_summary(status)}", soft_wrap=True, markup=False)
        await asyncio.sleep(_REFRESH_S)


def _flow_table(flow: str, status: ReplicationFlowStatus, tasks: list[ReplicationTask]) -> Group:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, justify in (
        ("task", "left"),
        ("state", "left"),
        ("driver", "left"),
        ("partitions", "right"),
        ("lag records", "right"),
        ("lag s", "right"),
        ("rate", "right"),
        ("error", "left"),
    ):
        table.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for task in sorted(tasks, key=lambda t: (t.spec.type, t.spec.index)):
        table.add_row(*_row(task))
    title = Text.assemble((flow, "bold"), "  ", _readiness(status), style="")
    return Group(title, Text(_summary(status), style="dim"), table, Text(""))


def _row(task: ReplicationTask) -> tuple[Text | str, ...]:
    status = task.status
    phase = status.phase or TaskPhase.CREATED
    copies = task.spec.type is TaskType.SOURCE_TASK
    count = sum(len(packed.numbers) for packed in status.partitions)
    return (
        task.metadata.name,
        Text(str(phase), style=_COLOURS.get(phase, "")),
        status.driver_name or "-",
        str(count) if copies else "",
        f"{status.lag_records or 0:,}" if copies else "",
        f"{status.lag_seconds or 0}" if copies else "",
        _rate(status.bytes_per_second or 0) if copies else "",
        Text(status.last_error.message if status.last_error else "", style="red"),
    )


def _readiness(status: ReplicationFlowStatus) -> str:
    ready = condition(status.conditions, ConditionType.READY)
    if ready is None:
        return "unknown"
    word = "Ready" if ready.status == "True" else "not Ready"
    others = [f"{c.type}: {c.message}" for c in status.conditions if c.type in _ALARMS]
    return "; ".join([f"{word} ({ready.reason}): {ready.message}", *others])


def _summary(status: ReplicationFlowStatus) -> str:
    tasks, lag = status.tasks, status.lag
    return (
        f"{status.topics or 0} topics, {status.partitions or 0} partitions, "
        f"{tasks.running if tasks else 0}/{tasks.total if tasks else 0} tasks running, "
        f"{status.drivers or 0} drivers, lag {lag.records if lag else 0:,} records "
        f"{lag.seconds if lag else 0} s, {_rate(status.bytes_per_second or 0)}"
    )


def _rate(bytes_per_second: float) -> str:
    return f"{bytes_per_second / 1e6:.1f} MB/s"
