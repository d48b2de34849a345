"""Life of a unit: its states, its error, and the release of its ownership."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from datetime import UTC, datetime
from typing import Any

from structlog.typing import FilteringBoundLogger

from headrace.api import ReplicationTaskStatus, TaskError, TaskPhase
from headrace.connect.runtime.ownership import Ownership, OwnershipLost
from headrace.datapath import Lane
from headrace.errors import HeadraceError, Retriable
from headrace.timing import Clock

# The life of a unit: one table, drawn in ``docs/architecture.md``.
#
# Kafka Streams' states (``StreamTask``), plus Connect's Paused and Failed.

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
    """Raise ``ValueError`` for a step that the table does not have."""
    if after not in TRANSITIONS[before]:
        raise ValueError(f"a unit cannot go from {before} to {after}")


_LONGEST_MESSAGE = 4096


class LifeCycle:
    """One instance of a unit. One thread changes it, any may read it."""

    def __init__(
        self,
        ownership: Ownership,
        log: FilteringBoundLogger,
        clock: Clock,
        changed: Callable[[], None],
        restarts: int = 0,
    ) -> None:
        """Create the state; ``changed`` is called when there is something new to report."""
        self.ownership = ownership
        self.phase = TaskPhase.CREATED
        self.error: TaskError | None = None
        """The error that the unit has not recovered from."""
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
        """Go on to a phase; ``ValueError`` when the table of states has no such transition.

        ``facts`` are logged with it.
        """
        check_transition(self.phase, phase)
        self.phase = phase
        self._log.debug("state", phase=str(phase), epoch=self.ownership.epoch, **facts)
        self.changed()

    # Errors.

    def note(self, error: HeadraceError) -> None:
        """Keep an error; the same one again is not reported again."""
        message = str(error)[:_LONGEST_MESSAGE]
        if self.error is None or self.error.message != message:
            self.error = TaskError(
                reason=type(error).__name__, message=message, time=datetime.now(UTC)
            )
            self.changed()

    def retrying(self, error: Retriable) -> None:
        """Keep an error that the unit tries to recover from; logged once."""
        if self.error is None or self.error.message != str(error)[:_LONGEST_MESSAGE]:
            self._log.warning("retrying", why=str(error))
        self.note(error)

    def recovered(self) -> None:
        """There is no error any more; the next report says so."""
        self.error = None

    # Ends. They may come in any phase, so the table of states is not asked.

    def end(self, error: HeadraceError) -> None:
        """Fail, and keep the reason; a unit that another driver owns is closed without one."""
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
    """Release a unit. Never raises: nobody who waits for it could do anything about it.

    A herder that gets no release takes this incarnation for lost, or stops waiting for it.
    """
    try:
        ownership.release()
    except HeadraceError as error:
        log.warning("could not release", task=ownership.name, why=str(error))


DRAIN_TIMEOUT_S = 2.5
"""With storing and release it fits into the 5 s that a graceful stop may take."""
_SETTLING_TIMEOUT_S = DRAIN_TIMEOUT_S + 1.5
"""A lane that is being settled is closed by then."""


class Releasing:
    """One thread calls it."""

    def __init__(
        self, ownership: Ownership, pool: Executor, clock: Clock, log: FilteringBoundLogger
    ) -> None:
        self._ownership, self._pool, self._clock, self._log = ownership, pool, clock, log
        self._drain_until = 0.0
        self._release: Future[None] | None = None

    def suspend(self) -> None:
        """From now on the task has so long for what is in flight."""
        self._drain_until = self._clock.monotonic() + DRAIN_TIMEOUT_S

    @property
    def late(self) -> bool:
        """Whether that time is over."""
        return self._clock.monotonic() > self._drain_until

    @property
    def begun(self) -> bool:
        """Whether the unit is being released: the task cannot come back."""
        return self._release is not None

    def release(self, lane: Lane | None, settling: Lane | None) -> bool:
        """Close the lane's clients, then release the unit; return whether both are done.

        Call it again until they are. The loop must not use the lane afterwards. ``settling`` is a
        lane that another thread is about to close. Until then its client may send records again
        that the target did not acknowledge, after the records of the next owner.
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
        """Free a lane's clients only."""
        self._pool.submit(lane.close)

    def _free_and_release(self, lane: Lane | None, settling: Lane | None) -> None:
        if lane is not None:
            lane.close()
        if settling is not None and not settling.closed.wait(_SETTLING_TIMEOUT_S):
            self._log.warning("released while a lane is not closed: records may come twice")
        release(self._ownership, self._log)
