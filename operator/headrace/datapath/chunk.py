"""Fetched chunks: their memory, the verdicts of their batches, and joined batches."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from enum import StrEnum
from functools import partial
from typing import NamedTuple

from headrace.datapath.spans import Outgoing, Span
from headrace.kafka.wire import (
    Batch,
    BatchVerdict,
    Buffers,
    CorruptBatch,
    FetchResponse,
    Gate,
    Helper,
    Joined,
    Scanned,
    aborts,
    batch_at,
    join_helper,
    joined,
    joined_bytes,
    refuse_corrupt,
    split_batches,
    stored_records,
)
from headrace.kafka.wire.scan import (
    BASE,
    COLUMNS,
    PLACE,
    RUN_COLUMNS,
    RUN_FIRST,
    RUN_ROWS,
    RUN_VERDICT,
    SIZE,
)

SOFT_BYTES = 32 << 20
"""No lane fetches more while so much is held. What requests on their way may bring counts when
another one is to ask for much."""
HARD_BYTES = 3 * SOFT_BYTES
"""Limit including what is held for partitions that the target does not accept. Other partitions
continue up to this limit.
"""
LEAST_BYTES = 256 << 10
"""That a request asks for: of one that waits for a record to come, nothing is set aside."""


class Memory:
    """Memory of all lanes of a loop, called in its thread."""

    def __init__(self) -> None:
        self.held_bytes = 0
        self.asked_bytes = 0
        """Size of requests in flight, beyond ``LEAST_BYTES`` of each."""
        self._waiting: dict[Callable[[], None], None] = {}

    def room(self, *, stuck: bool) -> int:
        """Return how many bytes one more request may request; 0 means that it must wait.

        ``stuck`` states that the lane waits only for partitions that the target does not accept.
        """
        free = (HARD_BYTES if stuck else SOFT_BYTES) - self.held_bytes
        return max(LEAST_BYTES, free - self.asked_bytes) if free > 0 else 0

    def ask(self, size: int) -> None:
        """Count a request of a size; call ``answered`` after its response or its end."""
        self.asked_bytes += max(0, size - LEAST_BYTES)

    def answered(self, size: int) -> None:
        """Count the end of a request; its response, if any, counts as held."""
        self.asked_bytes -= max(0, size - LEAST_BYTES)

    def wait(self, freed: Callable[[], None]) -> None:
        """Call it once, when memory becomes free."""
        self._waiting[freed] = None

    def take(self, size: int) -> None:
        """Count the memory of a response as held."""
        self.held_bytes += size

    def give(self, size: int) -> None:
        """Release memory."""
        self.held_bytes -= size
        if self._waiting and self.held_bytes < SOFT_BYTES:
            waiting, self._waiting = self._waiting, {}
            for freed in waiting:
                freed()


class HeldResponse:
    """A response that is released when all that use parts of it have released it."""

    __slots__ = ("_memory", "_response", "_users", "size")

    def __init__(self, response: FetchResponse, memory: Memory) -> None:
        """Hold a response for one user, the creator."""
        self._response, self._memory = response, memory
        self.size = len(response.frame.view)
        """Size of the whole response in bytes."""
        self._users = 1
        memory.take(self.size)

    def use(self) -> None:
        """Add a user, who must call ``release``."""
        self._users += 1

    def release(self) -> None:
        """Remove a user."""
        self._users -= 1
        if not self._users:
            self._response.release()
            self._memory.give(self.size)


class Passage(StrEnum):
    """Treatment of a batch."""

    COPY = "Copy"
    """The batch is sent unchanged."""
    REBUILD = "Rebuild"
    """The records of the batch are put into a new batch."""
    SKIP = "Skip"
    """The batch contains no record to copy."""


class Why(StrEnum):
    """Why a batch is not copied as it is."""

    OLD_FORMAT = "OldFormat"
    """Messages of magic 0 or 1."""
    STARTS_INSIDE = "StartsInside"
    """Records before the start are not wanted."""
    HOLES = "Holes"
    """Compaction removed records: brokers take a batch only without."""
    LOG_APPEND_TIME = "LogAppendTime"
    """The source's broker set its timestamps: brokers reject this attribute from a producer."""
    REFUSED = "Refused"
    """The target refused a record of it, or of one nearby: that record is searched."""
    CHANGED = "Changed"
    """The flow leaves records of it out, or changes their headers."""
    COMPRESSION = "Compression"
    """The target's batches are to have another codec."""
    SMALL = "Small"
    """Several of few records waited: they become one."""
    MARKER = "Marker"
    """A marker of a transaction."""
    ABORTED = "Aborted"
    """A batch of an aborted transaction."""
    EMPTY = "Empty"
    """Compaction removed all records."""
    BEFORE_START = "BeforeStart"
    """Brokers send the whole batch, from a compressed set even those before it."""


class Judged(NamedTuple):
    """A batch, and what happens to it."""

    batch: Batch
    passage: Passage
    why: Why | None
    """``None``: it is copied as it is."""


_JUDGED: dict[int, tuple[Passage, Why | None]] = {
    BatchVerdict.COPY: (Passage.COPY, None),
    BatchVerdict.PLAIN: (Passage.COPY, None),
    BatchVerdict.OLD_FORMAT: (Passage.REBUILD, Why.OLD_FORMAT),
    BatchVerdict.STARTS_INSIDE: (Passage.REBUILD, Why.STARTS_INSIDE),
    BatchVerdict.HOLES: (Passage.REBUILD, Why.HOLES),
    BatchVerdict.LOG_APPEND_TIME: (Passage.REBUILD, Why.LOG_APPEND_TIME),
    BatchVerdict.MARKER: (Passage.SKIP, Why.MARKER),
    BatchVerdict.ABORTED: (Passage.SKIP, Why.ABORTED),
    BatchVerdict.EMPTY: (Passage.SKIP, Why.EMPTY),
    BatchVerdict.BEFORE_START: (Passage.SKIP, Why.BEFORE_START),
}


def judged_as(batch: Batch, verdict: int) -> Judged:
    """Return what happens to a batch for which ``scan`` found this verdict."""
    return Judged(batch, *_JUDGED[verdict])


def judged(
    batches: Iterable[Batch], *, start: int, aborted: Sequence[tuple[int, int]] = ()
) -> Iterator[Judged]:
    """Judge the batches of a partition of a response, in order: see ``Gate``."""
    gate = Gate(start, aborted)
    for batch in batches:
        yield judged_as(batch, gate.verdict(batch))


class HeldBatches:
    """Batches of one partition that wait for the end of a transaction.

    A batch outside of transactions passes at once, unless it is after an open transaction.
    """

    def __init__(self, writers: Set[int]) -> None:
        """Create an empty queue.

        ``writers`` are the producer ids whose transactions are awaited. Batches of other producers
        pass, even in open transactions.
        """
        self._writers = writers
        self._held: deque[Batch] = deque()
        self._aborted: dict[int, bool] = {}
        """Whether each held batch was aborted, by base offset, if its transaction has ended."""

    def take(self, batch: Batch) -> Iterator[tuple[Batch, bool]]:
        """Add the next batch of the log; yield decided batches, each with whether it was aborted.

        Raise ``CorruptBatch``.
        """
        self._held.append(batch)
        if batch.magic == 2 and batch.control and batch.producer_id in self._writers:
            aborted = aborts(batch)
            for one in self._held:
                if self._waits(one) and one.producer_id == batch.producer_id:
                    self._aborted[one.base_offset] = aborted
        while self._held and not self._waits(self._held[0]):
            first = self._held.popleft()
            yield first, self._aborted.pop(first.base_offset, False)

    def _waits(self, batch: Batch) -> bool:
        return (
            batch.magic == 2
            and batch.transactional
            and not batch.control
            and batch.producer_id in self._writers
            and batch.base_offset not in self._aborted
        )


TOGETHER_BYTES = 240 << 10
"""Size of records that become one batch; with their growth they fit into a buffer of 256 KiB.
Larger batches have no measurable advantage, and few topics accept less than brokers do by default.
"""
_CHECKED_EVERY_S = 1.0
"""Interval of checks of all lanes together, because they share the helper. A check needs some 5 us
of Python for each record.
"""


class Run(NamedTuple):
    """Consecutive small batches that were joined into one."""

    batch: Batch
    """The joined batch, in memory of its own."""
    release: Callable[[], None]
    """Called once, to release the memory of the joined batch."""
    batches: int
    """Number of original batches."""
    size: int
    """Size of the original batches in bytes, headers included."""

    @property
    def passage(self) -> Passage:
        """Passage of its batches: the gate would pass each of them as it is."""
        return Passage.COPY

    @property
    def why(self) -> None:
        """Reason, as in ``Judged``; there is none."""
        return

    @property
    def outgoing(self) -> Outgoing:
        """For the target."""
        return Outgoing(self.batch, self.batch.last_offset + 1, self.release)


class Misjoined(Exception):
    """The helper made something else of batches than they hold."""

    def __init__(self, first: int, last: int) -> None:
        """Offsets, as far as they are known."""
        super().__init__()
        self.first, self.last = first, last


class Joiner:
    """Joiner for all lanes of a loop, called in its thread."""

    def __init__(self, buffers: Buffers, memory: Memory, now_s: Callable[[], float]) -> None:
        self._buffers, self._memory, self._now_s = buffers, memory, now_s
        self._check_s = float("-inf")
        self._failed = False

    @property
    def helper(self) -> Helper | None:
        """Helper in C; None if there is none, or none to be trusted. ``join`` then does nothing."""
        return None if self._failed else join_helper()

    def join(self, records: memoryview, start: int, most_bytes: int, *, check: bool) -> Run | None:
        """Join the first batches as ``joined`` requires; None if fewer than two can be joined.

        With ``check`` the first run, and then one a second, is compared with its batches record by
        record. Raise ``Misjoined`` for a difference; the helper is not used afterwards.
        """
        if (helper := self.helper) is None:
            return None
        buffer = self._buffers.take(joined_bytes(records, most_bytes))
        made = joined(helper, records, start, most_bytes, buffer)
        if made is None:
            self._buffers.give(buffer)
            return None
        # otherwise a caller that continues after it would never end
        right = 0 < made.size <= len(records)
        if right and check and self._now_s() >= self._check_s:
            self._check_s = self._now_s() + _CHECKED_EVERY_S
            right = _same_records(made, records)
        if not right:
            self._failed = True
            self._buffers.give(buffer)
            raise Misjoined(start, made.batch.last_offset)
        self._memory.take(len(buffer))
        return Run(made.batch, partial(self._release, buffer), made.batches, made.size)

    def _release(self, buffer: bytearray) -> None:
        self._buffers.give(buffer)
        self._memory.give(len(buffer))


def _same_records(one: Joined, records: memoryview) -> bool:
    try:
        batches, truncated_bytes = split_batches(records[: one.size])
        wanted = [record for batch in batches for record in stored_records(batch)]
        found = list(stored_records(one.batch))
    except CorruptBatch:  # the helper refuses what Python cannot read
        return False
    return (
        (len(batches), truncated_bytes, found) == (one.batches, 0, wanted)
        and one.batch.leader_epoch == batches[0].leader_epoch
        and one.batch.max_timestamp == max(record.timestamp_ms for record in wanted)
    )


Join = Callable[[memoryview, int], Run | None]
"""Joins the first batches of a log, from an offset on. It returns ``None`` if they are to be sent
one by one."""

Found = Judged | Run | Span


def found_in(
    records: memoryview, scanned: Scanned, *, join: Join | None, release: Callable[[], None]
) -> Iterator[Found]:
    """Yield what ``scanned`` describes in ``records``, in order, without a truncated last batch.

    ``join`` accepts plain batches. ``release`` is called for each span. Raise ``CorruptBatch``
    after everything that precedes such a batch.
    """
    for run in range(scanned.run_count):
        if scanned.runs[run * RUN_COLUMNS + RUN_VERDICT] == BatchVerdict.COPY:
            yield Span(records, scanned, run, release)
        else:
            yield from _in_run(records, scanned, run, join)
    refuse_corrupt(records, scanned)


def each_found_in(
    records: memoryview, scanned: Scanned, *, join: Join | None
) -> Iterator[Judged | Run]:
    """Do the same as ``found_in`` without spans: each batch is yielded by itself, or joined."""
    for run in range(scanned.run_count):
        yield from _in_run(records, scanned, run, join)
    refuse_corrupt(records, scanned)


def _in_run(
    records: memoryview, scanned: Scanned, run: int, join: Join | None
) -> Iterator[Judged | Run]:
    runs, rows, at = scanned.runs, scanned.rows, run * RUN_COLUMNS
    verdict, row, count = runs[at + RUN_VERDICT], runs[at + RUN_FIRST], runs[at + RUN_ROWS]
    end = row + count
    while row < end:
        place = rows[row * COLUMNS + PLACE]
        if join is not None and verdict == BatchVerdict.PLAIN:
            last = (end - 1) * COLUMNS
            plain = records[place : rows[last + PLACE] + rows[last + SIZE]]
            if (joined := join(plain, rows[row * COLUMNS + BASE])) is not None:
                yield joined
                row += joined.batches
                continue
        yield judged_as(batch_at(records, rows, row), verdict)
        row += 1
