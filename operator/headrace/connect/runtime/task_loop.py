"""The thread that drives a TaskManager (Kafka Streams' ``StreamThread``)."""

import os
import queue
import threading
import time
from collections.abc import Callable, Mapping, Set

from headrace.assign import TaskId
from headrace.connect.runtime.task import Task
from headrace.connect.runtime.task_manager import Shares, TaskManager
from headrace.logs import get_logger

log = get_logger(__name__)

_COMMIT_INTERVAL_S = 1.0
"""At most this much work is repeated after a kill -9 (Connect: 60 s)."""
_TURN_TIMEOUT_S = 60.0
"""A turn waits for brokers in ``settle`` and ``close`` only, which takes seconds: a turn that
lasts longer hangs."""
_SHORTEST_REST_S, _LONGEST_REST_S = 0.001, 0.02
"""Without work the loop waits, twice as long each time: at most this is added to a latency."""


class TaskLoop:
    """May be called from any thread: each call takes effect on the loop's own, in order."""

    def __init__(self, manager: TaskManager, name: str, beat: Callable[[], None]) -> None:
        """``beat`` is called in every iteration: it notices when the loop stalled."""
        self._manager = manager
        self._beat = beat
        self._orders: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._turn_began_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether its turns end."""
        return self._thread.is_alive() and time.monotonic() - self._turn_began_at < _TURN_TIMEOUT_S

    @property
    def tasks(self) -> Mapping[TaskId, Task]:
        """Tasks of the manager."""
        return self._manager.tasks

    def __str__(self) -> str:
        return str(self._manager)

    def assign(self, active: Shares, standby: Shares) -> None:
        """Assign tasks in the loop's thread."""
        self._order(lambda: self._manager.assign(active, standby))

    def pause(self, ids: Set[TaskId]) -> None:
        """Pause tasks in the loop's thread."""
        self._order(lambda: self._manager.pause(ids))

    def restart(self, id: TaskId) -> None:
        """Restart a task in the loop's thread."""
        self._order(lambda: self._manager.restart(id))

    def stop(self, timeout_s: float) -> bool:
        """Close all tasks and end; whether all were closed in time."""
        self._order(self._manager.shutdown)
        self._stopping.set()
        self._wake.set()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _order(self, order: Callable[[], None]) -> None:
        self._orders.put(order)
        self._wake.set()

    def _run(self) -> None:
        try:
            self._run_until_empty()
        except Exception:
            # Tasks without a loop would look alive: the herder must see that this driver is lost.
            log.exception("internal error, the driver ends: please report it")
            os._exit(1)

    def _run_until_empty(self) -> None:
        rest_s = _SHORTEST_REST_S
        next_commit = time.monotonic()
        while not (self._stopping.is_set() and self._orders.empty() and self._manager.empty):
            self._turn_began_at = time.monotonic()
            self._beat()
            while not self._orders.empty():
                self._orders.get()()
            self._manager.update_restoring()
            moved = self._manager.process()
            now = time.monotonic()
            if now >= next_commit:
                next_commit = now + _COMMIT_INTERVAL_S
                self._manager.commit_all()
            else:
                self._manager.commit_requested()
            self._manager.punctuate(now)
            rest_s = _SHORTEST_REST_S if moved else min(2 * rest_s, _LONGEST_REST_S)
            if not moved:
                self._wake.wait(rest_s)
                self._wake.clear()
