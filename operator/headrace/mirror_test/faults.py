"""What was broken on purpose, when, and how long it took to heal: ``chaos.json``."""

from headrace.api import ChaosStep
from headrace.api.model import Model


class Fault(Model):
    """One step of ``spec.chaos`` and what came of it."""

    step: ChaosStep
    """What was asked for."""
    at_ms: int | None = None
    """When it was done, in ms since 1970; absent: it was not."""
    acknowledged: int | None = None
    """Messages of the load that were acknowledged then."""
    percent: float | None = None
    """The same, in percent of the load."""
    driver: str | None = None
    """The driver that was hit."""
    units: tuple[str, ...] = ()
    """The connectors and tasks it held."""
    recovery_seconds: float | None = None
    """Until all of them ran again; absent: that was not seen."""
    error: str | None = None
    """Why it was not done, or its recovery not seen, in a sentence."""
    watched: bool = True
    """Whether its recovery was watched for as long as it may take."""


class Faults(Model):
    """All steps, in order."""

    faults: tuple[Fault, ...] = ()
