"""The conditions of the flows over time."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from soak.wire.differences import CAUSE_S, Difference
from soak.wire.stage import is_ready, status_of

from headrace.api import ConditionType

_EVERY_S = 2.0
DATA_LOSS = ConditionType.DATA_LOSS_DETECTED.value


def conditions_of(status: dict[str, Any]) -> dict[str, str]:
    """Return the messages of all conditions that are true except Ready, and of a false Ready."""
    return {
        one["type"]: f"{one.get('reason', '')}: {one.get('message', '')}"
        for one in status.get("conditions", [])
        if (one["type"] == "Ready") != (one["status"] == "True")
    }


class ConditionWatch:
    """Prints each condition that begins or ends, until ``stop``."""

    def __init__(self, flows: Sequence[str], say: Callable[[str], None]) -> None:
        self._say = say
        self.statuses: dict[str, dict[str, Any]] = {flow: {} for flow in flows}
        """The latest status of each flow."""
        self.began_s: dict[tuple[str, str], float] = {}
        """Unix time at which the latest condition of a flow and a type began."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="conditions", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def ready(self) -> bool:
        """Return whether all flows are Ready, or wait for a user because of a loss."""
        return all(
            is_ready(status) or DATA_LOSS in conditions_of(status)
            for status in self.statuses.values()
        )

    def remaining(self) -> list[Difference]:
        """Return the conditions that are true now, and a Ready that is not."""
        return [
            Difference(
                f"{flow}: {type} stays: {message}",
                self.began_s.get((flow, type), 0.0) - CAUSE_S,
                self.began_s.get((flow, type), 0.0),
            )
            for flow, status in self.statuses.items()
            for type, message in conditions_of(status).items()
        ]

    def _run(self) -> None:
        shown: dict[str, dict[str, str]] = {flow: {} for flow in self.statuses}
        while not self._stop.wait(_EVERY_S):
            for flow in self.statuses:
                if not (status := status_of(flow)):
                    continue
                self.statuses[flow] = status
                now = conditions_of(status)
                for type, message in now.items():
                    if type not in shown[flow]:
                        self.began_s[flow, type] = time.time()
                        self._say(f"     {flow}: {type} begins: {message}")
                for type in shown[flow].keys() - now.keys():
                    self._say(f"     {flow}: {type} is over")
                shown[flow] = now
