"""A connector or a task while this driver holds it: claim, restore, run, release."""

import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Self

from headrace.api import ReplicationTask, ReplicationTaskStatus, TaskError, TaskPhase
from headrace.connect.context import FlowContext
from headrace.connect.herder import Conflict, Herder
from headrace.connect.states import check_transition
from headrace.errors import HeadraceError, Retriable
from headrace.kafka import KafkaException, translate
from headrace.logs import get_logger

_FIRST_BACKOFF_S = 0.2
_MAX_BACKOFF_S = 5.0


class Lost(HeadraceError):
    """Another driver holds the unit, or nobody wants it: stop, and write nothing more."""


class Unit(ABC):
    """One thread, one hold. An instance lives once; a restart makes another.

    Subclasses fill in the steps; each may raise ``Retriable`` (tried again with backoff, the error
    is shown meanwhile), ``Lost``, or any other error of ours (the unit fails).
    """

    def __init__(
        self,
        task: ReplicationTask,
        context: FlowContext,
        herder: Herder,
        changed: Callable[[], None],
        restarts: int = 0,
    ) -> None:
        """``changed`` is called when the unit has something to report."""
        self.name = task.metadata.name
        self.context = context
        self.herder = herder
        self.phase = TaskPhase.CREATED
        self.epoch = 0
        self.log = get_logger(__name__).bind(flow=context.name, task=self.name)
        self._changed = changed
        self._restarts = restarts
        self._task = task
        self._last_error: TaskError | None = None
        self._observed: dict[str, Any] = {}
        self._reported: ReplicationTaskStatus | None = None
        self._writing = threading.RLock()  # one status write at a time
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._lost = False
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self.started_at = time.monotonic()

    # What Worker calls.

    def start(self) -> Self:
        """Begin; returns at once."""
        self._thread.start()
        return self

    def update(self, task: ReplicationTask) -> None:
        """Hear what the object says now."""
        with self._writing:
            if task.metadata.generation != self._task.metadata.generation:
                self._task = task
                self._wake.set()

    def stop(self) -> None:
        """Ask it to store its progress, let go and end; a failed unit lets go at once."""
        self._stopping.set()
        self._wake.set()
        if not self.alive and self.phase is TaskPhase.FAILED:
            self._release()

    def join(self, timeout_s: float) -> bool:
        """Wait for its end; whether it came."""
        self._thread.join(timeout_s)
        return not self.alive

    @property
    def alive(self) -> bool:
        """Whether its thread runs."""
        return self._thread.is_alive()

    def report(self) -> None:
        """Write the status when it changed; a unit that finds another holder stops."""
        with self._writing:
            status = self._status()
            if self.epoch == 0 or self._lost or self.phase is TaskPhase.CLOSED:
                return
            if status == self._reported:
                return
            try:
                self._write(self.herder.report, status)
            except Lost as lost:
                self._lost = True
                self.log.info("lost", why=str(lost))
                self.stop()
            except Retriable as error:
                self.log.debug("report not heard", why=str(error))
            else:
                self._reported = status

    # What subclasses fill in.

    def epoch_floor(self) -> int:
        """The highest epoch known outside the unit's own object."""
        return 0

    @abstractmethod
    def restore(self) -> None:
        """Get ready to run; called again after a ``Retriable``."""

    @abstractmethod
    def turn(self) -> float:
        """Do some work; returns the seconds to wait before the next turn."""

    def suspend(self) -> None:  # noqa: B027 - nothing to store is a fine answer
        """Store what is to be kept."""

    def close(self) -> None:  # noqa: B027
        """Free clients; never raises."""

    # What subclasses use.

    @property
    def task(self) -> ReplicationTask:
        """The object, as last seen."""
        return self._task

    @property
    def stopping(self) -> bool:
        """Whether it was asked to stop."""
        return self._stopping.is_set()

    def observe(self, **fields: Any) -> None:
        """Fields of the status that the next report carries."""
        self._observed = {**self._observed, **fields}

    def note(self, error: HeadraceError) -> None:
        """Show an error in the status."""
        reason, message = type(error).__name__, str(error)[:4096]
        if self._last_error and self._last_error.message == message:
            return
        self._last_error = TaskError(reason=reason, message=message, time=datetime.now(UTC))
        self._changed()

    def claim(self, above: int = 0) -> None:
        """Become the holder, with an epoch higher than any known and than ``above``."""
        floor = max(above, self.epoch_floor())
        with self._writing:
            self.epoch = 1 + max(floor, self._task.status.epoch, self.epoch)
            self._write(self.herder.claim, self._status())

    # The life.

    def _run(self) -> None:
        try:
            self._live()
        except Lost as lost:
            self._lost = True
            self.log.info("stopped: not ours any more", why=str(lost))
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
        if self._attempt(self.claim):
            self._enter(TaskPhase.RESTORING)
            if self._attempt(self.restore):
                self._enter(TaskPhase.RUNNING)
                self._turns()
            self._enter(TaskPhase.SUSPENDED)
            self.suspend()
        self._release()

    def _turns(self) -> None:
        while not self.stopping:
            try:
                wait_s = self.turn()
            except Retriable as error:
                self._complain(error)
                self._pause(_FIRST_BACKOFF_S)
                self._attempt(self.restore)
                continue
            self._last_error = None
            if wait_s:
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
        self.note(error)

    def _fail(self, error: HeadraceError) -> None:
        self.log.error("failed", why=str(error))
        self.note(error)
        self.phase = TaskPhase.FAILED

    def _enter(self, phase: TaskPhase) -> None:
        check_transition(self.phase, phase)
        self.phase = phase
        self.log.debug("state", phase=str(phase), epoch=self.epoch)
        self._changed()

    def _release(self) -> None:
        with self._writing:
            if self.epoch and not self._lost:
                self.phase = TaskPhase.CLOSED
                status = ReplicationTaskStatus(epoch=self.epoch)
                try:
                    self._write(self.herder.release, status)
                except (Lost, Retriable) as error:
                    # The herder then takes this incarnation for lost, or its time-out runs out.
                    self.log.warning("could not release", why=str(error))
            self.phase = TaskPhase.CLOSED

    def _status(self) -> ReplicationTaskStatus:
        driver = self.context.driver
        return ReplicationTaskStatus(
            driver_name=driver.name,
            driver_incarnation=driver.incarnation,
            epoch=self.epoch,
            phase=self.phase,
            restarts=self._restarts,
            last_error=self._last_error,
            observed_generation=self._observed.get("observed_generation"),
            **{k: v for k, v in self._observed.items() if k != "observed_generation"},
        )

    def _write(
        self,
        verb: Callable[[ReplicationTask, ReplicationTaskStatus], ReplicationTask],
        status: ReplicationTaskStatus,
    ) -> None:
        """One status write; a conflict is looked at, and repeated while the unit is still ours."""
        seen = self._task.status
        while True:
            try:
                written = verb(self._task, status)
            except Conflict as conflict:
                now = conflict.current
                if now is None:
                    raise Lost(f"{self.name} is gone") from conflict
                if (now.status.driver_incarnation, now.status.epoch) != (
                    seen.driver_incarnation,
                    seen.epoch,
                ):
                    raise Lost(f"{now.status.driver_name} holds {self.name}") from conflict
                self._task = now
                self._wake.set()
            else:
                self._task = written
                return
