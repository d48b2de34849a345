"""Ownership of one unit: claims, takeover, reports and the release."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from headrace.api import (
    ConditionType,
    ReplicationTask,
    ReplicationTaskStatus,
    with_transition_times,
)
from headrace.connect.runtime.herder import Herder, TaskConflict
from headrace.errors import HeadraceError
from headrace.timing import Clock

# A unit is transferred between drivers by writes to its object. The assigner writes
# ``spec.driverName``, and the status names the owner. The assigned driver claims the unit if it has
# no owner, if its owner is known to be lost, or if its owner did not release it in time. All other
# units of the flow keep running.

RELEASE_TIMEOUT_S = 10.0
"""Time in seconds after which an owner that does not release the unit loses it. The old owner stops
when it sees the higher epoch of the next claim."""


@dataclass(frozen=True)
class DriverIdentity:
    """Driver process. A restarted container keeps the name, but not the incarnation."""

    name: str
    incarnation: str
    rack: str = field(default="", compare=False)
    """Rack of the driver, such as its availability zone; empty if unknown."""


def may_claim(task: ReplicationTask, me: DriverIdentity, waited_s: float) -> bool:
    """Return whether ``me`` may claim the unit now.

    ``waited_s`` is the time since this driver saw that the unit is assigned to it.
    """
    if task.spec.driver_name != me.name:
        return False
    owner = task.status
    if not owner.driver_name or owner.driver_name == me.name:
        return True  # no owner, or an earlier incarnation of this driver
    if owner.driver_incarnation == task.spec.lost_incarnation:
        return True
    return waited_s >= RELEASE_TIMEOUT_S


_Verb = Callable[[ReplicationTask, ReplicationTaskStatus], ReplicationTask | None]


class OwnershipLost(HeadraceError):
    """Another driver owns the unit, or the unit was deleted. Stop, and write nothing more."""


class Ownership:
    """Ownership of a unit. Thread-safe: the unit claims and releases, and its Worker reports.

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
        """Epoch of the current claim; 0 before the first claim."""
        self.released = False
        self.handed_over = False
        """False if this incarnation of the driver owned the unit before the last claim, otherwise
        True."""
        self._herder, self._clock = herder, clock
        self._task = task
        self._reported: ReplicationTaskStatus | None = None
        self._writing = threading.Lock()
        """Held during a write."""
        self._seeing = threading.Lock()
        """Lock that is held while ``_task`` is replaced."""

    @property
    def name(self) -> str:
        return self._task.metadata.name

    @property
    def signature(self) -> str:
        """Name of the owner in progress.

        It contains the driver, which differs between flows with the same name.
        """
        namespace = self._task.metadata.namespace
        unit = f"{namespace}/{self.name}" if namespace else self.name
        return f"{unit} on {self.driver.name}/{self.driver.incarnation}"

    @property
    def task(self) -> ReplicationTask:
        """Last seen version of the object."""
        return self._task

    def update(self, task: ReplicationTask) -> bool:
        """Receive a version of the object; return whether its spec is newer."""
        with self._seeing:
            # The version may be older than our last write.
            changed = _generation(task) > _generation(self._task)
            if changed:
                self._task = task
            return changed

    def check(self, task: ReplicationTask) -> None:
        """Raise ``OwnershipLost`` if this version of the object names a later owner."""
        owner = task.status
        # The version may contain our claim before its response arrives.
        another = DriverIdentity(owner.driver_name, owner.driver_incarnation) != self.driver
        if another and owner.epoch > self.epoch > 0 and not self.released:
            raise OwnershipLost(f"{owner.driver_name or 'no driver'} owns {self.name}")

    def claim(self, above: int) -> None:
        """Become the owner, with an epoch that is higher than all known ones and ``above``.

        Raises:
            OwnershipLost: Another driver claimed the unit first, or this object has released it.
        """
        with self._writing:
            if self.released:
                raise OwnershipLost(f"{self.name} was released")
            epoch = 1 + max(above, self._task.status.epoch, self.epoch)
            self._write(self._herder.claim, self._own(_lasting(self._task.status), epoch))

    def report(self, status: ReplicationTaskStatus) -> None:
        """Report a changed status.

        While another write is in progress, nothing is reported: call it again.

        Raises:
            OwnershipLost: Another driver owns the unit.
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
        """Stop being the owner. The epoch stays in the object."""
        with self._writing:
            held, self.released = self.epoch and not self.released, True
            if held:
                left = _lasting(self._task.status).model_copy(update={"epoch": self.epoch})
                self._write(self._herder.release, left)

    def transfer(self) -> "Ownership":
        """Return the ownership for the next instance of the unit on this driver.

        Nothing is released, so no claim is needed. This object writes nothing more.
        """
        with self._writing:
            following = Ownership(self._task, self.driver, self._herder, self._clock)
            if not self.released:
                following.epoch = self.epoch
            self.released = True
            return following

    def forget(self) -> None:
        """Write nothing more, because another driver owns the unit."""
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

        The times are set at the write, so that a delayed report can be compared with the last one.
        """
        if not status.conditions:
            return status
        now = datetime.fromtimestamp(int(self._clock.time()), UTC)
        generation = status.observed_generation
        conditions = with_transition_times(status.conditions, before.conditions, now, generation)
        return status.model_copy(update={"conditions": conditions})

    def _see(self, task: ReplicationTask) -> None:
        """Record the object after a write or a conflict, unless a later spec is already known."""
        with self._seeing:
            if _generation(task) >= _generation(self._task):
                self._task = task

    def _write(self, verb: _Verb, status: ReplicationTaskStatus) -> bool:
        """Write a status; return False if the herder did not write it now.

        After a conflict, the write is repeated while this driver owns the unit.
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
                    raise OwnershipLost(f"{self.name} no longer exists") from conflict
                owner = (now.status.driver_incarnation, now.status.epoch)
                # The object contains our claim, whose response was lost.
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
                    self.epoch = status.epoch  # only now is the claim valid
                    before = task.status.driver_incarnation
                    self.handed_over = before != self.driver.incarnation
                self._see(written or self._task)
                return written is not None


def _generation(task: ReplicationTask) -> int:
    return task.metadata.generation or 0


def _lasting(status: ReplicationTaskStatus) -> ReplicationTaskStatus:
    """Return the part of a status that remains without an owner.

    Data loss is reported until the next owner copies records. Writes to the source are reported
    until the next watch has read the source's ends. Racks are used for placement until the next
    connector has read them.
    """
    lasting = (ConditionType.DATA_LOSS_DETECTED, ConditionType.SOURCE_STILL_WRITTEN)
    return ReplicationTaskStatus(
        conditions=tuple(one for one in status.conditions if one.type in lasting),
        racks=status.racks,
        source_writes=status.source_writes,
    )
