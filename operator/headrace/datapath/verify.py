"""Verification: batches are read back from the target and compared with the fetched ones."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from functools import partial
from typing import NamedTuple

from headrace.api import TopicPartition
from headrace.api.flow import BatchVerification
from headrace.datapath.lane import CopiedCounts, TargetLoss
from headrace.datapath.spans import Outgoing
from headrace.errors import Fatal, HeadraceError, Retriable
from headrace.kafka import AccessDenied
from headrace.kafka.wire import (
    READ_UNCOMMITTED,
    Answers,
    Batch,
    ClusterClient,
    CorruptBatch,
    Decoded,
    EpochEnd,
    FetchOutcome,
    FetchPosition,
    Reply,
    UnreadableBatch,
    decoded,
    fetch_call,
    fetch_outcome,
    log_ends,
    refusal,
    split_batches,
    start,
    stored_records,
)
from headrace.logs import get_logger
from headrace.replication import TargetSeen
from headrace.timing import Backoff

Records = Mapping[int, Decoded]
"""Records by their offset on the target."""


class BatchComparison(StrEnum):
    """Result of comparing a batch that was copied unchanged, or joined from such batches."""

    SAME = "Same"
    NOT_READ = "NotRead"
    """Some records could not be read back: retention, compaction, a missing permission or no
    response."""
    DIFFERENT = "Different"
    MISJOINED = "Misjoined"
    """The C helper changed records while joining batches. The batch was not sent."""


def compared(sent: Batch, base_offset: int, stored: Sequence[Batch]) -> tuple[BatchComparison, str]:
    """Compare a sent batch with the target's batches; return the result and the reason.

    ``stored`` contains the target's batches from ``base_offset`` on. ``base_offset`` is the offset
    at which the target appended ``sent``. A target may compress records again and set its own
    timestamps. In that case records are compared instead of bytes.
    """
    if not stored:
        return BatchComparison.NOT_READ, "the target does not hold these offsets any more"
    if _same_bytes(sent, stored[0], base_offset):
        return BatchComparison.SAME, ""
    try:
        wanted = dict(_records(sent, base_offset - sent.base_offset))
        found = dict(record for batch in stored for record in _records(batch, 0))
    except UnreadableBatch as error:  # for example a codec that only the clusters support
        return BatchComparison.NOT_READ, f"what the target holds cannot be decoded: {error}"
    except CorruptBatch as error:
        return BatchComparison.DIFFERENT, str(error)
    return _compared(wanted, found, compare_timestamps=not stored[0].log_append_time)


def _compared(
    expected: Records, found: Records, *, compare_timestamps: bool
) -> tuple[BatchComparison, str]:
    for offset in sorted(expected.keys() & found.keys()):
        what = _difference(expected[offset], found[offset], compare_timestamps=compare_timestamps)
        if what:
            return BatchComparison.DIFFERENT, f"the {what} of the record at offset {offset} differs"
    if missing := len(expected.keys() - found.keys()):
        return (
            BatchComparison.NOT_READ,
            f"the target does not hold {missing} of its records any more",
        )
    return BatchComparison.SAME, ""


def _same_bytes(sent: Batch, copy: Batch, base_offset: int) -> bool:
    """Return whether all fields that brokers do not change are equal. This is the hot path."""
    return (
        copy.base_offset == base_offset
        and (copy.magic, copy.codec) == (sent.magic, sent.codec)
        and copy.last_offset_delta == sent.last_offset_delta
        and (copy.base_timestamp, copy.max_timestamp) == (sent.base_timestamp, sent.max_timestamp)
        and (copy.record_count, copy.log_append_time) == (sent.record_count, False)
        and bytes(copy.payload) == bytes(sent.payload)  # views compare item by item
        and copy.intact
    )


def _records(batch: Batch, moved: int) -> Iterator[tuple[int, Decoded]]:
    for record in map(decoded, stored_records(batch)):
        yield record.offset + moved, record


def _difference(record: Decoded, copy: Decoded, *, compare_timestamps: bool) -> str:
    for what in ("key", "value", "headers"):
        if getattr(record, what) != getattr(copy, what):
            return what
    differs = compare_timestamps and record.timestamp_ms != copy.timestamp_ms
    return "timestamp" if differs else ""


log = get_logger(__name__)

_SAMPLED_EVERY_S = 1.0
"""Interval in seconds between verified batches of a lane with ``Sampled``."""
UNVERIFIED_BYTES = 16 << 20
"""Maximum size in bytes of a lane's batches that wait for verification. They are copies, so the
fetch responses can be released."""
_TIMEOUT_S = 10.0
_PURPOSE = "verify"


class Differs(Fatal):
    """The target's records differ from the sent ones."""


class _Written(NamedTuple):
    at: TopicPartition
    base_offset: int
    batch: Batch
    """Batch in its own memory."""


class Verifier:
    """Verification of one lane's batches. Call it in the thread of the lane's loop.

    One batch at a time is read back.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        current_setting: Callable[[], BatchVerification],
        copied: CopiedCounts,
        *,
        differs: Callable[[TopicPartition, Differs], None],
        room: Callable[[], None],
        max_bytes: int = UNVERIFIED_BYTES,
    ) -> None:
        """Create the object.

        Args:
            cluster: The target.
            current_setting: Returns the flow's current setting.
            copied: Counts of the results.
            differs: Receives each difference.
            room: Called when a batch has left the queue.
            max_bytes: Size of the queue in bytes from which it is full.
        """
        self._cluster, self._current_setting, self._copied = cluster, current_setting, copied
        self._differs, self._room, self._max_bytes = differs, room, max_bytes
        self._queue = deque[_Written]()
        self._bytes = 0
        self._next_s = 0.0
        self._reading = self._closed = self._denied = False

    @property
    def full(self) -> bool:
        """Whether no more batches should be copied until some are verified."""
        return self._bytes >= self._max_bytes

    @property
    def compares_all(self) -> bool:
        """Whether every batch that is copied unchanged is compared."""
        return self._current_setting() is BatchVerification.FULL

    @property
    def wanted(self) -> bool:
        """Whether any batches are compared."""
        return self._current_setting() is not BatchVerification.DISABLED

    @property
    def due(self) -> bool:
        """Whether the next acknowledged batch is compared."""
        match self._current_setting():
            case BatchVerification.DISABLED:
                return False
            case BatchVerification.SAMPLED:
                return not self._queue and self._cluster.loop.now_s() >= self._next_s
            case BatchVerification.FULL:
                return True

    def delivered(self, at: TopicPartition, outgoing: Outgoing, base_offset: int) -> None:
        """Queue an acknowledged batch if verification is due.

        A batch that was rebuilt in Python is not compared.
        """
        if outgoing.offsets is not None or not self.due:
            return
        self._next_s = self._cluster.loop.now_s() + _SAMPLED_EVERY_S
        data = memoryview(bytes(outgoing.batch.data))
        self._queue.append(_Written(at, base_offset, outgoing.batch._replace(data=data)))
        self._bytes += len(data)
        if not self._reading:
            self._reading = True
            start(self._run()).then(lambda reply: reply.result())

    async def verdict(
        self, at: TopicPartition, base_offset: int, batch: Batch
    ) -> tuple[BatchComparison, str]:
        """Return the result and the reason for a batch, which must have its own memory."""
        return await self._verdict(_Written(at, base_offset, batch))

    def misjoined(self, at: TopicPartition, first: int, last: int) -> None:
        """Report that the C helper joined source offsets of a partition into a wrong batch."""
        self._count(BatchComparison.MISJOINED)
        log.error(
            "the helper for small batches made a wrong batch, and is not used any more: batches "
            "that it made before may be wrong on the target",
            partition=str(at),
            offsets=f"{first} to {last}",
        )

    def close(self) -> None:
        """Stop. Queued batches count as not read."""
        self._closed = True

    async def _run(self) -> None:
        while self._queue:
            written = self._queue[0]
            verdict, why = await self._verdict(written)
            self._queue.popleft()
            self._bytes -= len(written.batch.data)
            self._report(written, verdict, why)
            self._room()
        self._reading = False

    async def _verdict(self, written: _Written) -> tuple[BatchComparison, str]:
        verdict, why = await self._compared(written)
        if verdict is BatchComparison.DIFFERENT:  # the response may have been damaged
            return await self._compared(written)
        return verdict, why

    async def _compared(self, written: _Written) -> tuple[BatchComparison, str]:
        if self._closed:
            return BatchComparison.NOT_READ, "its lane was closed"
        try:
            stored = await self._stored(written)
        except CorruptBatch as error:
            return BatchComparison.DIFFERENT, str(error)
        except (AccessDenied, Fatal) as error:  # a permission is missing
            if not self._denied:
                self._denied = True
                log.warning("batches are not verified", why=str(error))
            return BatchComparison.NOT_READ, str(error)
        except HeadraceError as error:
            return BatchComparison.NOT_READ, str(error)
        return compared(written.batch, written.base_offset, stored)

    def _count(self, verdict: BatchComparison) -> None:
        verified = self._copied.verified
        verified[verdict] = verified.get(verdict, 0) + 1

    def _report(self, written: _Written, verdict: BatchComparison, why: str) -> None:
        self._count(verdict)
        if verdict is BatchComparison.NOT_READ:
            log.debug("not verified", partition=str(written.at), why=why)
        if verdict is not BatchComparison.DIFFERENT:
            return
        of = written.batch
        error = Differs(
            f"{written.at} on {self._cluster.name} does not hold what was copied from the "
            f"source's offsets {of.base_offset} to {of.last_offset} (spec.batchVerification): "
            f"{why}; compare the topics, and reset the partition if its copies are wrong"
        )
        log.error("verification failed", partition=str(written.at), why=str(error))
        self._differs(written.at, error)

    async def _stored(self, written: _Written) -> list[Batch]:
        """Return the target's batches from the written offset on; retry if the leader moved."""
        loop, backoff = self._cluster.loop, Backoff(0.02, 0.5)
        deadline_s = loop.now_s() + _TIMEOUT_S
        while True:
            try:
                return await self._fetched(written)
            except CorruptBatch:
                raise
            except Retriable:
                if self._closed or loop.now_s() >= deadline_s:
                    raise
            await loop.sleep(backoff.next_s())
            with suppress(Retriable):  # the next attempt reports unreachable brokers
                await self._cluster.refresh([written.at.topic])

    async def _fetched(self, written: _Written) -> list[Batch]:
        cluster, at = self._cluster, written.at
        topic, led = cluster.view.topics.get(at.topic), cluster.view.leadership(at)
        if topic is None or led is None:
            raise Retriable(f"{at} on {cluster.name} has no leader")
        connection = await cluster.connection(led.leader, _PURPOSE)
        size = len(written.batch.data)  # brokers return at least one whole batch
        wanted = FetchPosition(
            topic.id, at.partition, written.base_offset, size, led.epoch, topic=at.topic
        )
        response = await connection.send(
            fetch_call([wanted], isolation=READ_UNCOMMITTED, max_wait_ms=100)
        )
        try:
            for one in response.partitions:
                tried = f"read {at} of {cluster.name} back from offset {written.base_offset} on"
                outcome = fetch_outcome(one.error)
                if outcome is FetchOutcome.OUT_OF_RANGE:
                    return []  # retention, or a truncation, which the appender detects
                if outcome is FetchOutcome.CORRUPT:
                    raise CorruptBatch(f"could not {tried}: its broker cannot read its log there")
                if outcome is FetchOutcome.MOVED:
                    raise Retriable(f"could not {tried}: its leader moved")
                if outcome is not FetchOutcome.FETCHED:
                    raise refusal(one.error, tried)
                return split_batches(memoryview(bytes(one.records))).batches
        finally:
            response.release()
        raise Retriable(f"{cluster.name} gave no answer for {at}")


# Leader epochs of the target, which a later takeover needs to detect losses. A Produce response
# does not contain the leader's epoch, and the client's metadata may contain an earlier one; an
# election would then look like a loss. Therefore the leaders are queried one second after an
# acknowledgement, with an epoch that they confirm.

EPOCH_INTERVAL_S = 1.0
"""Time from an acknowledgement to the query of the target's leader epochs, in seconds."""
_EPOCH_TIMEOUT_S = 5.0

Offsets = Mapping[TopicPartition, int]


class TargetEpochs:
    """Leader epochs of target partitions. Use it in the thread of the cluster's loop."""

    def __init__(
        self,
        cluster: ClusterClient,
        unseen: Callable[[], Offsets],
        seen: Callable[[TopicPartition, TargetSeen], None],
        lost: Callable[[TopicPartition, TargetLoss], None],
        *,
        interval_s: float = EPOCH_INTERVAL_S,
    ) -> None:
        """Create the object.

        Args:
            cluster: The target.
            unseen: Returns the ends of acknowledged records, of partitions whose ends are not
                confirmed.
            seen: Receives ends that the leader's epoch confirmed.
            lost: Receives partitions whose leader lacks acknowledged records.
            interval_s: Time from an acknowledgement to the query.
        """
        self._cluster, self._unseen, self._seen, self._lost = cluster, unseen, seen, lost
        self._interval_s = interval_s
        self._due = self._closed = False
        self._doubted: set[TopicPartition] = set()
        """Partitions whose last answer had an end before the acknowledged one. No checksum covers
        it, so a second answer decides."""

    def delivered(self) -> None:
        """Schedule a query of the leaders after an acknowledgement."""
        if not self._due and not self._closed:
            self._due = True
            self._cluster.loop.call_later(self._interval_s, self._ask)

    def close(self) -> None:
        """Send no more queries."""
        self._closed = True

    def _ask(self) -> None:
        unseen = {} if self._closed else dict(self._unseen())
        if not unseen:
            self._due = False
            return
        asked = start(log_ends(self._cluster, unseen, timeout_s=_EPOCH_TIMEOUT_S))
        asked.then(partial(self._answered, unseen))

    def _answered(self, unseen: Offsets, reply: Reply[Answers[EpochEnd]]) -> None:
        self._due = False
        if self._closed:
            return
        if isinstance(reply.error, HeadraceError):  # the appender reports the error
            log.debug("leader epochs of the target are not known", why=str(reply.error))
            return
        for at, end in reply.result().found.items():
            offset = unseen[at]
            if end.end_offset < offset and at not in self._doubted:
                self._doubted.add(at)
            elif end.end_offset < offset:
                self._lost(at, TargetLoss(at, end.end_offset, offset))
            else:
                self._doubted.discard(at)
                self._seen(at, TargetSeen(offset, end.leader_epoch))
        if self._unseen():
            self.delivered()
