"""Base of connectors, checkpoint tasks and heartbeat tasks: units with their own thread."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Self

from headrace.api import (
    Condition,
    ConditionStatus,
    ConditionType,
    Reason,
    ReplicationFlow,
    ReplicationTask,
    ReplicationTaskStatus,
    TaskPhase,
)
from headrace.connect.runtime.context import FlowContext
from headrace.connect.runtime.herder import Herder
from headrace.connect.runtime.lifecycle import LifeCycle, release
from headrace.connect.runtime.ownership import Ownership
from headrace.connect.runtime.retries import restart_delay_s
from headrace.errors import HeadraceError, Retriable, from_exception
from headrace.kafka import KafkaException, translate
from headrace.logs import get_logger
from headrace.timing import Backoff

_FIRST_BACKOFF_S, _LAST_BACKOFF_S = 0.2, 5.0
_REMEDY_S = 2.0
"""Interval in seconds at which a failed unit checks whether the cause still exists. Each check is
one request to the herder."""


class ThreadedUnit(ABC):
    """Instance of a unit in its own thread: claim, restore, run until stopped, release.

    A restart creates a new instance.

    Subclasses implement the steps, which may wait for brokers. After ``Retriable``, a step is
    repeated with back-off, and the error is reported. After ``OwnershipLost``, the unit is closed.
    After any other error, the unit fails.
    """

    def __init__(
        self,
        ownership: Ownership,
        context: FlowContext,
        herder: Herder,
        changed: Callable[[], None],
        restarts: int = 0,
    ) -> None:
        """Create a unit; ``changed`` is called when it has something to report."""
        self.ownership = ownership
        self.name = ownership.name
        self.context = context
        self.clock = context.clock
        self.herder = herder
        self.log = get_logger(__name__).bind(flow=context.name, task=self.name)
        self._life = LifeCycle(ownership, self.log, context.clock, changed, restarts)
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._ending = threading.Lock()
        """Held while it is decided which thread releases a failed unit."""
        self._ended = False
        """Whether ``_run`` has ended, so that it will not release the unit."""
        self._releasing = False
        """Whether a thread releases the failed unit, or has released it."""
        self.beside_ready: tuple[Condition, ...] = ()
        """Conditions that ``report_ready`` adds."""
        self._failed_with: ReplicationFlow | None = None
        """The flow's object at the time of the failure; None if the unit has not failed."""
        self._remedied = False
        self.problem: Retriable | None = None
        """Error that does not stop ``run_once``. It is reported until a subclass sets it to
        None."""

    # Methods for Worker

    def start(self) -> Self:
        """Start the thread, and return the unit."""
        self._thread.start()
        return self

    def update(self, task: ReplicationTask) -> None:
        """Receive a newer version of the object."""
        if self.ownership.update(task):
            self._wake.set()

    def stop(self) -> None:
        """Request the unit to stop and to release its ownership. The call does not wait.

        A failed unit, whose thread may have ended, releases it in a new thread.
        """
        self._stopping.set()
        self._wake.set()
        with self._ending:
            if self._ended and self.phase is TaskPhase.FAILED and not self._releasing:
                self._releasing = True
                self._thread = threading.Thread(
                    target=self._release_failed, name=self.name, daemon=True
                )
                self._thread.start()

    def join(self, timeout_s: float) -> bool:
        """Wait for the end of the thread; return whether it has ended."""
        self._thread.join(timeout_s)
        return not self.alive

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def phase(self) -> TaskPhase:
        return self._life.phase

    @property
    def started_at(self) -> float:
        """Monotonic time in seconds at which the instance was created."""
        return self._life.started_at

    @property
    def status(self) -> ReplicationTaskStatus:
        return self._life.status

    @property
    def superseded(self) -> bool:
        """Whether the cause of the failure has ended, or the flow has changed since the failure."""
        changed = self._failed_with is not None and self._failed_with is not self.context.flow
        return self._remedied or changed

    # Methods that subclasses implement

    def has_remedy(self, error: HeadraceError) -> Callable[[], bool] | None:
        """Return a function that checks whether the cause of a failure has ended, or None.

        The function may block. It is called every 2 s and must not raise errors.
        """
        return None

    @abstractmethod
    def restore(self) -> None:
        """Prepare to run. The unit calls it again after a ``Retriable``."""

    @abstractmethod
    def run_once(self) -> float:
        """Do some work; return the seconds to wait before the next call."""

    def leave(self) -> None:  # noqa: B027 - most units have nothing to announce
        """Announce that the unit stops, before its release. The call must not block."""

    def close(self) -> None:  # noqa: B027 - a subclass may have no clients
        """Close clients. The call must not raise errors."""

    # Methods for subclasses

    @property
    def stopping(self) -> bool:
        """Whether the unit was requested to stop."""
        return self._stopping.is_set()

    def observe(self, **fields: Any) -> None:
        """Set fields of the status, and report it."""
        self._life.observe(**fields)
        self._life.changed()

    def report_ready(self, ready: ConditionStatus, reason: Reason, message: str) -> None:
        """Report the condition ``Ready`` for the current generation of the object."""
        condition = Condition(
            type=ConditionType.READY, status=ready, reason=reason, message=message
        )
        generation = self.ownership.task.metadata.generation
        self.observe(conditions=(condition, *self.beside_ready), observed_generation=generation)

    # The thread

    def _run(self) -> None:
        failure: HeadraceError | None = None
        try:
            self._live()
        except HeadraceError as error:
            failure = error
        except KafkaException as error:
            failure = translate(error, f"run {self.name}")
        except Exception as error:
            # An unexpected error fails only this unit, and is reported like any other failure.
            self.log.exception("ended by an error")
            failure = from_exception(error)
        if failure is not None:
            self._failed_with = self.context.flow
            self._life.end(failure)
        self.close()
        self._life.changed()
        if failure is not None and (is_gone := self.has_remedy(failure)) is not None:
            self._wait_for_remedy(is_gone)
        with self._ending:
            self._ended = True
            releases = self._releasing = self.stopping and self.phase is TaskPhase.FAILED
        if releases:
            self._release_failed()

    def _wait_for_remedy(self, is_gone: Callable[[], bool]) -> None:
        """Wait until the unit may be restarted, in any case until its back-off is over."""
        until_s = self.clock.monotonic() + restart_delay_s(self._life.restarts)
        while self.clock.monotonic() < until_s:
            if self._stopping.wait(_REMEDY_S) or self.superseded:
                break
            self._remedied = is_gone()
        self._life.changed()

    def _live(self) -> None:
        if self.ownership.epoch or self._attempt(lambda: self.ownership.claim(above=0)):
            self._life.enter(TaskPhase.RESTORING)
            if self._attempt(self.restore):
                self._life.enter(TaskPhase.RUNNING)
                self._run_until_stopped()
                self.leave()
            self._life.enter(TaskPhase.SUSPENDED)
        self._release()

    def _run_until_stopped(self) -> None:
        while not self.stopping:
            try:
                wait_s = self.run_once()
            except Retriable as error:
                self._life.retrying(error)
                self._stopping.wait(_backoff().next_s())
                self._attempt(self.restore)
                continue
            if self.problem is None:
                self._life.recovered()
            else:
                self._life.retrying(self.problem)
            self._wake.wait(wait_s)
            self._wake.clear()

    def _attempt(self, step: Callable[[], None]) -> bool:
        """Repeat a step until it succeeds (True) or the unit must stop (False)."""
        backoff = _backoff()
        while not self.stopping:
            try:
                step()
            except Retriable as error:
                self._life.retrying(error)
                self._stopping.wait(backoff.next_s())
            else:
                return True
        return False

    def _release_failed(self) -> None:
        """Release a failed unit, and replace it only afterwards."""
        release(self.ownership, self.log)
        self._life.phase = TaskPhase.CLOSED
        self._life.changed()

    def _release(self) -> None:
        self._life.phase = TaskPhase.CLOSED
        release(self.ownership, self.log)


def succeeds(step: Callable[[], None]) -> bool:
    """Return whether a step raises no ``HeadraceError``."""
    try:
        step()
    except HeadraceError:
        return False
    return True


def _backoff() -> Backoff:
    return Backoff(_FIRST_BACKOFF_S, _LAST_BACKOFF_S)
