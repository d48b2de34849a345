"""Fills holes: each empty transaction, aborted, is one offset that no consumer sees.

Holes of many partitions share transactions; a hole of several offsets has the markers of several
transactional ids at the same time, or empty records before a marker
(``offsets.holes: AbortedFillers``).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from headrace.api import TopicPartition
from headrace.errors import HeadraceError, Retriable
from headrace.kafka.wire import (
    LATEST,
    ClusterClient,
    Reply,
    Transactions,
    list_offsets,
    log_ends,
    start,
)
from headrace.movers.preserved.filler import BATCH_RECORDS, Filler
from headrace.movers.preserved.owner import Closer, TaskProducers
from headrace.movers.preserved.plan import Hole
from headrace.movers.preserved.wrong_offset import REBUILD, WrongOffset

_READ_WITHIN_S = 5.0
"""From the end of a transaction to its marker below the high watermark."""
_LEADER_S = 5.0
_POLL_S = 0.002


Filled = Callable[[TopicPartition, HeadraceError | None], None]
"""Called once for each ``fill``. ``Retriable``: how much of it is filled is not known."""


@dataclass
class _Open:
    hole: Hole
    first: int
    """All before it is filled."""
    closer: Closer | None
    """Closer that writes its first marker."""

    @property
    def left(self) -> int:
        """Offsets that no transaction has been ended for."""
        return self.hole.next - self.first


class Holes:
    """Gaps of one owner, filled in the thread of the loop of ``cluster``, the target."""

    def __init__(
        self,
        cluster: ClusterClient,
        owner: TaskProducers,
        filled: Filled,
        *,
        with_records: bool = False,
    ) -> None:
        """``with_records``: holes that take more than one round of markers have empty records."""
        self._cluster, self._filled, self._with_records = cluster, filled, with_records
        writers = zip(owner.transactions(cluster), owner.identities, strict=True)
        self._fillers = [Filler(cluster, *one) for one in writers]
        self._closing: dict[Closer, Filler] = {}
        self._open: dict[TopicPartition, _Open] = {}
        self._running = self._stopping = self._closed = False
        self._singly = False
        """A coordinator has refused some, and does not say whom: one partition at a time."""

    def fill(self, at: TopicPartition, hole: Hole, closer: Closer | None = None) -> None:
        """Fill a gap at the partition's end, with nothing of this owner in flight to it.

        ``closer`` writes the first marker before all others.
        """
        self._open[at] = _Open(hole, hole.first, closer)
        if not self._running and not self._closed:
            self._running = True
            start(self._run()).then(self._ended)

    def stop(self) -> None:
        """Begin no more transactions: what is filled only in part fails."""
        self._stopping = True

    def close(self) -> None:
        """Stop filling; an open transaction has no record."""
        self._closed = True

    async def _run(self) -> None:
        self._singly = False
        while self._open and not self._closed:
            for at, error in (await self._grown()).items():
                self._end(at, error)
            lost = await self._round()
            for at, error in lost.items():
                self._end(at, error)
            done = {at: one.hole for at, one in self._open.items() if not one.left}
            if done:
                await self._read(done)
            if self._stopping:
                for at in list(self._open):
                    self._end(at, Retriable(f"{at} is released while a hole of it is filled"))

    async def _grown(self) -> dict[TopicPartition, HeadraceError]:
        """Return partitions that are to be closed but received data of an earlier owner.

        Its records are at their offsets, and a marker would not be.
        """
        closing = {at: one.hole.first for at, one in self._open.items() if one.closer is not None}
        if not closing:
            return {}
        ends = await log_ends(self._cluster, closing, timeout_s=_LEADER_S)
        failed = dict(ends.failed)
        for at, end in ends.found.items():
            if end.end_offset != closing[at]:
                failed[at] = Retriable(
                    f"{at} on {self._cluster.name} grew from {closing[at]} to {end.end_offset} "
                    "meanwhile"
                )
        return failed

    async def _round(self) -> dict[TopicPartition, HeadraceError]:
        """Run one transaction of each needed id; a gap that fails may be filled in part."""
        sent: list[tuple[dict[TopicPartition, Hole], Reply[dict[TopicPartition, HeadraceError]]]]
        sent = []
        for filler, wanted in self._wanted():
            pieces = dict(islice(wanted.items(), 1)) if self._singly else wanted
            if pieces:
                sent.append((pieces, start(filler.fill(pieces))))
        failed: dict[TopicPartition, HeadraceError] = {}
        for pieces, reply in sent:
            try:
                failed |= await reply
            except HeadraceError as error:
                if isinstance(error, Retriable) or len(pieces) == 1:
                    failed.update((at, error) for at in pieces)
                else:
                    self._singly = True
            else:
                for at, piece in pieces.items():
                    self._open[at].first += piece.offsets
                    self._open[at].closer = None
        return failed

    def _wanted(self) -> Iterator[tuple[Filler, dict[TopicPartition, Hole]]]:
        """Yield each filler with the gaps that it fills next."""
        closing: dict[Closer, dict[TopicPartition, Hole]] = {}
        for at, one in self._open.items():
            if one.closer is not None:
                closing.setdefault(one.closer, {})[at] = Hole(one.first, one.first + 1)
        for closer, holes in closing.items():
            if closer not in self._closing:
                transactions = Transactions(self._cluster, closer.transactional_id)
                self._closing[closer] = Filler(self._cluster, transactions, closer.identity)
            yield self._closing[closer], holes
        for number, filler in enumerate(self._fillers):
            pieces = {at: self._piece(one, number) for at, one in self._open.items()}
            yield filler, {at: piece for at, piece in pieces.items() if piece is not None}

    def _piece(self, one: _Open, number: int) -> Hole | None:
        """Return the part of a gap that filler ``number`` fills next."""
        if one.closer is not None or one.left <= number:
            return None
        if not self._with_records or one.left <= len(self._fillers):
            return Hole(one.first + number, one.first + number + 1)
        return None if number else Hole(one.first, min(one.hole.next, one.first + BATCH_RECORDS))

    async def _read(self, done: dict[TopicPartition, Hole]) -> None:
        """Wait until the high watermarks have passed the markers.

        A coordinator's response is only a promise, and a leader's end may be lost with it.
        """
        loop = self._cluster.loop
        deadline_s = loop.now_s() + _READ_WITHIN_S
        waiting = dict(done)
        while waiting and not self._closed:
            listed = await list_offsets(self._cluster, waiting, LATEST, timeout_s=_LEADER_S)
            for at, error in listed.failed.items():
                del waiting[at]
                self._end(at, error)
            for at, found in listed.found.items():
                if found.offset >= waiting[at].next:
                    hole = waiting.pop(at)
                    self._end(at, self._checked(at, hole, found.offset))
            if waiting and loop.now_s() > deadline_s:
                for at in waiting:
                    name = self._cluster.name
                    self._end(at, Retriable(f"markers in {at} on {name} did not come in time"))
                return
            if waiting:
                await loop.sleep(_POLL_S)

    def _checked(self, at: TopicPartition, hole: Hole, end: int) -> WrongOffset | None:
        if end == hole.next:
            return None
        return WrongOffset(
            at,
            hole.first,
            f"{at} on {self._cluster.name} ends at offset {end} behind the markers that were to "
            f"end at {hole.next}: another client writes there, and from {hole.first} on offsets "
            f"are not those of the source; stop that client, then {REBUILD}",
        )

    def _end(self, at: TopicPartition, error: HeadraceError | None) -> None:
        self._open.pop(at, None)
        self._filled(at, error)

    def _ended(self, reply: Reply[None]) -> None:
        self._running = False
        if (error := reply.error) is None:
            return
        if not isinstance(error, HeadraceError):
            raise error
        for at in list(self._open):
            self._end(at, error)
