"""Topics of one partition in which headrace keeps what MirrorMaker 2 keeps there."""

from collections.abc import Mapping

from headrace.errors import Fatal, Retriable
from headrace.kafka import Admin

MIN_COMPACTION_LAG_MS = 86_400_000
"""Offset syncs of a day stay as they were written: so far back a checkpoint task that starts again
finds every pair that was written."""
_SYNCS = {
    "cleanup.policy": "compact",
    "min.compaction.lag.ms": str(MIN_COMPACTION_LAG_MS),
    "segment.bytes": str(64 << 20),  # a larger one would not be compacted for a week
}


def ensure_offset_syncs_topic(admin: Admin, topic: str) -> None:
    """Make it where it is absent; raises as ``ensure_topic``."""
    ensure_topic(admin, topic, _SYNCS)


def ensure_checkpoints_topic(admin: Admin, topic: str) -> None:
    """Make it where it is absent; raises as ``ensure_topic``."""
    ensure_topic(admin, topic, {"cleanup.policy": "compact"})


def ensure_topic(admin: Admin, topic: str, config: Mapping[str, str]) -> None:
    """Make a topic of one partition; one that somebody made before is taken as it is, so that no
    right to create is needed. Raises what creating it raises, and ``Fatal`` for another shape."""
    found = admin.describe([topic]).get(topic)
    if found is None:
        if admin.create_topic(topic, 1, config=config):
            return
        raise Retriable(f"topic {topic} on {admin.name} is being made: trying again")
    if found.partitions != 1:
        raise Fatal(
            f"topic {topic} on {admin.name} has {found.partitions} partitions, and must have 1, as "
            "MirrorMaker 2 makes it: delete it, and it is created again"
        )
