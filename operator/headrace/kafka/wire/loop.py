"""Readiness loop of one thread, and results that arrive later."""

import heapq
import itertools
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar

from headrace.errors import GaveUp
from headrace.timing import Clock

# Results that arrive later, and coroutines that wait for them, without asyncio.
#
# asyncio costs 0.90 core-seconds a GB where a plain readiness loop costs 0.64 (measured with the
# same copier). Coroutines are for what takes several requests; a hot path uses ``Reply.then``.

T = TypeVar("T")
_PENDING = object()


class Reply(Generic[T]):
    """A result or an error that arrives once. Used by the loop's thread alone."""

    __slots__ = ("_result", "_then", "error")

    def __init__(self) -> None:
        self._result: object = _PENDING
        self.error: BaseException | None = None
        """Error that ``result`` raises, or None if there is no error or no outcome yet."""
        self._then: list[Callable[[Reply[T]], None]] = []

    @property
    def done(self) -> bool:
        """Whether it has arrived."""
        return self._result is not _PENDING or self.error is not None

    def result(self) -> T:
        """Return the result; raise the error, or ``GaveUp`` if nothing has arrived."""
        if self.error is not None:
            raise self.error
        if self._result is _PENDING:
            raise GaveUp("no answer has arrived yet")
        return self._result  # type: ignore[return-value]

    def succeed(self, result: T) -> None:
        """Set the result. Only the first outcome counts."""
        if self._result is _PENDING and self.error is None:
            self._result = result
            waiting, self._then = self._then, []
            for callback in waiting:
                callback(self)

    def fail(self, error: BaseException) -> None:
        """Set the error. Only the first outcome counts."""
        if not self.done:
            self.error = error
            self._tell()

    def then(self, callback: "Callable[[Reply[T]], None]") -> None:
        """Call it once the outcome is there: now, if it is."""
        if self._result is _PENDING and self.error is None:
            self._then.append(callback)
        else:
            callback(self)

    def __await__(self) -> "Generator[Reply[Any], None, T]":
        if not self.done:
            yield self
        return self.result()

    def _tell(self) -> None:
        waiting, self._then = self._then, []
        for callback in waiting:
            callback(self)


def start(coroutine: Coroutine["Reply[Any]", None, T]) -> Reply[T]:
    """Run a coroutine of ours until it waits; it continues when the awaited reply arrives."""
    outcome: Reply[T] = Reply()

    def step(_: Reply[Any] | None = None) -> None:
        try:
            while True:
                awaited = coroutine.send(None)
                if not awaited.done:
                    break
        except StopIteration as ended:
            outcome.succeed(ended.value)
        except Exception as error:  # noqa: BLE001  # the waiting caller gets it
            outcome.fail(error)
        else:
            awaited.then(step)

    step()
    return outcome


READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
_LONGEST_REST_S = 60.0


class Timer:
    """A call that is to come; ``cancel`` it when it is not wanted any more."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        """Cancel the call."""
        self.call = None


class EventLoop:
    """Event loop, whose ``run_once`` does what is due.

    All methods except ``wake`` and ``call_from_thread`` belong to the thread that runs it.
    """

    def __init__(self, clock: Clock = time) -> None:
        self.now_s: Callable[[], float] = clock.monotonic
        """Read the clock that deadlines are given in."""
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Timer]] = []
        self._number = itertools.count()
        self._calls: deque[Callable[[], None]] = deque()
        self._woken = threading.Event()
        self._waking, self._wake_up = socket.socketpair()
        for end in (self._waking, self._wake_up):
            end.setblocking(False)
        self._selector.register(self._waking, READ, self._clear)
        self._threads: ThreadPoolExecutor | None = None
        self._forgotten: set[socket.socket] = set()
        """Sockets whose events of this round are not handled."""

    def watch(self, sock: socket.socket, events: int, ready: Callable[[int], None]) -> None:
        """Call ``ready`` with the events that have come; a second time: changes them."""
        if sock in self._selector.get_map():
            self._selector.modify(sock, events, ready)
        else:
            self._selector.register(sock, events, ready)

    def forget(self, sock: socket.socket) -> None:
        """Stop watching a socket, before it is closed."""
        self._forgotten.add(sock)
        if self._watches(sock):
            self._selector.unregister(sock)

    def _watches(self, sock: Any) -> bool:
        """Return whether the selector watches a socket.

        A selector raises for a closed socket, and has no map when it is closed itself: Python may
        end abandoned coroutines later.
        """
        return sock.fileno() >= 0 and sock in (self._selector.get_map() or ())

    def call_later(self, delay_s: float, call: Callable[[], None]) -> Timer:
        """Call it once, in ``delay_s``."""
        timer = Timer(call)
        heapq.heappush(self._timers, (self.now_s() + delay_s, next(self._number), timer))
        return timer

    def call_from_thread(self, call: Callable[[], None]) -> None:
        """Call it in the loop's thread; from any thread."""
        self._calls.append(call)
        self.wake()

    def wake(self) -> None:
        """End the rest of ``run_once``; from any thread."""
        if not self._woken.is_set():
            self._woken.set()
            try:
                self._wake_up.send(b"\0")
            except BlockingIOError:
                pass  # it is full of wake-ups
            except OSError:
                pass  # the loop is closed

    def sleep(self, delay_s: float) -> Reply[None]:
        """Answered in ``delay_s``."""
        reply: Reply[None] = Reply()
        self.call_later(delay_s, lambda: reply.succeed(None))
        return reply

    def in_thread(self, work: Callable[[], T], *, alone: bool = False) -> Reply[T]:
        """Do work that may block, such as a name look-up, in the loop's one thread for such work.

        With ``alone`` it gets a thread of its own, because it may take seconds.
        """
        reply: Reply[T] = Reply()

        def run() -> None:
            try:
                result = work()
            except Exception as error:  # noqa: BLE001  # the waiting caller gets it
                failed = error
                self.call_from_thread(lambda: reply.fail(failed))
            else:
                self.call_from_thread(lambda: reply.succeed(result))

        if alone:
            threading.Thread(target=run, name="headrace-wire-login", daemon=True).start()
            return reply
        if self._threads is None:
            self._threads = ThreadPoolExecutor(1, thread_name_prefix="headrace-wire-names")
        self._threads.submit(run)
        return reply

    def run_once(self, timeout_s: float) -> int:
        """Wait for events, at most ``timeout_s``, and handle them; return their number."""
        if self._calls:
            timeout_s = 0
        elif self._timers:
            timeout_s = min(timeout_s, self._timers[0][0] - self.now_s())
        forgotten = self._forgotten
        forgotten.clear()
        events = self._selector.select(max(0.0, min(timeout_s, _LONGEST_REST_S)))
        for key, mask in events:
            if key.fileobj not in forgotten:  # an earlier event may have closed it
                key.data(mask)
        done = len(events)
        for _ in range(len(self._calls)):
            self._calls.popleft()()
            done += 1
        while self._timers and self._timers[0][0] <= self.now_s():
            _, _, timer = heapq.heappop(self._timers)
            if (call := timer.call) is not None:
                call()
                done += 1
        return done

    def wait(self, reply: Reply[T], timeout_s: float) -> T:
        """Run until the reply is there; ``GaveUp`` when that takes longer."""
        deadline = self.now_s() + timeout_s
        while not reply.done:
            if (left_s := deadline - self.now_s()) <= 0:
                raise GaveUp(f"no answer within {timeout_s:g} s")
            self.run_once(left_s)
        return reply.result()

    def close(self) -> None:
        """Release what the loop holds; the connections are their owners' to close."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        self._selector.close()
        self._waking.close()
        self._wake_up.close()

    def _clear(self, _: int) -> None:
        try:
            while self._waking.recv(4096):
                pass
        except BlockingIOError:
            pass
        # Last: who saw it set has already added the call, which this round of run_once makes.
        self._woken.clear()
