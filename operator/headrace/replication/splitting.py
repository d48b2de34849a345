"""How the partitions of a flow are split into tasks."""

from collections.abc import Mapping, Set

from headrace.api.partitions import TopicPartition

Split = Mapping[int, frozenset[TopicPartition]]
"""The partitions of each task, by the task's index."""


def split(partitions: Set[TopicPartition], previous: Split, max_tasks: int) -> Split:
    """Give every partition to one of at most ``max_tasks`` tasks; what has a task keeps it.

    A new partition opens a new task while there may be one more, else it goes to the lightest and
    touches no other (MirrorMaker 2 re-deals all partitions and stops the flow). Partitions that are
    gone leave their task; a task without partitions is no task. Tasks beyond ``max_tasks`` are
    dissolved. Raises ``ValueError`` when ``max_tasks`` is below 1.
    """
    if max_tasks < 1:
        raise ValueError(f"max_tasks must be at least 1, got {max_tasks}")
    tasks = {
        index: set(held & partitions)
        for index, held in sorted(previous.items())
        if index < max_tasks and held & partitions
    }
    placed = set().union(*tasks.values())
    for partition in sorted(partitions - placed):
        vacant = next((index for index in range(max_tasks) if index not in tasks), None)
        if vacant is None:
            lightest = min(tasks, key=lambda index: (len(tasks[index]), index))
            tasks[lightest].add(partition)
        else:
            tasks[vacant] = {partition}
    return {index: frozenset(held) for index, held in sorted(tasks.items())}
