"""The comparison of an audit against a brute-force oracle, on random logs."""

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.mirror_test import FindingType
from headrace_spark.audit.differences import (
    AuditBlock,
    Edges,
    HashedRecord,
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


def audited(
    source: Log, target: Log, frontier: Mapping[tuple[str, int], int]
) -> list[RecordDifference]:
    """Compare the logs as a whole: blocks first, then the records of blocks that differ."""
    result = compare_blocks(summarised(source), summarised(target), 1_000_000)
    assert not result.unread

    def read(log: Log) -> Log:
        keys = result.differing
        return [one for one in log if (*one[:2], one.timestamp_ms // WIDTH_MS) in keys]

    edges = {at: Edges(frontier={at[1]: end}) for at, end in frontier.items()}
    outcome = classify(read(source), read(target), result.agreed, edges, ordered=True)
    wanted = {one.content for one in outcome.strangers}
    originals = {one.content: one for one in sorted(source, reverse=True) if one.content in wanted}
    return [*outcome.differences, *explain(outcome.strangers, originals, ordered=True)]


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


def in_order(source: Log, target: Log) -> int:
    """Brute force: the records of both sides that a longest common order has, by quadratic time."""
    total = 0
    for at in {one[:2] for one in source}:
        here = [one.identity for one in sorted(source) if one[:2] == at]
        there = [one.identity for one in sorted(target) if one[:2] == at]
        before = [0] * (len(there) + 1)
        for mine in here:
            now = [0]
            for index, theirs in enumerate(there):
                longer = before[index] + 1 if mine == theirs else 0
                now.append(max(longer, before[index + 1], now[-1]))
            before = now
        total += before[-1]
    return total


def common(source: Log, target: Log) -> int:
    """Count the records that both sides have in the same partition."""
    here = Counter((one[:2], one.identity) for one in source)
    there = Counter((one[:2], one.identity) for one in target)
    return (here & there).total()


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32))
def test_sums_of_classes_account_for_every_record(seed: int) -> None:
    dice, logs = copied(seed)
    source = laid_out(logs, dice)
    for _ in range(dice.randrange(6)):
        log = logs[dice.choice(sorted(logs))]
        at = dice.randrange(len(log) + 1)
        match dice.choice(["drop", "double", "swap", "change", "alien", "move"]):
            case "drop" if log:
                log.pop(at - 1)
            case "double" if log:
                log.insert(at, dice.choice(log))
            case "swap" if log:
                log.insert(at, log.pop(dice.randrange(len(log))))
            case "change" if log:
                log[at - 1] = log[at - 1]._replace(value=-1 - at, content=stable("changed", at))
            case "alien":
                log.insert(at, record("", 0, 100_000 + at, 1_010))
            case "move" if log:
                logs[dice.choice(sorted(logs))].append(log.pop(at - 1))
    target = laid_out(logs, dice)
    found = audited(source, target, {})
    counts = Counter[FindingType]()
    for one in found:
        counts[one.kind] += one.records
    same = common(source, target)
    assert len(source) - same == counts[FindingType.MISSING] + counts[FindingType.CORRUPTED]
    surplus = (
        counts[FindingType.DUPLICATED] + counts[FindingType.ALIEN] + counts[FindingType.CORRUPTED]
    )
    assert len(target) - same == surplus
    ordered = in_order(source, target)
    distinct = len({one.identity for one in source}) == len(source)
    if distinct and not counts[FindingType.DUPLICATED]:
        assert counts[FindingType.REORDERED] == same - ordered
    assert (counts[FindingType.REORDERED] == 0) >= (found == [])
    assert counts[FindingType.REORDERED] >= same - ordered
    if source and sorted(r[:2] + r[3:] for r in source) == sorted(r[:2] + r[3:] for r in target):
        assert set(counts) <= {FindingType.REORDERED}


def test_a_record_moved_across_a_block_whose_rows_another_record_restores() -> None:
    early, late, moved = (record("orders", 0, n, at) for n, at in enumerate((1_000, 1_001, 1_008)))
    copy = moved._replace(value=99, content=stable("alien"))

    def log(*records: HashedRecord) -> Log:
        return [one._replace(offset=offset) for offset, one in enumerate(records)]

    source, target = log(early, moved, late), log(early, copy, late, moved)
    agrees = compare_blocks(summarised([source[0], source[2]]), summarised(target[:3:2]), 100)
    assert not agrees.differing
    found = audited(source, target, {})
    assert sorted(one.kind for one in found) == [FindingType.ALIEN, FindingType.REORDERED]


def test_agreed_blocks_beside_a_difference_beyond_the_limit_are_not_called_equal() -> None:
    log = [record("orders", 0, n, 1_000 + n % 3 * WIDTH_MS) for n in range(30)]
    source = [one._replace(offset=offset) for offset, one in enumerate(log)]
    target = [*source[:-1], source[-1]._replace(value=-1, content=-1)]
    found = compare_blocks(summarised(source), summarised(target), 20)
    assert (len(found.differing), len(found.unread), found.agreed) == (1, 2, {})
