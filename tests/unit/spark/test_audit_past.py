"""Ranges of earlier audits: where the next audit continues, and what is checked again."""

import random
from collections import Counter
from functools import reduce
from itertools import pairwise
from operator import xor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.audit_logs import Log, audited, copied, laid_out, record, summarised

from headrace.mirror_test import FindingType
from headrace_spark.audit.earlier_audits import (
    PastBlock,
    chosen,
    past_blocks,
    settled,
    unite_neighbours,
    united,
)

ORDERS = ("orders", 0)


def between(log: Log, start: int, end: int) -> Log:
    return [one for one in log if start <= one.offset < end]


def repeated(log: Log, dice: random.Random) -> tuple[Log, list[int]]:
    """Return the log as a mirror writes it that is killed and copies records again.

    Also return the number of source records of each beginning of the copy.
    """
    copy: Log = []
    reached, position = [0], 0
    while position < len(log):
        copy.append(log[position])
        position += 1
        reached.append(max(reached[-1], position))
        if dice.random() < 0.05:
            position = max(0, position - dice.randrange(12))
    return copy, reached


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_audits_continue_at_the_same_record_on_both_sides(seed: int) -> None:
    dice, logs = copied(seed)
    log = list({one.identity: one for one in logs[ORDERS]}.values())
    copies, reached = repeated(log, dice)
    source, target = (laid_out({ORDERS: one}, dice) for one in (log, copies))
    stored: list[list[PastBlock]] = [[], []]
    starts, ends = [0, 0], [0, 0]
    for _ in range(3):
        # The frontier, then the copies so far, then the end of the source.
        ends[0] = dice.randint(ends[0], len(source))
        frontier = source[ends[0]].offset if ends[0] < len(source) else 10_000
        needed = next(n for n, count in enumerate(reached) if count >= ends[0])
        ends[1] = dice.randint(max(ends[1], needed), len(target))
        read_until = dice.randint(max(ends[0], reached[ends[1]]), len(source))
        here = between(source[:read_until], starts[0], 10_000)
        there = between(target[: ends[1]], starts[1], 10_000)
        found = audited(here, there, {ORDERS: frontier}, source)
        assert {one.kind for one in found} <= {FindingType.DUPLICATED}
        sides = settled(summarised(here), summarised(there), frontier)
        for side, (blocks, whole) in enumerate(zip(sides, (source, target), strict=True)):
            stored[side] += past_blocks(blocks, starts[side])
            starts[side] = stored[side][-1].end if stored[side] else starts[side]
            stored[side] = unite_neighbours(stored[side], 5)
            assert all(a.end == b.start for a, b in pairwise(stored[side]))
            for block in stored[side]:
                assert block.sums == sums_of(between(whole, block.start, block.end))
        assert starts[0] <= frontier
        assert (starts[0] == 0) == (starts[1] == 0)
        if len(target) == len(source) and read_until == ends[0]:
            assert starts[0] == (source[ends[0] - 1].offset + 1 if ends[0] else 0)


def sums_of(log: Log) -> tuple[int, int, int]:
    held = summarised(log)
    mixed = reduce(xor, (one.mixed for one in held), 0)
    return sum(one.count for one in held), mixed, sum(one.total for one in held)


def test_records_after_the_frontier_are_compared_again_with_their_block() -> None:
    log = [record(*ORDERS, n, 1_000 + n)._replace(offset=n) for n in range(24)]
    blocks = summarised(log)
    assert [block.number for block in blocks] == [125, 126, 127]
    for frontier, numbers in ((24, [125, 126, 127]), (23, [125, 126]), (8, [125]), (7, [])):
        ours, theirs = settled(blocks, blocks, frontier)
        assert [block.number for block in ours] == numbers
        assert [block.number for block in theirs] == numbers


def test_a_block_that_shares_offsets_with_a_later_one_on_either_side_is_compared_again() -> None:
    def log(*times_ms: int) -> Log:
        return [
            record(*ORDERS, n, time_ms)._replace(offset=n) for n, time_ms in enumerate(times_ms)
        ]

    early, late = 1_000, 1_008
    in_order = summarised(log(early, early, early, late, late))
    mixed = summarised(log(early, early, late, early, late))
    assert [len(side) for side in settled(in_order, in_order, 4)] == [1, 1]
    assert settled(mixed, in_order, 4) == ([], [])
    assert settled(in_order, mixed, 4) == ([], [])


def blocks(count: int) -> list[PastBlock]:
    return [PastBlock(n * 10, n * 10 + 10, 10, 1 << n, n) for n in range(count)]


@pytest.mark.parametrize("count", [1, 2, 99, 149, 150, 1_000])
def test_a_hundredth_is_checked_again_and_at_least_one_block(count: int) -> None:
    seen = Counter[PastBlock]()
    for seed in range(100):
        found = chosen(blocks(count), random.Random(seed), full=False)
        assert len(found) == max(1, round(count / 100))
        seen.update(found)
    assert len(seen) > min(count, 50) / 2, "the choice is random"
    assert chosen(blocks(count), random.Random(0), full=True) == blocks(count)


@pytest.mark.parametrize("count", [1, 4, 5, 9, 10, 1_000])
def test_neighbours_are_united_beyond_the_limit(count: int) -> None:
    found = unite_neighbours(blocks(count), 4)
    assert len(found) <= 4
    assert united(found) == united(blocks(count))
