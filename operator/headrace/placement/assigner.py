"""Decides when units are placed, and around what; the same in both modes."""

from collections.abc import Iterable, Mapping

from headrace.api import ReplicationFlow, ReplicationTask
from headrace.assign import DriverName, TaskId
from headrace.placement.assignment import DriverPool, movable
from headrace.placement.assignor_input import task_id
from headrace.placement.decision import Placement, PlacementDecision
from headrace.placement.placer import NO_DRIVER, Placer
from headrace.placement.startup_grace import StartupGrace

_GRACE_POLL_MS = 500


class Assigner:
    """One for each pool of drivers. Not thread-safe, but for ``close`` and ``await_drivers``."""

    def __init__(self, placer: Placer | None = None) -> None:
        self._placer = placer or Placer()
        self._grace = StartupGrace()

    def await_drivers(self, now_s: float) -> None:
        """Drivers are being started: units wait for them, at most for the startup grace."""
        self._grace.begin(now_s)

    def observe(self, tasks: Iterable[ReplicationTask], now_s: float) -> None:
        """Read the rates that all units report; cheap, and the more often the better."""
        self._placer.observe(tasks, int(now_s * 1000))

    def decide(
        self,
        flows: Iterable[ReplicationFlow],
        tasks: Iterable[ReplicationTask],
        pool: DriverPool,
        now_s: float,
        *,
        pins: Mapping[TaskId, DriverName],
        barred: frozenset[TaskId] = frozenset(),
    ) -> PlacementDecision:
        """Decide for the units of ``flows``; may block for seconds (a plug-in is asked).

        ``barred`` are units that must run nowhere. Units that are no key of the placements stay
        where they are. ``now_s`` is of a monotonic clock.
        """
        flows, tasks = list(flows), list(tasks)
        now_ms = int(now_s * 1000)
        assigned = {task.spec.driver_name for task in tasks} - {""}
        idle = any(driver.name not in assigned for driver in pool.schedulable)
        grace = self._grace.is_running(len(pool.schedulable), pool.expected, idle=idle, now_s=now_s)
        follow_ups = [now_ms + _GRACE_POLL_MS] if grace else []
        if grace and not assigned:
            return PlacementDecision({}, {}, now_ms + _GRACE_POLL_MS)
        nowhere = dict.fromkeys(barred, Placement(""))
        if not pool.schedulable:
            self._placer.observe(tasks, now_ms)
            problems = {flow.metadata.name: NO_DRIVER for flow in flows}
            return PlacementDecision(nowhere, problems, min(follow_ups, default=None))
        decision = self._placer.decide(
            flows,
            [task for task in movable(tasks, pool, pins) if task_id(task) not in barred],
            pool.schedulable,
            now_ms,
            pins=pins,
            balance=not (grace or pool.rolling or pool.cordoned),
        )
        if decision.follow_up_ms is not None:
            follow_ups.append(decision.follow_up_ms)
        return PlacementDecision(
            {**nowhere, **decision.placements}, decision.problems, min(follow_ups, default=None)
        )

    def close(self) -> None:
        """End the processes of plug-ins."""
        self._placer.close()
