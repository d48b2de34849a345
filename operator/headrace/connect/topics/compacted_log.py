"""What units remember by key, in a compacted topic of one partition on the target."""

from collections.abc import Iterable, Iterator

from headrace.connect.runtime.context import FlowContext
from headrace.connect.topics.topic_tail import TopicTail
from headrace.connect.topics.topic_writer import Keyed, TopicWriter
from headrace.kafka import Message, ensure_topic
from headrace.logs import get_logger

log = get_logger(__name__)


class CompactedLog:
    """One thread calls it."""

    def __init__(
        self,
        topic: str,
        context: FlowContext,
        what: str,
        *,
        earlier: str = "",
        because: str = "or not all of it would be read",
        consequence: str = "",
    ) -> None:
        """Prepare to read and write a topic.

        Args:
            topic: The topic's name.
            context: The flow that uses it.
            what: A noun for messages, such as "ACLs".
            earlier: The name that the topic had in an earlier version, if it had another.
            because: Why the topic must have one partition.
            consequence: What follows if the topic is deleted.
        """
        self._topic, self._context, self._what = topic, context, what
        self._earlier = earlier
        self._because, self._consequence = because, consequence
        self._writer = TopicWriter(topic, context)
        self._tail: TopicTail | None = None

    def read(self) -> Iterator[Message]:
        """What was written since the last call; makes the topic where it is absent.

        Raises as that does, and as ``TopicTail.read``.
        """
        context = self._context
        if self._tail is None:
            ensure_topic(
                context.target,
                self._topic,
                1,
                {"cleanup.policy": "compact"},
                because=self._because,
                consequence=self._consequence,
            )
            self._take_over()
            self._tail = self._tail_of(self._topic)
        yield from self._tail.read()

    def exists(self) -> bool:
        """Return True if something may be remembered; ``read`` would make the topic otherwise."""
        return not self._context.target.topics().keys().isdisjoint((self._topic, self._earlier))

    def write(self, records: Iterable[Keyed]) -> None:
        """Wait until the target has all of them. Raises as ``TopicWriter.write``."""
        if records := list(records):
            self._writer.write(records, self._what)

    def close(self) -> None:
        """Free the reader."""
        if self._tail is not None:
            self._tail.close()
        self._tail = None

    def _take_over(self) -> None:
        """Move what an earlier version remembered in a topic with another name.

        After a crash between the two writes the records are moved again.
        """
        earlier = self._earlier
        if not earlier or earlier not in self._context.target.topics():
            return
        found: dict[bytes, bytes | None] = {}
        tail = self._tail_of(earlier)
        try:
            for message in tail.read():
                if (key := message.key()) is not None:
                    found[key] = message.value()
        finally:
            tail.close()
        kept = {key: value for key, value in found.items() if value is not None}
        if kept:
            self.write(Keyed(key, value) for key, value in kept.items())
            emptied = TopicWriter(earlier, self._context)
            emptied.write((Keyed(key, None) for key in kept), self._what)
            log.info("taken over", from_topic=earlier, to_topic=self._topic, records=len(kept))

    def _tail_of(self, topic: str) -> TopicTail:
        context = self._context
        return TopicTail(
            topic, context.target_access, context.target, context.clients, context.clock
        )
