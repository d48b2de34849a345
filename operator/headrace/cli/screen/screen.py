"""Builds the lines of the live view, cut to the size of a terminal.

The order is: the run, notices, a line for each flow, and as many tasks as fit. Flows with problems
are listed before other flows, and tasks with problems before other tasks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from textwrap import wrap

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from headrace.api import (
    ALARMS,
    ConditionStatus,
    ConditionType,
    Lag,
    ReplicationFlowStatus,
    ReplicationTask,
    TaskPhase,
    TaskType,
    find_condition,
)

_COLOURS = {
    TaskPhase.RUNNING: "green",
    TaskPhase.RESTORING: "yellow",
    TaskPhase.PAUSED: "cyan",
    TaskPhase.FAILED: "red",
}
_SHORT = {
    TaskType.SOURCE_CONNECTOR: "connector",
    TaskType.CHECKPOINT_CONNECTOR: "checkpoints",
    TaskType.HEARTBEAT_CONNECTOR: "heartbeats",
    TaskType.SOURCE_TASK: "task",
    TaskType.CHECKPOINT_TASK: "checkpoint",
    TaskType.HEARTBEAT_TASK: "heartbeat",
    TaskType.SOURCE_WATCH: "watch",
}
_WIDTHS = (("state", 10), ("driver", 10), ("behind", 11), ("MB/s", 6))


@dataclass(frozen=True)
class FlowView:
    """Status and tasks of one flow at one moment."""

    name: str
    status: ReplicationFlowStatus
    tasks: Sequence[ReplicationTask] = field(default_factory=tuple)

    @property
    def ready(self) -> bool:
        """True if the flow's condition Ready is True."""
        found = find_condition(self.status.conditions, ConditionType.READY)
        return found is not None and found.status is ConditionStatus.TRUE


def screen(
    flows: Sequence[FlowView], notices: Sequence[str], elapsed_s: float, width: int, height: int
) -> list[Text]:
    """Return the live view: at most ``height`` lines of at most ``width`` cells."""
    plural = "" if len(flows) == 1 else "s"
    top = [Text(f"headrace run: {len(flows)} flow{plural}, elapsed {elapsed(elapsed_s)}", "bold")]
    top += [line for notice in notices for line in _wrapped(notice, "yellow", width, 2)]
    ordered = sorted(flows, key=lambda flow: (flow.ready and not _alarms(flow), flow.name))
    room = max(1, height - len(top))
    lines = [_flow_line(flow, width) for flow in ordered]
    if len(lines) > room:
        lines = [*lines[: room - 1], Text(f"and {len(lines) - room + 1} more flows", "dim")]
    room -= len(lines)
    why = [
        line
        for flow in ordered
        if (text := _why(flow))
        for line in _wrapped(f"{flow.name}: {text}", "red", width, 3)
    ]
    lines += why[: max(0, room // 2)]
    room = height - len(top) - len(lines)
    lines += _task_lines(ordered, width, room)
    return [_cut(line, width) for line in [*top, *lines][:height]]


def readiness(status: ReplicationFlowStatus) -> str:
    """Return a text about the flow's condition Ready, with all alarms in full."""
    ready = find_condition(status.conditions, ConditionType.READY)
    if ready is None:
        return "unknown"
    word = "Ready" if ready.status == "True" else "not Ready"
    others = [f"{c.type}: {c.message}" for c in status.conditions if c.type in ALARMS]
    return "; ".join([f"{word} ({ready.reason}): {ready.message}", *others])


def format_lag(lag: Lag | None) -> str:
    """Return a text, for example ``11,671 records behind, 3 s``."""
    if lag is None:
        return "lag unknown"
    records = lag.records
    return f"{records:,} records behind, {lag.seconds} s" if records else "0 records behind"


def elapsed(seconds: float) -> str:
    """Return a duration, for example ``1:02:03``."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def rate(bytes_per_second: float | None) -> str:
    """Return a rate in MB/s, for example ``12.3``."""
    return f"{(bytes_per_second or 0) / 1e6:.1f}"


def _count(number: int | None, what: str) -> str:
    return f"{number or 0} {what}{'' if number == 1 else 's'}"


def _flow_line(flow: FlowView, width: int) -> Text:
    status = flow.status
    ready = find_condition(status.conditions, ConditionType.READY)
    word = "Ready" if flow.ready else str(ready.reason) if ready else "unknown"
    alarms = _alarms(flow)
    style = "red" if alarms else "green" if flow.ready else "yellow"
    tasks = status.tasks
    facts = [
        format_lag(status.lag),
        f"{rate(status.bytes_per_second)} MB/s",
        f"{tasks.running if tasks else 0}/{tasks.total if tasks else 0} tasks run",
        _count(status.ready_replicas, "driver"),
        _count(status.topics, "topic"),
        _count(status.partitions, "partition"),
    ]
    return Text.assemble(
        (set_cell_size(flow.name, min(20, max(8, width // 5))), "bold"),
        "  ",
        (", ".join([word, *alarms]), style),
        "  ",
        "  ".join(facts),
    )


def _alarms(flow: FlowView) -> list[str]:
    return [str(c.type) for c in flow.status.conditions if c.type in ALARMS]


def _why(flow: FlowView) -> str:
    """Return the message of the first condition that reports a problem, or an empty text."""
    ready = find_condition(flow.status.conditions, ConditionType.READY)
    if ready is not None and not flow.ready:
        return ready.message
    return next((c.message for c in flow.status.conditions if c.type in ALARMS), "")


def _task_lines(flows: Sequence[FlowView], width: int, room: int) -> list[Text]:
    """Return lines for the tasks of all flows. Tasks that idle or do not fit are only counted."""
    rows = [(flow.name, task) for flow in flows for task in flow.tasks]
    shown = sorted(
        (row for row in rows if not _idles(row[1])),
        key=lambda row: (_rank(row[1]), -_lag_records(row[1])),
    )
    idle = len(rows) - len(shown)
    if room < 3 or not rows:
        return []
    names = [_short_name(task, flow if len(flows) > 1 else "") for flow, task in rows]
    first = min(max(map(cell_len, names)), width // 3)
    rest = f"{idle} idle" if idle else ""
    fits = room - 1 - bool(rest)
    if len(shown) > fits:
        fits = room - 2
        rest = ", ".join(part for part in (f"{len(shown) - fits} more", rest) if part)
    columns = "  ".join(f"{name:{'<' if name in 'statedriver' else '>'}{n}}" for name, n in _WIDTHS)
    lines = [Text(f"{set_cell_size('task', first)}  {columns}  error", "dim")]
    for flow, task in islice(shown, fits):
        lines.append(_task_line(task, _short_name(task, flow if len(flows) > 1 else ""), first))
    return [*lines, Text(f"and {rest}: `headrace task list` lists all", "dim")] if rest else lines


def _task_line(task: ReplicationTask, name: str, first: int) -> Text:
    status = task.status
    phase = status.phase or TaskPhase.CREATED
    copies = task.spec.type is TaskType.SOURCE_TASK
    state, driver, lag, speed = (size for _, size in _WIDTHS)
    error = " ".join(status.last_error.message.split()) if status.last_error else ""
    return Text.assemble(
        f"{set_cell_size(name, first)}  ",
        (f"{phase:<{state}}", _COLOURS.get(phase, "")),
        f"  {set_cell_size(status.driver_name or '-', driver)}  ",
        f"{_lag_text(task) if copies else '':>{lag}}  ",
        f"{rate(status.bytes_per_second) if copies else '':>{speed}}  ",
        (error, "red"),
    )


def _short_name(task: ReplicationTask, flow: str) -> str:
    name = _SHORT[task.spec.type]
    if task.spec.type in (TaskType.SOURCE_TASK, TaskType.CHECKPOINT_TASK):
        name += f" {task.spec.index}"
    return f"{flow} {name}" if flow else name


def _lag_text(task: ReplicationTask) -> str:
    return f"{task.status.lag.records:,}" if task.status.lag else "-"


def _lag_records(task: ReplicationTask) -> int:
    """Return the lag of a task in records, or 0 if it is unknown."""
    return task.status.lag.records if task.status.lag else 0


def _idles(task: ReplicationTask) -> bool:
    """Return True if a task runs without an error and has nothing to do."""
    status = task.status
    copies = task.spec.type is TaskType.SOURCE_TASK
    moves = _lag_records(task) or status.bytes_per_second or (copies and status.lag is None)
    return status.phase is TaskPhase.RUNNING and status.last_error is None and not moves


def _rank(task: ReplicationTask) -> int:
    status = task.status
    if status.phase is TaskPhase.FAILED:
        return 0
    return 1 if status.last_error else 2 if status.phase is not TaskPhase.RUNNING else 3


def _wrapped(text: str, style: str, width: int, max_lines: int) -> list[Text]:
    """Wrap a text to at most ``max_lines`` lines."""
    lines = wrap(" ".join(text.split()), width, max_lines=max_lines, placeholder=" …")
    return [Text(line, style) for line in lines]


def _cut(line: Text, width: int) -> Text:
    line = line.copy()
    line.truncate(width, overflow="ellipsis")
    return line
