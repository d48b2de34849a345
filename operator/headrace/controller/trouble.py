"""What the API server refuses the operator, as a verdict on whom it was done for. Pure."""

from headrace.api import Reason
from headrace.errors import HeadraceError, InvalidSpec
from headrace.k8s import Forbidden, Object, Refused
from headrace.status.flow_status import Readiness


class NameTaken(InvalidSpec):
    """An object that a flow or a test needs is there, and belongs to somebody else."""


def trouble(error: HeadraceError) -> Readiness | None:
    """A verdict on what a person has to change; None for what mends itself."""
    reasons: dict[type[HeadraceError], Reason] = {
        Forbidden: Reason.FORBIDDEN,
        Refused: Reason.REFUSED,
        NameTaken: Reason.NAME_TAKEN,
        InvalidSpec: Reason.INVALID_SPEC,
    }
    for kind, reason in reasons.items():
        if isinstance(error, kind):
            return Readiness(False, True, reason, str(error))
    return None


def is_said(object: Object, why: str) -> bool:
    """Whether the status of an object that is not understood says so already, of this spec."""
    status = object.get("status") or {}
    return status.get("observedGeneration") == object["metadata"].get("generation") and any(
        condition.get("message") == why for condition in status.get("conditions") or ()
    )
