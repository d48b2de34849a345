"""Delivery modes of a lane: how batches are written, and when records count as copied.

The pipeline calls the hooks of a ``DeliveryStrategy``, and does not depend on the mode.
``AtLeastOnce`` is here. ``transactional`` and ``preserved`` contain the other strategies.
``lane.Fencing`` describes how partitions are taken over from earlier owners.
"""

from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

from headrace.api import TopicPartition
from headrace.datapath.append import Appender, RowsAcknowledged
from headrace.datapath.chunk import Found, HeldResponse
from headrace.datapath.fetch import Reader
from headrace.datapath.lane import CopyFrom, Reached, Transactional
from headrace.datapath.lane_state import LaneState
from headrace.datapath.partition import OpenPartition
from headrace.datapath.plan import Passing
from headrace.datapath.rebuild import TopicChanges
from headrace.datapath.resources import LaneResources, Outlet
from headrace.datapath.spans import Acknowledged, Damaged, Failed, Outgoing, Sending, Span
from headrace.datapath.transactions import Mark
from headrace.datapath.verify import Verifier
from headrace.errors import HeadraceError, Retriable
from headrace.kafka.wire import (
    EventLoop,
    ProducerIdentity,
    UnsupportedBroker,
    idempotent_producer,
)
from headrace.timing import Backoff

_IDENTITY_S = 5.0


class DeliveryStrategy(Protocol):
    """Hooks of a delivery mode, for one lane.

    Calls run in the loop's thread, except ``open`` and ``retire``.
    """

    @property
    def copies_spans(self) -> bool:
        """Whether runs of batches are sent as spans."""
        ...

    @property
    def transactions(self) -> Transactional | None:
        """Methods for transactions; None if the mode has no transactions. Any thread may use it."""
        ...

    @property
    def sending(self) -> Sending | None:
        """The appender; None while nothing can be sent."""
        ...

    async def begin(self) -> None:
        """Request a producer id if the mode needs one before the lane reads.

        Nothing is read while ``sending`` is None.
        """
        ...

    def open(self, target: TopicPartition, position: CopyFrom) -> Callable[[], None]:
        """Accept a partition. The task's thread calls it with the lock.

        Return a function that the loop's thread calls before the partition is read.

        Raises:
            Fatal: The partition cannot be written from this position.
        """
        ...

    def readable(self, ats: Set[TopicPartition]) -> Set[TopicPartition]:
        """Return the partitions that have room for more data."""
        ...

    def take(
        self,
        partition: OpenPartition,
        found: Iterable[Found],
        response: HeldResponse,
        changes: TopicChanges,
        *,
        singly: bool,
    ) -> None:
        """Copy fetched batches of a partition, as ``Passing.take`` does. The lock is held."""
        ...

    def append(self, target: TopicPartition, outgoing: Outgoing | Span) -> None:
        """Append to a partition of the target, after everything that was appended before."""
        ...

    def drain(self, at: TopicPartition) -> None:
        """Drop unsent data of a partition that leaves, so that the partition can be closed soon."""
        ...

    def forget(self, target: TopicPartition) -> None:
        """Release a partition of the target that is closed."""
        ...

    def retire(self) -> None:
        """End the use of producer identities by this lane. The task's thread calls it."""
        ...

    async def abort(self) -> None:
        """Abort the open transaction, if there is one."""
        ...

    def close(self) -> None:
        """Close everything that no other lane uses."""
        ...


@dataclass(frozen=True)
class LaneParts:
    """Parts of a lane that its delivery mode uses."""

    resources: LaneResources
    state: LaneState
    loop: EventLoop
    outlet: Outlet
    """Connections to the target."""
    reader: Reader
    passing: Passing
    """Plan of copies whose offsets differ from the source's. It calls ``append`` of the
    strategy."""
    verifier: Verifier
    acknowledged: Acknowledged
    """Function that receives acknowledged batches."""
    rows_acknowledged: RowsAcknowledged
    """Receives acknowledged batches of spans."""
    filled: Callable[[TopicPartition, int], None]
    """Receives a partition of the target, and the offset up to which a hole is filled."""
    failed: Failed
    """Receives failed partitions."""
    waiting: Callable[[object], None]
    """Receives messages about operations that are retried."""
    damaged: Damaged
    """Receives damaged responses of the target."""
    reached: Callable[[OpenPartition, Mark], Reached]
    """Function that returns the state of a partition's copy."""


class Translating:
    """Hooks of modes whose copies have other offsets than the source."""

    copies_spans = True

    def __init__(self, parts: LaneParts) -> None:
        self._parts = parts

    def readable(self, ats: Set[TopicPartition]) -> Set[TopicPartition]:
        return ats

    def take(
        self,
        partition: OpenPartition,
        found: Iterable[Found],
        response: HeldResponse,
        changes: TopicChanges,
        *,
        singly: bool,
    ) -> None:
        self._parts.passing.take(partition, found, response, changes, singly=singly)

    def drain(self, at: TopicPartition) -> None:
        """Do nothing: everything that was read is sent."""

    def forget(self, target: TopicPartition) -> None:
        """Do nothing: the appender keeps the sequences of its partitions."""

    def retire(self) -> None:
        """Do nothing: the next owner fences the identities."""


class AtLeastOnce(Translating):
    """Mode without transactions: acknowledged records count as copied.

    Each partition is written with an identity that later owners can fence, or with the lane's own.
    """

    transactions = None

    def __init__(self, parts: LaneParts) -> None:
        super().__init__(parts)
        self._appender: Appender | None = None
        self._opened: dict[TopicPartition, _Opened] = {}

    @property
    def sending(self) -> Appender | None:
        return self._appender

    async def begin(self) -> None:
        """Get the lane's own producer id."""
        parts, backoff = self._parts, Backoff(0.1, 1.0)
        while not parts.state.ended:
            try:
                identity = await idempotent_producer(parts.outlet.cluster, timeout_s=_IDENTITY_S)
            except HeadraceError as error:
                if isinstance(error, UnsupportedBroker) or not isinstance(error, Retriable):
                    parts.state.broken = error
                    return
                parts.waiting(error)
                await parts.loop.sleep(backoff.next_s())
                continue
            self._appender = Appender(
                parts.loop,
                parts.outlet.leaders,
                identity,
                parts.acknowledged,
                parts.failed,
                waiting=parts.waiting,
                damaged=parts.damaged,
                rows_acknowledged=parts.rows_acknowledged,
            )
            for at, opened in self._opened.items():
                self._begin(self._appender, at, opened)
            parts.reader.wake()
            return

    def open(self, target: TopicPartition, position: CopyFrom) -> Callable[[], None]:
        writer, begin = position.writer, self._parts.resources.begin
        identity = None if writer is None else begin(target, writer)
        return partial(self._write, target, _Opened(identity, position.target_offset))

    def _write(self, target: TopicPartition, opened: "_Opened") -> None:
        self._opened[target] = opened
        if self._appender is not None:
            self._begin(self._appender, target, opened)

    @staticmethod
    def _begin(appender: Appender, target: TopicPartition, opened: "_Opened") -> None:
        if opened.identity is not None:
            appender.begin(target, opened.identity)
        appender.expect(target, opened.end)

    def append(self, target: TopicPartition, outgoing: Outgoing | Span) -> None:
        assert self._appender is not None
        self._appender.append(target, outgoing)

    async def abort(self) -> None:
        """Do nothing, because there is no transaction."""

    def close(self) -> None:
        if self._appender is not None:
            self._appender.close()


class _Opened(NamedTuple):
    """State in which a partition was opened."""

    identity: ProducerIdentity | None
    """None for the lane's own identity."""
    end: int
    """Expected end of the target's log."""
