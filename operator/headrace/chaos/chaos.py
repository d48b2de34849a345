"""Carries out the steps of ``spec.chaos``, one after the other, and times each recovery.

It does not wait for recoveries: whoever watches the load calls :meth:`Chaos.look` several times a
second.
"""

import time
from collections.abc import Sequence

from headrace.api import ChaosStep
from headrace.chaos.port import Breakable, Injection
from headrace.errors import HeadraceError
from headrace.mirror_test import Fault, LoadProgress


class Chaos:
    """Steps in their order; the next one waits until the flow has recovered from the last, and
    nothing of that lasts any more."""

    def __init__(self, steps: Sequence[ChaosStep], flow: Breakable, patience_s: float) -> None:
        self._waiting = list(steps)
        self._flow = flow
        self._patience_s = patience_s
        self._told: list[Fault] = []
        self._open: tuple[int, Injection, float] | None = None
        """The fault whose recovery is being timed, among those that are told of, and when it was
        done (on the caller's clock)."""
        self._calm_at_s = 0.0

    @property
    def recovering(self) -> bool:
        """Whether a recovery is being timed."""
        return self._open is not None

    @property
    def faults(self) -> tuple[Fault, ...]:
        """What became of each step so far, in their order."""
        return tuple(self._told)

    def look(self, progress: LoadProgress, now_s: float) -> Fault | None:
        """Do what is due; the fault that was just done, if any. ``now_s`` is a monotonic clock."""
        if self._open:
            self._time_recovery(*self._open, now_s)
        if self._open or not self._waiting or now_s < self._calm_at_s:
            return None
        if not _due(self._waiting[0], progress):
            return None
        step, called_s = self._waiting.pop(0), time.time()
        try:
            hit = self._flow.do(step)
        except HeadraceError as error:
            self._told.append(Fault(step=step, error=str(error)))
            return self._told[-1]
        fault = Fault(
            step=step,
            at_ms=hit.at_ms,
            acknowledged=progress.acknowledged,
            percent=round(progress.percent, 1),
            driver=hit.driver,
            units=hit.units,
        )
        since_s = now_s + max(hit.at_ms / 1000 - called_s, 0.0)
        self._open, self._calm_at_s = (len(self._told), hit, since_s), since_s + hit.lasts_s
        self._told.append(fault)
        return fault

    def end(self) -> None:
        """The load is over: steps that did not come due are told as not done."""
        self._told += [
            Fault(step=step, error="the load ended before it was due") for step in self._waiting
        ]
        self._waiting = []

    def _time_recovery(self, number: int, hit: Injection, since_s: float, now_s: float) -> None:
        took_s = now_s - since_s
        said = f"it did not recover within {self._patience_s:.0f} s"
        unseen: dict[str, object] = {"error": said}
        recovered = False
        try:
            recovered = hit.recovered()
        except HeadraceError as problem:
            unseen = {"error": str(problem), "watched": False}
        if recovered:
            found: dict[str, object] = {"recovery_seconds": round(took_s, 2)}
        elif took_s > self._patience_s:
            found = unseen
        else:
            return
        self._told[number] = self._told[number].model_copy(update=found)
        self._open = None


def _due(step: ChaosStep, progress: LoadProgress) -> bool:
    if step.at_percent is not None:
        return progress.percent >= step.at_percent
    return step.at_seconds is not None and progress.elapsed_s >= step.at_seconds
