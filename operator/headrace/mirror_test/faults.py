"""The faults of a run: which were planned, which were injected, and how long each recovery took.

``chaos.json`` has them twice: as the plan, and as the outcome. Each step of a plan has an error,
which stays the outcome of a step that nobody reports.
"""

from collections.abc import Iterable

from headrace.api import ChaosStep, Model
from headrace.mirror_test import documents


class Fault(Model):
    """One step of ``spec.chaos`` and its outcome."""

    step: ChaosStep
    """What was asked for."""
    at_ms: int | None = None
    """When it was injected, in ms since 1970; absent: it was not."""
    acknowledged: int | None = None
    """Messages of the load that were acknowledged then."""
    percent: float | None = None
    """The same, in percent of the load."""
    driver: str | None = None
    """The driver, or broker, that it affected."""
    units: tuple[str, ...] = ()
    """The connectors and tasks of that driver."""
    recovery_seconds: float | None = None
    """Until all of them ran again; absent: that was not seen."""
    error: str | None = None
    """Why it was not injected, or its recovery not seen, in a sentence."""
    watched: bool = True
    """Whether its recovery was watched for as long as it may take."""

    @property
    def outcome_if_unreported(self) -> "Fault":
        """Itself; while its recovery is timed, with the error that holds if nobody reports more."""
        if self.at_ms is None or self.recovery_seconds is not None or self.error:
            return self
        ended = "the Job that watched it ended before it did"
        return self.model_copy(update={"error": ended, "watched": False})


class Faults(Model):
    """All steps, in order."""

    faults: tuple[Fault, ...] = ()

    @property
    def steps(self) -> tuple[ChaosStep, ...]:
        """What was asked for."""
        return tuple(fault.step for fault in self.faults)

    def updated(self, outcomes: Iterable[Fault]) -> "Faults":
        """This plan with the outcomes of its first steps."""
        known = tuple(fault.outcome_if_unreported for fault in outcomes)
        return Faults(faults=(*known, *self.faults[len(known) :]))


def build_plan(steps: Iterable[ChaosStep], unreported: str) -> str:
    """The document of a plan; ``unreported`` is the error of a step that nobody reports."""
    plan = Faults(faults=tuple(Fault(step=step, error=unreported) for step in steps))
    return plan.model_dump_json(by_alias=True, exclude_defaults=True, indent=1)


def read_plan(text: str, name: str) -> Faults:
    """A plan from its document; see ``documents.read_plan``."""
    return documents.read_plan(text, name, Faults)
