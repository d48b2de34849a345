"""Fault injector for a flow of ``headrace run``, through its control socket."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from headrace.api import ChaosAction, ChaosStep, FlowState, TaskPhase
from headrace.chaos.chaos import Injection

Ask = Callable[..., dict[str, Any]]
"""Function that sends a command with named arguments to the flow's control socket.

It raises ``HeadraceError`` if there is no response.
"""


def refused(steps: Sequence[ChaosStep]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield a field and a message for each step that requires pods."""
    for index, step in enumerate(steps):
        if step.action.is_of_pods:
            yield (
                ("spec", "chaos", index, "action"),
                f"spec.chaos[{index}].action: {step.action} needs a mirror that runs in pods; "
                f"use another, or apply the test to the mirror's cluster with kubectl",
            )


class LocalInjector:
    """Injector for one flow and the drivers of its run. It supports ``LOCAL_ACTIONS``."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def inject(self, step: ChaosStep) -> Injection:
        """Inject the fault of a step. Do not wait until the flow has recovered."""
        return _STEPS[step.action](self, step)

    def set_state(self, state: FlowState) -> bool:
        """Set the flow's ``spec.state``. Return True if the state changed."""
        return bool(self._ask("set-state", state=str(state))["changed"])

    def _kill_driver(self, _: ChaosStep) -> Injection:
        return self._lost(self._ask("kill-driver"))

    def _freeze_driver(self, _: ChaosStep) -> Injection:
        return self._lost(self._ask("freeze-driver"))

    def _lost(self, broken: Mapping[str, Any]) -> Injection:
        driver, units = broken["driver"], tuple(broken["units"])
        return Injection(
            at_ms=broken["timeMs"],
            driver=driver,
            units=units,
            recovered=lambda: self._runs_elsewhere(units, driver),
            lasts_s=broken.get("lastsSeconds", 0.0),
        )

    def _scale_drivers(self, step: ChaosStep) -> Injection:
        return self._replaced(self._ask("scale", drivers=step.drivers), frozenset())

    def _roll_drivers(self, _: ChaosStep) -> Injection:
        rolled = self._ask("roll-drivers")
        return self._replaced(rolled, frozenset(rolled["drivers"]))

    def _replaced(self, changed: Mapping[str, Any], old: Collection[str]) -> Injection:
        """Return an injection. The flow has recovered when it runs without the ``old`` drivers."""
        return Injection(
            at_ms=changed["timeMs"], recovered=lambda: self._settled(changed["size"], old)
        )

    def _runs_elsewhere(self, lost: Collection[str], driver: str) -> bool:
        """Return True if each ``lost`` unit that still exists runs, but not on ``driver``."""
        units = [unit for unit in self._ask("status")["units"] if unit["name"] in lost]
        return all(
            unit.get("phase") == TaskPhase.RUNNING and unit.get("driverName") != driver
            for unit in units
        )

    def _settled(self, size: int, old: Collection[str]) -> bool:
        """Return True if ``size`` drivers are alive, and all units run as assigned.

        Return False if a live driver is in ``old``.
        """
        drivers, status = self._ask("drivers")["alive"], self._ask("status")
        return (
            len(drivers) == size
            and not set(drivers) & set(old)
            and all(
                unit.get("phase") == TaskPhase.RUNNING
                and unit.get("driverName") == unit["assignedTo"]
                and unit["assignedTo"] in drivers
                for unit in status["units"]
            )
        )


_STEPS: dict[ChaosAction, Callable[[LocalInjector, ChaosStep], Injection]] = {
    ChaosAction.KILL_DRIVER: LocalInjector._kill_driver,
    ChaosAction.FREEZE_DRIVER: LocalInjector._freeze_driver,
    ChaosAction.SCALE_DRIVERS: LocalInjector._scale_drivers,
    ChaosAction.ROLL_DRIVERS: LocalInjector._roll_drivers,
}
LOCAL_ACTIONS = frozenset(_STEPS)
"""Actions that ``LocalInjector`` supports."""
