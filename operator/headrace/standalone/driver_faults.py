"""Faults of a run's drivers, as a test asks for them."""

import time
from typing import Any

from headrace.control.flow_actions import target_driver
from headrace.errors import InvalidSpec
from headrace.standalone.driver_process import DriverProcess
from headrace.standalone.fleet import Fleet
from headrace.standalone.task_store import TaskStore

_LEASES_FROZEN = 2
"""For how long a driver is frozen: it is lost after one."""


class DriverFaults:
    """Each hits the driver that has most source tasks of a flow."""

    def __init__(self, fleet: Fleet, store: TaskStore, lease_s: float) -> None:
        self._fleet, self._store, self._lease_s = fleet, store, lease_s

    def kill(self, flow: str) -> dict[str, Any]:
        """Kill it with -9."""
        victim, broken = self._victim(flow)
        victim.kill()
        return broken

    def freeze(self, flow: str) -> dict[str, Any]:
        """Freeze it until others have taken its units."""
        victim, broken = self._victim(flow)
        if len(self._fleet.ready()) < 2:
            raise InvalidSpec(
                f"no driver can take the units of driver {victim.name} while it is frozen: the run "
                "has no other; set spec.drivers.replicas to 2 or more"
            )
        lasts_s = _LEASES_FROZEN * self._lease_s
        victim.freeze(lasts_s)
        return {**broken, "lastsSeconds": lasts_s}

    def _victim(self, flow: str) -> tuple[DriverProcess, dict[str, Any]]:
        alive = {driver.name: driver for driver in self._fleet.alive()}
        victim = alive[target_driver(self._store.of_flow(flow), alive, flow)]
        units = [
            task.metadata.name
            for task in self._store.of_flow(flow)
            if task.status.driver_name == victim.name
        ]
        return victim, {
            "driver": victim.name,
            "pid": victim.pid,
            "timeMs": int(time.time() * 1000),
            "units": sorted(units),
        }
