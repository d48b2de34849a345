"""The offset syncs of a flow, read from their topic and folded.

A flow with ``offsets.mode: Preserved`` has no offset syncs.
"""

from headrace.api.flow import Location
from headrace.connect.runtime.context import FlowContext
from headrace.connect.runtime.internal_topics import ensure_offset_syncs_topic
from headrace.connect.topics.topic_tail import TopicTail
from headrace.logs import get_logger
from headrace.replication import STRETCH, OffsetSync, SameOffsets, SyncedOffsets

log = get_logger(__name__)


class SyncedOffsetLog:
    """One thread calls it."""

    def __init__(self, context: FlowContext, *, creates: bool = True) -> None:
        """Prepare to read the topic. A missing one is created, or has no offset syncs."""
        self._context, self._creates = context, creates
        self.offsets: SyncedOffsets | SameOffsets = SyncedOffsets()
        if context.preserved:
            self.offsets = SameOffsets()
        self._location: Location | None = None
        self._tail: TopicTail | None = None

    def read(self) -> None:
        """Take in what was written since. Raises as making and reading the topic does."""
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
            stretch = headers.get(STRETCH)
            self.offsets.take(sync, stretch.encode() if isinstance(stretch, str) else stretch)

    def close(self) -> None:
        """Free the client."""
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
