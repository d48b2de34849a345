"""The copies that flows of a source have made, remembered in a compacted topic on the target."""

from collections.abc import Collection, Mapping

from headrace.api import earlier_name, made_topics_topic
from headrace.connect.runtime.context import FlowContext
from headrace.connect.topics.compacted_log import CompactedLog
from headrace.connect.topics.topic_writer import Keyed
from headrace.logs import get_logger
from headrace.replication import MadeTopic

log = get_logger(__name__)


class MadeTopics:
    """One thread calls it."""

    def __init__(self, context: FlowContext) -> None:
        self.topic = made_topics_topic(context.spec.source.alias)
        self._log = CompactedLog(
            self.topic,
            context,
            "made topics",
            earlier=earlier_name(self.topic),
            consequence=" (what was made before is then never deleted)",
        )
        self._known: dict[str, MadeTopic] = {}

    def read(self) -> Mapping[str, MadeTopic]:
        """All of them, by name; makes the topic where it is absent. Raises as that does."""
        for message in self._log.read():
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
        self._log.close()

    def _write(self, values: Mapping[str, bytes | None]) -> None:
        self._log.write(Keyed(name.encode(), value) for name, value in values.items())
