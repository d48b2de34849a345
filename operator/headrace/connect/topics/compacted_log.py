"""What units remember by key, in a compacted topic of one partition on the target."""

from collections.abc import Iterable, Iterator

from headrace.connect.runtime.context import FlowContext
from headrace.connect.topics.topic_tail import TopicTail
from headrace.connect.topics.topic_writer import Keyed, TopicWriter
from headrace.kafka import Message, ensure_topic


class CompactedLog:
    """One thread calls it."""

    def __init__(
        self,
        topic: str,
        context: FlowContext,
        what: str,
        *,
        because: str = "or not all of it would be read",
        consequence: str = "",
    ) -> None:
        """``what`` is for messages; ``because`` and ``consequence``: see ``ensure_topic``."""
        self._topic, self._context, self._what = topic, context, what
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
            self._tail = TopicTail(
                self._topic, context.target_access, context.target, context.clients, context.clock
            )
        yield from self._tail.read()

    def write(self, records: Iterable[Keyed]) -> None:
        """Wait until the target has all of them. Raises as ``TopicWriter.write``."""
        if records := list(records):
            self._writer.write(records, self._what)

    def close(self) -> None:
        """Free the reader."""
        if self._tail is not None:
            self._tail.close()
        self._tail = None
