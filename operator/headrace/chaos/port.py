"""What chaos asks of a flow, wherever it runs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from headrace.api import ChaosStep


@dataclass(frozen=True)
class Injection:
    """What a step broke."""

    at_ms: int
    """When, in ms since 1970."""
    recovered: Callable[[], bool]
    """Whether all of it is whole again; raises ``HeadraceError`` when that cannot be seen."""
    driver: str | None = None
    """The driver that was hit, where it was one."""
    units: tuple[str, ...] = ()
    """The connectors and tasks that it held."""
    lasts_s: float = 0.0
    """For how long it is kept broken. It may recover from it meanwhile."""


class Breakable(Protocol):
    """A flow that can be broken."""

    def do(self, step: ChaosStep) -> Injection:
        """Break it; raises ``HeadraceError``, with a sentence, when that was not done."""
        ...
