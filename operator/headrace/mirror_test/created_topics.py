"""Topics that a run of a mirror test created, with the ids that are used to delete them.

The jobs write a record for each topic that they create into the journal. The verifier copies these
records into the report's ConfigMap, because the journal keeps them for only a week.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.api import Model
from headrace.mirror_test import documents


class CreatedTopic(Model):
    """Topic that a run created on the source, and its copy on the target."""

    name: str
    """Topic name on the source."""
    topic_id: str
    """Topic id on the source."""
    copy_name: str | None = None
    """Topic name on the target. Absent if the target had such a topic before the run."""
    copy_id: str | None = None
    """Topic id on the target. Absent if the copy was not found before the verdict."""


class CreatedTopics(Model):
    """All topics that a run created."""

    topics: tuple[CreatedTopic, ...] = ()

    def with_copies(self, ids: Mapping[str, str]) -> "CreatedTopics":
        """Return the topics with missing copy ids filled in. ``ids`` are by target name."""
        return CreatedTopics(
            topics=tuple(
                one.model_copy(update={"copy_id": ids.get(one.copy_name)})
                if one.copy_name and one.copy_id is None
                else one
                for one in self.topics
            )
        )

    @property
    def copies(self) -> tuple[str, ...]:
        """Names of the topics on the target."""
        return tuple(one.copy_name for one in self.topics if one.copy_name)


def created_in(journal: Mapping[str, Any]) -> CreatedTopics:
    """Return the created topics from a run's journal records."""
    found: Iterable[Any] = (v for k, v in journal.items() if documents.is_created(k))
    return CreatedTopics(topics=tuple(CreatedTopic.model_validate(one) for one in found))
