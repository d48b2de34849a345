"""Lag of partitions that no lane reads because they or their task failed.

It is requested from the source.
"""

from collections.abc import Set
from concurrent.futures import Executor
from functools import partial

from headrace.api import TopicPartition
from headrace.connect.runtime.background import BackgroundStep
from headrace.connect.runtime.context import FlowContext
from headrace.connect.runtime.lifecycle import LifeCycle
from headrace.errors import HeadraceError

_INTERVAL_S = 5.0


class UnreadLag:
    """Number of records that wait, and for how long; both continue to grow. One thread calls it."""

    def __init__(self, context: FlowContext, life: LifeCycle, pool: Executor) -> None:
        self.records = 0
        self.seconds = 0
        self._context, self._life = context, life
        self._asking = BackgroundStep[int](pool, context.clock)
        self._behind_since_s: float | None = None
        """Unix time at which there was nothing to wait for, as far as that is known."""

    def observe(self, partitions: Set[TopicPartition]) -> bool:
        """Ask when that is due; whether there was an answer."""
        if not partitions:
            self.records = self.seconds = 0
            self._behind_since_s = None
            return False
        if self._asking.due:
            self._asking.start(partial(_lag_records, self._context, partitions))
        if not self._asking.done:
            return False
        self._asking.put_off(_INTERVAL_S)
        try:
            self.records = self._asking.take()
        except HeadraceError:  # the partition's own error is more important to a user
            return False
        now_s = self._context.clock.time()
        if not self.records:
            self._behind_since_s = now_s
        elif self._behind_since_s is None:
            self._behind_since_s = now_s - (lag.seconds if (lag := self._life.status.lag) else 0)
        self.seconds = int(now_s - self._behind_since_s)
        return True


def _lag_records(context: FlowContext, partitions: Set[TopicPartition]) -> int:
    """Return the number of records on the source after the stored offsets."""
    context.progress.read_to_end()
    ends = context.source.known_ends(partitions)
    stored = {at: context.stored(at) for at in ends}
    return sum(
        max(0, ends[at] - progress.source_offset) for at, progress in stored.items() if progress
    )
