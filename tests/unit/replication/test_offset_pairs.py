"""Pairs of offsets that a new owner writes."""

from collections.abc import Iterator

import pytest

from headrace.replication import ContiguousRange, OffsetPair, thin_out, with_runs
from headrace.replication.progress import MAX_PAIRS

BEFORE = (OffsetPair("old", 0, 0), OffsetPair("old", 9, 9))


def names() -> Iterator[str]:
    return iter(["new", "newer"])


@pytest.mark.parametrize(
    ("run", "added"),
    [
        (ContiguousRange(10, 10, 5, 1), [("old", 14, 14)]),
        (ContiguousRange(12, 10, 5, 1), [("old", 12, 10), ("old", 16, 14)]),
        (ContiguousRange(12, 10, 1, 1), [("old", 12, 10)]),
        (ContiguousRange(10, 11, 5, 1), [("new", 10, 11), ("new", 14, 15)]),
        (ContiguousRange(8, 8, 4, 1), [("old", 11, 11)]),
        (ContiguousRange(7, 7, 3, 1), []),
    ],
    ids=["goes on", "hole", "one record", "marker on the target", "overlaps", "is known"],
)
def test_a_run_behind_the_pairs_adds_its_ends(
    run: ContiguousRange, added: list[tuple[str, int, int]]
) -> None:
    found = with_runs(BEFORE, [run], names().__next__)
    assert found == (*BEFORE, *(OffsetPair(*one) for one in added))


def test_without_earlier_pairs_each_gap_on_the_target_begins_a_stretch() -> None:
    found = with_runs(
        (), [ContiguousRange(5, 7, 2, 1), ContiguousRange(7, 10, 1, 2)], names().__next__
    )
    assert found == (OffsetPair("new", 5, 7), OffsetPair("new", 6, 8), OffsetPair("newer", 7, 10))


def test_of_too_many_pairs_the_ends_stay() -> None:
    pairs = list(range(10 * MAX_PAIRS))
    kept = thin_out(pairs, MAX_PAIRS)
    assert MAX_PAIRS // 4 < len(kept) <= MAX_PAIRS
    assert (kept[0], kept[-1]) == (0, 10 * MAX_PAIRS - 1)
