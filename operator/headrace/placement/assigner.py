"""Decides when units are assigned, and the fields of their specs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from headrace.api import FlowState, ReplicationFlow, ReplicationTask, TaskType, watches_source
from headrace.assign import DriverName, DriverState, TaskId
from headrace.placement.assignor_input import task_id
from headrace.placement.placer import NO_DRIVER, Placement, PlacementDecision, Placer


@dataclass(frozen=True)
class DriverPool:
    """Drivers to which units can be assigned."""

    expected: int
    """Desired number of drivers. Some may not have started."""
    schedulable: tuple[DriverState, ...]
    """Drivers that may get units."""
    staying: frozenset[DriverName]
    """Drivers that exist and are not about to leave, including drivers without a heartbeat."""
    is_lost: Callable[[DriverName, str], bool]
    """Returns True if an incarnation of a driver is lost, so that it cannot release its units."""
    cordoned: frozenset[DriverName] = frozenset()
    """Drivers that keep their units and get no more units."""
    rolling: bool = False
    """True while drivers are being replaced. No unit is moved for balance during that time."""

    @cached_property
    def hosts(self) -> frozenset[DriverName]:
        """All drivers that may run units."""
        return frozenset(driver.name for driver in self.schedulable) | self.cordoned


@dataclass(frozen=True)
class Assignment:
    """New driver and standbys of one unit."""

    task: ReplicationTask
    driver: DriverName
    standbys: tuple[DriverName, ...]
    lost_incarnation: str
    """Incarnation of a lost driver that still holds the unit, or empty if no lost driver holds it.

    The new driver need not wait for a lost driver to release the unit.
    """

    @property
    def differs(self) -> bool:
        """True if the unit's spec must be changed."""
        spec = self.task.spec
        return (self.driver, self.standbys, self.lost_incarnation) != (
            spec.driver_name,
            spec.standby_driver_names,
            spec.lost_incarnation,
        )


def pins_in_force(pins: Mapping[TaskId, DriverName], pool: DriverPool) -> dict[TaskId, DriverName]:
    """Return the pins (units that a user moved to a driver) whose driver may run units."""
    return {id: driver for id, driver in pins.items() if driver in pool.hosts}


def movable(
    tasks: Iterable[ReplicationTask], pool: DriverPool, pins: Mapping[TaskId, DriverName]
) -> list[ReplicationTask]:
    """Return the units that the assignor may move.

    Units on a cordoned driver stay there, unless they are pinned to a schedulable driver.
    """
    schedulable = {driver.name for driver in pool.schedulable}
    return [
        task
        for task in tasks
        if task.spec.driver_name not in pool.cordoned or pins.get(task_id(task)) in schedulable
    ]


def assign_unit(task: ReplicationTask, placement: Placement | None, pool: DriverPool) -> Assignment:
    """Return the assignment of ``task``.

    If ``placement`` is None or names no driver of the pool, the unit stays on its driver, or gets
    none if that driver is leaving.
    """
    spec, holder = task.spec, task.status
    if placement is None or (placement.driver and placement.driver not in pool.hosts):
        # A driver may still run although this process receives no heartbeats from it.
        driver = spec.driver_name if spec.driver_name in pool.staying else ""
        placement = Placement(driver, spec.standby_driver_names)
    # A new incarnation of the holder claims the unit again by itself. Only another driver needs to
    # know that the holder is lost.
    lost = ""
    if holder.driver_name not in ("", placement.driver):
        over = pool.is_lost(holder.driver_name, holder.driver_incarnation)
        lost = holder.driver_incarnation if over else ""
    if not lost and placement.driver == spec.driver_name:
        lost = spec.lost_incarnation  # it has no effect, and its removal is not worth a write
    return Assignment(task, placement.driver, placement.standbys, lost)


def stopped_units(flow: ReplicationFlow, tasks: Sequence[ReplicationTask]) -> frozenset[TaskId]:
    """Return the units that must not run because of ``spec.state`` and ``spec.sourceWatch``.

    ``tasks`` are all units of the flow.
    """
    watching, stopped = watches_source(flow, tasks), flow.spec.state is FlowState.STOPPED
    return frozenset(
        task_id(task)
        for task in tasks
        if (not watching if task.spec.type is TaskType.SOURCE_WATCH else stopped)
    )


_GRACE_S = 5.0
"""Maximum time in seconds that units wait at a start until all drivers are ready."""


class StartupGrace:
    """Time for which units wait until all drivers have started, on a monotonic clock.

    It begins with ``begin``, or when a driver without units is ready and others are still missing.
    It ends when all drivers are ready, or after ``_GRACE_S``. After ``_GRACE_S`` has elapsed, it
    restarts by itself only if all drivers, or none, have been ready since.
    """

    def __init__(self) -> None:
        self.until_s: float | None = None

    def begin(self, now_s: float) -> None:
        """Restart the grace period."""
        self.until_s = now_s + _GRACE_S

    def is_running(self, ready: int, expected: int, *, idle: bool, now_s: float) -> bool:
        """Return True if the grace period is running: units must wait until more drivers are ready.

        ``idle`` is True if one of the ready drivers has no unit.
        """
        over = self.until_s is not None and now_s >= self.until_s
        if ready >= expected or (over and not ready):
            self.until_s = None
        elif self.until_s is None and ready and idle:
            self.begin(now_s)
        return self.until_s is not None and now_s < self.until_s


_GRACE_POLL_MS = 500


class Assigner:
    """Assigns units to one pool of drivers.

    Only ``close`` and ``await_drivers`` are thread-safe.
    """

    def __init__(self, placer: Placer | None = None) -> None:
        self._placer = placer or Placer()
        self._grace = StartupGrace()

    def await_drivers(self, now_s: float) -> None:
        """Start the grace period, because drivers are being started."""
        self._grace.begin(now_s)

    def observe(self, tasks: Iterable[ReplicationTask], now_s: float) -> None:
        """Read the rates that all units report. Call it often."""
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
        """Assign the units of ``flows``. May block for seconds while a plug-in responds.

        Units in ``barred`` must not run. A unit that is not in the result's ``placements`` stays on
        its driver. ``now_s`` is on a monotonic clock.
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
