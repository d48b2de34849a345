"""Steps that wait for brokers, run in a pool and not in the thread that moves data."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Generic, TypeVar

from headrace.timing import Backoff, Clock

T = TypeVar("T")

_FIRST_BACKOFF_S, _LAST_BACKOFF_S = 0.2, 5.0


class BackgroundStep(Generic[T]):
    """One step at a time in a pool, with back-off after failures. Not thread-safe."""

    def __init__(self, pool: Executor, clock: Clock) -> None:
        self._pool, self._clock = pool, clock
        self._backoff = Backoff(_FIRST_BACKOFF_S, _LAST_BACKOFF_S)
        self._not_before = 0.0
        self._step: Future[T] | None = None
        self._dropped: list[Future[T]] = []
        """Earlier steps that may still run, although nothing will take their outcomes."""

    @property
    def pending(self) -> bool:
        """Whether there is a step whose outcome was not taken."""
        return self._step is not None

    @property
    def running(self) -> bool:
        """Whether a step is not done yet, or a step whose outcome was dropped."""
        return self._drops or (self._step is not None and not self._step.done())

    @property
    def done(self) -> bool:
        """Whether a step has ended and its outcome was not taken."""
        return self._step is not None and self._step.done()

    @property
    def due(self) -> bool:
        """Whether the next step may start: none is pending or runs, and the back-off is over."""
        rests = self._step is None and not self._drops
        return rests and self._clock.monotonic() >= self._not_before

    @property
    def _drops(self) -> bool:
        return not all(step.done() for step in self._dropped)

    def start(self, step: Callable[[], T]) -> None:
        """Start a step, even if it is not due. The outcome of a pending step is dropped.

        No further step is due before the dropped one has ended, because it may still write.
        """
        if self._step is not None:
            running = [one for one in self._dropped if not one.done()]
            self._dropped = [*running, self._step]
        self._step = self._pool.submit(step)

    def cancel(self) -> bool:
        """Cancel a step that has not begun. Return whether there was one."""
        if self._step is None or not self._step.cancel():
            return False
        self._step = None
        return True

    def take(self) -> T:
        """Return the outcome of the step that is done, or raise its error."""
        step, self._step = self._step, None
        assert step is not None, "no step was started"
        return step.result()

    def succeeded(self) -> None:
        """Make the next step due now, and reset the back-off."""
        self._backoff.reset()
        self._not_before = 0.0

    def back_off(self) -> None:
        """Delay the next step after a failure."""
        self.put_off(self._backoff.next_s())

    def put_off(self, seconds: float) -> None:
        """Make the next step due after ``seconds``."""
        self._not_before = self._clock.monotonic() + seconds
