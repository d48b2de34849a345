"""Sums of blocks of records, and the blocks that differ between source and target.

Records are summed up while they are read. Memory use therefore does not grow with the load or with
duplicates on the target. ``doubts`` returns the blocks that must be compared record by record.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.mirror_test import LoadManifest
from headrace_spark.records import OffsetRange

PRIME = (1 << 31) - 1
"""Modulus of the weighted sums.

Products of two numbers below it can be summed over 2**32 records without exceeding 64 bits.
"""

_BLOCK = 65_536
_MAX_BLOCKS = 100_000
"""Intended maximum number of blocks of one side. They take 20 MB.

Each range of sequence numbers can have a block in every partition of its topic.
"""
_CONTENT = ("seq", "key", "value_hash", "headers_hash", "timestamp_ms")
_PLACE = ("topic", "producer", "own", "found_in", "partition")

Key = tuple[str, str, int]
"""Topic to which the records were sent, producer, and block number.

The producer of an end sentinel is the run, and its block number is its partition.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """Sums over the records of a block."""

    count: int
    mixed: int
    """XOR of the 64-bit hashes of sequence numbers and contents."""
    total: int
    """Sum of the low 31 bits of the hashes in ``mixed``."""
    rows: int
    """Sum of the rows, or of the offsets if the mirror must preserve offsets.

    Rows number the records only. Other log entries, such as transaction markers, have no row.
    """
    weights: Sequence[int]
    weighted: Sequence[int]
    """Sums of row times weight, for each of the two weights, with each product modulo ``PRIME``.

    A weight is 31 bits of the hash of the sequence number.
    """

    def has_records_of(self, other: "Sums") -> bool:
        """Return True if both blocks have the same records, equally often, in any order."""
        ours = (self.count, self.mixed, self.total, self.weights)
        return ours == (other.count, other.mixed, other.total, other.weights)

    def rows_apart(self, other: "Sums") -> int | None:
        """Return the distance in rows from each record to its copy on the other side.

        Return None if the distance is not the same for all records. Blocks that differ satisfy the
        equations of both weights with a probability of 2**-62 (Freivalds, 1977).
        """
        apart, rest = divmod(other.rows - self.rows, self.count)
        moved = rest == 0 and all(
            (theirs - mine - apart * weight) % PRIME == 0
            for mine, theirs, weight in zip(
                self.weighted, other.weighted, self.weights, strict=True
            )
        )
        return apart if moved else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Block(Sums):
    """Records of one topic, producer and range of numbers in one partition."""

    topic: str
    producer: str
    own: bool
    found_in: str
    partition: int
    number: int
    claimed: int
    """Number of the block's records whose sequence numbers are in the manifest."""
    checksum: int
    """Sum of the CRC-32 checksums of the values of claimed records."""
    first: int
    last: int
    """Smallest and largest offset."""

    @property
    def key(self) -> Key:
        """Topic, producer and number, which several blocks may have, for example on both sides.

        If a block is doubtful, all blocks with an equal key are compared.
        """
        return (self.topic, self.producer, self.number)

    @property
    def place(self) -> tuple[Key, str, int]:
        """Key, topic and partition, which identify the corresponding block on the other side."""
        return (self.key, self.found_in, self.partition)

    def agrees_with(self, other: "Block", *, same_offsets: bool = False) -> bool:
        """Return True if both blocks have the same records in the same order.

        All records must have the same distance in rows. With ``same_offsets``, the distance must be
        0.

        Records that changed places satisfy the equations with a probability of 2**-62 (Freivalds,
        1977). If the distance changes within a block, for example after a duplicate of another
        producer's record, the result is False although the order may be correct.
        """
        if self.claimed != other.claimed or not self.has_records_of(other):
            return False
        apart = self.rows_apart(other)
        return apart is not None and not (apart and same_offsets)


def size_of(manifest: LoadManifest) -> int:
    """Return the number of sequence numbers in a block."""
    partitions = {topic.name: topic.partitions for topic in manifest.topics}
    rows = sum(stream.sent * partitions.get(stream.topic, 1) for stream in manifest.streams)
    return max(_BLOCK, -(-rows // _MAX_BLOCKS))


def number(run: str, size: int) -> Column:
    """Return the block number of a record, or -1 if the record has no sequence number."""
    of_message = F.expr(f"seq div {size}")
    return F.coalesce(
        F.when(F.col("producer") == run, F.col("seq")).otherwise(of_message), F.lit(-1)
    )


def summarised(records: DataFrame, run: str, size: int, *, by_offset: bool = False) -> DataFrame:
    """Return the columns of ``Block`` for records with the column ``claimed``.

    With ``by_offset``, offsets are used instead of rows.
    """
    place = "offset" if by_offset else "row"
    content, weight = F.xxhash64(*_CONTENT), F.xxhash64("seq")
    weights = (weight.bitwiseAND(F.lit(PRIME)), F.shiftrightunsigned(weight, 33))
    row = F.col(place) % PRIME
    return records.groupBy(*_PLACE, number(run, size).alias("number")).agg(
        F.count("*").alias("count"),
        F.count_if("claimed").alias("claimed"),
        F.coalesce(F.sum(F.when(F.col("claimed"), F.col("checksum"))), F.lit(0)).alias("checksum"),
        F.bit_xor(content).alias("mixed"),
        F.sum(content.bitwiseAND(F.lit(PRIME))).alias("total"),
        F.min("offset").alias("first"),
        F.max("offset").alias("last"),
        F.sum(place).alias("rows"),
        F.array(*map(F.sum, weights)).alias("weights"),
        F.array(*(F.sum(weight * row % PRIME) for weight in weights)).alias("weighted"),
    )


def collected(summaries: DataFrame) -> list[Block]:
    return [Block(**row.asDict()) for row in summaries.collect()]


# The comparison by blocks. Blocks without doubts have no findings: both sides have the same records
# in the same order, each record once, because the source's sums match the sums that its brokers
# acknowledged. An idempotent producer's order on the source is the order of its numbers (KIP-98),
# and blocks of a partition do not overlap.

Stream = tuple[str, str]
"""Topic and producer."""


@dataclass(frozen=True)
class SuspectBlocks:
    """Blocks whose records must be compared one by one."""

    keys: frozenset[Key]
    streams: frozenset[Stream]
    """Streams of which all blocks and all acknowledged sequence numbers are compared."""

    def of(self, records: DataFrame, run: str, size: int) -> DataFrame:
        """Return the records of the doubtful blocks."""
        wanted = records.sparkSession.createDataFrame(
            sorted(self.keys), "topic string, producer string, number bigint"
        )
        keys = ["topic", "producer", "number"]
        return (
            records.withColumn("number", number(run, size))
            .join(F.broadcast(wanted), keys, "left_semi")
            .drop("number")
        )

    def where(self, planned: OffsetRange, side: Iterable[Block]) -> OffsetRange:
        """Return the part of a range that contains all doubtful blocks of one side."""
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
        return OffsetRange(
            planned.source_names,
            {name: tuple(ats) for name, ats in start.items()},
            {name: tuple(ats) for name, ats in end.items()},
        )


def doubts(
    source: list[Block], target: list[Block], manifest: LoadManifest, *, same_offsets: bool = False
) -> SuspectBlocks:
    """Return the doubtful blocks of a mirror that preserves partitions.

    With ``same_offsets``, the mirror also preserves offsets, and the blocks are results of
    ``summarised`` with ``by_offset``.
    """
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
    return SuspectBlocks(keys, streams)


def _different(source: list[Block], target: list[Block], same_offsets: bool) -> Iterator[Key]:
    here, there = ({block.place: block for block in side} for side in (source, target))
    for place in here.keys() | there.keys():
        ours, theirs = here.get(place), there.get(place)
        if ours is None or theirs is None:
            # Records of earlier runs are findings only if the target alone has them.
            if theirs is not None or (ours is not None and ours.own):
                yield place[0]
        elif not ours.agrees_with(theirs, same_offsets=same_offsets) or (
            ours.own and ours.claimed < ours.count
        ):
            yield ours.key


def _without_end(source: list[Block], manifest: LoadManifest) -> Iterator[Key]:
    """Yield the keys of sentinels that do not exist exactly once on the source."""
    there = {block.place: block.count for block in source}
    for topic in manifest.topics:
        for partition in range(topic.partitions):
            key = (topic.name, manifest.run, partition)
            if there.get((key, topic.name, partition)) != 1:
                yield key


def _behind_the_end(target: list[Block], run: str) -> Iterator[Key]:
    """Yield the keys of blocks with a record after their partition's sentinel.

    Also yield the key of the sentinel.
    """
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
    """Yield the streams with a block that begins before an earlier block has ended."""
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
    """Yield the streams whose source records differ from the acknowledged ones.

    The number of records and the sum of checksums are compared.
    """
    held: dict[tuple[str, str, int], tuple[int, int]] = defaultdict(lambda: (0, 0))
    for block in source:
        at = (block.topic, block.producer, block.partition)
        count, checksum = held[at]
        held[at] = (count + block.claimed, checksum + block.checksum)
    for stream in manifest.streams:
        sums = {(p.partition, p.count, p.checksum) for p in stream.partitions}
        if any(held[stream.topic, stream.producer, p] != (n, crc) for p, n, crc in sums):
            yield (stream.topic, stream.producer)
