"""Counts of a rehearsed fail-over for each consumer group."""

import pytest

from headrace.api import Rehearsal, TopicPartition
from headrace.errors import InvalidSpec
from headrace.mirror_test import RehearsedGroup, build_rehearsal, count_group, read_rehearsal

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
SOURCE = {("orders", n): (P0 if n < 10 else P1, n % 10) for n in range(20)}
COPIED = list(SOURCE)
COMMITTED = {P0: 4, P1: 10}
"""Committed offsets. Six records follow them."""


@pytest.mark.parametrize(
    ("delivered", "reread", "skipped"),
    [
        (range(4, 10), 0, 0),
        (range(2, 10), 2, 0),
        ([4, 5, 4, 5, 6, 7, 8, 9], 2, 0),
        (range(6, 10), 0, 2),
        ([], 0, 6),
        ([*range(4, 10), 19, 77], 1, 0),  # from the other partition, and one from another client
    ],
)
def test_what_is_delivered_is_compared_with_what_was_committed(
    delivered: list[int], reread: int, skipped: int
) -> None:
    found = count_group("g", SOURCE, COPIED, COMMITTED, [("orders", n) for n in delivered])
    assert found == RehearsedGroup(group="g", committed=14, reread=reread, skipped=skipped)


def test_what_is_not_on_the_target_is_not_skipped() -> None:
    found = count_group("g", SOURCE, COPIED[:8], COMMITTED, [("orders", n) for n in range(4, 8)])
    assert (found.reread, found.skipped) == (0, 0)


def test_a_partition_without_a_commit_is_due_from_its_start() -> None:
    found = count_group("g", SOURCE, COPIED, {P0: 10}, [])
    assert (found.committed, found.skipped) == (10, 10)


def test_a_plan_names_its_groups_and_the_error_that_stays_if_nobody_reports() -> None:
    planned = read_rehearsal(build_rehearsal("r-1", Rehearsal(groups=2), "it ended"), "plan")
    assert [one.group for one in planned.groups] == [f"headrace-rehearsal-r-1-{n}" for n in (0, 1)]
    assert planned.error == "it ended"
    with pytest.raises(InvalidSpec, match="plan is not a plan of this version of headrace"):
        read_rehearsal('{"groups": 2}', "plan")
