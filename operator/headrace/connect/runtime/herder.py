"""Herder interface: the coordinator as a Worker needs it (Connect's ``Herder``).

A unit is a ReplicationTask object. Connectors and the herder write its spec, and its owner writes
its status. Each write contains the version that the writer saw last, and replaces the whole status.
Therefore two drivers cannot both believe that they own a unit.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol, Self

from headrace.api import (
    HEARTBEATS,
    ReplicationTask,
    ReplicationTaskStatus,
    TaskType,
    Work,
)
from headrace.errors import HeadraceError, InvalidSpec


class TaskConflict(HeadraceError):
    """The object changed since it was read.

    ``current`` is its present version, or None if it was deleted.
    """

    def __init__(self, message: str, current: ReplicationTask | None = None) -> None:
        super().__init__(message)
        self.current = current


class TargetTaken(InvalidSpec):
    """Another flow already writes these topics of the target."""

    def __init__(self, message: str, topics: Iterable[str]) -> None:
        super().__init__(message)
        self.topics = frozenset(topics)

    @classmethod
    def by(cls, writer: str, flow: str, topics: Collection[str], cluster_id: str) -> Self:
        """Return the error that ``flow`` would write topics that ``writer`` writes."""
        # Heartbeats are listed last, because users rarely choose them.
        first, *more = sorted(topics, key=lambda topic: (topic.endswith(HEARTBEATS), topic))
        others = f" and {len(more)} more" if more else ""
        return cls(
            f"flows {writer} and {flow} both write topic {first}{others} on the same target "
            f"cluster ({cluster_id}): narrow spec.topics of one, or let their source aliases or "
            "policies differ",
            topics,
        )


class EpochAltered(InvalidSpec):
    """A task has a connector epoch that no connector wrote."""


class Herder(Protocol):
    """Coordinator of units. All calls raise ``Retriable`` if the herder does not respond.

    Calls that write an object raise ``TaskConflict`` if it was changed by another writer.
    """

    def claim(self, task: ReplicationTask, status: ReplicationTaskStatus) -> ReplicationTask:
        """Become the owner, with a higher epoch; return the updated object."""
        ...

    def report(
        self, task: ReplicationTask, status: ReplicationTaskStatus
    ) -> ReplicationTask | None:
        """Report the owner's status; return the updated object.

        None means that the status was not written now. Report it again later.
        """
        ...

    def release(self, task: ReplicationTask, status: ReplicationTaskStatus) -> ReplicationTask:
        """Stop being the owner. The epoch stays in the object."""
        ...

    def list_tasks(self, connector: ReplicationTask, type: TaskType) -> list[ReplicationTask]:
        """Return the tasks that belong to this connector, with the statuses of their owners.

        It is called several times a second while a task has not acknowledged a change of its
        partitions.
        """
        ...

    def put_tasks(
        self,
        connector: ReplicationTask,
        type: TaskType,
        tasks: Mapping[int, Sequence[Work]],
        target_topics: Mapping[str, Sequence[str]],
        source_cluster_id: str = "",
    ) -> None:
        """Write the tasks that belong to this connector, and delete all others.

        Args:
            connector: Object of the connector.
            type: Type of the tasks.
            tasks: Work of each task by its index: partitions or groups.
            target_topics: Topics that the tasks write, by target cluster id.
            source_cluster_id: Cluster id of the source; empty for tasks that do not copy topics.

        Raises:
            TargetTaken: Another flow writes one of the topics.
            EpochAltered: A task has a connector epoch that no connector wrote.
            TaskConflict: A later connector with a higher epoch exists.
        """
        ...
