"""Short transactions at a rate: each writes one record into one partition, and commits."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.api import ClusterAccess, TopicPartition
from headrace.errors import GaveUp
from headrace.kafka.wire import (
    BatchWriter,
    ClusterClient,
    EventLoop,
    ProduceResult,
    ProducerIdentity,
    Transactions,
    encoded,
    log_ends,
    produce_call,
    sequence_after,
    stamped,
    start,
)

_WRITERS = 48
"""Transactional ids: one transaction of each at a time."""
_REFUSED_S = 0.005


class Load:
    """A load of transactions; ``sent`` is the number of committed ones."""

    def __init__(self, access: ClusterAccess, topic: str, partitions: int) -> None:
        self.sent = 0
        self._access, self._topic, self._partitions = access, topic, partitions
        self._rate, self._begun, self._since_s = 0.0, 0, 0.0
        self._stopped = False
        self._failed: Exception | None = None
        self._ready = threading.Event()

    def at_rate(self, transactions_per_s: float) -> None:
        """Set the rate from now on; 0 pauses the load."""
        self._begun, self._since_s = 0, time.monotonic()
        self._rate = transactions_per_s

    @contextmanager
    def running(self) -> Iterator["Load"]:
        """Run the load in a thread of its own."""
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        try:
            if not self._ready.wait(60):
                raise GaveUp(f"no transactional ids within 60 s: {self._failed}")
            yield self
        finally:
            self._stopped = True
            thread.join(30)
        if self._failed is not None:
            raise self._failed

    def _run(self) -> None:
        loop = EventLoop()
        cluster = ClusterClient(loop, self._access)
        try:
            ats = [TopicPartition(self._topic, number) for number in range(self._partitions)]
            loop.wait(start(log_ends(cluster, ats)), 30)
            writers = [_Writer(cluster, f"load-{self._topic}-{n}") for n in range(_WRITERS)]
            for one in writers:
                loop.wait(start(one.begin()), 30)
            self._ready.set()
            for reply in [start(self._write(one)) for one in writers]:
                loop.wait(reply, 3600)
        except Exception as error:  # noqa: BLE001 - the main thread raises it
            self._failed = error
        finally:
            cluster.close()
            loop.close()

    async def _write(self, writer: "_Writer") -> None:
        while not self._stopped:
            due_s = self._since_s + (self._begun + 1) / self._rate if self._rate else 1e18
            wait_s = due_s - time.monotonic()
            if wait_s > 0:
                await writer.cluster.loop.sleep(min(wait_s, 0.02))
                continue
            number, self._begun = self._begun, self._begun + 1
            await writer.transaction(TopicPartition(self._topic, number % self._partitions))
            self.sent += 1


class _Writer:
    def __init__(self, cluster: ClusterClient, name: str) -> None:
        self.cluster = cluster
        self._transactions = Transactions(cluster, name, again_s=0.002)
        self._sequences: dict[TopicPartition, int] = {}
        writer = BatchWriter()
        writer.add(encoded(0, int(time.time() * 1000), b"key", b"v" * 100))
        self._batch = writer.finish()

    async def begin(self) -> None:
        found = await self._transactions.init_producer_id()
        self._identity = ProducerIdentity(found.producer_id, found.epoch, transactional=True)

    async def transaction(self, at: TopicPartition) -> None:
        await self._transactions.add_partitions(self._identity, [at])
        sequence = self._sequences.get(at, 0)
        data = stamped(self._batch, self._identity, sequence)
        call = produce_call(
            {at.topic: {at.partition: data}}, transactional_id=self._transactions.id
        )
        while True:
            led = self.cluster.view.leadership(at)
            assert led
            connection = await self.cluster.connection(led.leader, "load")
            answer = (await connection.send(call)).answers[at]
            if answer.outcome is ProduceResult.APPENDED:
                break
            if not answer.code.retriable:
                raise GaveUp(f"the load's record was refused: {answer.name}")
            await self.cluster.loop.sleep(_REFUSED_S)
        self._sequences[at] = sequence_after(sequence, 1)
        await self._transactions.end(self._identity, commit=True)
