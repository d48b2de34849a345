"""Memory of fetched data, treatment of batches, and joining of small batches."""

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
"""Limit of held bytes above which no lane sends a fetch. The sizes of requests in flight only
reduce the size of further requests."""
HARD_BYTES = 3 * SOFT_BYTES
"""Limit of held bytes while a lane waits only for partitions whose batches the target does not
accept. The lane's other partitions are read up to this limit."""
MIN_BYTES = 256 << 10
"""Smallest size of a fetch request in bytes. Requests of this size reserve no memory, because most
of them only wait for a new record."""


class Memory:
    """Memory budget of all lanes of a loop. Call it in the loop's thread."""

    def __init__(self, soft_bytes: int = SOFT_BYTES) -> None:
        """Create an unused budget. From ``soft_bytes`` on, only stuck lanes may fetch."""
        self._soft_bytes = soft_bytes
        self.held_bytes = 0
        self.asked_bytes = 0
        """Total size of the requests in flight in bytes, without the first ``MIN_BYTES`` of each
        request."""
        self._waiting: dict[Callable[[], None], None] = {}

    def room(self, *, stuck: bool) -> int:
        """Return the size in bytes of one more request, or 0 if the request must wait.

        ``stuck`` is True if the lane waits only for partitions whose batches the target does not
        accept.
        """
        free = (HARD_BYTES if stuck else self._soft_bytes) - self.held_bytes
        return max(MIN_BYTES, free - self.asked_bytes) if free > 0 else 0

    def ask(self, size: int) -> None:
        """Count a request of this size. Call ``answered`` when the request has ended."""
        self.asked_bytes += max(0, size - MIN_BYTES)

    def answered(self, size: int) -> None:
        """Count the end of a request. Call ``take`` for its response."""
        self.asked_bytes -= max(0, size - MIN_BYTES)

    def wait(self, freed: Callable[[], None]) -> None:
        """Call ``freed`` once, when memory becomes free."""
        self._waiting[freed] = None

    def take(self, size: int) -> None:
        """Count the memory of a response as held."""
        self.held_bytes += size

    def give(self, size: int) -> None:
        """Release memory."""
        self.held_bytes -= size
        if self._waiting and self.held_bytes < self._soft_bytes:
            waiting, self._waiting = self._waiting, {}
            for freed in waiting:
                freed()


class HeldResponse:
    """Response whose memory is released when its last user has released it."""

    __slots__ = ("_memory", "_response", "_users", "size")

    def __init__(self, response: FetchResponse, memory: Memory) -> None:
        """Hold a response for its first user, the caller."""
        self._response, self._memory = response, memory
        self.size = len(response.frame.view)
        """Size of the whole response in bytes."""
        self._users = 1
        memory.take(self.size)

    def use(self) -> None:
        """Add a user of the response. It must call ``release``."""
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
    """The records of the batch are put into new batches."""
    SKIP = "Skip"
    """The batch contains no record to copy."""


class Why(StrEnum):
    """Reason why a batch is rebuilt or skipped."""

    OLD_FORMAT = "OldFormat"
    """The batch consists of messages of format 0 or 1."""
    STARTS_INSIDE = "StartsInside"
    """Records of the batch are before the offset at which copying starts."""
    HOLES = "Holes"
    """Compaction removed records. Brokers reject a batch from a producer that has such gaps."""
    LOG_APPEND_TIME = "LogAppendTime"
    """The source's broker set the timestamps. Brokers reject this attribute from a producer."""
    REFUSED = "Refused"
    """The target rejected a record of this batch or of a nearby one. The batch is divided to find
    that record."""
    CHANGED = "Changed"
    """The flow filters records of the batch or changes their headers."""
    COMPRESSION = "Compression"
    """The flow requires another codec on the target."""
    SMALL = "Small"
    """Several consecutive small batches are joined into one."""
    MARKER = "Marker"
    """The batch is a transaction marker."""
    ABORTED = "Aborted"
    """The batch belongs to an aborted transaction."""
    EMPTY = "Empty"
    """Compaction removed all records of the batch."""
    BEFORE_START = "BeforeStart"
    """All records of the batch are before the start offset. Brokers return whole batches, and from
    a compressed message set also earlier messages."""


class Judged(NamedTuple):
    """Batch with its treatment."""

    batch: Batch
    passage: Passage
    why: Why | None
    """Reason for the treatment; None if the batch is copied unchanged."""


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
    """Return the treatment of a batch for a verdict of ``scan``."""
    return Judged(batch, *_JUDGED[verdict])


def judged(
    batches: Iterable[Batch], *, start: int, aborted: Sequence[tuple[int, int]] = ()
) -> Iterator[Judged]:
    """Yield the treatment of each batch of a partition, in order, with the rules of ``Gate``."""
    gate = Gate(start, aborted)
    for batch in batches:
        yield judged_as(batch, gate.verdict(batch))


class HeldBatches:
    """Batches of one partition that wait for the end of their transactions.

    A batch outside a transaction passes at once, unless an earlier batch waits.
    """

    def __init__(self, writers: Set[int]) -> None:
        """Create an empty queue.

        ``writers`` are the producer ids whose transactions are awaited. Batches of other producers
        pass at once, even in open transactions.
        """
        self._writers = writers
        self._held: deque[Batch] = deque()
        self._aborted: dict[int, bool] = {}
        """Whether a held batch was aborted, by base offset. It contains only batches whose
        transaction has ended."""

    def take(self, batch: Batch) -> Iterator[tuple[Batch, bool]]:
        """Add the next batch of the log, and yield each decided batch with True if it was aborted.

        Raises:
            CorruptBatch: A transaction marker is damaged.
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
"""Maximum size of the records that become one batch. With added overhead they fit into a buffer of
256 KiB. Larger batches have no measurable advantage, and few topics have a ``max.message.bytes``
below this size."""
_CHECKED_EVERY_S = 1.0
"""Interval in seconds at which one joined batch is checked, for all lanes together, because they
share the C helper. A check takes about 5 us of Python for each record."""


class Run(NamedTuple):
    """Batch that was joined from consecutive small batches."""

    batch: Batch
    """Joined batch, in its own memory."""
    release: Callable[[], None]
    """Called once, to release the memory of the joined batch."""
    batches: int
    """Number of original batches."""
    size: int
    """Size of the original batches in bytes, headers included."""

    @property
    def passage(self) -> Passage:
        """Always ``COPY``: only batches that are copied unchanged are joined."""
        return Passage.COPY

    @property
    def why(self) -> None:
        """Always None, like the reason of a batch that is copied unchanged."""
        return

    @property
    def outgoing(self) -> Outgoing:
        """Joined batch in the form that the appender sends."""
        return Outgoing(self.batch, self.batch.last_offset + 1, self.release)


class Misjoined(Exception):
    """The C helper joined batches into a batch with different records."""

    def __init__(self, first: int, last: int) -> None:
        """Create the error with the offsets of the first and the last joined record."""
        super().__init__()
        self.first, self.last = first, last


class Joiner:
    """Joins small batches for all lanes of a loop. Call it in the loop's thread."""

    def __init__(
        self,
        buffers: Buffers,
        memory: Memory,
        now_s: Callable[[], float],
        find_helper: Callable[[], Helper | None] = join_helper,
    ) -> None:
        """Create a joiner. ``find_helper`` returns the C helper, or None if it is missing."""
        self._buffers, self._memory, self._now_s = buffers, memory, now_s
        self._find_helper = find_helper
        self._check_s = float("-inf")
        self._failed = False

    @property
    def helper(self) -> Helper | None:
        """C helper, or None if it is missing or failed a check.

        Without the helper, ``join`` returns None.
        """
        return None if self._failed else self._find_helper()

    def join(self, records: memoryview, start: int, most_bytes: int, *, check: bool) -> Run | None:
        """Join the first batches, or return None if fewer than two can be joined.

        If ``check`` is set, the first result, and then one result a second, is compared with the
        original batches record by record.

        Raises:
            Misjoined: The result differs. The helper is not used afterwards.
        """
        if (helper := self.helper) is None:
            return None
        buffer = self._buffers.take(joined_bytes(records, most_bytes))
        made = joined(helper, records, start, most_bytes, buffer)
        if made is None:
            self._buffers.give(buffer)
            return None
        # A size outside these limits would make the caller loop forever.
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
    except CorruptBatch:  # the helper joins only batches that Python can read
        return False
    return (
        (len(batches), truncated_bytes, found) == (one.batches, 0, wanted)
        and one.batch.leader_epoch == batches[0].leader_epoch
        and one.batch.max_timestamp == max(record.timestamp_ms for record in wanted)
    )


Join = Callable[[memoryview, int], Run | None]
"""Function that joins the first of these batches, from the given offset on. It returns None if the
first batch must be sent by itself."""

Found = Judged | Run | Span


def found_in(
    records: memoryview, scanned: Scanned, *, join: Join | None, release: Callable[[], None]
) -> Iterator[Found]:
    """Yield the batches of ``records`` in order, without a truncated last batch.

    Args:
        records: Fetched bytes of one partition.
        scanned: Result of the scan of ``records``.
        join: Joins batches with the verdict ``PLAIN``. None sends each of them by itself.
        release: Called when a yielded span no longer needs ``records``.

    Raises:
        CorruptBatch: A batch is damaged. All earlier batches are yielded first.
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
    """Yield the batches as ``found_in`` does, but each by itself or joined, never as a span."""
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
