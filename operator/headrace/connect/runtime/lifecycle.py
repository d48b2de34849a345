"""Life cycle of a unit: its phases, its error, and the release of its ownership."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from datetime import UTC, datetime
from typing import Any

from structlog.typing import FilteringBoundLogger

from headrace.api import MAX_MESSAGE_LENGTH, ReplicationTaskStatus, TaskError, TaskPhase
from headrace.connect.runtime.ownership import Ownership, OwnershipLost
from headrace.datapath import Lane
from headrace.errors import HeadraceError, Retriable
from headrace.timing import Clock

# Phases of a unit, with their legal transitions. ``docs/architecture.md`` shows them as a picture.
# They are the states of Kafka Streams' ``StreamTask``, with Connect's Paused and Failed.

TRANSITIONS: dict[TaskPhase, frozenset[TaskPhase]] = {
    TaskPhase.CREATED: frozenset({TaskPhase.RESTORING, TaskPhase.CLOSED, TaskPhase.FAILED}),
    TaskPhase.RESTORING: frozenset({TaskPhase.RUNNING, TaskPhase.SUSPENDED, TaskPhase.FAILED}),
    TaskPhase.RUNNING: frozenset({TaskPhase.PAUSED, TaskPhase.SUSPENDED, TaskPhase.FAILED}),
    TaskPhase.PAUSED: frozenset({TaskPhase.RUNNING, TaskPhase.SUSPENDED, TaskPhase.FAILED}),
    TaskPhase.SUSPENDED: frozenset(
        {
            TaskPhase.RESTORING,
            TaskPhase.RUNNING,
            TaskPhase.PAUSED,
            TaskPhase.CLOSED,
            TaskPhase.FAILED,
        }
    ),
    TaskPhase.FAILED: frozenset({TaskPhase.CLOSED}),
    TaskPhase.CLOSED: frozenset(),
}


def check_transition(before: TaskPhase, after: TaskPhase) -> None:
    """Raise ``ValueError`` if ``TRANSITIONS`` does not contain this transition."""
    if after not in TRANSITIONS[before]:
        raise ValueError(f"a unit cannot go from {before} to {after}")


class LifeCycle:
    """Phase, error and status of one instance of a unit.

    One thread changes it. Any thread may read it.
    """

    def __init__(
        self,
        ownership: Ownership,
        log: FilteringBoundLogger,
        clock: Clock,
        changed: Callable[[], None],
        restarts: int = 0,
    ) -> None:
        """Create the life cycle in phase Created.

        ``changed`` is called when there is something new to report.
        """
        self.ownership = ownership
        self.phase = TaskPhase.CREATED
        self.error: TaskError | None = None
        """Error from which the unit has not recovered, or None."""
        self.restarts = restarts
        self.started_at = clock.monotonic()
        self.changed = changed
        self._log = log
        self._observed = ReplicationTaskStatus()

    @property
    def status(self) -> ReplicationTaskStatus:
        """Status of the next report."""
        return self._observed.model_copy(
            update={"phase": self.phase, "restarts": self.restarts, "last_error": self.error}
        )

    def observe(self, **fields: Any) -> None:
        """Set fields of the status."""
        self._observed = self._observed.model_copy(update=fields)

    def enter(self, phase: TaskPhase, **facts: str) -> None:
        """Enter a phase. ``facts`` are logged.

        Raises:
            ValueError: ``TRANSITIONS`` does not contain this transition.
        """
        check_transition(self.phase, phase)
        self.phase = phase
        self._log.debug("state", phase=str(phase), epoch=self.ownership.epoch, **facts)
        self.changed()

    # Errors

    def note(self, error: HeadraceError) -> None:
        """Keep an error. An error with the same message is not reported again."""
        message = str(error)[:MAX_MESSAGE_LENGTH]
        if self.error is None or self.error.message != message:
            self.error = TaskError(
                reason=type(error).__name__, message=message, time=datetime.now(UTC)
            )
            self.changed()

    def retrying(self, error: Retriable) -> None:
        """Keep an error that the unit retries, and log it once."""
        if self.error is None or self.error.message != str(error)[:MAX_MESSAGE_LENGTH]:
            self._log.warning("retrying", why=str(error))
        self.note(error)

    def recovered(self) -> None:
        """Clear the error. The next report contains none."""
        self.error = None

    # A unit may end in any phase, so ``TRANSITIONS`` is not checked.

    def end(self, error: HeadraceError) -> None:
        """Enter phase Failed and keep the error.

        After ``OwnershipLost``, the phase is Closed and no error is kept.
        """
        if isinstance(error, OwnershipLost):
            self._log.info("stopped: not ours any more", why=str(error))
            self.ownership.forget()
            self.phase = TaskPhase.CLOSED
        else:
            self._log.error("failed", why=str(error))
            self.note(error)
            self.phase = TaskPhase.FAILED
        self.changed()


def release(ownership: Ownership, log: FilteringBoundLogger) -> None:
    """Release a unit. Log errors instead of raising them, because no caller could handle them.

    If the release fails, the herder declares this incarnation lost or stops waiting for it.
    """
    try:
        ownership.release()
    except HeadraceError as error:
        log.warning("could not release", task=ownership.name, why=str(error))


DRAIN_TIMEOUT_S = 2.5
"""Time in seconds for records in flight when a unit is suspended. With storing and releasing, it
fits into the 5 s of a graceful stop."""
_SETTLING_TIMEOUT_S = DRAIN_TIMEOUT_S + 1.5
"""Maximum wait, in seconds, until another thread has settled and closed its lane."""


class Releasing:
    """Release of a unit after it was suspended. Not thread-safe."""

    def __init__(
        self, ownership: Ownership, pool: Executor, clock: Clock, log: FilteringBoundLogger
    ) -> None:
        self._ownership, self._pool, self._clock, self._log = ownership, pool, clock, log
        self._drain_until = 0.0
        self._release: Future[None] | None = None

    def suspend(self) -> None:
        """Start the time for records in flight, ``DRAIN_TIMEOUT_S``."""
        self._drain_until = self._clock.monotonic() + DRAIN_TIMEOUT_S

    @property
    def late(self) -> bool:
        """Whether the time for records in flight has passed."""
        return self._clock.monotonic() > self._drain_until

    @property
    def begun(self) -> bool:
        """Whether the release has begun, so that the task cannot be resumed."""
        return self._release is not None

    def release(self, lane: Lane | None, settling: Lane | None) -> bool:
        """Close the lane, then release the unit; return whether both are done.

        Call it again until they are done. The caller must not use the lane afterwards. ``settling``
        is a lane that another thread is about to close. It is awaited, because its client may send
        unacknowledged records again, after the records of the next owner.
        """
        if self._release is None:
            if lane is not None and lane.in_flight and lane.transactions is None:
                self._log.warning(
                    "released without an answer of the target: these records may come twice",
                    records=lane.in_flight,
                )
            self._release = self._pool.submit(self._free_and_release, lane, settling)
        return self._release.done()

    def free(self, lane: Lane) -> None:
        """Close a lane in the pool, without a release."""
        self._pool.submit(lane.close)

    def _free_and_release(self, lane: Lane | None, settling: Lane | None) -> None:
        if lane is not None:
            lane.close()
        if settling is not None and not settling.closed.wait(_SETTLING_TIMEOUT_S):
            self._log.warning("released while a lane is not closed: records may come twice")
        release(self._ownership, self._log)
