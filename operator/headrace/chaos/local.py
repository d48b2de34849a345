"""Injects faults into a flow of ``headrace run``, over its control socket."""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from headrace.api import ChaosAction, ChaosStep, TaskPhase
from headrace.chaos.port import Injection

Ask = Callable[[str], dict[str, Any]]
"""Sends a command to the flow's control socket; raises ``HeadraceError`` without an answer."""


def refused(steps: Sequence[ChaosStep]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Why the steps that need pods cannot be injected here: a field and a sentence for each."""
    for index, step in enumerate(steps):
        if step.action is not ChaosAction.KILL_DRIVER:
            yield (
                ("spec", "chaos", index, "action"),
                f"spec.chaos[{index}].action: {step.action} needs a flow that runs in pods; "
                "use KillDriver, or apply the test to the flow's cluster with kubectl",
            )


class LocalInjector:
    """Its only step is KillDriver (``refused``)."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def inject(self, step: ChaosStep) -> Injection:
        """Kill -9 the driver with most source tasks."""
        killed = self._ask("kill-driver")
        driver, units = killed["driver"], tuple(killed["units"])
        return Injection(
            at_ms=killed["timeMs"],
            driver=driver,
            units=units,
            recovered=lambda: self._runs_elsewhere(units, driver),
        )

    def _runs_elsewhere(self, lost: Collection[str], driver: str) -> bool:
        """Whether every lost unit that still exists runs, and not on the driver that was killed."""
        units = [unit for unit in self._ask("status")["units"] if unit["name"] in lost]
        return all(
            unit.get("phase") == TaskPhase.RUNNING and unit.get("driverName") != driver
            for unit in units
        )
