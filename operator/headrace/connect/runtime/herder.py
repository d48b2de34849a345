"""The Herder port: what a Worker needs of its coordinator (Connect's ``Herder``).

A unit is a ReplicationTask object: others write its spec, its owner writes its status. Each write
carries the version last seen and replaces the whole status, so that no two drivers can both believe
that they own a unit.
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
    """The object changed since it was read; ``current`` is what it is now, ``None`` when gone."""

    def __init__(self, message: str, current: ReplicationTask | None = None) -> None:
        super().__init__(message)
        self.current = current


class TargetTaken(InvalidSpec):
    """Another flow writes these topics of the target already."""

    def __init__(self, message: str, topics: Iterable[str]) -> None:
        super().__init__(message)
        self.topics = frozenset(topics)

    @classmethod
    def by(cls, writer: str, flow: str, topics: Collection[str], cluster_id: str) -> Self:
        """``flow`` would write ``topics`` of this target cluster, as ``writer`` does."""
        # Heartbeats of one source meet first, and are the last thing that a user chose to copy.
        first, *more = sorted(topics, key=lambda topic: (topic.endswith(HEARTBEATS), topic))
        others = f" and {len(more)} more" if more else ""
        return cls(
            f"flows {writer} and {flow} both write topic {first}{others} on the same target "
            f"cluster ({cluster_id}): narrow spec.topics of one, or let their source aliases or "
            "policies differ",
            topics,
        )


class LoopFound(InvalidSpec):
    """Another flow copies topics of this one back, and this one would copy them again."""


class EpochAltered(InvalidSpec):
    """A task has a connector epoch that no connector wrote."""


class Herder(Protocol):
    """All calls raise ``Retriable`` when the herder does not answer; ``TaskConflict`` as stated."""

    def claim(self, task: ReplicationTask, status: ReplicationTaskStatus) -> ReplicationTask:
        """Become the owner, with a higher epoch; returns the object as it is now."""
        ...

    def report(
        self, task: ReplicationTask, status: ReplicationTaskStatus
    ) -> ReplicationTask | None:
        """Report the status, as the owner; ``None``: not written now, report it again."""
        ...

    def release(self, task: ReplicationTask, status: ReplicationTaskStatus) -> ReplicationTask:
        """Stop being the owner; the epoch stays."""
        ...

    def list_tasks(self, connector: ReplicationTask, type: TaskType) -> list[ReplicationTask]:
        """Return the tasks of this connector's kind, with the statuses that their owners reported.

        It is called several times a second while a task has a change of its partitions to
        acknowledge.
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
        """Write the tasks of this connector's kind, by index; those not named are deleted.

        ``target_topics`` names, by target cluster id, the topics that they write. Raises
        ``TargetTaken`` when another flow writes one of them, ``LoopFound`` when another flow that
        runs copies one of them back to be copied again (on Kubernetes the operator says that),
        ``TaskConflict`` when the connector's epoch is not the highest any more.
        """
        ...
