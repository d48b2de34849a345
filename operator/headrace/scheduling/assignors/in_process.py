"""An assignor that comes with headrace."""

from headrace.assign import (
    ApplicationState,
    AssignmentError,
    AssignmentUtils,
    TaskAssignmentError,
    TaskAssignor,
)
from headrace.scheduling.assignors.decision import Decision, refuse, retry


class InProcess:
    """Called as it is: what it raises beside ``TaskAssignmentError`` is a fault of headrace."""

    def __init__(self, name: str, assignor: TaskAssignor) -> None:
        self._name = name
        self._assignor = assignor

    def decide(self, state: ApplicationState) -> Decision:
        """See ``Decider``."""
        try:
            answer = self._assignor.assign(state)
        except TaskAssignmentError as why:
            return retry(state, self._name, str(why))
        violation = AssignmentUtils.find_violation(state, answer)
        error = violation.error if violation else AssignmentError.NONE
        self._assignor.on_assignment_computed(answer, state, error)
        return refuse(state, self._name, violation) if violation else Decision(answer)

    def close(self) -> None:
        """Nothing is held."""
