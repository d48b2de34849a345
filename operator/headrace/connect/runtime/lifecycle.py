"""State that all units have: phase, error, and the release of their ownership."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from structlog.typing import FilteringBoundLogger

from headrace.api import ReplicationTaskStatus, TaskError, TaskPhase
from headrace.connect.runtime.ownership import Ownership, OwnershipLost
from headrace.connect.runtime.states import check_transition
from headrace.errors import HeadraceError, Retriable
from headrace.timing import Clock

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
