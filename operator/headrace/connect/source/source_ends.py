"""Ends of partitions that a lane holds and does not read.

They are paused, or the target accepts nothing of them. Nothing fetches them, so their ends are
requested from the source, and their lag continues to grow.
"""

from collections.abc import Mapping, Set
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from headrace.api import TopicPartition
from headrace.connect.runtime.background import BackgroundStep
from headrace.connect.runtime.context import FlowContext
from headrace.errors import HeadraceError
from headrace.movers import Reached

_INTERVAL_S = 5.0
_HELD_UP_S = 1.0

State = Mapping[TopicPartition, Reached]


class _Position(NamedTuple):
    acknowledged: int
    since_s: float
    """Monotonic."""


class SourceEnds:
    """One thread calls it."""

    def __init__(self, context: FlowContext, pool: Executor) -> None:
        self._context = context
        self._asking = BackgroundStep[dict[TopicPartition, int]](pool, context.clock)
        self._ends: Mapping[TopicPartition, int] = {}
        self._positions: dict[TopicPartition, _Position] = {}
        """Positions of partitions with records in flight."""
        self._behind_since_ms: dict[TopicPartition, int] = {}
        """Unix time at which there was nothing to wait for, as far as that is known."""

    def observe(self, state: State, paused: Set[TopicPartition]) -> State:
        """Return the state with the lag of unread partitions; request ends when due."""
        held_up = self._held_up(state)
        unread = {at: state[at] for at in state if at in paused or at in held_up}
        self._behind_since_ms = {at: ms for at, ms in self._behind_since_ms.items() if at in unread}
        if not unread:
            self._ends = {}
            return state
        if self._asking.due:
            self._asking.start(partial(self._context.source.known_ends, set(unread)))
        if self._asking.done:
            self._asking.put_off(_INTERVAL_S)
            with suppress(HeadraceError):  # brokers that are unreachable are reported where needed
                self._ends = self._asking.take()
        return {**state, **{at: self._waiting(at, reached) for at, reached in unread.items()}}

    def _held_up(self, state: State) -> Set[TopicPartition]:
        """Return partitions with records in flight but without acknowledgements for a while."""
        now_s = self._context.clock.monotonic()
        self._positions = {
            at: known
            if (known := self._positions.get(at)) and known.acknowledged == one.acknowledged
            else _Position(one.acknowledged, now_s)
            for at, one in state.items()
            if one.in_flight
        }
        return {at for at, one in self._positions.items() if now_s - one.since_s > _HELD_UP_S}

    def _waiting(self, at: TopicPartition, reached: Reached) -> Reached:
        """Return the state of a partition whose next record has waited since it lagged behind."""
        now_ms = self._context.now_ms
        ends = [end for end in (reached.end, self._ends.get(at)) if end is not None]
        reached = reached._replace(end=max(ends, default=None))
        if not reached.lag_records:
            self._behind_since_ms[at] = now_ms
        since_ms = self._behind_since_ms.setdefault(at, reached.oldest_timestamp_ms or now_ms)
        return reached._replace(oldest_timestamp_ms=since_ms)
