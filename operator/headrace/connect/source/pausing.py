"""Partitions that the user paused: they stay with their task, and are not read."""

from collections.abc import Mapping, Set
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial

from headrace.api import TopicPartition
from headrace.connect.runtime.background import BackgroundStep
from headrace.connect.runtime.context import FlowContext
from headrace.errors import HeadraceError
from headrace.movers import Lane, Reached

_INTERVAL_S = 5.0

State = Mapping[TopicPartition, Reached]


class Pausing:
    """Has a lane leave them alone. Nothing fetches them then, so the source is asked for their
    ends: their lag goes on being reported. One thread calls it."""

    def __init__(self, context: FlowContext, pool: Executor) -> None:
        self._context = context
        self._asking = BackgroundStep[dict[TopicPartition, int]](pool, context.clock)
        self._ends: Mapping[TopicPartition, int] = {}
        self._behind_since_ms: dict[TopicPartition, int] = {}
        """Unix time at which there was nothing to wait for, as far as that is known."""
        self.partitions: frozenset[TopicPartition] = frozenset()
        """Those of the task that ``spec.pausedPartitions`` names."""

    def apply(self, lane: Lane, wanted: Set[TopicPartition]) -> None:
        """Have the lane read what is not paused; ``wanted``: what the task is to hold."""
        self.partitions = self._context.pauses.among(wanted | lane.partitions)
        lane.pause(self.partitions)

    def with_lag(self, state: State, *, all_paused: bool) -> State:
        """The state, with the lag of what is paused; ``all_paused``: the whole task rests."""
        unread = state.keys() if all_paused else state.keys() & self.partitions
        paused = {at: state[at] for at in unread}
        self._behind_since_ms = {at: ms for at, ms in self._behind_since_ms.items() if at in paused}
        if not paused:
            self._ends = {}
            return state
        if self._asking.due:
            self._asking.start(partial(self._context.source.known_ends, set(paused)))
        if self._asking.done:
            self._asking.put_off(_INTERVAL_S)
            with suppress(HeadraceError):  # brokers that are away are reported where needed
                self._ends = self._asking.take()
        return {**state, **{at: self._waiting(at, reached) for at, reached in paused.items()}}

    def _waiting(self, at: TopicPartition, reached: Reached) -> Reached:
        """Its next record is not known: it waits since it was behind first."""
        now_ms = self._context.now_ms
        ends = [end for end in (reached.end, self._ends.get(at)) if end is not None]
        reached = reached._replace(end=max(ends, default=None))
        if not reached.lag_records:
            self._behind_since_ms[at] = now_ms
        since_ms = self._behind_since_ms.setdefault(at, reached.oldest_timestamp_ms or now_ms)
        return reached._replace(oldest_timestamp_ms=since_ms)
