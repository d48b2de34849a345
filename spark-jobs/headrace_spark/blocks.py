"""What one side has, as a few sums for each block of sequence numbers: enough to see that two sides
agree, in content and in order, without a join of their records.

Each record is read once and forgotten, so memory grows neither with the load nor with the target's
repetitions of it. ``doubts`` says what has to be compared record by record.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.mirror_test import LoadManifest

PRIME = (1 << 31) - 1
"""Sums of products of two numbers below it fit into 64 bits for 2**32 records of a block."""

_BLOCK = 65_536
_MOST = 100_000
"""Blocks, times partitions, of one side: 20 MB of rows."""
_CONTENT = ("seq", "key", "value_hash", "headers_hash", "timestamp_ms")
_PLACE = ("topic", "producer", "own", "found_in", "partition")

Key = tuple[str, str, int]
"""Topic that it was sent to, producer, number of the block; of end sentinels (producer: the run) a
block is one partition."""


@dataclass(frozen=True, slots=True)
class Block:
    """Records of one topic, producer and range of numbers that lie in one partition."""

    topic: str
    producer: str
    own: bool
    found_in: str
    partition: int
    number: int
    count: int
    claimed: int
    """Of them, those that the manifest knows."""
    checksum: int
    """Sum of their values' CRC-32."""
    mixed: int
    """XOR of 64-bit hashes of numbers and contents."""
    total: int
    """Sum of 31 bits of the same hashes."""
    first: int
    last: int
    """Smallest and largest offset."""
    rows: int
    """Sum of the rows: what else lies in the log, as marks of transactions, is in none of them.
    Where the mirror has to keep offsets, of these instead."""
    weights: Sequence[int]
    weighted: Sequence[int]
    """Sums of two weights, 31 bits each of the numbers' hashes, and of their products with the
    rows, modulo ``PRIME``."""

    @property
    def key(self) -> Key:
        """What is compared as a whole."""
        return (self.topic, self.producer, self.number)

    @property
    def place(self) -> tuple[Key, str, int]:
        """Where to find its counterpart on the other side."""
        return (self.key, self.found_in, self.partition)

    def agrees_with(self, other: "Block", *, same_offsets: bool = False) -> bool:
        """Whether both have the same records in the same order: as often, with the same contents,
        and all rows the same number apart, of ``same_offsets`` none.

        The last is one equation for each weight, which records that changed places satisfy with a
        probability of 2**-62 (Freivalds, 1977). Where the distance changes within a block, as
        behind a repetition of another producer's record, the answer is no, though the order may be
        kept.
        """
        ours = (self.count, self.claimed, self.mixed, self.total, self.weights)
        if ours != (other.count, other.claimed, other.mixed, other.total, other.weights):
            return False
        apart, rest = divmod(other.rows - self.rows, self.count)
        if apart and same_offsets:
            return False
        return rest == 0 and all(
            (theirs - mine - apart * weight) % PRIME == 0
            for mine, theirs, weight in zip(
                self.weighted, other.weighted, self.weights, strict=True
            )
        )


def size_of(manifest: LoadManifest) -> int:
    """How many numbers make a block."""
    partitions = {topic.name: topic.partitions for topic in manifest.topics}
    rows = sum(stream.sent * partitions.get(stream.topic, 1) for stream in manifest.streams)
    return max(_BLOCK, -(-rows // _MOST))


def number(run: str, size: int) -> Column:
    """The number of a record's block; -1 for records without a sequence number."""
    of_message = F.expr(f"seq div {size}")
    return F.coalesce(
        F.when(F.col("producer") == run, F.col("seq")).otherwise(of_message), F.lit(-1)
    )


def summarised(records: DataFrame, run: str, size: int, *, by_offset: bool = False) -> DataFrame:
    """The columns of ``Block``; ``records``: as ``manifest_frames.claimed`` has them.
    ``by_offset``: an offset takes the place of each row."""
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
    """The same as Python has them."""
    return [Block(**row.asDict()) for row in summaries.collect()]
