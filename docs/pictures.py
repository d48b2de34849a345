"""Draws the README's picture, ``docs/pictures/live-view.svg``: ``python docs/pictures.py``.

The picture shows ``headrace run`` on a terminal of 100 columns, with the three flows below.
"""

import io
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.text import Text

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
from headrace.cli.screen.screen import FlowView, screen

PICTURE = Path(__file__).parent / "pictures" / "live-view.svg"
WIDTH, HEIGHT = 100, 14
_NOW = datetime(2026, 1, 1, tzinfo=UTC)
_REFUSED = (
    "west refuses records of topic payments.audit: they are larger than its max.message.bytes"
)


def lines() -> list[Text]:
    """Return the screen, line by line."""
    orders = [_task("orders", number, lag=number * 1_667) for number in range(1, 7)]
    idle = [_task("customers", number) for number in range(20)]
    failed = [_task("payments", 0, lag=1_204, error=_REFUSED), _task("payments", 1, lag=120)]
    flows = [_flow("orders", orders), _flow("customers", idle), _flow("payments", failed, _REFUSED)]
    return screen(flows, [], 3723, WIDTH, HEIGHT)


def svg() -> str:
    """Return the screen as a picture, without the spaces at the ends of its lines."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    for line in lines():
        console.print(line, no_wrap=True)
    drawn = console.export_svg(title="headrace run", unique_id="live-view")
    drawn = re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)  # from the network
    return "".join(f"{line.rstrip()}\n" for line in drawn.splitlines())


def _task(flow: str, number: int, lag: int = 0, error: str = "") -> ReplicationTask:
    failure = TaskError(reason="RecordTooLarge", message=error, time=_NOW) if error else None
    return ReplicationTask(
        metadata=ObjectMeta(name=f"{flow}-source-task-{number}"),
        spec=ReplicationTaskSpec(flow_name=flow, type=TaskType.SOURCE_TASK, index=number),
        status=ReplicationTaskStatus(
            phase=TaskPhase.FAILED if error else TaskPhase.RUNNING,
            driver_name=f"driver-{number % 2 + 1}",
            lag=Lag(records=lag),
            bytes_per_second=lag * 900,
            last_error=failure,
        ),
    )


def _flow(name: str, tasks: Sequence[ReplicationTask], wrong: str = "") -> FlowView:
    ready = Condition(
        type=ConditionType.READY,
        status=ConditionStatus.FALSE if wrong else ConditionStatus.TRUE,
        reason=Reason.TASK_FAILED if wrong else Reason.RUNNING,
        message=wrong or "all tasks run",
        last_transition_time=_NOW,
    )
    lag = sum(task.status.lag.records for task in tasks if task.status.lag)
    running = sum(task.status.phase is TaskPhase.RUNNING for task in tasks)
    status = ReplicationFlowStatus(
        conditions=(ready,),
        topics=max(1, len(tasks) // 4),
        partitions=4 * len(tasks),
        tasks=TaskCounts(total=len(tasks), running=running, failed=len(tasks) - running),
        lag=Lag(records=lag, seconds=lag // 10_000 + 1 if lag else 0),
        bytes_per_second=sum(task.status.bytes_per_second or 0 for task in tasks),
        ready_replicas=2,
    )
    return FlowView(name, status, tasks)


if __name__ == "__main__":
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(svg())
