"""Which settings of a target topic follow those of its source (MirrorMaker 2's ConfigProperty-
Filter and ``sync.topic.configs``)."""

import re
from collections.abc import Mapping, Sequence, Set

_NEVER = re.compile(r"(leader|follower)\.replication\.throttled\.replicas")
"""They name partitions and brokers of their own cluster."""


def config_changes(
    source: Mapping[str, str],
    target: Mapping[str, str],
    exclude: Sequence[str],
    removed: Set[tuple[str, str]] = frozenset(),
) -> dict[str, str | None]:
    """The settings to write to a target topic, by name; ``None`` restores the broker's default.

    ``source`` has the settings that were set on the source's topic itself: broker defaults of one
    cluster are no wish for another. ``target`` has all settings in effect there, so that what is
    equal is not written, nor what that broker does not know. ``removed`` are names and values that
    were set on the source before: they go where the target still has that value, and no other
    setting of the target's own is touched.
    """
    excluded = [re.compile(pattern) for pattern in exclude]

    def follows(name: str) -> bool:
        return (
            name in target
            and not _NEVER.fullmatch(name)
            and not any(pattern.fullmatch(name) for pattern in excluded)
        )

    changes: dict[str, str | None] = {
        name: value
        for name, value in sorted(source.items())
        if follows(name) and target[name] != value
    }
    for name, value in sorted(removed):
        if follows(name) and name not in source and target[name] == value:
            changes[name] = None
    return changes
