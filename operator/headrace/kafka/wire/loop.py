"""Event loop of one thread, and results that arrive later."""

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
# asyncio needs 0.90 core-seconds per GB, and a plain readiness loop 0.64 (measured with the same
# copier). Coroutines are for operations with several requests. Hot paths use ``Reply.then``.

T = TypeVar("T")
_PENDING = object()


class Reply(Generic[T]):
    """Result or error that arrives later. Not thread-safe: use it in the loop's thread."""

    __slots__ = ("_result", "_then", "error")

    def __init__(self) -> None:
        self._result: object = _PENDING
        self.error: BaseException | None = None
        """Error that ``result`` raises, or None."""
        self._then: list[Callable[[Reply[T]], None]] = []

    @property
    def done(self) -> bool:
        """True if the result or the error has arrived."""
        return self._result is not _PENDING or self.error is not None

    def result(self) -> T:
        """Return the result. Raise the error, or ``GaveUp`` if nothing has arrived yet."""
        if self.error is not None:
            raise self.error
        if self._result is _PENDING:
            raise GaveUp("no answer has arrived yet")
        return self._result  # type: ignore[return-value]

    def succeed(self, result: T) -> None:
        """Set the result and run the callbacks. Ignored if there is already an outcome."""
        if self._result is _PENDING and self.error is None:
            self._result = result
            waiting, self._then = self._then, []
            for callback in waiting:
                callback(self)

    def fail(self, error: BaseException) -> None:
        """Set the error and run the callbacks. Ignored if there is already an outcome."""
        if not self.done:
            self.error = error
            self._tell()

    def then(self, callback: "Callable[[Reply[T]], None]") -> None:
        """Call ``callback`` when the outcome arrives, or immediately if it has arrived."""
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
    """Run a coroutine until it waits for a reply. It continues when that reply arrives."""
    outcome: Reply[T] = Reply()

    def step(_: Reply[Any] | None = None) -> None:
        try:
            while True:
                awaited = coroutine.send(None)
                if not awaited.done:
                    break
        except StopIteration as ended:
            outcome.succeed(ended.value)
        except Exception as error:  # noqa: BLE001  # raised in the waiting caller
            outcome.fail(error)
        else:
            awaited.then(step)

    step()
    return outcome


READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
_MAX_REST_S = 60.0


class Timer:
    """A scheduled call, which can be cancelled."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        self.call = None


class EventLoop:
    """Event loop that watches sockets and runs scheduled calls.

    Only ``wake`` and ``call_from_thread`` may be called from other threads.
    """

    def __init__(self, clock: Clock = time) -> None:
        self.now_s: Callable[[], float] = clock.monotonic
        """Monotonic clock of all deadlines."""
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
        """Sockets whose events of the current ``run_once`` are ignored."""

    def watch(self, sock: socket.socket, events: int, ready: Callable[[int], None]) -> None:
        """Call ``ready`` with the events of a socket.

        A second call replaces ``events`` and ``ready``.
        """
        if sock in self._selector.get_map():
            self._selector.modify(sock, events, ready)
        else:
            self._selector.register(sock, events, ready)

    def forget(self, sock: socket.socket) -> None:
        """Stop watching a socket. Call this before the socket is closed."""
        self._forgotten.add(sock)
        if self._watches(sock):
            self._selector.unregister(sock)

    def _watches(self, sock: Any) -> bool:
        """Return True if the selector watches a socket.

        A selector raises for a closed socket, and has no map after it was closed. Python may
        end abandoned coroutines, and thereby call this method, after that.
        """
        return sock.fileno() >= 0 and sock in (self._selector.get_map() or ())

    def call_later(self, delay_s: float, call: Callable[[], None]) -> Timer:
        """Run ``call`` once after ``delay_s`` seconds."""
        timer = Timer(call)
        heapq.heappush(self._timers, (self.now_s() + delay_s, next(self._number), timer))
        return timer

    def call_from_thread(self, call: Callable[[], None]) -> None:
        """Run ``call`` in the loop's thread. May be called from any thread."""
        self._calls.append(call)
        self.wake()

    def wake(self) -> None:
        """End the wait in ``run_once``. May be called from any thread."""
        if not self._woken.is_set():
            self._woken.set()
            try:
                self._wake_up.send(b"\0")
            except BlockingIOError:
                pass  # the socket is full of wake-ups
            except OSError:
                pass  # the loop is closed

    def sleep(self, delay_s: float) -> Reply[None]:
        """Return a reply that succeeds after ``delay_s`` seconds."""
        reply: Reply[None] = Reply()
        self.call_later(delay_s, lambda: reply.succeed(None))
        return reply

    def in_thread(self, work: Callable[[], T], *, alone: bool = False) -> Reply[T]:
        """Run blocking work, such as a name look-up, in a thread. Return a reply for its result.

        Such work shares one thread. With ``alone`` it has its own thread, because it may take
        seconds.
        """
        reply: Reply[T] = Reply()

        def run() -> None:
            try:
                result = work()
            except Exception as error:  # noqa: BLE001  # raised in the waiting caller
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
        """Wait at most ``timeout_s`` for events, and handle them.

        Return the number of calls made.
        """
        if self._calls:
            timeout_s = 0
        elif self._timers:
            timeout_s = min(timeout_s, self._timers[0][0] - self.now_s())
        forgotten = self._forgotten
        forgotten.clear()
        events = self._selector.select(max(0.0, min(timeout_s, _MAX_REST_S)))
        for key, mask in events:
            if key.fileobj not in forgotten:  # an earlier event may have closed the socket
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
        """Run the loop until the reply arrives, and return its result.

        Raise ``GaveUp`` after ``timeout_s``.
        """
        deadline = self.now_s() + timeout_s
        while not reply.done:
            if (left_s := deadline - self.now_s()) <= 0:
                raise GaveUp(f"no answer within {timeout_s:g} s")
            self.run_once(left_s)
        return reply.result()

    def close(self) -> None:
        """Close the loop. Its connections must be closed by their owners."""
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
        # Clear the flag last: a thread that saw it set has already added its call, and this
        # run_once makes that call.
        self._woken.clear()
