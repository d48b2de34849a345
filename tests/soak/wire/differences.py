"""Differences between what a flow did and what it should have done. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from soak.wire.damage import Damage

CAUSE_S = 60.0
"""Longest time from a damage to the condition that it causes."""
_OF_GROUPS = frozenset({"offset_fetch", "offset_commit"})
COPIED_S, CLOCK_S = 180.0, 10.0
"""Longest time from the creation of a record to a damage of its copy, and before it."""


@dataclass(frozen=True)
class Difference:
    """Records that are missing, doubled, moved, out of order or foreign, or a false condition."""

    text: str
    first_s: float
    """First time of a damage that can explain it, in Unix seconds."""
    last_s: float
    explained_by: str = ""
    of_group: bool = False
    """Whether the offset of a group is wrong."""


def of_record(text: str, created_s: float, explained_by: str = "") -> Difference:
    """Return the difference of a record that was created at that time on the source."""
    return Difference(text, created_s - CLOCK_S, created_s + COPIED_S, explained_by)


def explained(differences: Sequence[Difference], damages: Sequence[Damage]) -> list[Difference]:
    """Return the differences with a flip that docs/faults.md lists as not found, if one is near."""
    judged = []
    for one in differences:
        near = [
            damage
            for damage in damages
            if damage.may_stay_unnoticed
            and (damage.api in _OF_GROUPS) == one.of_group
            and one.first_s <= damage.at_s <= one.last_s
        ]
        why = f"a field that cannot be checked: {near[0]}" if near else ""
        judged.append(replace(one, explained_by=one.explained_by or why))
    return judged
