"""A program that copies partitions with equal offsets to their end and can be killed.

Usage: ``python -m support.preserved_copy SOURCE TARGET ID HOLES TOPIC[:COMPACTED] ...``
"""

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from support.patience import WITHIN_S

from headrace.api import ClusterAccess, ClusterSpec, TopicPartition
from headrace.api.offsets import GapPolicy
from headrace.datapath.chunk import judged
from headrace.datapath.markers import new_epoch
from headrace.datapath.preserved.owner import Closer, End, identified
from headrace.datapath.preserved.plan import Hole, planned
from headrace.datapath.preserved.takeover import Pair, Starts
from headrace.datapath.preserved.writer import Writer
from headrace.datapath.producer import Leaders
from headrace.datapath.spans import Outgoing
from headrace.errors import HeadraceError, Retriable
from headrace.kafka.wire import (
    LATEST,
    ClusterClient,
    EventLoop,
    FetchPosition,
    fetch_call,
    list_offsets,
    split_batches,
    start,
)


class Copier:
    """A copier of one owner, in one thread."""

    def __init__(
        self,
        source: ClusterAccess,
        target: ClusterAccess,
        name: str,
        holes: GapPolicy = GapPolicy.MARKERS,
    ) -> None:
        self.loop, self._name, self._holes = EventLoop(), name, holes
        self.source, self.target = (
            ClusterClient(self.loop, source),
            ClusterClient(self.loop, target),
        )
        self.leaders = Leaders(self.target)
        self.read: dict[TopicPartition, int] = {}
        self.next: dict[TopicPartition, int] = {}
        self.failed: dict[TopicPartition, HeadraceError] = {}
        self.operations = 0

    def begin(self, pairs: list[Pair]) -> None:
        closer = Closer(self._name, self.wait(new_epoch(self.target, self._name)))
        pairs = [replace(one, producer_id=closer.identity.producer_id) for one in pairs]
        owner = self.wait(identified(self.target, f"{self._name}-task"))
        self.writer = Writer(
            self.leaders,
            owner,
            self._written,
            self._failed,
            with_records=self._holes is GapPolicy.ABORTED_FILLERS,
        )
        for pair, end in Starts(self.source, self.target, owner).of(pairs).items():
            if isinstance(end, End):
                self.read[pair.target] = self.next[pair.target] = end.offset
                self.writer.begin(pair.target, end, closer)
            else:
                self.failed[pair.target] = end

    def wait(self, coroutine: Any) -> Any:
        return self.loop.wait(start(coroutine), WITHIN_S)

    def _written(self, at: TopicPartition, next_offset: int, outgoing: Outgoing | None) -> None:
        assert next_offset > self.next[at]
        self.next[at] = next_offset
        if outgoing is not None:
            outgoing.release()

    def _failed(self, at: TopicPartition, error: HeadraceError) -> None:
        self.failed[at] = error

    async def fetch(self, pair: Pair) -> int:
        """Fetch batches, pass them to the writer, and return the last stable offset."""
        topic = self.source.view.topics[pair.source.topic]
        led = self.source.view.leadership(pair.source)
        assert led
        assert topic.id
        position = self.read[pair.target]
        wanted = FetchPosition(topic.id, pair.source.partition, position, 1 << 16, led.epoch)
        connection = await self.source.connection(led.leader, "fetch")
        response = await connection.send(fetch_call([wanted], max_wait_ms=50))
        (one,) = response.partitions
        assert not one.error.value, one.error
        batches = split_batches(memoryview(bytes(one.records))).batches
        stable, aborted = one.last_stable_offset, list(one.aborted or ())
        response.release()
        found = judged(batches, start=position, aborted=aborted)
        operations = list(
            planned(found, start=position, release=_nothing, copies=self._holes is GapPolicy.COPIES)
        )
        if not batches and stable > position:  # a request for this partition alone
            operations.append(Hole(position, stable))
        for operation in operations:
            self.writer.write(pair.target, operation)
            self.read[pair.target] = operation.next
            self.operations += 1
        self.writer.flush()
        return int(stable)

    def close(self) -> None:
        self.writer.close()
        self.leaders.close()
        self.source.close()
        self.target.close()
        self.loop.close()


def copy(copier: Copier, pairs: list[Pair], *, pause: Callable[[], None] = lambda: None) -> None:
    """Copy until all records that the source holds are written, or a partition fails."""
    copier.begin(pairs)
    copier.wait(list_offsets(copier.source, [one.source for one in pairs], LATEST))
    deadline = time.monotonic() + WITHIN_S
    left = [one for one in pairs if one.target not in copier.failed]
    while left and not copier.failed:
        for pair in list(left):
            stable = copier.wait(copier.fetch(pair))
            pause()
            if copier.next[pair.target] >= stable:
                left.remove(pair)
        assert time.monotonic() < deadline, copier.next
        while copier.writer.pending > 200 and not copier.failed:
            copier.loop.run_once(0.05)


def _nothing() -> None:
    """Release nothing: each batch has memory of its own."""


def main(source: str, target: str, name: str, holes: str, *topics: str) -> int:
    access = [
        ClusterAccess(ClusterSpec(alias=alias, bootstrap_servers=servers))
        for alias, servers in (("east", source), ("west", target))
    ]
    pairs = []
    for topic in topics:
        word, _, compacts = topic.partition(":")
        at = TopicPartition(word, 0)
        pairs.append(Pair(at, at, -1, source_compacts=bool(compacts)))
    while True:
        copier = Copier(access[0], access[1], name, GapPolicy(holes))
        try:
            copy(copier, pairs)
        finally:
            copier.close()
        for error in copier.failed.values():
            print(type(error).__name__, error, flush=True)
        if not copier.failed:
            return 0
        if not all(isinstance(one, Retriable) for one in copier.failed.values()):
            return 3


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
