"""This driver's ownership of one unit: claims, reports and the release, written to its object."""

import threading
from collections.abc import Callable

from headrace.api import ConditionType, ReplicationTask, ReplicationTaskStatus, condition
from headrace.connect.handover import DriverIdentity
from headrace.connect.herder import Herder, TaskConflict
from headrace.errors import HeadraceError

_Verb = Callable[[ReplicationTask, ReplicationTaskStatus], ReplicationTask | None]


class OwnershipLost(HeadraceError):
    """Another driver owns the unit, or it was deleted: stop, and write nothing more."""


class Ownership:
    """Thread-safe: the unit claims and releases, its Worker reports."""

    def __init__(self, task: ReplicationTask, driver: DriverIdentity, herder: Herder) -> None:
        self.driver = driver
        self.epoch = 0
        """0 before the first claim."""
        self.released = False
        self._herder = herder
        self._task = task
        self._reported: ReplicationTaskStatus | None = None
        self._writing = threading.RLock()

    @property
    def name(self) -> str:
        """Of the unit."""
        return self._task.metadata.name

    @property
    def task(self) -> ReplicationTask:
        """The object, as last seen."""
        return self._task

    def update(self, task: ReplicationTask) -> bool:
        """Receive a newer version of the object; whether its spec changed."""
        with self._writing:
            # A version older than our own last write may arrive after it.
            changed = (task.metadata.generation or 0) > (self._task.metadata.generation or 0)
            if changed:
                self._task = task
            return changed

    def check(self, task: ReplicationTask) -> None:
        """``OwnershipLost`` when this version of the object names a later owner."""
        with self._writing:
            owner = task.status
            if owner.epoch > self.epoch > 0 and not self.released:
                raise OwnershipLost(f"{owner.driver_name or 'no driver'} owns {self.name}")

    def claim(self, above: int) -> None:
        """Become the owner, with an epoch higher than any known and than ``above``.

        Raises ``OwnershipLost`` when another driver claimed it first.
        """
        with self._writing:
            before = self.epoch
            self.epoch = 1 + max(above, self._task.status.epoch, self.epoch)
            try:
                self._write(self._herder.claim, self._own(_lasting(self._task.status)))
            except HeadraceError:
                self.epoch = before  # not claimed: nothing may rest on it
                raise

    def report(self, status: ReplicationTaskStatus) -> None:
        """Report a status that changed; ``OwnershipLost`` when another driver owns the unit."""
        with self._writing:
            status = self._own(status)
            changed = self.epoch and not self.released and status != self._reported
            if changed and self._write(self._herder.report, status):
                self._reported = status

    def release(self) -> None:
        """Stop being the owner; the epoch stays in the object."""
        with self._writing:
            if self.epoch and not self.released:
                self.released = True
                left = _lasting(self._task.status).model_copy(update={"epoch": self.epoch})
                self._write(self._herder.release, left)

    def transfer(self) -> "Ownership":
        """The same ownership, for the next instance of the unit on this driver.

        Nothing is released, so no claim is needed. This instance writes nothing more.
        """
        with self._writing:
            following = Ownership(self._task, self.driver, self._herder)
            if not self.released:
                following.epoch = self.epoch
            self.released = True
            return following

    def forget(self) -> None:
        """Write nothing more: another driver owns the unit."""
        with self._writing:
            self.released = True

    def _own(self, status: ReplicationTaskStatus) -> ReplicationTaskStatus:
        return status.model_copy(
            update={
                "driver_name": self.driver.name,
                "driver_incarnation": self.driver.incarnation,
                "epoch": self.epoch,
            }
        )

    def _write(self, verb: _Verb, status: ReplicationTaskStatus) -> bool:
        """One status write, unless it is put off (false); after a conflict it is repeated while the
        unit is still ours."""
        seen = self._task.status
        while True:
            try:
                written = verb(self._task, status)
            except TaskConflict as conflict:
                now = conflict.current
                if now is None:
                    raise OwnershipLost(f"{self.name} is gone") from conflict
                owner = (now.status.driver_incarnation, now.status.epoch)
                # By a claim of ours whose answer was lost.
                ours = now.status.driver_incarnation == self.driver.incarnation
                claiming = verb == self._herder.claim
                if not (ours and claiming) and owner != (seen.driver_incarnation, seen.epoch):
                    raise OwnershipLost(f"{now.status.driver_name} owns {self.name}") from conflict
                self._task = now
                if claiming:
                    self.epoch = max(self.epoch, now.status.epoch + 1)
                    status = self._own(_lasting(now.status))
            else:
                self._task = written or self._task
                return written is not None


def _lasting(status: ReplicationTaskStatus) -> ReplicationTaskStatus:
    """What outlives its owner: data loss is reported until the next owner copies records."""
    lost = condition(status.conditions, ConditionType.DATA_LOSS_DETECTED)
    return ReplicationTaskStatus(conditions=(lost,) if lost else ())
