"""Keeps the units of a run placed: asks the scheduler when something changed, writes its answer."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from headrace.api import ReplicationFlow
from headrace.assign import DriverName, DriverState, TaskId
from headrace.placement import PlacementDecision, Placer, task_id
from headrace.standalone.fleet import DriverProcess, Fleet
from headrace.standalone.task_store import TaskStore

_GATHERING_S = 5.0
"""Wait at most so long for drivers that were started together: the first would get everything, or
what it is given would move on to the second. Only what has a driver can wait."""
_OBSERVE_INTERVAL_S = 1.0


class Placing:
    """On the herder's event loop; the scheduler is asked on a thread, for a plug-in takes time.

    What changes meanwhile counts the next time: ``ask`` again.
    """

    def __init__(
        self,
        flows: Callable[[], Iterable[ReplicationFlow]],
        store: TaskStore,
        fleet: Fleet,
        written: Callable[[], None],
    ) -> None:
        """``written`` is called when specs say anew where units run."""
        self.problems: Mapping[str, str] = {}
        """By flow: why its units are not placed as they should be."""
        self._flows, self._store, self._fleet, self._written = flows, store, fleet, written
        self._scheduler = Placer()
        self._due = asyncio.Event()
        self._follow_up_s: float | None = None
        self._gather_until_s = 0.0
        self._pins: dict[TaskId, DriverName] = {}
        self._lost: set[str] = set()

    async def run(self) -> None:
        """Keep at it until cancelled."""
        self.gather()
        while True:
            now_s = time.monotonic()
            wait_s = _OBSERVE_INTERVAL_S
            if self._follow_up_s is not None:
                wait_s = max(0.0, min(wait_s, self._follow_up_s - now_s))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._due.wait(), wait_s)
            now_s = time.monotonic()
            if self._due.is_set() or (self._follow_up_s is not None and now_s >= self._follow_up_s):
                self._due.clear()
                await self._place(now_s)
            else:
                self._scheduler.observe(self._store, int(now_s * 1000))

    def close(self) -> None:
        """End what runs for it."""
        self._scheduler.close()

    # What it has to hear of.

    def ask(self) -> None:
        """Units, flows or drivers changed."""
        self._due.set()

    def gather(self) -> None:
        """Drivers are on their way."""
        self._gather_until_s = time.monotonic() + _GATHERING_S
        self.ask()

    def pin(self, id: TaskId, driver: DriverName) -> None:
        """Run a unit on that driver, for as long as it is there."""
        self._pins[id] = driver
        self.ask()

    def joined(self, driver: DriverProcess) -> None:
        """A driver was heard of, perhaps again after it was taken for lost."""
        self._lost.discard(driver.incarnation)
        self.ask()

    def left(self, driver: DriverProcess) -> None:
        """A driver ended, or is taken for lost; another will come in its place."""
        self._lost.add(driver.incarnation)
        self.gather()

    def is_lost(self, incarnation: str) -> bool:
        """Whether a driver is gone, so that it cannot let go of what it holds."""
        return incarnation in self._lost

    # What it does.

    async def _place(self, now_s: float) -> None:
        there = sorted(driver.name for driver in self._fleet.ready())
        gathering = len(there) < self._fleet.size and now_s < self._gather_until_s
        if gathering and not any(task.spec.driver_name for task in self._store):
            self._follow_up_s = self._gather_until_s
            return
        self._pins = {id: driver for id, driver in self._pins.items() if driver in there}
        schedule = await asyncio.to_thread(
            self._scheduler.decide,
            list(self._flows()),
            list(self._store),
            [DriverState(name) for name in there],
            int(now_s * 1000),
            pins=dict(self._pins),
            balance=not gathering,
        )
        self.problems = schedule.problems
        follow_ups = [self._gather_until_s] if gathering else []
        if schedule.follow_up_ms is not None:
            follow_ups.append(schedule.follow_up_ms / 1000)
        self._follow_up_s = min(follow_ups, default=None)
        self._write(schedule)

    def _write(self, schedule: PlacementDecision) -> None:
        there = {driver.name for driver in self._fleet.ready()} | {""}
        for task in self._store:
            to = schedule.placements.get(task_id(task))
            if to is None or to.driver not in there:
                continue  # it has come, or its driver has gone, while this was decided
            holder = task.status.driver_incarnation
            lost = holder if self.is_lost(holder) else ""
            spec = task.spec
            now = (spec.driver_name, spec.standby_driver_names)
            if now != (to.driver, to.standbys) or (lost and lost != spec.lost_incarnation):
                self._store.assign(task.metadata.name, to.driver, to.standbys, lost)
        self._written()
