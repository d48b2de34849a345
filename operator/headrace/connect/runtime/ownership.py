"""Ownership of one unit: claims, hand-over, reports and the release."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from headrace.api import (
    ConditionType,
    ReplicationTask,
    ReplicationTaskStatus,
    condition,
    dated,
)
from headrace.connect.runtime.herder import Herder, TaskConflict
from headrace.errors import HeadraceError
from headrace.timing import Clock

# When a driver may claim a unit: the hand-over of one unit, on the unit's own object.
#
# The assigner writes ``spec.driverName``; the status names the owner. The assigned driver claims
# the unit when it has no owner, when its owner is known to be lost, or when its owner did not
# release it in time. All other units of the flow keep running.

RELEASE_TIMEOUT_S = 10.0
"""An owner that does not release within this time loses the unit; the epoch of the claim makes it
stop (and, once there is a fence at the broker, keeps it from appending)."""


@dataclass(frozen=True)
class DriverIdentity:
    """A driver process. A restarted container keeps the name but not the incarnation."""

    name: str
    incarnation: str
    rack: str = field(default="", compare=False)
    """Rack of the driver, such as its availability zone. Empty if unknown."""


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


_Verb = Callable[[ReplicationTask, ReplicationTaskStatus], ReplicationTask | None]


class OwnershipLost(HeadraceError):
    """Another driver owns the unit, or it was deleted: stop, and write nothing more."""


class Ownership:
    """Ownership of a unit. Thread-safe: the unit claims and releases, its Worker reports.

    One write is in progress at a time, and takes seconds if the herder is unreachable. ``update``,
    ``check``, ``report`` and ``forget`` do not wait for it.
    """

    def __init__(
        self,
        task: ReplicationTask,
        driver: DriverIdentity,
        herder: Herder,
        clock: Clock = time,
    ) -> None:
        self.driver = driver
        self.epoch = 0
        """Epoch of the current claim, 0 before the first one."""
        self.released = False
        self.handed_over = False
        """Whether the last claim took the unit over from another driver, or from none."""
        self._herder, self._clock = herder, clock
        self._task = task
        self._reported: ReplicationTaskStatus | None = None
        self._writing = threading.Lock()
        """Held as long as a write takes."""
        self._seeing = threading.Lock()
        """Held while a version of the object takes the place of another."""

    @property
    def name(self) -> str:
        """Name of the unit."""
        return self._task.metadata.name

    @property
    def signature(self) -> str:
        """The owner that progress names; of two flows of one name, the driver tells them apart."""
        namespace = self._task.metadata.namespace
        unit = f"{namespace}/{self.name}" if namespace else self.name
        return f"{unit} on {self.driver.name}/{self.driver.incarnation}"

    @property
    def task(self) -> ReplicationTask:
        """The object, as last seen."""
        return self._task

    def update(self, task: ReplicationTask) -> bool:
        """Receive a newer version of the object; whether its spec changed."""
        with self._seeing:
            # A version older than our own last write may arrive after it.
            changed = _generation(task) > _generation(self._task)
            if changed:
                self._task = task
            return changed

    def check(self, task: ReplicationTask) -> None:
        """``OwnershipLost`` when this version of the object names a later owner."""
        owner = task.status
        # A claim of ours may be seen before its answer arrives.
        another = DriverIdentity(owner.driver_name, owner.driver_incarnation) != self.driver
        if another and owner.epoch > self.epoch > 0 and not self.released:
            raise OwnershipLost(f"{owner.driver_name or 'no driver'} owns {self.name}")

    def claim(self, above: int) -> None:
        """Become the owner, with an epoch higher than any known and than ``above``.

        Raises ``OwnershipLost`` when another driver claimed it first, or when it was released:
        nobody would release it again.
        """
        with self._writing:
            if self.released:
                raise OwnershipLost(f"{self.name} was released")
            epoch = 1 + max(above, self._task.status.epoch, self.epoch)
            self._write(self._herder.claim, self._own(_lasting(self._task.status), epoch))

    def report(self, status: ReplicationTaskStatus) -> None:
        """Report a status that changed; ``OwnershipLost`` when another driver owns the unit.

        While another write is under way nothing is reported: call it again.
        """
        if not self._writing.acquire(blocking=False):
            return
        try:
            status = self._own(status, self.epoch)
            changed = self.epoch and not self.released and status != self._reported
            if changed and self._write(self._herder.report, status):
                self._reported = status
        finally:
            self._writing.release()

    def release(self) -> None:
        """Stop being the owner; the epoch stays in the object."""
        with self._writing:
            held, self.released = self.epoch and not self.released, True
            if held:
                left = _lasting(self._task.status).model_copy(update={"epoch": self.epoch})
                self._write(self._herder.release, left)

    def transfer(self) -> "Ownership":
        """Transfer the ownership to the next instance of the unit on this driver.

        Nothing is released, so no claim is needed. This instance writes nothing more.
        """
        with self._writing:
            following = Ownership(self._task, self.driver, self._herder, self._clock)
            if not self.released:
                following.epoch = self.epoch
            self.released = True
            return following

    def forget(self) -> None:
        """Write nothing more: another driver owns the unit."""
        self.released = True

    def _own(self, status: ReplicationTaskStatus, epoch: int) -> ReplicationTaskStatus:
        return status.model_copy(
            update={
                "driver_name": self.driver.name,
                "driver_incarnation": self.driver.incarnation,
                "epoch": epoch,
            }
        )

    def _dated(
        self, status: ReplicationTaskStatus, before: ReplicationTaskStatus
    ) -> ReplicationTaskStatus:
        """Return the status with the times of its conditions.

        They are set at the write, so that a report that is put off stays equal to itself.
        """
        if not status.conditions:
            return status
        now = datetime.fromtimestamp(int(self._clock.time()), UTC)
        generation = status.observed_generation
        conditions = dated(status.conditions, before.conditions, now, generation)
        return status.model_copy(update={"conditions": conditions})

    def _see(self, task: ReplicationTask) -> None:
        """Record a task after a write or a conflict; a later spec may already be known."""
        with self._seeing:
            if _generation(task) >= _generation(self._task):
                self._task = task

    def _write(self, verb: _Verb, status: ReplicationTaskStatus) -> bool:
        """Write a status; return False if the write is put off.

        After a conflict it is repeated while the unit is still ours.
        """
        seen = self._task.status
        claiming = verb == self._herder.claim
        while True:
            task = self._task
            try:
                written = verb(task, self._dated(status, task.status))
            except TaskConflict as conflict:
                now = conflict.current
                if now is None:
                    raise OwnershipLost(f"{self.name} is gone") from conflict
                owner = (now.status.driver_incarnation, now.status.epoch)
                # This was a claim of ours whose response was lost.
                ours = now.status.driver_incarnation == self.driver.incarnation
                granted = ours and now.status.epoch > status.epoch
                if (
                    not (ours and claiming)
                    and not granted
                    and owner != (seen.driver_incarnation, seen.epoch)
                ):
                    raise OwnershipLost(f"{now.status.driver_name} owns {self.name}") from conflict
                self._see(now)
                if claiming:
                    epoch = max(status.epoch, now.status.epoch + 1)
                    status = self._own(_lasting(now.status), epoch)
                elif granted:
                    self.epoch = now.status.epoch
                    status = status.model_copy(update={"epoch": self.epoch})
            else:
                if claiming:
                    self.epoch = status.epoch  # not before: nothing may rest on it
                    before = task.status.driver_incarnation
                    self.handed_over = before != self.driver.incarnation
                self._see(written or self._task)
                return written is not None


def _generation(task: ReplicationTask) -> int:
    return task.metadata.generation or 0


def _lasting(status: ReplicationTaskStatus) -> ReplicationTaskStatus:
    """Return the part of a status that outlives its owner.

    Data loss is reported until the next owner copies records, and racks count for placement until
    the next connector has read them.
    """
    lost = condition(status.conditions, ConditionType.DATA_LOSS_DETECTED)
    return ReplicationTaskStatus(conditions=(lost,) if lost else (), racks=status.racks)
