"""Transactions of the source that stay open: nothing behind their first record can be copied."""

from collections.abc import Mapping
from concurrent.futures import Executor
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple

from headrace.api import Condition, ConditionType, Reason, TopicPartition
from headrace.connect.background import BackgroundStep
from headrace.connect.context import FlowContext
from headrace.connect.observations import observation
from headrace.errors import HeadraceError
from headrace.kafka import Position
from headrace.movers import Reached

# A coordinator aborts what is open for longer than the producer's transaction.timeout.ms, 60 s by
# default, and looks every 10 s (transaction.abort.timed.out.transaction.cleanup.interval.ms). What
# is open for longer has a producer that wants that, or hangs (KIP-664).
_LONGEST_S = 70.0
_INTERVAL_S = 30.0

Offsets = Mapping[TopicPartition, int]


class _Wait(NamedTuple):
    """A partition that is behind, and not copied any further."""

    offset: int
    """The next to be copied."""
    since_s: float
    """Monotonic."""
    since: datetime


class HangingTransactions:
    """Asks the source for its last stable offsets, but only where a position has not moved for
    ``_LONGEST_S`` though there is more behind it. One thread calls it.

    A position is never above the last stable offset, which never falls: if that is still at the
    position then it was there all the time, and the same transaction is open since.
    """

    def __init__(self, context: FlowContext, pool: Executor) -> None:
        self.conditions: tuple[Condition, ...] = ()
        """``TransactionHanging``, while there is one."""
        self._context = context
        self._asking = BackgroundStep[Offsets](pool, context.clock)
        self._waits: dict[TopicPartition, _Wait] = {}
        self._stable_ends: Offsets = {}
        """Of those that were waiting for long when the source was asked."""

    def observe(self, state: Mapping[TopicPartition, Reached]) -> None:
        """Update the conditions, by what the lane fetched; ask when that is due."""
        clock = self._context.clock
        now_s = clock.monotonic()
        starts = _Wait(0, now_s, datetime.fromtimestamp(int(clock.time()), UTC))
        behind = {at: one.acknowledged for at, one in state.items() if one.lag_records}
        self._waits = {
            at: known
            if (known := self._waits.get(at)) and known.offset == offset
            else starts._replace(offset=offset)
            for at, offset in behind.items()
        }
        long = {at for at, wait in self._waits.items() if now_s - wait.since_s > _LONGEST_S}
        if long and self._asking.due:
            ask = self._context.source.known_ends
            self._asking.start(partial(ask, long, Position.LAST_STABLE))
        if self._asking.done:
            self._asking.put_off(_INTERVAL_S)
            try:
                self._stable_ends = self._asking.take()
            except HeadraceError:  # brokers that are away are reported where needed
                return
        self.conditions = self._found(
            {at: state[at] for at in sorted(long) if self._stable_ends.get(at) == behind[at]}
        )

    def _found(self, hanging: Mapping[TopicPartition, Reached]) -> tuple[Condition, ...]:
        if not hanging:
            return ()
        each = [
            f"{at} from offset {one.acknowledged} on, {one.lag_records} offsets wait since "
            f"{self._waits[at].since:%Y-%m-%dT%H:%M:%SZ} or earlier"
            for at, one in hanging.items()
        ]
        return (
            observation(
                ConditionType.TRANSACTION_HANGING,
                Reason.TRANSACTION_OPEN,
                f"transactions on {self._context.source.name} stay open, and nothing behind their "
                "first record is copied until they end: end their producers, or abort them with "
                f"kafka-transactions.sh: {'; '.join(each)}",
            ),
        )
