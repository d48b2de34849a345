"""Carries out the steps of ``spec.chaos``, one after the other, and times each recovery.

It never waits: whoever watches the load calls :meth:`Chaos.look` several times a second.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.api import ChaosStep, TaskPhase
from headrace.errors import HeadraceError
from headrace.report import Fault

Ask = Callable[[str], dict[str, Any]]
"""Sends a command to the flow's control socket; raises ``HeadraceError`` without an answer."""


@dataclass(frozen=True)
class LoadProgress:
    """How far the load is."""

    acknowledged: int
    """Messages."""
    percent: float
    """Of the load's messages; of its time, where that is what bounds it."""
    elapsed_s: float
    """Since the first message."""


class Chaos:
    """Steps in their order; the next one waits until the flow has recovered from the last."""

    def __init__(self, steps: Sequence[ChaosStep], ask: Ask, patience_s: float) -> None:
        self._waiting = list(steps)
        self._ask = ask
        self._patience_s = patience_s
        self._open: tuple[Fault, float] | None = None
        """The fault whose recovery is being timed, and when it was done (on the caller's clock)."""
        self._done: list[Fault] = []

    @property
    def recovering(self) -> bool:
        """Whether a recovery is being timed."""
        return self._open is not None

    @property
    def faults(self) -> tuple[Fault, ...]:
        """What became of each step so far."""
        return (*self._done, *((self._open[0],) if self._open else ()))

    def look(self, progress: LoadProgress, now_s: float) -> Fault | None:
        """Do what is due; the fault that was just done, if any. ``now_s`` is a monotonic clock."""
        if self._open:
            self._time_recovery(*self._open, now_s)
        if self._open or not self._waiting or not _due(self._waiting[0], progress):
            return None
        step = self._waiting.pop(0)
        try:
            hit = self._ask("kill-driver")
        except HeadraceError as error:
            self._done.append(Fault(step=step, error=str(error)))
            return self._done[-1]
        fault = Fault(
            step=step,
            at_ms=hit["timeMs"],
            acknowledged=progress.acknowledged,
            percent=round(progress.percent, 1),
            driver=hit["driver"],
            units=tuple(hit["units"]),
        )
        self._open = (fault, now_s)
        return fault

    def end(self) -> None:
        """The load is over: steps that did not come due are told as not done."""
        self._done += [
            Fault(step=step, error="the load ended before it was due") for step in self._waiting
        ]
        self._waiting = []

    def _time_recovery(self, fault: Fault, since_s: float, now_s: float) -> None:
        took_s = now_s - since_s
        try:
            recovered = _runs_elsewhere(self._ask("status"), fault)
            error = f"not all units ran again within {self._patience_s:.0f} s"
        except HeadraceError as problem:
            recovered, error = False, str(problem)
        if recovered:
            fault = fault.model_copy(update={"recovery_seconds": round(took_s, 2)})
        elif took_s > self._patience_s:
            fault = fault.model_copy(update={"error": error})
        else:
            return
        self._done.append(fault)
        self._open = None


def _due(step: ChaosStep, progress: LoadProgress) -> bool:
    if step.at_percent is not None:
        return progress.percent >= step.at_percent
    return step.at_seconds is not None and progress.elapsed_s >= step.at_seconds


def _runs_elsewhere(status: dict[str, Any], fault: Fault) -> bool:
    """Whether every lost unit that still exists runs, and not on the driver that was hit."""
    units = [unit for unit in status["units"] if unit["name"] in fault.units]
    return all(
        unit.get("phase") == TaskPhase.RUNNING and unit.get("driverName") != fault.driver
        for unit in units
    )
