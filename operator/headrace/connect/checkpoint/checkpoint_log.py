"""The checkpoints of a flow's source, read from their topic and written to it."""

from collections.abc import Collection, Iterable

from headrace.api import TopicPartition
from headrace.connect.checkpoint.checkpoint_positions import GroupPartition
from headrace.connect.runtime.context import FlowContext
from headrace.connect.runtime.internal_topics import AS_MIRROR_MAKER
from headrace.connect.topics.compacted_log import CompactedLog
from headrace.connect.topics.topic_writer import Keyed
from headrace.logs import get_logger
from headrace.replication import (
    APPLIED,
    Checkpoint,
    StoredCheckpoint,
    decode_applied,
    encode_applied,
)

log = get_logger(__name__)


class CheckpointLog:
    """One thread calls it."""

    def __init__(
        self, context: FlowContext, *, creates: bool = True, keeps_earlier: bool = False
    ) -> None:
        """Prepare to read the topic.

        Args:
            context: The flow.
            creates: Whether a missing topic is created. Without it, it has no checkpoints.
            keeps_earlier: Whether the target offsets of all earlier checkpoints are remembered.
        """
        self.topic = context.checkpoints_topic
        self._context, self._creates, self._keeps_earlier = context, creates, keeps_earlier
        self._log = CompactedLog(self.topic, context, "checkpoints", because=AS_MIRROR_MAKER)
        self._written: dict[bytes, StoredCheckpoint] = {}
        """By key; also what other tasks have written."""
        self._earlier: dict[bytes, set[int]] = {}
        """By key: target offsets of all checkpoints that the topic still has."""

    def prepare(self) -> None:
        """Create a missing topic, and read the records since the last call."""
        if not self._creates and not self._context.target.describe([self.topic]):
            return
        for message in self._log.read():
            key, value = message.key() or b"", message.value()
            if value is None:
                self._written.pop(key, None)
                continue
            try:
                checkpoint = Checkpoint.decode(key, value)
            except ValueError as error:
                log.warning("unreadable checkpoint", offset=message.offset(), why=str(error))
                continue
            applied = decode_applied(dict(message.headers() or ()).get(APPLIED))
            self._written[key] = StoredCheckpoint(checkpoint, applied)
            if self._keeps_earlier:
                self._earlier.setdefault(key, set()).add(checkpoint.target_offset)

    def of_flow(self) -> dict[GroupPartition, StoredCheckpoint]:
        """Those of the flow's groups and topics: other flows of its source share the topic."""
        context, found = self._context, {}
        for stored in self._written.values():
            one = stored.checkpoint
            topic = context.policy.source_topic(one.topic)
            if topic and context.topics.matches(topic) and context.groups.matches(one.group):
                found[GroupPartition(one.group, TopicPartition(topic, one.partition))] = stored
        return found

    def before(self, key: bytes) -> StoredCheckpoint | None:
        """What is written of a group's partition."""
        return self._written.get(key)

    def earlier(self, key: bytes) -> Collection[int]:
        """Return the target offsets of all checkpoints of a group's partition, if they are kept."""
        return self._earlier.get(key, ())

    def write(self, checkpoints: Iterable[StoredCheckpoint]) -> None:
        """Write those that say something new, and wait until the target has them."""
        wanted = {
            key: one for one in checkpoints if self._written.get(key := one.checkpoint.key()) != one
        }
        self._log.write(
            Keyed(key, one.value(), {APPLIED: encode_applied(applied)} if applied else None)
            for key, (one, applied) in wanted.items()
        )
        self._written |= wanted

    def close(self) -> None:
        """Free the reader."""
        self._log.close()
