"""Topics of one partition in which headrace keeps what MirrorMaker 2 keeps there."""

from headrace.kafka import Admin, ensure_topic

MIN_COMPACTION_LAG_MS = 86_400_000
"""Offset syncs of a day stay as they were written: so far back a checkpoint task that starts again
finds every pair that was written."""
_SYNCS = {
    "cleanup.policy": "compact",
    "min.compaction.lag.ms": str(MIN_COMPACTION_LAG_MS),
    "segment.bytes": str(64 << 20),  # a larger one would not be compacted for a week
}
AS_MIRROR_MAKER = "as MirrorMaker 2 makes it"
"""Why such a topic has one partition."""


def ensure_offset_syncs_topic(admin: Admin, topic: str) -> None:
    """Make it where it is absent; raises as ``ensure_topic``."""
    ensure_topic(admin, topic, 1, _SYNCS, because=AS_MIRROR_MAKER)
