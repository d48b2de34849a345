"""The annotation that resets partitions."""

import pytest

from headrace.api import ObjectMeta, Resets
from headrace.api.partitions import TopicPartition
from headrace.errors import InvalidSpec

AT = "2026-01-31T18:00:00Z"
AT_MS = 1_769_882_400_000
P3, P4 = TopicPartition("orders", 3), TopicPartition("orders", 4)


@pytest.mark.parametrize(
    ("text", "times"),
    [
        ("", {}),
        (f"orders/3@{AT}", {P3: AT_MS}),
        (f" orders/0-3,7@{AT}, payments@{AT} ", {P3: AT_MS, TopicPartition("payments", 9): AT_MS}),
        (f"orders@{AT}", {P3: AT_MS, P4: AT_MS}),
        ("orders/3@2026-01-31T19:00:00.250+01:00", {P3: AT_MS + 250}),
        (f"orders/3@{AT},orders/3@2025-01-31T18:00:00Z", {P3: AT_MS}),
        (f"orders@{AT} orders/3@2026-01-31T18:00:01Z", {P3: AT_MS + 1000, P4: AT_MS}),
    ],
)
def test_partitions_are_named_with_a_time(text: str, times: dict[TopicPartition, int]) -> None:
    resets = Resets.parse(text)
    asked = {at: resets.time_ms(at) for at in (P3, P4, TopicPartition("payments", 9))}
    assert {at: time for at, time in asked.items() if time} == times
    assert Resets.parse(str(resets)) == resets


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("orders/3", "'orders/3' is not of the form TOPIC[/PARTITIONS]@TIME"),
        (f"orders/x@{AT}", "is not of the form"),
        (f"ok@{AT} or ders@{AT}", "'or' is not of the form"),
        (f"orders/3-1@{AT}", "3-1 runs backwards"),
        (f"orders/0-3,@{AT}", "neither a number nor a range"),
        ("orders/3@now", "'now' is not a time like 2026-01-31T18:00:00Z"),
        ("orders/3@2026-01-31T18:00:00", "lacks its time zone"),
        ("orders/3@9999-12-31T23:59:59Z", "is not of the years 2000 to 2199"),
    ],
)
def test_a_mistake_is_a_sentence(text: str, said: str) -> None:
    metadata = ObjectMeta(name="f", annotations={"headrace.dev/reset": text})
    with pytest.raises(InvalidSpec) as error:
        Resets.from_metadata(metadata)
    assert str(error.value).startswith("the annotation headrace.dev/reset resets nothing: ")
    assert said in str(error.value)


def test_another_reset_is_later_than_those_before_and_replaces_what_it_covers() -> None:
    resets = Resets.parse(f"orders/0-3@{AT} payments@{AT}").with_reset(
        "orders", [3, 4], AT_MS + 60_250
    )
    assert str(resets) == f"orders/0-2@{AT} orders/3-4@2026-01-31T18:01:00Z payments@{AT}"
    # The clock is behind the previous one.
    resets = resets.with_reset("orders", None, AT_MS - 60_000)
    assert str(resets) == f"orders@2026-01-31T18:01:01Z payments@{AT}"


def test_what_a_flow_does_not_copy_is_named() -> None:
    resets = Resets.parse(f"orders/3,9@{AT} order@{AT} payments@{AT}")
    copied = [P3, P4, TopicPartition("payments", 0)]
    assert str(resets.absent(copied)) == f"order@{AT} orders/9@{AT}"
    assert str(resets.among(copied)) == f"orders/3@{AT} payments/0@{AT}"
