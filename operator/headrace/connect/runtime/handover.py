"""When a driver may claim a unit: the hand-over of one unit, on the unit's own object.

The assigner writes ``spec.driverName``; the status names the owner. The assigned driver claims the
unit when it has no owner, when its owner is known to be lost, or when its owner did not release it
in time. All other units of the flow keep running.
"""

from dataclasses import dataclass, field

from headrace.api import ReplicationTask

RELEASE_TIMEOUT_S = 10.0
"""An owner that does not release within this time loses the unit; the epoch of the claim makes it
stop (and, once there is a fence at the broker, keeps it from appending)."""


@dataclass(frozen=True)
class DriverIdentity:
    """A driver process: the name is kept over a restart of a container, the incarnation is not."""

    name: str
    incarnation: str
    rack: str = field(default="", compare=False)
    """Where it runs, such as an availability zone; empty where that is not known."""


def may_claim(task: ReplicationTask, me: DriverIdentity, waited_s: float) -> bool:
    """Whether ``me`` may claim now; ``waited_s`` since it saw that the unit is assigned to it."""
    if task.spec.driver_name != me.name:
        return False
    owner = task.status
    if not owner.driver_name or owner.driver_name == me.name:
        return True  # no owner, or an earlier process of ours (the name is ours alone)
    if owner.driver_incarnation == task.spec.lost_incarnation:
        return True
    return waited_s >= RELEASE_TIMEOUT_S
