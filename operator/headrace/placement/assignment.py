"""What the specs of units are to say of a decision, and which of them differ from it. Pure."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from headrace.api import ReplicationTask
from headrace.assign import DriverName, DriverState, TaskId
from headrace.placement.assignor_input import task_id
from headrace.placement.decision import Placement


@dataclass(frozen=True)
class DriverPool:
    """The drivers that units can be assigned to, in either mode."""

    expected: int
    """How many there shall be; some of them may not have started."""
    schedulable: tuple[DriverState, ...]
    """May get units."""
    staying: frozenset[DriverName]
    """Exist and are not about to leave: those without a heartbeat, too."""
    is_lost: Callable[[DriverName, str], bool]
    """Whether an incarnation of a driver is over, so that it cannot release what it holds."""
    cordoned: frozenset[DriverName] = frozenset()
    """Keep the units that they have, and get none."""
    rolling: bool = False
    """Whether drivers are being replaced: nothing moves for balance meanwhile."""

    @cached_property
    def hosts(self) -> frozenset[DriverName]:
        """All that may run units."""
        return frozenset(driver.name for driver in self.schedulable) | self.cordoned


@dataclass(frozen=True)
class Assignment:
    """What the spec of one unit is to say about its driver."""

    task: ReplicationTask
    driver: DriverName
    standbys: tuple[DriverName, ...]
    lost_incarnation: str
    """The incarnation of the holder that is over, so that ``driver`` need not wait for it."""

    @property
    def differs(self) -> bool:
        """Whether the unit's spec says something else."""
        spec = self.task.spec
        return (self.driver, self.standbys, self.lost_incarnation) != (
            spec.driver_name,
            spec.standby_driver_names,
            spec.lost_incarnation,
        )


def pins_in_force(pins: Mapping[TaskId, DriverName], pool: DriverPool) -> dict[TaskId, DriverName]:
    """Pins hold for as long as their driver is there."""
    return {id: driver for id, driver in pins.items() if driver in pool.hosts}


def movable(
    tasks: Iterable[ReplicationTask], pool: DriverPool, pins: Mapping[TaskId, DriverName]
) -> list[ReplicationTask]:
    """Units that the assignor decides on: not those that stay on a cordoned driver.

    A pin moves one from there, but only to a driver that may have it now.
    """
    schedulable = {driver.name for driver in pool.schedulable}
    return [
        task
        for task in tasks
        if task.spec.driver_name not in pool.cordoned or pins.get(task_id(task)) in schedulable
    ]


def assign_unit(task: ReplicationTask, placement: Placement | None, pool: DriverPool) -> Assignment:
    """What ``task`` is to say; without a ``placement`` that holds, it stays where it is."""
    spec, holder = task.spec, task.status
    if placement is None or (placement.driver and placement.driver not in pool.hosts):
        # A driver without a heartbeat may well run, while it is the observer that sees nothing.
        driver = spec.driver_name if spec.driver_name in pool.staying else ""
        placement = Placement(driver, spec.standby_driver_names)
    # A new incarnation of the holder claims again by itself; only another driver has to know.
    lost = ""
    if holder.driver_name not in ("", placement.driver):
        over = pool.is_lost(holder.driver_name, holder.driver_incarnation)
        lost = holder.driver_incarnation if over else ""
    if not lost and placement.driver == spec.driver_name:
        lost = spec.lost_incarnation  # no write only to remove what has no effect
    return Assignment(task, placement.driver, placement.standbys, lost)
