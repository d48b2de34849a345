"""The status of a MirrorTest with new conditions."""

from datetime import datetime

from headrace.api import MirrorTest, MirrorTestStatus, Readiness, conditions_of


def with_conditions(test: MirrorTest, verdict: Readiness, now: datetime) -> MirrorTestStatus:
    """The status of ``test`` with the conditions of ``verdict``; the phase reached stays, as what
    was sent once must not be sent again."""
    generation, before = test.metadata.generation, test.status or MirrorTestStatus()
    conditions = conditions_of(verdict, before, now, generation=generation)
    return before.model_copy(update={"observed_generation": generation, "conditions": conditions})
