"""The port through which chaos injects faults into a flow, wherever it runs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from headrace.api import ChaosAction, ChaosStep
from headrace.errors import InvalidSpec


@dataclass(frozen=True)
class Injection:
    """A fault that was injected."""

    at_ms: int
    """When, in ms since 1970."""
    recovered: Callable[[], bool]
    """Whether the flow has recovered; raises ``HeadraceError`` when that cannot be observed."""
    driver: str | None = None
    """The driver, broker or topic that it affects, where it is one."""
    units: tuple[str, ...] = ()
    """The connectors and tasks of that driver."""
    lasts_s: float = 0.0
    """How long the fault lasts."""
    recovers_after: bool = False
    """Whether the flow can only recover after its end: the recovery time then begins there."""


class FaultInjector(Protocol):
    """Injects faults into one flow."""

    def inject(self, step: ChaosStep) -> Injection:
        """Inject the fault of a step; raises ``HeadraceError`` when that was not possible."""
        ...


@dataclass(frozen=True)
class ByAction:
    """Faults of several injectors."""

    injectors: Mapping[ChaosAction, FaultInjector]

    def inject(self, step: ChaosStep) -> Injection:
        """See ``FaultInjector``; an action that nobody here can do is refused."""
        injector = self.injectors.get(step.action)
        if injector is None:
            raise InvalidSpec(f"{step.action} cannot be done to the mirror of this test")
        return injector.inject(step)
