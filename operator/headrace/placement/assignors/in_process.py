"""An assignor that comes with headrace."""

from headrace.assign import (
    ApplicationState,
    AssignmentError,
    AssignmentUtils,
    TaskAssignmentError,
    TaskAssignor,
)
from headrace.logs import get_logger
from headrace.placement.assignors.decision import Decision, keep, refuse, retry

log = get_logger(__name__)


class InProcess:
    """Called as it is. Beside ``TaskAssignmentError`` it should raise nothing; if it does, that is
    a fault of headrace, and no reason to stop what runs."""

    def __init__(self, name: str, assignor: TaskAssignor) -> None:
        self._name = name
        self._assignor = assignor

    def decide(self, state: ApplicationState) -> Decision:
        """See ``Decider``."""
        try:
            answer = self._assignor.assign(state)
        except TaskAssignmentError as why:
            return retry(state, self._name, str(why))
        except Exception as fault:
            log.exception("internal error, please report it", assignor=self._name)
            return keep(state, self._name, f"raised {type(fault).__name__}: {fault}")
        violation = AssignmentUtils.find_violation(state, answer)
        error = violation.error if violation else AssignmentError.NONE
        self._assignor.on_assignment_computed(answer, state, error)
        return refuse(state, self._name, violation) if violation else Decision(answer)

    def close(self) -> None:
        """Nothing is held."""
