"""Random logs of audited topics, and the sums that Spark makes of them."""

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from hashlib import blake2b
from types import MappingProxyType

from headrace_spark.audit.differences import (
    AuditBlock,
    Edges,
    HashedRecord,
    Origin,
    RecordDifference,
    classify,
    compare_blocks,
    explain,
)
from headrace_spark.blocks import PRIME

TOPICS, PARTITIONS, WIDTH_MS = ("orders", "users"), 2, 8
Log = list[HashedRecord]


def stable(*parts: object) -> int:
    """Return a hash of 64 bits that is equal in every process, unlike that of Python's text."""
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=8).digest(), "big", signed=True)


def record(topic: str, partition: int, number: int, timestamp_ms: int) -> HashedRecord:
    """Return a record with contents of its own, before it has an offset."""
    content = stable(number, "content")
    return HashedRecord(topic, partition, 0, timestamp_ms, number % 5, number, 0, content)


def summarised(log: Iterable[HashedRecord]) -> list[AuditBlock]:
    """Return the sums that Spark makes of a log, in Python."""
    parts: dict[tuple[str, int, int], list[tuple[int, HashedRecord]]] = {}
    rows: Counter[tuple[str, int]] = Counter()
    for one in sorted(log):
        row = rows[one[:2]]
        rows[one[:2]] += 1
        parts.setdefault((*one[:2], one.timestamp_ms // WIDTH_MS), []).append((row, one))
    found = []
    for (topic, lane, number), held in parts.items():
        mixed = [stable(one.identity, "mixed") & (1 << 64) - 1 for _, one in held]
        weights = [
            [stable(one.identity, half) % PRIME for _, one in held] for half in ("low", "high")
        ]
        xor = 0
        for value in mixed:
            xor ^= value
        found.append(
            AuditBlock(
                topic=topic,
                lane=lane,
                number=number,
                size_bytes=0,
                count=len(held),
                mixed=xor,
                total=sum(value & PRIME for value in mixed),
                first=min(one.offset for _, one in held),
                last=max(one.offset for _, one in held),
                oldest_ms=min(one.timestamp_ms for _, one in held),
                rows=sum(row for row, _ in held),
                weights=[sum(half) for half in weights],
                weighted=[
                    sum(w * row % PRIME for w, (row, _) in zip(half, held, strict=True))
                    for half in weights
                ],
            )
        )
    return found


def laid_out(logs: Mapping[tuple[str, int], Sequence[HashedRecord]], dice: random.Random) -> Log:
    """Give every record an offset; there are holes, as of transaction markers."""
    found = []
    for at, log in logs.items():
        offset = dice.randrange(3)
        for one in log:
            found.append(one._replace(topic=at[0], partition=at[1], offset=offset))
            offset += dice.choice([1, 1, 1, 2])
    return found


def copied(seed: int) -> tuple[random.Random, dict[tuple[str, int], Log]]:
    """Random logs: timestamps mostly rise, and some jump."""
    dice = random.Random(seed)
    logs: dict[tuple[str, int], Log] = {}
    number = 0
    for topic in TOPICS:
        for partition in range(PARTITIONS):
            log, now = [], 1_000
            for _ in range(dice.randrange(60)):
                now += dice.choice([0, 0, 1, 1, 2])
                jitter = dice.choice([0, 0, 0, 0, -5, 7])
                log.append(record(topic, partition, number, now + jitter))
                number += dice.choice([1, 1, 1, 1, 0])  # 0: the next one may have the same number
            logs[topic, partition] = log
    return dice, logs


def audited(
    source: Log,
    target: Log,
    frontier: Mapping[tuple[str, int], int],
    whole_source: Log | None = None,
) -> list[RecordDifference]:
    """Compare the logs as a whole: blocks first, then the records of blocks that differ.

    ``whole_source`` also has the records before the compared range.
    """
    return audited_with(source, target, set(), frontier, whole_source)[0]


def audited_with(
    source: Log,
    target: Log,
    refused: Set[Origin],
    frontier: Mapping[tuple[str, int], int] = MappingProxyType({}),
    whole_source: Log | None = None,
) -> tuple[list[RecordDifference], Sequence[HashedRecord]]:
    """Return the differences, and the records that a dead letter excuses."""
    result = compare_blocks(summarised(source), summarised(target), 1_000_000)
    assert not result.unread

    def read(log: Log) -> Log:
        keys = result.differing
        return [one for one in log if (*one[:2], one.timestamp_ms // WIDTH_MS) in keys]

    edges = {at: Edges(frontier={at[1]: end}) for at, end in frontier.items()}
    outcome = classify(
        read(source), read(target), result.agreed, edges, ordered=True, refused=refused
    )
    wanted = {one.content for one in outcome.strangers}
    whole = sorted(whole_source or source, reverse=True)
    originals = {one.content: one for one in whole if one.content in wanted}
    strangers = explain(outcome.strangers, originals, ordered=True)
    return [*outcome.differences, *strangers], outcome.excused
