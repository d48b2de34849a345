"""The copies that flows of a source have made, remembered in a compacted topic on the target."""

from collections.abc import Collection, Mapping

from headrace.connect.context import FlowContext
from headrace.connect.topic_tail import TopicTail
from headrace.connect.topic_writer import Keyed, TopicWriter
from headrace.kafka import ensure_topic
from headrace.logs import get_logger
from headrace.replication import MadeTopic, made_topics_topic

log = get_logger(__name__)


class MadeTopics:
    """One thread calls it."""

    def __init__(self, context: FlowContext) -> None:
        self.topic = made_topics_topic(context.spec.source.alias)
        self._context = context
        self._writer = TopicWriter(self.topic, context)
        self._tail: TopicTail | None = None
        self._known: dict[str, MadeTopic] = {}

    def read(self) -> Mapping[str, MadeTopic]:
        """All of them, by name; makes the topic where it is absent. Raises as that does."""
        context = self._context
        if self._tail is None:
            ensure_topic(
                context.target,
                self.topic,
                1,
                {"cleanup.policy": "compact"},
                because="or not all of it would be read",
                consequence=" (what was made before is then never deleted)",
            )
            self._tail = TopicTail(
                self.topic, context.target_access, context.target, context.clients, context.clock
            )
        for message in self._tail.read():
            name, value = (message.key() or b"").decode(errors="replace"), message.value()
            if value is None:
                self._known.pop(name, None)
                continue
            try:
                self._known[name] = MadeTopic.decode(value)
            except ValueError as error:
                log.warning("unreadable topic", offset=message.offset(), why=str(error))
        return dict(self._known)

    def remember(self, made: Mapping[str, MadeTopic]) -> None:
        """They were made just now."""
        self._write({name: one.encode() for name, one in made.items()})

    def forget(self, names: Collection[str]) -> None:
        """They are deleted, or not those that were made."""
        self._write(dict.fromkeys(names))

    def close(self) -> None:
        """Free the reader."""
        if self._tail is not None:
            self._tail.close()
        self._tail = None

    def _write(self, values: Mapping[str, bytes | None]) -> None:
        if values:
            self._writer.write(
                (Keyed(name.encode(), value) for name, value in values.items()), "made topics"
            )
