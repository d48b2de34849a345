"""What a flow that runs, or tries to, lacks on its clusters."""

from headrace.api import Condition, ConditionStatus, ConditionType, Reason
from headrace.connect.preflight.findings import Outcome
from headrace.connect.preflight.flow_check import check_flow
from headrace.connect.runtime.context import FlowContext
from headrace.errors import HeadraceError
from headrace.logs import get_logger

log = get_logger(__name__)

_LONGEST_MESSAGE = 4096
_AGAIN_S = 60.0
"""While something is missing: somebody may grant it."""


class Requirements:
    """Checks when the flow starts, and again while something is missing. One thread calls it, and
    waits for brokers."""

    def __init__(self, context: FlowContext) -> None:
        self._context = context
        self._next_s: float | None = 0.0
        self.conditions: tuple[Condition, ...] = ()

    def poll(self) -> bool:
        """Check if that is due; whether it was. It raises nothing: what a flow lacks keeps it from
        one thing, and not from another."""
        now_s = self._context.clock.monotonic()
        if self._next_s is None or now_s < self._next_s:
            return False
        try:
            found = check_flow(self._context)
        except HeadraceError as error:
            log.info("requirements not checked", flow=self._context.name, why=str(error))
            self._next_s = now_s + _AGAIN_S
            return False
        missing = [one.sentence for one in found if one.outcome is Outcome.MISSING]
        self._next_s = now_s + _AGAIN_S if missing else None
        self.conditions = ()
        if missing:
            message = f"{len(missing)} of {len(found)} checks: {'; '.join(missing)}"
            self.conditions = (
                Condition(
                    type=ConditionType.REQUIREMENTS_MISSING,
                    status=ConditionStatus.TRUE,
                    reason=Reason.CHECK_FAILED,
                    message=message[:_LONGEST_MESSAGE],
                ),
            )
        return True
