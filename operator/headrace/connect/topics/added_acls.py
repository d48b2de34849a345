"""The ACLs that headrace has added, remembered in a compacted topic on the target.

Remembered before they are added, and forgotten after they are removed: what a crash in between
leaves is removed by the next connector, and an ACL of somebody else's is never taken for one of
these.
"""

from collections.abc import Collection

from headrace.api import earlier_name
from headrace.connect.runtime.context import FlowContext
from headrace.connect.topics.compacted_log import CompactedLog
from headrace.connect.topics.topic_writer import Keyed
from headrace.logs import get_logger
from headrace.replication import TopicAcl

log = get_logger(__name__)


class AddedAcls:
    """One thread calls it."""

    def __init__(self, context: FlowContext, topic: str) -> None:
        """``topic``: where they are remembered."""
        self.topic = topic
        self._flow = context.name
        self._log = CompactedLog(self.topic, context, "ACLs", earlier=earlier_name(topic))
        self._known: set[TopicAcl] = set()

    def read(self) -> frozenset[TopicAcl]:
        """All that any flow of this source has added; makes the topic where it is absent."""
        for message in self._log.read():
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

    def exists(self) -> bool:
        """Return True if ACLs may be remembered; ``read`` would make the topic otherwise."""
        return self._log.exists()

    def remember(self, acls: Collection[TopicAcl]) -> None:
        """They are about to be added."""
        self._write(acls, self._flow.encode())

    def forget(self, acls: Collection[TopicAcl]) -> None:
        """They were removed."""
        self._write(acls, None)

    def close(self) -> None:
        """Free the reader."""
        self._log.close()

    def _write(self, acls: Collection[TopicAcl], value: bytes | None) -> None:
        self._log.write(Keyed(acl.encode(), value) for acl in acls)
