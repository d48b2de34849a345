"""What a finding is, and what more than one check derives of a record.

A finding has ``kind``, ``count`` (1, or how many copies are too many); where the record lies:
``found_in`` (the source's name of the topic), ``partition``, ``offset``; ``topic`` (that it was
sent to), ``producer``, ``seq``; ``differs`` (of a corrupted record: in what; of one at another
offset: ``offset``).
"""

from itertools import chain

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.mirror_test import Kind

IDENTITY = ["topic", "producer", "seq"]
"""One message, however many copies there are of it."""

PLACE = ["found_in", "partition", "offset"]
"""One copy."""

COLUMNS = ["kind", "count", *PLACE, *IDENTITY, "differs"]
"""Of a finding."""


def findings(records: DataFrame, kind: Kind) -> DataFrame:
    """Each of the records as one of that kind."""
    return records.withColumns({"kind": F.lit(str(kind)), "count": F.lit(1).cast("bigint")}).select(
        COLUMNS
    )


def is_elsewhere() -> Column:
    """Whether a record lies in another topic than it was sent to."""
    return F.col("found_in") != F.col("topic")


def key_number(keys: dict[str, int]) -> Column:
    """The number that is the key of a message, or of a sentinel, as it was sent."""
    keys_of = F.create_map(*(F.lit(x) for x in chain(*keys.items())))
    return F.col("seq") % keys_of[F.col("topic")]
