"""When a driver may take a unit: the hand-over of one unit, on the unit's own object.

The assigner writes ``spec.driverName``; the holder stands in the status. A driver that is assigned
claims when nobody holds the unit, when the holder is known to be lost, or when the holder did not
let go in time. Everything else of the flow runs on.
"""

from dataclasses import dataclass

from headrace.api import ReplicationTask

RELEASE_TIMEOUT_S = 10.0
"""A holder that cannot store its progress within this time is passed over; the epoch of the claim
makes it stop (and, once there is a fence at the broker, keeps it from appending)."""


@dataclass(frozen=True)
class DriverIdentity:
    """A driver process: the name is kept over a restart of a container, the incarnation is not."""

    name: str
    incarnation: str


def may_claim(task: ReplicationTask, me: DriverIdentity, waited_s: float) -> bool:
    """Whether ``me`` may claim now; ``waited_s`` since it saw that the unit is assigned to it."""
    if task.spec.driver_name != me.name:
        return False
    holder = task.status
    if not holder.driver_name or holder.driver_name == me.name:
        return True  # nobody's, or of an earlier life of ours (the name is ours alone)
    if holder.driver_incarnation == task.spec.lost_incarnation:
        return True
    return waited_s >= RELEASE_TIMEOUT_S
