"""What blocks the operator until a person changes something. Pure."""

from headrace.api import Readiness, Reason
from headrace.errors import HeadraceError, InvalidSpec
from headrace.k8s import Forbidden, Object, Refused


class NameTaken(InvalidSpec):
    """An object that a flow or a test needs exists and has another owner."""


def blocked_by(error: HeadraceError) -> Readiness | None:
    """The readiness of the object that was reconciled; None for errors that pass by themselves."""
    reasons: dict[type[HeadraceError], Reason] = {
        Forbidden: Reason.FORBIDDEN,
        Refused: Reason.REFUSED,
        NameTaken: Reason.NAME_TAKEN,
        InvalidSpec: Reason.INVALID_SPEC,
    }
    for kind, reason in reasons.items():
        if isinstance(error, kind):
            return Readiness.stalled(reason, str(error))
    return None


def is_reported(object: Object, message: str) -> bool:
    """Whether the status of an object has this message already, for its current spec."""
    status = object.get("status") or {}
    return status.get("observedGeneration") == object["metadata"].get("generation") and any(
        condition.get("message") == message for condition in status.get("conditions") or ()
    )
