"""Lanes of a source task.

A lane is created in the pool that prepares its partitions: clients with OAUTHBEARER tokens take a
second each, and the loop that moves data must not wait.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Executor

from headrace.movers import Lane


class Lanes:
    """``prepare`` is for the pool, all else for the loop."""

    def __init__(self, make: Callable[[], Lane], pool: Executor) -> None:
        """``make`` may take seconds, and raise; ``pool`` frees what is not needed."""
        self._make, self._pool = make, pool
        self._lock = threading.Lock()
        self._prepared: Lane | None = None
        self._ended = False

    def prepare(self) -> None:
        """Have the next lane made; raises what making it raises."""
        with self._lock:
            if self._prepared is not None or self._ended:
                return
        lane = self._make()
        with self._lock:
            if self._prepared is None and not self._ended:
                self._prepared = lane
                return
        lane.close()  # the task has ended meanwhile

    def take(self) -> Lane:
        """Return the prepared lane, or create one."""
        return self._taken() or self._make()

    def end(self) -> None:
        """Nothing is prepared any more; what nobody has taken has sent nothing, and is freed."""
        with self._lock:
            self._ended = True
        if (lane := self._taken()) is not None:
            self._pool.submit(lane.close)

    def _taken(self) -> Lane | None:
        with self._lock:
            lane, self._prepared = self._prepared, None
            return lane
