"""How a MirrorTest kills the operator that leads, as its ``spec.chaos`` asks.

The Job has no rights where the operator runs. It puts an annotation on its test, empty; whoever
leads puts its name in and ends without another word, as after kill -9: the Lease is not released,
nothing is handed over. Who leads next finds a name and adds its own, which stays: the Job may look
later than all of this takes.
"""

from enum import Enum

from headrace.api import ChaosAction, MirrorTest, MirrorTestPhase
from headrace.api.labels import KILL_ANNOTATION, LED_NEXT

EXIT_CODE = 137
"""Of a process that was killed (128 + 9)."""


class Request(Enum):
    """What the annotation asks of this operator."""

    NOTHING = "nothing"
    DIE = "die"
    LEAD = "say that it leads"
    TAKE_OFF = "take it off"


def request(test: MirrorTest) -> Request:
    """Only a test that has the step is obeyed, and to die only while it is under way."""
    name = test.metadata.annotations.get(KILL_ANNOTATION)
    if name is None or LED_NEXT in name:
        return Request.NOTHING
    asks = any(step.action is ChaosAction.KILL_OPERATOR for step in test.spec.chaos)
    if asks and name:
        return Request.LEAD
    runs = test.status is not None and test.status.phase is MirrorTestPhase.RUNNING
    return Request.DIE if asks and runs else Request.TAKE_OFF
