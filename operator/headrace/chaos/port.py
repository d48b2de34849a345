"""The port through which chaos injects faults into a flow, wherever it runs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from headrace.api import ChaosStep


@dataclass(frozen=True)
class Injection:
    """A fault that was injected."""

    at_ms: int
    """When, in ms since 1970."""
    recovered: Callable[[], bool]
    """Whether the flow has recovered; raises ``HeadraceError`` when that cannot be observed."""
    driver: str | None = None
    """The driver, or broker, that it affects, where it is one."""
    units: tuple[str, ...] = ()
    """The connectors and tasks of that driver."""
    lasts_s: float = 0.0
    """How long the fault lasts. The flow may recover before its end."""


class FaultInjector(Protocol):
    """Injects faults into one flow."""

    def inject(self, step: ChaosStep) -> Injection:
        """Inject the fault of a step; raises ``HeadraceError`` when that was not possible."""
        ...
