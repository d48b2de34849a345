"""Topics whose copies are to have the same offsets, as other clients see them."""

import time
from contextlib import closing
from itertools import pairwise
from math import inf
from typing import Any

from support.patience import WITHIN_S

from headrace.api import ClusterAccess, TopicPartition
from headrace.kafka import Admin, Position, assign, make_consumer

CLEANER = {"log.cleaner.backoff.ms": "100"}
"""Settings of a broker that compacts as soon as it can.

``log.segment.delete.delay.ms`` keeps its default, one minute. A broker flushes the segments that it
rolls in the background. If the files of a compacted segment are deleted before that flush, the
broker treats its disk as failed and halts (KAFKA-19571). A delay of 100 ms is too short on a busy
machine.
"""
KEPT = {"retention.ms": "-1"}
COMPACTED = {
    **KEPT, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.001",
    "max.compaction.lag.ms": "1", "delete.retention.ms": "1", "segment.ms": "100",
}  # fmt: skip


def visible(
    cluster: ClusterAccess, topic: str, first: int = 0, partition: int = 0
) -> dict[int, Any]:
    """Return the committed records from offset ``first`` on, by offset.

    Each record has its key, value, headers and timestamp.
    """
    at = TopicPartition(topic, partition)
    admin = Admin(cluster)
    start = max(first, admin.offsets([at], Position.EARLIEST)[at])
    end = admin.offsets([at], Position.LAST_STABLE)[at]
    found: dict[int, Any] = {}
    with closing(make_consumer(cluster)) as consumer:
        assign(consumer, [(at, start)])
        deadline = time.monotonic() + WITHIN_S
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is None:
                continue
            if message.error():
                break
            found[message.offset() or 0] = (
                message.key(), message.value(), message.headers(), message.timestamp(),
            )  # fmt: skip
    assert all(start <= offset < end for offset in found)
    return found


def bounds(cluster: ClusterAccess | Admin, topic: str, partition: int = 0) -> list[int]:
    """Return the start, the last stable offset and the end of a partition."""
    at = TopicPartition(topic, partition)
    admin = cluster if isinstance(cluster, Admin) else Admin(cluster)
    return [
        admin.offsets([at], position)[at]
        for position in (Position.EARLIEST, Position.LAST_STABLE, Position.LATEST)
    ]


def holes(cluster: ClusterAccess, topic: str) -> int:
    """Return the number of offsets between records."""
    found = sorted(visible(cluster, topic))
    return sum(later - one - 1 for one, later in pairwise(found))


def first_unequal(
    source: dict[int, Any], copy: dict[int, Any], *, end: float = inf, compacts: bool = False
) -> int | None:
    """Return the first offset below ``end`` at which source and copy differ.

    ``compacts``: the source may have removed a record after it was copied, if a later record has
    its key. That record may be at ``end`` or later.
    """
    last: dict[Any, int] = {record[0]: offset for offset, record in source.items()}
    for offset in sorted(one for one in source.keys() | copy.keys() if one < end):
        if source.get(offset) == copy.get(offset):
            continue
        gone = offset not in source and last.get(copy[offset][0], -1) > offset
        if not (compacts and gone):
            return offset
    return None
