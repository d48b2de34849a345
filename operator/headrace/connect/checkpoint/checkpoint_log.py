"""Logs of a flow's checkpoints and offset syncs, read from their topics."""

from collections.abc import Collection, Iterable

from headrace.api import TopicPartition
from headrace.api.flow import Location
from headrace.connect.checkpoint.groups import GroupPartition
from headrace.connect.runtime.context import FlowContext
from headrace.connect.runtime.offset_sync_writer import AS_MIRROR_MAKER, ensure_offset_syncs_topic
from headrace.connect.topics.internal_topics import CompactedLog, Keyed, TopicTail
from headrace.logs import get_logger
from headrace.replication import (
    STRETCH,
    OffsetSync,
    SameOffsets,
    StoredCheckpoint,
    SyncedOffsets,
)

log = get_logger(__name__)


class CheckpointLog:
    """Checkpoints of a flow, in the topic that MirrorMaker 2 also uses. Not thread-safe."""

    def __init__(
        self, context: FlowContext, *, creates: bool = True, keeps_earlier: bool = False
    ) -> None:
        """Create a log that has read nothing.

        Args:
            context: The flow.
            creates: Whether a missing topic is created. Otherwise a missing topic counts as empty.
            keeps_earlier: Whether the target offsets of all earlier checkpoints are kept.
        """
        self.topic = context.checkpoints_topic
        self._context, self._creates, self._keeps_earlier = context, creates, keeps_earlier
        self._log = CompactedLog(self.topic, context, "checkpoints", because=AS_MIRROR_MAKER)
        self._written: dict[bytes, StoredCheckpoint] = {}
        """Last stored checkpoints by key, including checkpoints of other tasks."""
        self._stored_ms: dict[bytes, int] = {}
        """Unix time in ms at which each of them was stored in the topic.

        The topic may have been created again since the others were read.
        """
        self._earlier: dict[bytes, set[int]] = {}
        """Target offsets of all checkpoints in the topic, by key."""

    def prepare(self) -> None:
        """Create a missing topic, and read the records written since the last call."""
        if not self._creates and not self._context.target.describe([self.topic]):
            return
        if self._log.at_start:
            self._stored_ms.clear()
        for message in self._log.read():
            key, value = message.key() or b"", message.value()
            if value is None:
                self._written.pop(key, None)
                self._stored_ms.pop(key, None)
                continue
            try:
                stored = StoredCheckpoint.decode(key, value, dict(message.headers() or ()))
            except ValueError as error:
                log.warning("unreadable checkpoint", offset=message.offset(), why=str(error))
                continue
            self._written[key] = stored
            _, self._stored_ms[key] = message.timestamp()
            if self._keeps_earlier:
                self._earlier.setdefault(key, set()).add(stored.checkpoint.target_offset)

    def of_flow(self) -> dict[GroupPartition, StoredCheckpoint]:
        """Return the checkpoints of the flow's groups and topics.

        Other flows of the same source share the topic.
        """
        context, found = self._context, {}
        for stored in self._written.values():
            one = stored.checkpoint
            topic = context.policy.source_topic(one.topic)
            if topic and context.topics.matches(topic) and context.groups.matches(one.group):
                found[GroupPartition(one.group, TopicPartition(topic, one.partition))] = stored
        return found

    def before(self, key: bytes) -> StoredCheckpoint | None:
        """Return the stored checkpoint of a group's partition, or None."""
        return self._written.get(key)

    def stored_ms(self, key: bytes) -> int:
        """Return the Unix time in ms at which a checkpoint was stored, or 0 if it is unknown."""
        return self._stored_ms.get(key, 0)

    def earlier(self, key: bytes) -> Collection[int]:
        """Return the target offsets of all checkpoints of a group's partition.

        It is empty unless the log was created with ``keeps_earlier``.
        """
        return self._earlier.get(key, ())

    def write(self, checkpoints: Iterable[StoredCheckpoint]) -> None:
        """Write the checkpoints that differ from the stored ones, and wait for acknowledgements."""
        wanted = {
            key: one
            for one in checkpoints
            if self._written.get(key := one.checkpoint.key()) != one or key not in self._stored_ms
        }
        self._log.write(
            Keyed(key, one.checkpoint.value(), one.headers or None) for key, one in wanted.items()
        )
        self._written |= wanted
        self._stored_ms |= dict.fromkeys(wanted, self._context.now_ms)

    def close(self) -> None:
        self._log.close()


# Offset syncs of a flow, read from their topic. A flow with ``offsets.mode: Preserved`` has none.


class SyncedOffsetLog:
    """Offset syncs of a flow, combined for translation. Not thread-safe."""

    def __init__(self, context: FlowContext, *, creates: bool = True) -> None:
        """Create a log that has read nothing.

        ``creates`` states whether a missing topic is created. Otherwise it counts as empty.
        """
        self._context, self._creates = context, creates
        self.offsets: SyncedOffsets | SameOffsets = SyncedOffsets()
        if context.preserved:
            self.offsets = SameOffsets()
        self._synced_ms: dict[TopicPartition, int] = {}
        self._location: Location | None = None
        self._tail: TopicTail | None = None

    def read(self) -> None:
        """Read the offset syncs written since the last call, and create a missing topic.

        Raises:
            HeadraceError: The topic could not be created or read.
        """
        if isinstance(self.offsets, SameOffsets):
            return
        context = self._context
        if not self._creates and not context.offset_syncs_admin.describe(
            [context.offset_syncs.topic]
        ):
            return
        location = self._context.spec.offset_syncs.location
        if self._tail is None or location is not self._location:
            self.close()
            self.offsets, self._location, self._tail = SyncedOffsets(), location, self._open()
            self._synced_ms.clear()
        for message in self._tail.read():
            value = message.value()
            if value is None:
                continue
            try:
                sync = OffsetSync.decode(message.key() or b"", value)
            except ValueError as error:
                log.warning("unreadable offset sync", offset=message.offset(), why=str(error))
                continue
            headers = dict(message.headers() or ())
            id = headers.get(STRETCH)
            self.offsets.take(sync, id.encode() if isinstance(id, str) else id)
            _, self._synced_ms[TopicPartition(sync.topic, sync.partition)] = message.timestamp()

    def synced_ms(self, at: TopicPartition) -> int:
        """Return the Unix time in ms of a partition's last offset sync, or 0 if it has none."""
        return self._synced_ms.get(at, 0)

    def close(self) -> None:
        if self._tail is not None:
            self._tail.close()
        self._tail = None

    def _open(self) -> TopicTail:
        context = self._context
        on_source = self._context.spec.offset_syncs.location is Location.SOURCE
        access = context.source_access if on_source else context.target_access
        admin = context.offset_syncs_admin
        topic = context.offset_syncs.topic
        ensure_offset_syncs_topic(admin, topic)
        return TopicTail(topic, access, admin, context.clients, context.clock)
