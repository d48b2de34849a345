"""A connector, or the heartbeat task: a thread of its own, which may wait for brokers."""

import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Self

from headrace.api import ReplicationTask, ReplicationTaskStatus, TaskError, TaskPhase
from headrace.connect.context import FlowContext
from headrace.connect.herder import Herder
from headrace.connect.ownership import Ownership, OwnershipLost
from headrace.connect.states import check_transition
from headrace.errors import HeadraceError, Retriable
from headrace.kafka import KafkaException, translate
from headrace.logs import get_logger

_FIRST_BACKOFF_S, _MAX_BACKOFF_S = 0.2, 5.0


class ThreadedUnit(ABC):
    """An instance lives once: claim, restore, turn after turn, release; a restart makes another.

    Subclasses fill in the steps; each may raise ``Retriable`` (tried again with backoff, the error
    is shown meanwhile), ``OwnershipLost``, or any other error of ours (the unit fails).
    """

    def __init__(
        self,
        ownership: Ownership,
        context: FlowContext,
        herder: Herder,
        changed: Callable[[], None],
        restarts: int = 0,
    ) -> None:
        """``changed`` is called when the unit has something to report."""
        self.ownership = ownership
        self.name = ownership.name
        self.context = context
        self.herder = herder
        self.phase = TaskPhase.CREATED
        self.restarts = restarts
        self.started_at = time.monotonic()
        self.log = get_logger(__name__).bind(flow=context.name, task=self.name)
        self._changed = changed
        self._last_error: TaskError | None = None
        self._observed: dict[str, Any] = {}
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)

    # What Worker calls.

    def start(self) -> Self:
        """Begin; returns at once."""
        self._thread.start()
        return self

    def update(self, task: ReplicationTask) -> None:
        """Hear what the object says now."""
        if self.ownership.update(task):
            self._wake.set()

    def stop(self) -> None:
        """Ask it to end and let go; a failed unit lets go at once."""
        self._stopping.set()
        self._wake.set()
        if self.phase is TaskPhase.FAILED and not self.alive:
            self._release()

    def join(self, timeout_s: float) -> bool:
        """Wait for its end; whether it came."""
        self._thread.join(timeout_s)
        return not self.alive

    @property
    def alive(self) -> bool:
        """Whether its thread runs."""
        return self._thread.is_alive()

    @property
    def status(self) -> ReplicationTaskStatus:
        """What there is to report."""
        return ReplicationTaskStatus(
            phase=self.phase,
            restarts=self.restarts,
            last_error=self._last_error,
            **self._observed,
        )

    # What subclasses fill in.

    @abstractmethod
    def restore(self) -> None:
        """Get ready to run; called again after a ``Retriable``."""

    @abstractmethod
    def run_once(self) -> float:
        """Do some work; returns the seconds to wait before the next turn."""

    def close(self) -> None:  # noqa: B027 - nothing to free is a fine answer
        """Free clients; never raises."""

    # What subclasses use.

    @property
    def stopping(self) -> bool:
        """Whether it was asked to stop."""
        return self._stopping.is_set()

    def observe(self, **fields: Any) -> None:
        """Fields of the status that the next report carries."""
        self._observed = {**self._observed, **fields}
        self._changed()

    # The life.

    def _run(self) -> None:
        try:
            self._live()
        except OwnershipLost as lost:
            self.log.info("stopped: not ours any more", why=str(lost))
            self.ownership.forget()
            self.phase = TaskPhase.CLOSED
        except HeadraceError as error:
            self._fail(error)
        except KafkaException as error:
            self._fail(translate(error, f"run {self.name}"))
        except Exception as error:
            # A fault of ours must not take the other units along; it is shown like any failure.
            self.log.exception("internal error")
            self._fail(HeadraceError(f"internal error, please report it: {error!r}"))
        finally:
            self.close()
            self._changed()

    def _live(self) -> None:
        if self.ownership.epoch or self._attempt(lambda: self.ownership.claim(above=0)):
            self._enter(TaskPhase.RESTORING)
            if self._attempt(self.restore):
                self._enter(TaskPhase.RUNNING)
                self._turns()
            self._enter(TaskPhase.SUSPENDED)
        self._release()

    def _turns(self) -> None:
        while not self.stopping:
            try:
                wait_s = self.run_once()
            except Retriable as error:
                self._complain(error)
                self._pause(_FIRST_BACKOFF_S)
                self._attempt(self.restore)
                continue
            self._last_error = None
            self._wake.wait(wait_s)
            self._wake.clear()

    def _attempt(self, step: Callable[[], None]) -> bool:
        """Repeat a step until it works (true) or the unit is to stop (false)."""
        backoff_s = _FIRST_BACKOFF_S
        while not self.stopping:
            try:
                step()
            except Retriable as error:
                self._complain(error)
                self._pause(backoff_s)
                backoff_s = min(2 * backoff_s, _MAX_BACKOFF_S)
            else:
                return True
        return False

    def _pause(self, seconds: float) -> None:
        # Jitter: units that failed together must not come back together.
        self._stopping.wait(seconds * random.uniform(0.5, 1.0))

    def _complain(self, error: Retriable) -> None:
        if not self._last_error or self._last_error.message != str(error):
            self.log.warning("retrying", why=str(error))
        self._note(error)

    def _fail(self, error: HeadraceError) -> None:
        self.log.error("failed", why=str(error))
        self._note(error)
        self.phase = TaskPhase.FAILED

    def _note(self, error: HeadraceError) -> None:
        self._last_error = TaskError(
            reason=type(error).__name__, message=str(error)[:4096], time=datetime.now(UTC)
        )
        self._changed()

    def _enter(self, phase: TaskPhase) -> None:
        check_transition(self.phase, phase)
        self.phase = phase
        self.log.debug("state", phase=str(phase), epoch=self.ownership.epoch)
        self._changed()

    def _release(self) -> None:
        self.phase = TaskPhase.CLOSED
        try:
            self.ownership.release()
        except HeadraceError as error:
            # The herder then takes this incarnation for lost, or its time-out runs out.
            self.log.warning("could not release", why=str(error))
