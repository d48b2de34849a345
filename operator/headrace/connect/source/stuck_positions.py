"""Why a position does not move though there is more behind it, and nothing is on its way."""

from collections.abc import Mapping
from concurrent.futures import Executor
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple

from headrace.api import Condition, ConditionType, Reason, TopicPartition
from headrace.connect.runtime.background import BackgroundStep
from headrace.connect.runtime.context import FlowContext
from headrace.connect.runtime.observations import observation
from headrace.errors import Fatal, HeadraceError, Retriable
from headrace.kafka import Position
from headrace.movers import Reached

# A coordinator aborts a transaction that is open for longer than the producer's
# transaction.timeout.ms, 60 s by default. It checks every 10 s
# (transaction.abort.timed.out.transaction.cleanup.interval.ms). A transaction that is open for
# longer has a producer with a longer time-out, or it hangs (KIP-664).
_LONGEST_S = 70.0
_INTERVAL_S = 30.0

Offsets = Mapping[TopicPartition, int]
State = Mapping[TopicPartition, Reached]


class _Wait(NamedTuple):
    """A partition that is behind, and not copied any further."""

    offset: int
    """The next to be copied."""
    since_s: float
    """Monotonic."""
    since: datetime


class StuckPositions:
    """Detection of positions that do not move.

    The source's last stable offsets are requested only if a position has not moved for
    ``_LONGEST_S`` although there are later records. One thread calls this object. A position is
    never above the last stable offset, which never decreases. If that offset is still at the
    position, the same transaction has been open since. If it is above, the client had records to
    read and did not read them.
    """

    def __init__(self, context: FlowContext, pool: Executor) -> None:
        self.conditions: tuple[Condition, ...] = ()
        """``TransactionHanging``, while there is one."""
        self._context = context
        self._asking = BackgroundStep[Offsets](pool, context.clock)
        self._waits: dict[TopicPartition, _Wait] = {}
        self._stable_ends: Offsets = {}
        """Last stable offsets of positions that had waited for long at the last request."""
        self._unread: dict[TopicPartition, int] = {}
        """Positions from which nothing could be read."""

    def observe(self, state: State) -> Mapping[TopicPartition, HeadraceError]:
        """Update the conditions by the lane's state; request offsets when that is due.

        ``state`` has the partitions to copy. Partitions that cannot be read are returned: they must
        be opened again.
        """
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
        if answered := self._asking.done:
            self._asking.put_off(_INTERVAL_S)
            try:
                self._stable_ends = self._asking.take()
            except HeadraceError:  # brokers that are unreachable are reported where needed
                return {}
        stable = {at: self._stable_ends[at] for at in sorted(long & self._stable_ends.keys())}
        self.conditions = self._hanging(
            {at: state[at] for at, end in stable.items() if end == behind[at]}
        )
        # Records of any partition that the target has not acknowledged yet may be the reason why
        # nothing more is read; with spec.bandwidth, reads of other partitions may be.
        in_flight = any(one.in_flight for one in state.values())
        if not answered or in_flight or self._context.bandwidth.waited_within(_LONGEST_S):
            return {}
        return {at: self._not_read(at, end) for at, end in stable.items() if end > behind[at]}

    def _not_read(self, at: TopicPartition, end: int) -> HeadraceError:
        """Return an error with which another client may retry once."""
        offset = self._waits.pop(at).offset
        again = self._unread.get(at) == offset
        self._unread[at] = offset
        kind = Fatal if again else Retriable
        return kind(
            f"could not read {at} offset {offset} of {self._context.source.name}: the client "
            f"returned nothing for {_LONGEST_S:.0f} s, though committed records go on to offset "
            f"{end - 1}; its log may be damaged there, or in a form that this client cannot read: "
            "compare with kafka-dump-log on the partition's brokers"
        )

    def _hanging(self, hanging: State) -> tuple[Condition, ...]:
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
