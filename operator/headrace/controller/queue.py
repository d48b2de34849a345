"""Queue of keys to reconcile. A key is queued once, and never reconciled twice at a time.

The queue is level-triggered: a key says that an object has changed, not what has changed. A key
waits for a short time, because changes come in groups. After a reconcile it waits for the time that
the reconcile took. Without this rest, a flow of 10,000 units that changes all the time would use a
whole core. A failed reconcile is repeated with backoff. Each key is also reconciled periodically.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from headrace.errors import HeadraceError
from headrace.logs import get_logger
from headrace.timing import Backoff

log = get_logger(__name__)

SOON_S = 0.05
"""Delay after a change for which a user or a flow waits, in seconds."""
LATER_S = 5.0
"""Delay after a change of measurements only, in seconds."""
_MAX_REST_S = 2.0
"""Maximum rest after a reconcile, in seconds. A rest may delay the reaction to a lost driver."""
_RESYNC_S = 600.0
_FIRST_BACKOFF_S, _LAST_BACKOFF_S = 0.2, 60.0

Key = TypeVar("Key")


class KeyQueue(Generic[Key]):
    """Queue with a limited number of concurrent reconciles. Use it from one event loop."""

    def __init__(
        self,
        *,
        at_once: int = 16,
        on_reconciled: Callable[[float, bool], None] = lambda took_s, failed: None,
    ) -> None:
        """Create an empty queue.

        Args:
            at_once: Maximum number of keys in work at the same time. One key is never in work
                twice.
            on_reconciled: Receives the duration of each reconcile, and True if it failed.
        """
        self._on_reconciled = on_reconciled
        self._places = asyncio.Semaphore(at_once)
        self._due: dict[Key, float] = {}
        self._rests: dict[Key, float] = {}
        """Times until which keys are not reconciled again, on the monotonic clock."""
        self._at_work: set[Key] = set()
        self._backoffs: dict[Key, Backoff] = {}
        self._changed = asyncio.Event()

    def add(self, key: Key, delay_s: float = SOON_S) -> None:
        """Reconcile a key after ``delay_s``, or at the time it is queued for if that is sooner."""
        due = time.monotonic() + delay_s
        if due < self._due.get(key, float("inf")):
            self._due[key] = due
            self._changed.set()

    @property
    def length(self) -> int:
        """Number of keys that are due or in work. May be called from any thread."""
        now, waiting = time.monotonic(), self._due.copy()
        return len(self._at_work.union([key for key, due in waiting.items() if due <= now]))

    async def run(self, reconcile: Callable[[Key], Awaitable[float | None]]) -> None:
        """Reconcile the keys that are due. Never returns.

        ``reconcile`` returns the seconds until the next reconcile, or None if the object was
        deleted.
        """
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._changed.clear()
                now = time.monotonic()
                waits = {
                    key: max(due, self._rests.get(key, 0.0)) - now
                    for key, due in self._due.items()
                    if key not in self._at_work
                }
                for key in [key for key, wait_s in waits.items() if wait_s <= 0]:
                    del self._due[key], waits[key]
                    self._at_work.add(key)
                    tasks.create_task(self._work(key, reconcile))
                try:
                    async with asyncio.timeout(min(waits.values(), default=None)):
                        await self._changed.wait()
                except TimeoutError:
                    pass

    async def _work(self, key: Key, reconcile: Callable[[Key], Awaitable[float | None]]) -> None:
        try:
            async with self._places:
                again_s = await self._reconcile(key, reconcile)
            self._backoffs.pop(key, None)
            if again_s is None:
                self._rests.pop(key)
            else:
                self.add(key, min(again_s, _RESYNC_S * random.uniform(0.9, 1.0)))
        except HeadraceError as error:
            self._later(key, str(error))
        except Exception as error:
            log.exception("internal error, please report it", key=_text(key))
            self._later(key, repr(error))
        finally:
            self._at_work.discard(key)
            self._changed.set()

    async def _reconcile(
        self, key: Key, reconcile: Callable[[Key], Awaitable[float | None]]
    ) -> float | None:
        began, failed = time.monotonic(), True
        try:
            again_s = await reconcile(key)
            failed = False
        finally:
            ended = time.monotonic()
            took_s = ended - began
            self._rests[key] = ended + min(took_s, _MAX_REST_S)
            self._on_reconciled(took_s, failed)
        log.debug("reconciled", key=_text(key), took_ms=round(1000 * took_s), again_in_s=again_s)
        return again_s

    def _later(self, key: Key, why: str) -> None:
        backoff = self._backoffs.setdefault(key, Backoff(_FIRST_BACKOFF_S, _LAST_BACKOFF_S))
        delay_s = backoff.next_s()
        log.warning("reconcile failed", key=_text(key), again_in_s=round(delay_s, 1), why=why)
        self.add(key, delay_s)


def _text(key: object) -> str:
    return "/".join(map(str, key)) if isinstance(key, tuple) else str(key)
