"""Deletions on compacted topics: the source drops tombstones after a while, copied or not."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from headrace.api import TopicPartition
from headrace.connect.runtime.context import FlowContext
from headrace.errors import Fatal
from headrace.logs import get_logger
from headrace.replication import Progress

log = get_logger(__name__)

_SHORTEST_MS = 60_000
"""Nobody keeps tombstones for less: a usual take-over, of young progress, asks for no settings."""
_CALLS = 8


def not_copied_since(
    context: FlowContext,
    stored: Mapping[TopicPartition, Progress],
    ends: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Return partitions whose source may have dropped tombstones after the stored offset.

    The result has the Unix time in ms at which that offset was stored. ``ends`` are the source's.
    Raise ``Retriable``. A cleaner drops a tombstone ``delete.retention.ms`` after it found it, at
    the earliest. Progress must therefore be older, and the records after the offset must not begin
    with a younger one.
    """
    now_ms = context.now_ms
    old = {}
    for at, progress in stored.items():
        stored_ms = context.progress.stored_ms(context.progress_key(at))
        unread = progress.source_offset < ends[at] and not progress.tombstones_since_ms
        if unread and 0 < stored_ms < now_ms - _SHORTEST_MS:
            old[at] = stored_ms
    topics = sorted({at.topic for at in old})
    with ThreadPoolExecutor(_CALLS) as pool:
        kept = zip(topics, pool.map(partial(_tombstones_kept_ms, context), topics), strict=True)
    found = {}
    for topic, kept_ms in kept:
        if kept_ms is None:
            continue
        since_ms = now_ms - kept_ms
        at_risk = {at for at, ms in old.items() if at.topic == topic and ms < since_ms}
        young = context.source.offsets_at(at_risk, since_ms)
        for at in at_risk:
            if not 0 <= young[at] <= stored[at].source_offset:
                found[at] = old[at]
    return found


def _tombstones_kept_ms(context: FlowContext, topic: str) -> int | None:
    """``None``: for ever, or it is not known, without the right to read the topic's settings."""
    try:
        config = context.source.topic_config(topic)
    except Fatal as error:
        log.info("delete.retention.ms is not checked", topic=topic, why=str(error))
        return None
    compacted = "compact" in config.get("cleanup.policy", "")
    return int(config["delete.retention.ms"]) if compacted else None
