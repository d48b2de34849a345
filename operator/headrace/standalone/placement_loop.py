"""Loop of ``headrace run`` that decides the placement of units and writes assignments."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from headrace.api import ReplicationFlow
from headrace.assign import DriverName, DriverState, TaskId
from headrace.placement import (
    Assigner,
    DriverPool,
    PlacementDecision,
    assign_unit,
    pins_in_force,
    stopped_units,
    task_id,
)
from headrace.standalone.fleet import DriverProcess, Fleet
from headrace.standalone.task_store import TaskStore

_OBSERVE_INTERVAL_S = 1.0


class PlacementLoop:
    """Decides placements on the herder's event loop.

    The assigner is called in a thread, because plug-ins take time. Changes in the meantime need
    another ``request``.
    """

    def __init__(
        self,
        flows: Callable[[], Iterable[ReplicationFlow]],
        store: TaskStore,
        fleet: Fleet,
        on_assigned: Callable[[], None],
    ) -> None:
        """Create the loop.

        ``on_assigned`` is called after assignments were written to the store.
        """
        self.problems: Mapping[str, str] = {}
        """Problems of the placement, by flow."""
        self._flows, self._store, self._fleet = flows, store, fleet
        self._on_assigned = on_assigned
        self._assigner = Assigner()
        self._requested = asyncio.Event()
        self._follow_up_s: float | None = None
        self._pins: dict[TaskId, DriverName] = {}
        self._lost: set[str] = set()
        """Incarnations of lost drivers."""

    async def run(self) -> None:
        """Decide after each request, and when a follow-up is due, until cancelled."""
        self.await_drivers()
        while True:
            now_s = time.monotonic()
            wait_s = _OBSERVE_INTERVAL_S
            if self._follow_up_s is not None:
                wait_s = max(0.0, min(wait_s, self._follow_up_s - now_s))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._requested.wait(), wait_s)
            now_s = time.monotonic()
            follow_up = self._follow_up_s is not None and now_s >= self._follow_up_s
            if self._requested.is_set() or follow_up:
                self._requested.clear()
                await self._decide(now_s)
            else:
                self._assigner.observe(self._store, now_s)

    def close(self) -> None:
        """End the processes of plug-ins."""
        self._assigner.close()

    # Events.

    def request(self) -> None:
        """Request a placement, because units, flows or drivers changed."""
        self._requested.set()

    def await_drivers(self) -> None:
        """Start the grace period and request a placement."""
        self._assigner.await_drivers(time.monotonic())
        self.request()

    def pin(self, id: TaskId, driver: DriverName) -> None:
        """Run a unit on that driver while the driver is alive."""
        self._pins[id] = driver
        self.request()

    def driver_joined(self, driver: DriverProcess) -> None:
        """Record that a driver sent a heartbeat, perhaps after it was declared lost."""
        self._lost.discard(driver.incarnation)
        self.request()

    def driver_left(self, driver: DriverProcess) -> None:
        """Record that a driver ended or was declared lost. Another one is started in its place."""
        # Forget drivers that hold no unit. They claim none before they join again.
        holders = {task.status.driver_incarnation for task in self._store}
        self._lost = self._lost & holders | {driver.incarnation}
        self.await_drivers()

    def is_lost(self, incarnation: str) -> bool:
        """Return True if a driver is lost, so that it cannot release its units.

        A lost driver without units is forgotten when the next driver leaves.
        """
        return incarnation in self._lost

    # Decide and write.

    def _pool(self) -> DriverPool:
        ready = {driver.name: driver.rack or None for driver in self._fleet.ready()}
        return DriverPool(
            expected=self._fleet.size,
            schedulable=tuple(DriverState(name, rack=ready[name]) for name in sorted(ready)),
            staying=frozenset(ready),
            is_lost=lambda _, incarnation: self.is_lost(incarnation),
        )

    async def _decide(self, now_s: float) -> None:
        pool = self._pool()
        self._pins = pins_in_force(self._pins, pool)
        decision = await asyncio.to_thread(
            self._assigner.decide,
            list(self._flows()),
            list(self._store),
            pool,
            now_s,
            pins=dict(self._pins),
            barred=self._stopped(),
        )
        self.problems = decision.problems
        follow_up_ms = decision.follow_up_ms
        self._follow_up_s = None if follow_up_ms is None else follow_up_ms / 1000
        self._write(decision)

    def _stopped(self) -> frozenset[TaskId]:
        """Return the units of all flows that must not run (``stopped_units``)."""
        flows = ((flow, self._store.of_flow(flow.metadata.name)) for flow in self._flows())
        return frozenset().union(*(stopped_units(flow, tasks) for flow, tasks in flows))

    def _write(self, decision: PlacementDecision) -> None:
        """Write a decision to the current units. Units and drivers may have changed since."""
        pool = self._pool()
        for task in self._store:
            assignment = assign_unit(task, decision.placements.get(task_id(task)), pool)
            if assignment.differs:
                self._store.assign(
                    task.metadata.name,
                    assignment.driver,
                    assignment.standbys,
                    assignment.lost_incarnation,
                )
        self._on_assigned()
