"""What holds for every split of partitions into tasks."""

from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from headrace.api.partitions import TopicPartition
from headrace.replication import split

PARTITIONS = st.frozensets(
    st.builds(TopicPartition, st.sampled_from(["a", "b", "c"]), st.integers(0, 9)), max_size=25
)
MAX = st.integers(1, 8)


@given(PARTITIONS, PARTITIONS, MAX, MAX)
def test_complete_disjoint_and_of_the_right_number(
    before: frozenset[TopicPartition],
    after: frozenset[TopicPartition],
    old_max: int,
    max_tasks: int,
) -> None:
    tasks = split(after, split(before, {}, old_max), max_tasks)
    held = list(chain.from_iterable(tasks.values()))
    assert sorted(held) == sorted(after)
    assert all(0 <= index < max_tasks and partitions for index, partitions in tasks.items())
    if not before:
        assert len(tasks) == min(max_tasks, len(after))


@given(PARTITIONS, PARTITIONS, MAX)
def test_what_has_a_task_keeps_it(
    before: frozenset[TopicPartition], more: frozenset[TopicPartition], max_tasks: int
) -> None:
    old = split(before, {}, max_tasks)
    new = split(before | more, old, max_tasks)
    assert all(partitions <= new[index] for index, partitions in old.items())


@given(PARTITIONS, MAX)
def test_tasks_are_even(partitions: frozenset[TopicPartition], max_tasks: int) -> None:
    sizes = [len(held) for held in split(partitions, {}, max_tasks).values()]
    assert not sizes or max(sizes) - min(sizes) <= 1
