"""The transactions of a source task: when one is due, and how it is cut and committed."""

import threading
from collections.abc import Callable, Mapping
from math import inf

from headrace.api import TopicPartition
from headrace.connect.runtime.context import FlowContext
from headrace.errors import HeadraceError
from headrace.movers import Reached, Storing, Transactional
from headrace.replication import Progress, ProgressKey

LONGEST_S = 60.0
"""Time for which a task waits until stored progress is acknowledged or committed. A new lane
repeats records in flight, so no election and no restart of a broker should cause one.
"""

Entries = Callable[[Mapping[TopicPartition, Reached]], Mapping[ProgressKey, Progress]]


class TaskTransactions:
    """Without any, of a flow that copies without them. One thread at a time calls it."""

    def __init__(self, context: FlowContext) -> None:
        self._context = context
        self.cutting = False
        """Whether the lane waits until all of one is acknowledged."""
        self._cut_at = -inf

    @property
    def due(self) -> bool:
        """Whether the last commit was long enough ago."""
        if not self._context.exactly_once:
            return False
        interval_s = self._context.spec.delivery.commit_interval_ms / 1000
        return self._context.clock.monotonic() - self._cut_at >= interval_s

    def commit(self, lane: Transactional, entries: Entries) -> Storing | None:
        """Return the write in progress, or None.

        It is None while the lane is ``cutting``, and if there are no ``entries`` to store with what
        was reached; the lane then continues.
        """
        if not self.cutting:
            self._cut_at = self._context.clock.monotonic()
        reached = lane.cut()
        self.cutting = reached is None
        if reached is None:
            return None
        if not (stored := entries(reached)):
            lane.go_on()
            return None
        ended = threading.Event()

        def poll(seconds: float) -> None:
            ended.wait(seconds)

        tried = f"commit a transaction on {self._context.target.name}"
        storing = Storing(poll, self._context.clock, tried, 1, LONGEST_S)

        def committed(error: HeadraceError | None) -> None:
            storing.ended(error)
            ended.set()

        lane.commit(self._context.progress.in_transaction(stored), committed)
        return storing
