"""Ranges that earlier audits compared: how far they reach, and whether they changed since.

All functions are pure. An audit stores the sums of ranges of offsets, separately for both sides. A
later audit reads some of these ranges again. Different sums prove that a side changed.
"""

import random
from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import pairwise
from typing import NamedTuple

from headrace_spark.audit.differences import AuditBlock

_SAMPLE = 100
"""Number of blocks of which one is checked again, unless the audit has ``recheck: Full``."""


class PastBlock(NamedTuple):
    """Sums over the committed records of a range of offsets."""

    start: int
    end: int
    """Offset after the range."""
    records: int
    mixed: int
    """XOR of the 64-bit hashes of the records."""
    total: int
    """Sum of the low 31 bits of the hashes in ``mixed``."""

    @property
    def sums(self) -> tuple[int, int, int]:
        """All fields except the offsets."""
        return self[2:]

    def with_next(self, other: "PastBlock") -> "PastBlock":
        """Return the union with the block that follows."""
        return PastBlock(
            self.start,
            other.end,
            self.records + other.records,
            self.mixed ^ other.mixed,
            self.total + other.total,
        )


def settled(
    source: Iterable[AuditBlock], target: Iterable[AuditBlock], frontier: int
) -> tuple[list[AuditBlock], list[AuditBlock]]:
    """Return the first blocks of a partition that the next audit need not compare again.

    On both sides, the returned blocks are before all other blocks. Their source records are before
    the frontier. Therefore no record outside these blocks has its counterpart in them. As many
    blocks as possible are returned.
    """
    ours = sorted(source, key=lambda block: block.first)
    there = {block.number: block for block in target}
    copies = [there.get(block.number) for block in ours]
    strangers = [there[number] for number in there.keys() - {block.number for block in ours}]
    tops, lows = [(-1, -1)], [there_is_no_other := 1 << 63]
    for block, copy in zip(ours, copies, strict=True):
        last, copied = tops[-1]
        tops.append((max(last, block.last), max(copied, copy.last if copy else -1)))
    for copy in reversed(copies):
        lows.append(min(lows[-1], copy.first if copy else there_is_no_other))
    lows.reverse()
    for taken in range(len(ours), 0, -1):
        last, copied = tops[taken]
        is_first = taken == len(ours) or last < ours[taken].first
        if (
            is_first
            and last < frontier
            and copied < lows[taken]
            and not any(block.first <= copied < block.last for block in strangers)
        ):
            return ours[:taken], [block for block in there.values() if block.last <= copied]
    return [], []


def past_blocks(blocks: Iterable[AuditBlock], start: int) -> list[PastBlock]:
    """Return ranges of offsets that together contain these blocks.

    The first range begins at ``start``. Blocks that share offsets are one range.
    """
    apart: list[PastBlock] = []
    for block in sorted(blocks, key=lambda b: b.first):
        one = PastBlock(block.first, block.last + 1, block.count, block.mixed, block.total)
        if apart and one.start < apart[-1].end:
            last = apart.pop()
            one = last.with_next(one)._replace(end=max(last.end, one.end))
        apart.append(one)
    starts = [start, *(block.start for block in apart[1:])]
    ends = [*starts[1:], apart[-1].end if apart else start]
    return [
        block._replace(start=begin, end=end)
        for block, begin, end in zip(apart, starts, ends, strict=False)
    ]


def unite_neighbours(blocks: Sequence[PastBlock], limit: int) -> list[PastBlock]:
    """Unite neighbours until there are at most ``limit`` blocks."""
    found = list(blocks)
    while len(found) > limit:
        united = [a.with_next(b) for a, b in zip(found[::2], found[1::2], strict=False)]
        found = united + found[len(found) - len(found) % 2 :]
    return found


def chosen(blocks: Sequence[PastBlock], dice: random.Random, *, full: bool) -> Sequence[PastBlock]:
    """Return the consecutive blocks to check again.

    With ``full``, these are all blocks. Otherwise they are a hundredth of the blocks at a random
    position, and at least one block.
    """
    count = len(blocks) if full else min(len(blocks), max(1, round(len(blocks) / _SAMPLE)))
    first = dice.randint(0, len(blocks) - count)
    return blocks[first : first + count]


def united(blocks: Sequence[PastBlock]) -> PastBlock:
    """Return the union of consecutive blocks."""
    assert all(a.end == b.start for a, b in pairwise(blocks))
    return reduce(PastBlock.with_next, blocks)
