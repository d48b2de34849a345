"""Meaning of ``spec.pausedPartitions``, and its changes by commands."""

import pytest

from headrace.api import PausedPartitions, Pauses, TopicPartition, partitions_text
from headrace.errors import InvalidSpec

ORDERS = [TopicPartition("orders", number) for number in range(4)]
OTHER = TopicPartition("payments", 0)


def some(partitions: str | None, topic: str = "orders") -> PausedPartitions:
    return PausedPartitions(topic=topic, partitions=partitions)


def test_items_may_overlap_and_a_topic_without_partitions_is_all_of_it() -> None:
    pauses = Pauses.of([some("0-1"), some("1,3")])
    assert pauses.among([*ORDERS, OTHER]) == {ORDERS[0], ORDERS[1], ORDERS[3]}
    whole = Pauses.of([some("0"), some(None), some("1")])
    assert whole.among([*ORDERS, OTHER]) == set(ORDERS)
    assert Pauses.of([]).among(ORDERS) == frozenset()


def test_partitions_are_paused_and_resumed_one_by_one() -> None:
    pauses = Pauses.of([some("0")]).with_also(some("2-3")).with_also(some(None, "payments"))
    assert list(map(str, pauses.items)) == ["orders/0,2-3", "payments"]
    assert list(map(str, pauses.without(some("0,3")).items)) == ["orders/2", "payments"]
    assert list(map(str, pauses.without(some("0-3")).items)) == ["payments"]
    assert list(map(str, pauses.without(some(None)).items)) == ["payments"]


@pytest.mark.parametrize(
    ("item", "sentence"),
    [
        (some("1"), "orders/1 is not paused; of orders are 0"),
        (
            some(None, "others"),
            "others is not paused; spec.pausedPartitions has orders/0, payments",
        ),
        (some("1", "payments"), "payments is paused as a whole: resume payments, then pause"),
    ],
)
def test_what_cannot_be_resumed(item: PausedPartitions, sentence: str) -> None:
    with pytest.raises(InvalidSpec, match=sentence):
        Pauses.of([some("0"), some(None, "payments")]).without(item)


def test_partitions_as_text() -> None:
    assert partitions_text({*ORDERS[1:], OTHER}) == "orders/1-3, payments/0"
