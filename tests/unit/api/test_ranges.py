"""Partition numbers as ranges, and partitions of several topics packed into them."""

from collections.abc import Iterable

import pytest

from headrace.api import TopicPartition, TopicPartitions, format_ranges, parse_ranges


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("0", (0,)), ("0-3,7", (0, 1, 2, 3, 7)), ("7, 0-1 ,1", (0, 1, 7)), ("5-5", (5,)), ("", ())],
)
def test_parse(text: str, numbers: tuple[int, ...]) -> None:
    assert parse_ranges(text) == numbers


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a", "'a' is neither a number nor a range like 0-3"),
        ("0,,1", "'' is neither a number nor a range like 0-3"),
        ("-1", "'-1' is neither a number nor a range like 0-3"),
        ("1-2-3", "'1-2-3' is neither a number nor a range like 0-3"),
        ("3-1", "3-1 runs backwards"),
        ("0-99999999999", "99999999999 is above the highest partition number, 999999"),
    ],
)
def test_what_is_no_range(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        parse_ranges(text)


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([], ""), ([3], "3"), ([7, 0, 1, 2, 3], "0-3,7"), ([1, 1, 2], "1-2"), (range(1000), "0-999")],
)
def test_format(numbers: Iterable[int], text: str) -> None:
    assert format_ranges(numbers) == text


def test_partitions_are_packed_by_topic() -> None:
    partitions = [TopicPartition("b", 1), TopicPartition("a", 0), TopicPartition("b", 0)]
    packed = TopicPartitions.pack(partitions)
    assert [(item.topic, item.partitions) for item in packed] == [("a", "0"), ("b", "0-1")]
    assert TopicPartitions.unpack(packed) == set(partitions)
