"""Pauses a flow for a while: what collects meanwhile must be copied afterwards."""

import time
from collections.abc import Callable

from headrace.api import ChaosStep, FlowState
from headrace.chaos.port import Injection
from headrace.errors import InvalidSpec

Since = Callable[[int], Callable[[], bool]]
"""For a time in ms since 1970: whether the mirror has recovered since then."""


class PauseFaults:
    """For one flow, wherever it runs."""

    def __init__(self, set_state: Callable[[FlowState], bool], since: Since) -> None:
        """``set_state`` returns whether it changed the flow's state."""
        self._set_state, self._since = set_state, since
        self._is_paused = False

    def inject(self, step: ChaosStep) -> Injection:
        """See ``FaultInjector``. Whoever asks whether the flow has recovered has it resumed."""
        seconds, at_ms = step.seconds or 0, _now_ms()
        if not self._set_state(FlowState.PAUSED):
            raise InvalidSpec("the flow is paused already")
        self._is_paused, until_s = True, time.monotonic() + seconds
        arrived: Callable[[], bool] | None = None

        def recovered() -> bool:
            nonlocal arrived
            if time.monotonic() < until_s:
                return False
            if arrived is None:
                resumed_ms = _now_ms()
                self.restore()
                arrived = self._since(resumed_ms)
            return arrived()

        return Injection(at_ms, recovered, lasts_s=seconds, recovers_after=True)

    def restore(self) -> None:
        """Resume the flow if it is still paused."""
        if self._is_paused:
            self._set_state(FlowState.RUNNING)
            self._is_paused = False


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
