"""Which blocks of records two sides do not agree about: those alone are compared one by one.

What is left out has no findings. Both sides have the same records in the same order, each once,
since the source's sums are those that its brokers acknowledged; an idempotent producer's order on
the source is that of its numbers (KIP-98), and no block of a partition reaches into the next one.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.mirror_test import LoadManifest
from headrace_spark.blocks import Block, Key, number
from headrace_spark.records import Range

Stream = tuple[str, str]
"""Topic and producer."""


@dataclass(frozen=True)
class Doubts:
    """What to compare record by record."""

    keys: frozenset[Key]
    streams: frozenset[Stream]
    """Of which all is compared, and what was acknowledged is unfolded, too."""

    def of(self, records: DataFrame, run: str, size: int) -> DataFrame:
        """Those of the records that are in doubt."""
        wanted = records.sparkSession.createDataFrame(
            sorted(self.keys), "topic string, producer string, number bigint"
        )
        keys = ["topic", "producer", "number"]
        return (
            records.withColumn("number", number(run, size))
            .join(F.broadcast(wanted), keys, "left_semi")
            .drop("number")
        )

    def where(self, planned: Range, side: Iterable[Block]) -> Range:
        """The part of a range that has all of them."""
        places = [b for b in side if b.key in self.keys]
        start = {name: list(planned.end[name]) for name in planned.end}
        end = {name: list(starts) for name, starts in planned.start.items()}
        targets = {source: name for name, source in planned.source_names.items()}
        for block in places:
            name = targets[block.found_in]
            start[name][block.partition] = min(start[name][block.partition], block.first)
            end[name][block.partition] = max(end[name][block.partition], block.last + 1)
        for name, starts in start.items():
            starts[:] = map(min, starts, end[name])
        return Range(
            planned.source_names,
            {name: tuple(ats) for name, ats in start.items()},
            {name: tuple(ats) for name, ats in end.items()},
        )


def doubts(
    source: list[Block], target: list[Block], manifest: LoadManifest, *, same_offsets: bool = False
) -> Doubts:
    """Of a mirror that preserves partitions; ``same_offsets``: offsets, too, and the blocks were
    summarised by them."""
    run = manifest.run
    streams = frozenset(
        chain(
            ((s.topic, s.producer) for s in manifest.streams if s.failed),
            _contradictory(source, manifest),
            _overlapping(target),
        )
    )
    keys = frozenset(
        chain(
            _different(source, target, same_offsets),
            _without_end(source, manifest),
            _behind_the_end(target, run),
            (b.key for b in chain(source, target) if b.key[:2] in streams),
        )
    )
    return Doubts(keys, streams)


def _different(source: list[Block], target: list[Block], same_offsets: bool) -> Iterator[Key]:
    here, there = ({block.place: block for block in side} for side in (source, target))
    for place in here.keys() | there.keys():
        ours, theirs = here.get(place), there.get(place)
        if ours is None or theirs is None:
            # Of earlier runs, only what the target has can be a finding.
            if theirs is not None or (ours is not None and ours.own):
                yield place[0]
        elif not ours.agrees_with(theirs, same_offsets=same_offsets) or (
            ours.own and ours.claimed < ours.count
        ):
            yield ours.key


def _without_end(source: list[Block], manifest: LoadManifest) -> Iterator[Key]:
    """Sentinels that the source does not have exactly once."""
    there = {block.place: block.count for block in source}
    for topic in manifest.topics:
        for partition in range(topic.partitions):
            key = (topic.name, manifest.run, partition)
            if there.get((key, topic.name, partition)) != 1:
                yield key


def _behind_the_end(target: list[Block], run: str) -> Iterator[Key]:
    """Blocks with a record behind the sentinel of their partition, with that sentinel."""
    ends = {
        (b.found_in, b.partition): b.first
        for b in target
        if b.producer == run and b.topic == b.found_in and b.number == b.partition
    }
    for block in target:
        at = (block.found_in, block.partition)
        if block.own and block.producer != run and block.last > ends.get(at, block.last):
            yield block.key
            yield (block.found_in, run, block.partition)


def _overlapping(target: list[Block]) -> Iterator[Stream]:
    """Streams of which a block begins before an earlier one has ended."""
    partitions = defaultdict(list)
    for block in target:
        if block.own:
            at = (block.topic, block.producer, block.found_in, block.partition)
            partitions[at].append(block)
    for (topic, producer, *_), blocks in partitions.items():
        last = -1
        for block in sorted(blocks, key=lambda block: block.number):
            if block.first < last:
                yield (topic, producer)
                break
            last = block.last


def _contradictory(source: list[Block], manifest: LoadManifest) -> Iterator[Stream]:
    """Streams of which the source does not hold what it acknowledged, by number and checksum."""
    held: dict[tuple[str, str, int], tuple[int, int]] = defaultdict(lambda: (0, 0))
    for block in source:
        at = (block.topic, block.producer, block.partition)
        count, checksum = held[at]
        held[at] = (count + block.claimed, checksum + block.checksum)
    for stream in manifest.streams:
        sums = {(p.partition, p.count, p.checksum) for p in stream.partitions}
        if any(held[stream.topic, stream.producer, p] != (n, crc) for p, n, crc in sums):
            yield (stream.topic, stream.producer)
