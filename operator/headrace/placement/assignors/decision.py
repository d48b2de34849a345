"""What comes of asking an assignor."""

from dataclasses import dataclass, replace
from typing import Protocol

from headrace.assign import (
    ApplicationState,
    AssignmentError,
    AssignmentUtils,
    TaskAssignment,
    Violation,
)


@dataclass(frozen=True)
class Decision:
    """The assignment to put in force; the old one when there is no good answer."""

    assignment: TaskAssignment
    error: AssignmentError = AssignmentError.NONE
    reason: str = ""
    """A sentence for the status; empty when all is well."""


class Decider(Protocol):
    """An assignor that has been made safe to ask."""

    def decide(self, state: ApplicationState) -> Decision:
        """Ask, check the answer, report the outcome to the assignor."""
        ...

    def close(self) -> None:
        """Release its resources."""
        ...


def keep(state: ApplicationState, name: str, what: str) -> Decision:
    """The assignment in force, as far as its drivers are still there; the rest waits."""
    reason = f"assignor {name} {what}; the assignment in force stays"
    return Decision(AssignmentUtils.identity(state), reason=reason)


def refuse(state: ApplicationState, name: str, violation: Violation) -> Decision:
    """The same, as the answer breaks a rule."""
    kept = keep(state, name, f"gave an assignment that cannot be: {violation.message}")
    return replace(kept, error=violation.error)


def retry(state: ApplicationState, name: str, why: str) -> Decision:
    """The same, to ask again at once (KIP-924, TaskAssignmentException)."""
    kept = keep(state, name, f"cannot decide now: {why}")
    return replace(kept, assignment=replace(kept.assignment, follow_up_ms=state.now_ms))
