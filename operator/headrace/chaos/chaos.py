"""Runner of the steps of ``spec.chaos``, and the interface of fault injectors.

The runner does not block while a flow recovers. The caller calls ``Chaos.advance`` several times a
second.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from headrace.api import ChaosAction, ChaosStep, FlowState
from headrace.errors import HeadraceError, InvalidSpec
from headrace.mirror_test import Fault, LoadProgress
from headrace.timing import Clock


@dataclass(frozen=True)
class Injection:
    """Fault that was injected."""

    at_ms: int
    """Time of the fault, in ms since 1970."""
    recovered: Callable[[], bool]
    """Function that returns True if the flow has recovered.

    It raises ``HeadraceError`` if the recovery cannot be observed.
    """
    driver: str | None = None
    """Affected driver, broker, pod or Deployment, or None."""
    units: tuple[str, ...] = ()
    """Connectors and tasks of the affected driver."""
    lasts_s: float = 0.0
    """Duration of the fault in seconds."""
    recovers_after: bool = False
    """True if the flow can recover only after the fault has ended.

    If so, the recovery time begins at the end of the fault.
    """


class FaultInjector(Protocol):
    """Injector of faults into one mirror."""

    def inject(self, step: ChaosStep) -> Injection:
        """Inject the fault of a step. Raise ``HeadraceError`` if that is not possible."""
        ...


@dataclass(frozen=True)
class ByAction:
    """Injector that delegates each action to another injector."""

    injectors: Mapping[ChaosAction, FaultInjector]

    def inject(self, step: ChaosStep) -> Injection:
        """Inject the fault of a step. Raise ``InvalidSpec`` if no injector supports its action."""
        injector = self.injectors.get(step.action)
        if injector is None:
            raise InvalidSpec(f"{step.action} is not possible with the mirror of this test")
        return injector.inject(step)


_WITHOUT_WAITING = {ChaosAction.START_BROKER, ChaosAction.RUN_COMMAND}


class Chaos:
    """Runs the chaos steps in order.

    A step waits until the flow has recovered from the previous fault, and until that fault has
    ended. A step that starts a broker does not wait, because the previous fault (the stopped
    broker) lasts until this step. A step that runs a command does not wait, because it may start
    what the previous command stopped.
    """

    def __init__(
        self,
        steps: Sequence[ChaosStep],
        injector: FaultInjector,
        patience_s: float,
        clock: Clock = time,
    ) -> None:
        """Create a runner.

        Args:
            steps: Steps in the order of their injection.
            injector: Injector of their faults.
            patience_s: Maximum duration of a recovery, in seconds.
            clock: Source of the Unix time, to which ``Injection.at_ms`` is compared.
        """
        self._pending = list(steps)
        self._injector = injector
        self._patience_s = patience_s
        self._clock = clock
        self._faults: list[Fault] = []
        self._open: dict[int, tuple[Injection, float]] = {}
        """Faults whose recovery is being timed, by their index in ``_faults``.

        The second item is the time from which the recovery is timed, on the clock of the caller.
        """
        self._over_at_s = 0.0

    @property
    def recovering(self) -> bool:
        """True if a recovery is being timed."""
        return bool(self._open)

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Outcome of each step so far, in order."""
        return tuple(self._faults)

    def advance(self, progress: LoadProgress, now_s: float) -> Fault | None:
        """Inject the fault that is due, and return it, or None if no fault is due.

        ``now_s`` is the time of a monotonic clock.
        """
        for index, (injection, since_s) in list(self._open.items()):
            self._time_recovery(index, injection, since_s, now_s)
        if not self._pending or not _due(self._pending[0], progress):
            return None
        waits = self._pending[0].action not in _WITHOUT_WAITING
        if waits and (self._open or now_s < self._over_at_s):
            return None
        step, called_s = self._pending.pop(0), self._clock.time()
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
        """Record an error for all pending steps, because the load has ended."""
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


Since = Callable[[int], Callable[[], bool]]
"""Function that returns a check of recovery for a time in ms since 1970.

The check returns True if the mirror has recovered since that time.
"""


class PauseFaults:
    """Injector that pauses a flow, wherever the flow runs."""

    def __init__(self, set_state: Callable[[FlowState], bool], since: Since) -> None:
        """Create an injector. ``set_state`` returns True if it changed the flow's state."""
        self._set_state, self._since = set_state, since
        self._is_paused = False

    def inject(self, step: ChaosStep) -> Injection:
        """Pause the flow. The check of recovery resumes it when the time is over."""
        seconds, at_ms = step.seconds or 0, _now_ms()
        if not self._set_state(FlowState.PAUSED):
            raise InvalidSpec("the flow is paused already")
        self._is_paused, until_s = True, time.monotonic() + seconds
        arrived: Callable[[], bool] | None = None

        def recovered() -> bool:
            nonlocal arrived
            if time.monotonic() < until_s:
                return False
            if arrived is None:
                resumed_ms = _now_ms()
                self.restore()
                arrived = self._since(resumed_ms)
            return arrived()

        return Injection(at_ms, recovered, lasts_s=seconds, recovers_after=True)

    def restore(self) -> None:
        """Resume the flow if it is still paused."""
        if self._is_paused:
            self._set_state(FlowState.RUNNING)
            self._is_paused = False


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
