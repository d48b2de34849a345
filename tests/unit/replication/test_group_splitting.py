"""Assignment of groups to checkpoint tasks."""

from collections.abc import Collection, Mapping

from hypothesis import given
from hypothesis import strategies as st

from headrace.replication import split_groups

NAMES = st.sets(st.sampled_from([f"g{n}" for n in range(30)]))


def test_no_group_no_task() -> None:
    assert split_groups([], {0: ("gone",)}, 8) == {}


def test_a_new_group_moves_no_other() -> None:
    before = {0: ("a", "c"), 1: ("b",)}
    assert split_groups("abcd", before, 2) == {0: ["a", "c"], 1: ["b", "d"]}


def test_as_many_tasks_as_groups_at_most() -> None:
    assert split_groups("ab", {}, 8) == {0: ["a"], 1: ["b"]}


@given(
    NAMES,
    st.dictionaries(st.integers(0, 9), NAMES.map(lambda names: tuple(sorted(names)))),
    st.integers(1, 9),
)
def test_each_group_has_one_task_and_tasks_are_even(
    groups: Collection[str], before: Mapping[int, tuple[str, ...]], most: int
) -> None:
    split = split_groups(groups, before, most)
    assert sorted(group for held in split.values() for group in held) == sorted(groups)
    assert list(split) == list(range(min(most, len(groups))))
    sizes = {len(held) for held in split.values()}
    assert not sizes or max(sizes) - min(sizes) <= 1
    again = {index: tuple(held) for index, held in split.items()}
    assert split_groups(groups, again, most) == split
