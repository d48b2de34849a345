"""Topics of real brokers with all contents of logs: codecs, odd records, transactions, holes."""

import random
import struct
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kio.schema.errors import ErrorCode
from support.patience import WITHIN_S
from support.records import unique
from support.stored import CODECS, content, sealed

from headrace.api import ClusterAccess, TopicPartition
from headrace.kafka.wire import (
    READ_UNCOMMITTED,
    Batch,
    BatchWriter,
    ClusterClient,
    EventLoop,
    FetchPosition,
    ProducerIdentity,
    StoredRecord,
    Transactions,
    aborts,
    fetch_call,
    log_ends,
    produce_call,
    split_batches,
    start,
)

_TRANSACTIONAL = 0x10
_ATTRIBUTES, _PRODUCER = struct.Struct(">h"), struct.Struct(">qhi")
_ATTRIBUTES_AT, _PRODUCER_AT = 21, 43
_OPEN = 3
"""Most transactions that are open at a time."""
_LARGEST_BYTES = 700_000
_COUNTS = (1, 1, 2, 10, 100, 1_000)
_HEADERS: Sequence[Sequence[tuple[bytes, bytes | None]]] = [
    (), ((b"", b""),), ((b"h", None), (b"h", b"\xff")), (("\u00fc".encode(), b"x" * 200),),
]  # fmt: skip


@dataclass
class _Transaction:
    """An open transaction."""

    transactions: Transactions
    identity: ProducerIdentity
    name: str
    records: int = 0


class RandomLog:
    """Writes to a topic of one partition what many producers would, chosen by a seed."""

    def __init__(self, cluster: ClusterClient, topic: str, seed: str) -> None:
        self._cluster, self._random = cluster, random.Random(seed)
        self._at = TopicPartition(topic, 0)
        self._open: list[_Transaction] = []
        self._number = 0
        _run(cluster, log_ends(cluster, [self._at])).all()

    def fill(self, steps: int, *, keys: int | None = None, counts: Sequence[int] = _COUNTS) -> None:
        """Append batches, and transactions that begin and end.

        ``keys`` is the number of keys; without it, some records have none. ``counts`` are the
        possible numbers of records in a batch. All transactions are ended.
        """
        for _ in range(steps):
            inside = self._open and self._random.random() < 0.4
            self._append(
                self._batch(keys, counts), self._random.choice(self._open) if inside else None
            )
            if len(self._open) < _OPEN and self._random.random() < 0.2:
                self._begin()
            elif self._open and self._random.random() < 0.2:
                self._end()
        while self._open:
            self._end()

    def append(self, values: Sequence[bytes], key: bytes = b"now") -> None:
        """Append a batch with the current time, which ends a segment that is old enough."""
        writer = BatchWriter()
        for value in values:
            writer.add(StoredRecord(0, _now_ms(), content(key, value)))
        self._append(writer.finish())

    def _append(self, batch: Batch, inside: _Transaction | None = None) -> None:
        if inside is None:
            self._produce(bytearray(batch.data))
            return
        data, owner = bytearray(batch.data), inside.identity
        _ATTRIBUTES.pack_into(data, _ATTRIBUTES_AT, batch.attributes | _TRANSACTIONAL)
        _PRODUCER.pack_into(data, _PRODUCER_AT, owner.producer_id, owner.epoch, inside.records)
        inside.records += batch.record_count
        _run(self._cluster, inside.transactions.add_partitions(owner, [self._at]))
        self._produce(sealed(data), inside.name)

    def _batch(self, keys: int | None, counts: Sequence[int]) -> Batch:
        choice = self._random.choice
        writer = BatchWriter(choice(CODECS))
        count = choice(counts)
        size = choice([0, 10, 100, _LARGEST_BYTES]) if count == 1 else choice([0, 10, 100, 500])
        now_ms = _now_ms()
        stamps_ms = choice([[now_ms], [now_ms, now_ms - 5_000, 0, -1], [0]])
        for _ in range(count):
            self._number += 1
            key = choice([None, b"", b"key-%d" % self._number])
            if keys is not None:
                key = b"key-%d" % self._random.randrange(keys)
            value = choice([None, b"", b"%d-" % self._number + b"v" * size])
            writer.add(StoredRecord(0, choice(stamps_ms), content(key, value, choice(_HEADERS))))
        return writer.finish()

    def _produce(self, data: bytearray, name: str | None = None) -> None:
        at = self._at

        async def send() -> ErrorCode:
            led = self._cluster.view.leadership(at)
            assert led
            connection = await self._cluster.connection(led.leader)
            request = produce_call({at.topic: {at.partition: data}}, transactional_id=name)
            return (await connection.send(request)).answers[at].code

        code, until_s = _run(self._cluster, send()), time.monotonic() + WITHIN_S
        # The broker first queries the transaction's coordinator, which may be busy (KIP-890).
        while code.retriable and time.monotonic() < until_s:
            time.sleep(0.1)
            code = _run(self._cluster, send())
        assert code is ErrorCode.none, code

    def _begin(self) -> None:
        name = unique("oracle")
        transactions = Transactions(self._cluster, name)
        identity = _run(self._cluster, transactions.init_producer_id())
        self._open.append(_Transaction(transactions, identity, name))

    def _end(self) -> None:
        ended = self._open.pop(self._random.randrange(len(self._open)))
        if ended.records:
            commit = self._random.random() < 0.5
            _run(self._cluster, ended.transactions.end(ended.identity, commit=commit))


@dataclass
class Expected:
    """Numbers of batches with committed records in a log."""

    dense: int = 0
    """Batches that a broker accepts unchanged from a producer."""
    others: int = 0
    """Batches with holes, or with the broker's timestamps."""

    def __add__(self, other: "Expected") -> "Expected":
        return Expected(self.dense + other.dense, self.others + other.others)


class OpenTransactions(AssertionError):
    """A transaction has no end in the log."""


def expected(batches: Sequence[Batch]) -> Expected:
    """Return the expected counts of one partition.

    Aborted records are found by the markers, not by the broker's index. Raises
    ``OpenTransactions``.
    """
    found, uncommitted = Expected(), defaultdict[int, Expected](Expected)
    for batch in batches:
        if batch.control:
            ended = uncommitted.pop(batch.producer_id, Expected())
            found += Expected() if aborts(batch) else ended
            continue
        dense = batch.record_count == batch.last_offset_delta + 1 and not batch.log_append_time
        one = Expected(dense=int(dense), others=int(not dense and batch.record_count > 0))
        if batch.transactional:
            uncommitted[batch.producer_id] += one
        else:
            found += one
    if uncommitted:
        raise OpenTransactions(f"of producers {', '.join(map(str, uncommitted))}")
    return found


def stored(cluster: ClusterClient, topic: str) -> list[Batch]:
    """Return all batches of its partition in memory of their own, with aborted ones and markers."""
    at = TopicPartition(topic, 0)
    batches: list[Batch] = []

    async def fetch(offset: int) -> tuple[list[Batch], int]:
        id_, led = cluster.view.topics[topic].id, cluster.view.leadership(at)
        assert id_
        assert led
        wanted = FetchPosition(id_, at.partition, offset, 8 << 20, leader_epoch=led.epoch)
        connection = await cluster.connection(led.leader, "stored")
        request = fetch_call([wanted], isolation=READ_UNCOMMITTED, max_wait_ms=0, max_bytes=8 << 20)
        response = await connection.send(request)
        (fetched,) = response.partitions
        records = memoryview(bytearray(fetched.records))
        response.release()
        return split_batches(records).batches, fetched.high_watermark

    _run(cluster, log_ends(cluster, [at])).all()
    offset, end = 0, 1
    while offset < end:
        more, end = _run(cluster, fetch(offset))
        batches += more
        offset = more[-1].last_offset + 1 if more else end
    return batches


@contextmanager
def wire_client(access: ClusterAccess) -> Iterator[ClusterClient]:
    """Yield a client with a loop of its own."""
    loop = EventLoop()
    cluster = ClusterClient(loop, access)
    try:
        yield cluster
    finally:
        cluster.close()
        loop.close()


def _run(cluster: ClusterClient, coroutine: Any) -> Any:
    return cluster.loop.wait(start(coroutine), WITHIN_S)


def _now_ms() -> int:
    return int(time.time() * 1000)
