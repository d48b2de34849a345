"""Tail of a log, read batch by batch, with the ends of its transactions.

The target is read completely, including uncommitted records. The source is read up to its last
stable offset, without aborted records.
"""

from collections.abc import Iterator, Set
from typing import NamedTuple

from headrace.api import ClusterAccess, TopicPartition
from headrace.datapath.chunk import HeldBatches, Passage, Why, judged
from headrace.errors import GaveUp, HeadraceError, Retriable
from headrace.kafka import SMALL_FETCH_BYTES, AccessDenied
from headrace.kafka.wire import (
    EARLIEST,
    HEADER_BYTES,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Batch,
    ClusterClient,
    EventLoop,
    FetchOutcome,
    FetchPosition,
    StoredRecord,
    UnsupportedBroker,
    aborts,
    decoded,
    fetch_call,
    fetch_outcome,
    list_offsets,
    refusal,
    split_batches,
    start,
    stored_records,
)
from headrace.replication.reconcile import (
    Decided,
    Dropped,
    Ended,
    Marker,
    Record,
    TransactionalBatch,
    decided,
)
from headrace.timing import Backoff

_CHUNK_BYTES = 1 << 20
_WAIT_MS = 100
_UNKNOWN_END = 1 << 62


class _Chunk(NamedTuple):
    batches: list[Batch]
    aborted: list[tuple[int, int]]
    stable_end: int

    def continues(self, offset: int) -> bool:
        """Return True if the batches follow ``offset`` and each other without a hole."""
        for batch in self.batches:
            if batch.magic < 2 or batch.base_offset != offset:
                return False
            offset = batch.last_offset + 1
        return not self.aborted

    def agreed(self, other: "_Chunk") -> "_Chunk | None":
        """Return the batches that both answers contain, or None if the answers disagree.

        No checksum covers the offsets of batches and the list of aborted transactions.
        """
        count = min(len(self.batches), len(other.batches))
        mine, theirs = self.batches[:count], other.batches[:count]
        last = mine[-1].last_offset if mine else -1
        lists = [sorted(pair for pair in one.aborted if pair[1] <= last) for one in (self, other)]
        headers = [[batch.data[:HEADER_BYTES] for batch in one] for one in (mine, theirs)]
        same = headers[0] == headers[1] and lists[0] == lists[1]
        return self._replace(batches=mine) if same else None


class Tail:
    """Records of one partition from an offset on.

    Use it in the thread of the cluster's loop. It runs the loop while it waits.
    """

    def __init__(
        self, cluster: ClusterClient, at: TopicPartition, offset: int, *, patience_s: float
    ) -> None:
        """Create a tail; ``patience_s`` is the maximum time without records or a response.

        Delays that brokers announce because of a quota do not count.
        """
        self._cluster, self._at, self._start, self._offset = cluster, at, offset, offset
        self._patience_s = patience_s
        self._chunk_bytes, self._delayed_until_s = _CHUNK_BYTES, 0.0
        self.leader_epoch = -1
        """Leader epoch of the last record read; -1 if there is none, or if it is unknown."""
        self.stamped = False
        """Whether the target sets append times as timestamps. It is valid once a batch was read."""

    def of_target(self, writers: Set[int] = frozenset()) -> Iterator[Record | Dropped | Marker]:
        """Yield all records and markers below the high watermark, without an end.

        Records that are appended during the call are included. Aborted records of ``writers``
        become ``Dropped``. An open transaction of a writer, and everything after it, is yielded
        only after the transaction has ended. A fence's marker ends it. Open transactions of other
        producers are not awaited.

        Args:
            writers: Producer ids of the writers to fence.

        Raises:
            Retriable: Nothing arrives in time.
        """
        held = HeldBatches(writers)
        while True:
            for batch in self._chunk(READ_UNCOMMITTED).batches:
                self.stamped |= batch.magic == 2 and batch.log_append_time
                self._offset = batch.last_offset + 1
                for one, aborted in held.take(batch):
                    if one.control:
                        yield Marker(one.base_offset, one.producer_id, one.producer_epoch)
                    elif aborted:
                        yield Dropped(max(one.base_offset, self._start), one.last_offset)
                    else:
                        yield from self._records(one)

    def batches(self, end: int) -> Iterator[Batch]:
        """Yield all batches below ``end``, including uncommitted batches and markers.

        ``end`` must be at most the high watermark.
        """
        while self._offset < end:
            for batch in self._chunk(READ_UNCOMMITTED).batches:
                yield batch
                self._offset = batch.last_offset + 1

    def of_source(self) -> Iterator[Record | Dropped]:
        """Yield committed records up to the last stable offset.

        Aborted records and markers become ``Dropped``.
        """
        while (chunk := self._chunk(READ_COMMITTED)).batches:
            position = self._offset
            for one in judged(chunk.batches, start=position, aborted=chunk.aborted):
                batch = one.batch
                if one.passage is not Passage.SKIP:
                    self.leader_epoch = batch.leader_epoch if batch.magic == 2 else -1
                    yield from self._records(batch)
                elif one.why in {Why.MARKER, Why.ABORTED} and batch.last_offset >= self._offset:
                    yield Dropped(max(batch.base_offset, self._offset), batch.last_offset)
                self._offset = max(self._offset, batch.last_offset + 1)

    def _records(self, batch: Batch) -> Iterator[Record]:
        for stored in stored_records(batch):
            if stored.offset >= self._start:
                yield _record(stored, batch.producer_id)

    def _chunk(self, isolation: int) -> _Chunk:
        loop = self._cluster.loop
        deadline_s = loop.now_s() + self._patience_s
        while True:
            try:
                fetching = start(self._fetch(isolation, deadline_s))
                delay_s = max(0.0, self._delayed_until_s - loop.now_s())
                chunk = loop.wait(fetching, delay_s + 2 * self._patience_s)
            except GaveUp as error:
                raise Retriable(f"could not read {self._at}: {error}") from error
            if chunk.batches:
                return chunk
            if isolation == READ_COMMITTED and self._offset >= chunk.stable_end:
                return chunk
            deadline_s = max(deadline_s, self._delayed_until_s + self._patience_s)
            if loop.now_s() >= deadline_s:
                raise Retriable(
                    f"nothing came of {self._at} on {self._cluster.name} from offset "
                    f"{self._offset} on within {self._patience_s:g} s"
                )

    async def _fetch(self, isolation: int, deadline_s: float) -> _Chunk:
        """Return one response; retry until the deadline if the leader moved."""
        cluster, at, backoff = self._cluster, self._at, Backoff(0.02, 0.5)
        while True:
            try:
                topic, led = cluster.view.topics.get(at.topic), cluster.view.leadership(at)
                if topic is not None and led is not None:
                    wanted = FetchPosition(
                        topic.id,
                        at.partition,
                        self._offset,
                        self._chunk_bytes,
                        led.epoch,
                        topic=at.topic,
                    )
                    return await self._agreed(wanted, led.leader, isolation)
                error: HeadraceError = Retriable(f"{at} on {cluster.name} has no leader")
            except (AccessDenied, UnsupportedBroker):
                raise
            except Retriable as failure:
                error = failure
            if cluster.loop.now_s() >= deadline_s:
                raise error
            await cluster.loop.sleep(backoff.next_s())
            await cluster.refresh([at.topic])

    async def _agreed(self, position: FetchPosition, leader: int, isolation: int) -> _Chunk:
        """Return an answer. If it has holes, fetch a second one and compare both."""
        chunk = await self._ask(position, leader, isolation)
        if not chunk.batches or chunk.continues(position.offset):
            return chunk
        agreed = chunk.agreed(await self._ask(position, leader, isolation))
        if agreed is None:
            raise Retriable(
                f"the broker's answer was damaged: two answers about {self._at} of "
                f"{self._cluster.name} from offset {position.offset} on differ"
            )
        return agreed

    async def _ask(self, position: FetchPosition, leader: int, isolation: int) -> _Chunk:
        connection = await self._cluster.connection(leader, "tail")
        call = fetch_call([position], isolation=isolation, max_wait_ms=_WAIT_MS)
        response = await connection.send(call)
        try:
            if response.throttle_ms and not response.partitions:
                now_s = self._cluster.loop.now_s()
                self._delayed_until_s = now_s + response.throttle_ms / 1000
                self._chunk_bytes = SMALL_FETCH_BYTES
                return _Chunk([], [], _UNKNOWN_END)
            for one in response.partitions:
                outcome = fetch_outcome(one.error)
                tried = f"read {self._at} of {self._cluster.name} from offset {self._offset} on"
                if outcome is FetchOutcome.OUT_OF_RANGE:
                    await self._to_the_first()
                    raise Retriable(f"could not {tried}: the offset does not exist")
                if outcome is FetchOutcome.MOVED:
                    raise Retriable(f"could not {tried}: its leader moved")
                if outcome is not FetchOutcome.FETCHED:
                    raise refusal(one.error, tried)
                data = memoryview(bytes(one.records))
                batches = [
                    batch
                    for batch in split_batches(data).batches
                    if batch.magic < 2 or batch.last_offset >= self._offset
                ]
                return _Chunk(batches, list(one.aborted or ()), one.last_stable_offset)
        finally:
            response.release()
        raise Retriable(f"{self._cluster.name} gave no answer for {self._at}")

    async def _to_the_first(self) -> None:
        """Move forward to the log's first offset if retention deleted the current one."""
        listed = await list_offsets(self._cluster, [self._at], EARLIEST)
        self._start = self._offset = max(self._offset, listed.all()[self._at].offset)


def _record(stored: StoredRecord, producer_id: int) -> Record:
    offset, timestamp_ms, key, value, headers = decoded(stored)
    return Record(offset, key, value, headers, timestamp_ms, producer_id)


_TIMEOUT_S = 5.0


def transactions_decided(
    cluster: ClusterAccess, at: TopicPartition, offsets: range
) -> list[Decided]:
    """Return the transactions that have a batch in ``offsets`` and ended within them.

    Call it only for acknowledged offsets. The call opens its own connection, and waits.

    Raises:
        Retriable: No leader responds.
        Fatal: The permission to read is missing.
    """
    loop = EventLoop()
    client = ClusterClient(loop, cluster)
    try:
        tail = Tail(client, at, offsets.start, patience_s=_TIMEOUT_S)
        return list(decided(_entries(tail, offsets.stop)))
    finally:
        client.close()
        loop.close()


def _entries(tail: Tail, end: int) -> Iterator[TransactionalBatch | Ended]:
    for batch in tail.batches(end):
        if batch.magic < 2:
            continue  # this format has no transactions
        if batch.control:
            yield Ended(batch.base_offset, batch.producer_id, not aborts(batch))
        elif batch.transactional:
            yield TransactionalBatch(
                range(batch.base_offset, batch.last_offset + 1), batch.producer_id
            )
