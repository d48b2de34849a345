"""What is wrong with a flow's renames, as far as its own manifest shows it."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from headrace.api.model import Breach
from headrace.api.topics import HEARTBEATS, is_internal

_OWN = "must not be heartbeats: these have a name of their own on the target"
_INTERNAL = (
    "must be no internal topic, such as those that begin with two underscores or a dot, and "
    "mm2*.internal"
)


def name_breaches(renames: Mapping[str, str]) -> Iterator[Breach]:
    """Of single names, and of two topics with one name."""
    counts = Counter(renames.values())
    for topic, renamed in renames.items():
        at = ("renames", topic)
        if topic == HEARTBEATS:
            yield Breach(at, _OWN)
        elif is_internal(topic) or is_internal(renamed):
            yield Breach(at, _INTERNAL)
        elif counts[renamed] > 1:
            others = sorted(one for one, name in renames.items() if name == renamed)
            yield Breach(at, f"must be another name: {' and '.join(others)} would be one topic")


def copy_breaches(
    renames: Mapping[str, str],
    include: Sequence[str],
    exclude: Sequence[str],
    taken: Mapping[str, str],
) -> Iterator[Breach]:
    """Of names that the flow gives to other topics, too; ``include``, ``exclude``: which topics it
    copies; ``taken``: names on the target, and what they are of."""

    def copied(topic: str) -> bool:
        inside = any(re.fullmatch(pattern, topic) for pattern in include)
        return inside and not any(re.fullmatch(pattern, topic) for pattern in exclude)

    for topic, renamed in renames.items():
        at = ("replicationPolicy", "renames", topic)
        if not copied(topic):
            yield Breach(at, f"is not copied: spec.topics does not match {topic}")
        elif renamed in taken:
            yield Breach(at, f"must be another name: {renamed} is {taken[renamed]}")
        elif renamed not in renames and copied(renamed):
            yield Breach(
                at,
                f"must be another name: the source's {renamed} is copied, too, and keeps its name; "
                "rename it, or exclude it in spec.topics",
            )
