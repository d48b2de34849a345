"""How a MirrorTest kills the operator that leads, as its ``spec.chaos`` asks.

The Job has no rights in the operator's namespace. It adds an empty annotation to its test. The
leader writes its name there and ends at once, as after kill -9: it does not release the Lease. The
next leader finds a name and adds its own, which stays: the Job may poll later than all of this.
"""

from enum import Enum

from headrace.api import KILL_ANNOTATION, LED_NEXT, ChaosAction, MirrorTest, MirrorTestPhase

EXIT_CODE = 137
"""Of a process that was killed (128 + 9)."""


class Request(Enum):
    """What the annotation asks of this operator."""

    NOTHING = "nothing"
    DIE = "die"
    LEAD = "say that it leads"
    TAKE_OFF = "take it off"


def request(test: MirrorTest) -> Request:
    """Only a test with that step has a say; the operator ends only while the test runs."""
    name = test.metadata.annotations.get(KILL_ANNOTATION)
    if name is None or LED_NEXT in name:
        return Request.NOTHING
    asks = any(step.action is ChaosAction.KILL_OPERATOR for step in test.spec.chaos)
    if asks and name:
        return Request.LEAD
    runs = test.status is not None and test.status.phase is MirrorTestPhase.RUNNING
    return Request.DIE if asks and runs else Request.TAKE_OFF
