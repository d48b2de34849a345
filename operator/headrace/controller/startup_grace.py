"""Drivers that were started together come one after the other: the first would get all units."""

from collections.abc import Sequence

from headrace.api import ReplicationFlow, ReplicationTask
from headrace.controller.drivers import Drivers
from headrace.controller.targets import FlowName, flow_name

_GATHERING_S = 5.0
"""Wait at most so long for the others."""


class Gathering:
    """Which flows wait for the rest of their drivers before any unit is placed."""

    def __init__(self) -> None:
        self._began_s: dict[FlowName, float] = {}

    def is_under_way(
        self,
        flow: ReplicationFlow,
        tasks: Sequence[ReplicationTask],
        drivers: Drivers,
        now_s: float,
    ) -> bool:
        """Whether units, of which none has a driver yet, are to wait; ``now_s`` is of a monotonic
        clock."""
        some = 0 < len(drivers.schedulable) < flow.spec.drivers.replicas
        if not some or any(task.spec.driver_name for task in tasks):
            self.forget(flow_name(flow))
            return False
        return now_s - self._began_s.setdefault(flow_name(flow), now_s) < _GATHERING_S

    def forget(self, name: FlowName) -> None:
        """It is over; the next one of this flow has its whole time."""
        self._began_s.pop(name, None)
