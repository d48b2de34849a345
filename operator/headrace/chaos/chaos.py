"""Carries out the steps of ``spec.chaos``, one after the other, and times each recovery.

It does not wait for recoveries: whoever follows the load calls :meth:`Chaos.advance` several times
a second.
"""

import time
from collections.abc import Sequence

from headrace.api import ChaosAction, ChaosStep
from headrace.chaos.port import FaultInjector, Injection
from headrace.errors import HeadraceError
from headrace.mirror_test import Fault, LoadProgress

_WITHOUT_WAITING = {ChaosAction.START_BROKER, ChaosAction.RUN_COMMAND}


class Chaos:
    """Steps in their order; the next one waits until the flow has recovered from the last, and
    until that fault is over. A broker is started without waiting: nothing else ends its fault. So
    is a command run: it may start again what the one before ended."""

    def __init__(
        self, steps: Sequence[ChaosStep], injector: FaultInjector, patience_s: float
    ) -> None:
        """``patience_s``: how long a recovery may take."""
        self._pending = list(steps)
        self._injector = injector
        self._patience_s = patience_s
        self._faults: list[Fault] = []
        self._open: dict[int, tuple[Injection, float]] = {}
        """The faults whose recovery is being timed, by their index in ``_faults``, and from when on
        (on the caller's clock)."""
        self._over_at_s = 0.0

    @property
    def recovering(self) -> bool:
        """Whether a recovery is being timed."""
        return bool(self._open)

    @property
    def faults(self) -> tuple[Fault, ...]:
        """The outcome of each step so far, in their order."""
        return tuple(self._faults)

    def advance(self, progress: LoadProgress, now_s: float) -> Fault | None:
        """Inject the fault that is due, if any, and return it. ``now_s`` is a monotonic clock."""
        for index, (injection, since_s) in list(self._open.items()):
            self._time_recovery(index, injection, since_s, now_s)
        if not self._pending or not _due(self._pending[0], progress):
            return None
        waits = self._pending[0].action not in _WITHOUT_WAITING
        if waits and (self._open or now_s < self._over_at_s):
            return None
        step, called_s = self._pending.pop(0), time.time()
        try:
            injection = self._injector.inject(step)
        except HeadraceError as error:
            self._faults.append(Fault(step=step, error=str(error)))
            return self._faults[-1]
        fault = Fault(
            step=step,
            at_ms=injection.at_ms,
            acknowledged=progress.acknowledged,
            percent=round(progress.percent, 1),
            driver=injection.driver,
            units=injection.units,
        )
        since_s = now_s + max(injection.at_ms / 1000 - called_s, 0.0)
        self._over_at_s = since_s + injection.lasts_s
        timed_from_s = self._over_at_s if injection.recovers_after else since_s
        self._open[len(self._faults)] = (injection, timed_from_s)
        self._faults.append(fault)
        return fault

    def end(self) -> None:
        """The load has ended: the outcome of the steps that are still pending is an error."""
        self._faults += [
            Fault(step=step, error="the load ended before it was due") for step in self._pending
        ]
        self._pending = []

    def _time_recovery(
        self, index: int, injection: Injection, since_s: float, now_s: float
    ) -> None:
        took_s = now_s - since_s
        error = f"it did not recover within {self._patience_s:.0f} s"
        unseen: dict[str, object] = {"error": error}
        recovered = False
        try:
            recovered = injection.recovered()
        except HeadraceError as problem:
            unseen = {"error": str(problem), "watched": False}
        if recovered:
            outcome: dict[str, object] = {"recovery_seconds": round(took_s, 2)}
        elif took_s > self._patience_s:
            outcome = unseen
        else:
            return
        self._faults[index] = self._faults[index].model_copy(update=outcome)
        del self._open[index]


def _due(step: ChaosStep, progress: LoadProgress) -> bool:
    if step.at_percent is not None:
        return progress.percent >= step.at_percent
    return step.at_seconds is not None and progress.elapsed_s >= step.at_seconds
