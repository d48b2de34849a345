"""Topics that a run of a mirror test created, with the ids by which they are deleted later.

The jobs that create topics write a record for each topic into the journal. The verifier copies the
records into the ConfigMap of the report, because the journal keeps them for a week only.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.api import Model
from headrace.mirror_test import documents


class CreatedTopic(Model):
    """A topic that a run created on the source, and its copy."""

    name: str
    """Name on the source."""
    topic_id: str
    """Id on the source."""
    copy_name: str | None = None
    """Name on the target; absent if the target had a topic of this name before the run."""
    copy_id: str | None = None
    """Id on the target; absent if the copy was not found before the verdict."""


class CreatedTopics(Model):
    """All topics that a run created."""

    topics: tuple[CreatedTopic, ...] = ()

    def with_copies(self, ids: Mapping[str, str]) -> "CreatedTopics":
        """Return the topics with the ids of the copies that have none, by their names."""
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
        """Names of the copies on the target."""
        return tuple(one.copy_name for one in self.topics if one.copy_name)


def created_in(journal: Mapping[str, Any]) -> CreatedTopics:
    """Return the topics from the records of a run in the journal."""
    found: Iterable[Any] = (v for k, v in journal.items() if documents.is_created(k))
    return CreatedTopics(topics=tuple(CreatedTopic.model_validate(one) for one in found))
