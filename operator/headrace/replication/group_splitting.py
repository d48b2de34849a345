"""Which checkpoint task follows which consumer groups. Pure."""

from collections.abc import Collection, Mapping

GroupSplit = Mapping[int, tuple[str, ...]]
"""Groups by the index of their task."""


def split_groups(groups: Collection[str], before: GroupSplit, most: int) -> dict[int, list[str]]:
    """``min(most, groups)`` tasks, whose numbers of groups differ by one at most.

    A group keeps its task; those that are new, and as few as that takes, get another. Two tasks may
    follow a group for a moment: they write the same checkpoints, so nothing has to be released
    first.
    """
    wanted = set(groups)
    there = sorted(wanted)
    count = min(most, len(there))
    split: dict[int, list[str]] = {index: [] for index in range(count)}
    placed: set[str] = set()
    for index, held in sorted(before.items()):
        if index in split:
            split[index] = [one for one in sorted(set(held)) if one in wanted and one not in placed]
            placed.update(split[index])
    waiting = [group for group in there if group not in placed]
    for group in waiting:
        min(split.items(), key=lambda item: (len(item[1]), item[0]))[1].append(group)
    while count and (heaviest := max(split.values(), key=len)):
        lightest = min(split.values(), key=len)
        if len(heaviest) - len(lightest) <= 1:
            break
        lightest.append(heaviest.pop())
    return {index: sorted(held) for index, held in split.items()}
