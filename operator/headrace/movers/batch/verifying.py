"""Reads back batches that the target has acknowledged, and compares them with what was fetched."""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from headrace.api import TopicPartition
from headrace.api.flow import BatchVerification
from headrace.errors import Fatal, HeadraceError, Retriable
from headrace.kafka import AccessDenied
from headrace.kafka.wire import (
    READ_UNCOMMITTED,
    Batch,
    ClusterClient,
    CorruptBatch,
    FetchOutcome,
    FetchPosition,
    fetch_call,
    fetch_outcome,
    refusal,
    split_batches,
    start,
)
from headrace.logs import get_logger
from headrace.movers.batch.comparison import BatchComparison, compared
from headrace.movers.batch.outgoing import Outgoing
from headrace.movers.lane import CopiedCounts
from headrace.timing import Backoff

log = get_logger(__name__)

_SAMPLED_EVERY_S = 1.0
"""With ``Sampled``: one batch of each lane is a small part of what it copies in that time."""
_MOST_BYTES = 16 << 20
"""That wait to be compared, of a lane. Each was copied: its response is not kept for that."""
_WITHIN_S = 10.0
_PURPOSE = "verify"


class Differs(Fatal):
    """The target does not hold what was sent."""


class _Written(NamedTuple):
    at: TopicPartition
    base_offset: int
    batch: Batch
    """In memory of its own."""


class Verifier:
    """Verification of one lane's batches, in the thread of its loop.

    One batch at a time is read back.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        wanted: Callable[[], BatchVerification],
        copied: CopiedCounts,
        *,
        differs: Callable[[TopicPartition, Differs], None],
        room: Callable[[], None],
    ) -> None:
        """Create the object.

        Args:
            cluster: The target.
            wanted: Returns the flow's current setting.
            copied: Counts of the results.
            differs: Receives each difference.
            room: Called when the queue is no longer ``full``.
        """
        self._cluster, self._wanted, self._copied = cluster, wanted, copied
        self._differs, self._room = differs, room
        self._queue = deque[_Written]()
        self._bytes = 0
        self._next_s = 0.0
        self._reading = self._closed = self._denied = False

    @property
    def full(self) -> bool:
        """Whether so much waits that no more should be copied."""
        return self._bytes >= _MOST_BYTES

    @property
    def compares_all(self) -> bool:
        """Whether each batch that is copied as it is has to be compared."""
        return self._wanted() is BatchVerification.FULL

    @property
    def wanted(self) -> bool:
        """Whether batches are compared at all."""
        return self._wanted() is not BatchVerification.DISABLED

    @property
    def due(self) -> bool:
        """Whether the next one that is delivered is compared."""
        match self._wanted():
            case BatchVerification.DISABLED:
                return False
            case BatchVerification.SAMPLED:
                return not self._queue and self._cluster.loop.now_s() >= self._next_s
            case BatchVerification.FULL:
                return True

    def delivered(self, at: TopicPartition, outgoing: Outgoing, base_offset: int) -> None:
        """Queue an acknowledged batch; one that was rebuilt in Python is not compared."""
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
        """Return the result for a batch in memory of its own, and the reason for a difference."""
        return await self._verdict(_Written(at, base_offset, batch))

    def misjoined(self, at: TopicPartition, first: int, last: int) -> None:
        """Report that the helper in C built a wrong batch of a source partition's offsets."""
        self._count(BatchComparison.MISJOINED)
        log.error(
            "the helper for small batches made a wrong batch, and is not used any more: batches "
            "that it made before may be wrong on the target",
            partition=str(at),
            offsets=f"{first} to {last}",
        )

    def close(self) -> None:
        """Close the verification; batches that are not compared yet count as not read."""
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
        if verdict is BatchComparison.DIFFERENT:  # it may have been damaged on its way here
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
        """Return the target's batches at that offset; retry if the leader moved."""
        loop, backoff = self._cluster.loop, Backoff(0.02, 0.5)
        deadline_s = loop.now_s() + _WITHIN_S
        while True:
            try:
                return await self._fetched(written)
            except CorruptBatch:
                raise
            except Retriable:
                if self._closed or loop.now_s() >= deadline_s:
                    raise
            await loop.sleep(backoff.next_s())
            with suppress(Retriable):  # brokers that are unreachable: the next attempt reports them
                await self._cluster.refresh([written.at.topic])

    async def _fetched(self, written: _Written) -> list[Batch]:
        cluster, at = self._cluster, written.at
        topic, led = cluster.view.topics.get(at.topic), cluster.view.leadership(at)
        if topic is None or led is None:
            raise Retriable(f"{at} on {cluster.name} has no leader")
        connection = await cluster.connection(led.leader, _PURPOSE)
        size = len(written.batch.data)  # a larger one comes whole, too
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
