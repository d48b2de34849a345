"""What ``headrace verify`` shows while it works: a bar on a terminal, plain lines elsewhere."""

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from headrace.control import control
from headrace.errors import HeadraceError
from headrace.mirror_test import Fault, LoadProgress, Run

_PLAIN_INTERVAL_S = 5.0
_LAG_INTERVAL_S = 1.0


class View:
    """Stages, notes, and the load's progress, on standard error."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._console = Console(stderr=True, highlight=False)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.fields[numbers]}"),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
        )
        self._task = self._bar.add_task("load", total=100, numbers="", visible=False)
        self._printed_s = 0.0
        self._lag, self._lag_s = "", 0.0

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def stage(self, what: str) -> None:
        """The next part of the work."""
        self._bar.update(self._task, visible=False)
        self._say(f"{what} ...")

    def note(self, sentence: str) -> None:
        """Something worth knowing."""
        self._say(f"note: {sentence}")

    def fault(self, fault: Fault) -> None:
        """A step of chaos was done, or could not be."""
        if fault.at_ms is None:
            self.note(f"{fault.step.action} was not done: {fault.error}")
        else:
            affects = f": {fault.driver}" if fault.driver else ""
            units = f" with {', '.join(fault.units)}" if fault.units else ""
            self._say(f"{fault.step.action} at {fault.percent:.0f} % of the load{affects}{units}")

    def progress(self, progress: LoadProgress) -> None:
        """The load's progress; may be called at any rate."""
        now = time.monotonic()
        numbers = f"{progress.acknowledged:,} messages acknowledged"
        if progress.elapsed_s > 1:
            numbers += f", {progress.acknowledged / progress.elapsed_s:,.0f}/s"
        numbers += self._behind()
        if self._console.is_terminal:
            self._bar.update(self._task, completed=progress.percent, numbers=numbers, visible=True)
        elif now - self._printed_s >= _PLAIN_INTERVAL_S:
            self._printed_s = now
            self._say(f"{progress.percent:3.0f} %  {numbers}")

    def _behind(self) -> str:
        """How far the flow is behind, where there is a flow to ask."""
        now = time.monotonic()
        if self._run.flow and now - self._lag_s >= _LAG_INTERVAL_S:
            self._lag_s = now
            try:
                lag = control.request(self._run.flow, "status").get("lag", {})
                self._lag = f", mirror {lag.get('records', 0):,} behind"
            except HeadraceError:
                self._lag = ", mirror does not answer"
        return self._lag

    def _say(self, line: str) -> None:
        self._console.print(line, soft_wrap=True, markup=False)
