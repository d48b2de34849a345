"""Results that arrive later, and coroutines that wait for them, without asyncio.

asyncio costs 0.90 core-seconds a GB where a plain readiness loop costs 0.64 (measured with the same
copier). Coroutines are for what takes several requests; a hot path uses ``Reply.then``.
"""

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar, cast

from headrace.errors import GaveUp

T = TypeVar("T")
_PENDING = object()


class Reply(Generic[T]):
    """A result or an error that arrives once. Used by the loop's thread alone."""

    __slots__ = ("_error", "_result", "_then")

    def __init__(self) -> None:
        self._result: object = _PENDING
        self._error: BaseException | None = None
        self._then: list[Callable[[Reply[T]], None]] = []

    @property
    def done(self) -> bool:
        """Whether it has arrived."""
        return self._result is not _PENDING or self._error is not None

    @property
    def error(self) -> BaseException | None:
        """What ``result`` would raise; ``None`` before the outcome, too."""
        return self._error

    def result(self) -> T:
        """The result; raises the error, or ``GaveUp`` when nothing has arrived."""
        if self._error is not None:
            raise self._error
        if self._result is _PENDING:
            raise GaveUp("no answer has arrived yet")
        return cast(T, self._result)

    def succeed(self, result: T) -> None:
        """It arrived. Only the first outcome counts."""
        if not self.done:
            self._result = result
            self._tell()

    def fail(self, error: BaseException) -> None:
        """It will never arrive. Only the first outcome counts."""
        if not self.done:
            self._error = error
            self._tell()

    def then(self, callback: "Callable[[Reply[T]], None]") -> None:
        """Call it once the outcome is there: now, if it is."""
        if self.done:
            callback(self)
        else:
            self._then.append(callback)

    def __await__(self) -> "Generator[Reply[Any], None, T]":
        if not self.done:
            yield self
        return self.result()

    def _tell(self) -> None:
        waiting, self._then = self._then, []
        for callback in waiting:
            callback(self)


def start(coroutine: Coroutine["Reply[Any]", None, T]) -> Reply[T]:
    """Run a coroutine of ours until it waits; it goes on when what it waits for arrives."""
    outcome: Reply[T] = Reply()

    def step(_: Reply[Any] | None = None) -> None:
        try:
            while True:
                awaited = coroutine.send(None)
                if not awaited.done:
                    break
        except StopIteration as ended:
            outcome.succeed(ended.value)
        except Exception as error:  # noqa: BLE001  # whoever waits gets it
            outcome.fail(error)
        else:
            awaited.then(step)

    step()
    return outcome
