"""Ranges and packed partitions are restored unchanged."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headrace.api import TopicPartition, TopicPartitions, format_ranges, parse_ranges

NUMBERS = st.sets(st.integers(0, 3000) | st.integers(0, 20))
PARTITIONS = st.builds(TopicPartition, st.sampled_from(["a", "b.c", "a-1"]), st.integers(0, 50))


@given(NUMBERS)
def test_round_trip(numbers: set[int]) -> None:
    assert parse_ranges(format_ranges(numbers)) == tuple(sorted(numbers))


@given(NUMBERS)
def test_no_range_touches_the_next(numbers: set[int]) -> None:
    """The text is the shortest one: at least one number is missing between any two ranges."""
    ends = [tuple(map(int, part.split("-"))) for part in format_ranges(numbers).split(",") if part]
    assert all(left[-1] + 1 < right[0] for left, right in pairwise(ends))


@given(st.sets(PARTITIONS))
def test_packed_partitions_round_trip(partitions: set[TopicPartition]) -> None:
    packed = TopicPartitions.pack(partitions)
    assert TopicPartitions.unpack(packed) == partitions
    assert [item.topic for item in packed] == sorted({at.topic for at in partitions})
