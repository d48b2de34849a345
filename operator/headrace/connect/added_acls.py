"""The ACLs that headrace has added to copies, remembered in a compacted topic on the target.

Remembered before they are added, and forgotten after they are removed: what a crash in between
leaves is removed by the next connector, and an ACL of somebody else's is never taken for one of
these.
"""

from collections.abc import Collection

from headrace.connect.context import FlowContext
from headrace.connect.topic_tail import TopicTail
from headrace.connect.topic_writer import Keyed, TopicWriter
from headrace.kafka import ensure_topic
from headrace.logs import get_logger
from headrace.replication import TopicAcl, acls_topic

log = get_logger(__name__)


class AddedAcls:
    """One thread calls it."""

    def __init__(self, context: FlowContext) -> None:
        self.topic = acls_topic(context.spec.source.alias)
        self._context = context
        self._writer = TopicWriter(self.topic, context)
        self._tail: TopicTail | None = None
        self._known: set[TopicAcl] = set()

    def read(self) -> frozenset[TopicAcl]:
        """All that any flow of this source has added; makes the topic where it is absent."""
        context = self._context
        if self._tail is None:
            ensure_topic(
                context.target,
                self.topic,
                1,
                {"cleanup.policy": "compact"},
                because="or not all of it would be read",
            )
            self._tail = TopicTail(
                self.topic, context.target_access, context.target, context.clients, context.clock
            )
        for message in self._tail.read():
            try:
                acl = TopicAcl.decode(message.key() or b"")
            except ValueError as error:
                log.warning("unreadable ACL", offset=message.offset(), why=str(error))
                continue
            if message.value() is None:
                self._known.discard(acl)
            else:
                self._known.add(acl)
        return frozenset(self._known)

    def remember(self, acls: Collection[TopicAcl]) -> None:
        """They are about to be added."""
        self._write(acls, self._context.name.encode())

    def forget(self, acls: Collection[TopicAcl]) -> None:
        """They were removed."""
        self._write(acls, None)

    def close(self) -> None:
        """Free the reader."""
        if self._tail is not None:
            self._tail.close()
        self._tail = None

    def _write(self, acls: Collection[TopicAcl], value: bytes | None) -> None:
        if not acls:
            return
        self._writer.write([Keyed(acl.encode(), value) for acl in acls], "ACLs")
