"""The Herder port: what a Worker needs of whoever coordinates (Connect's ``Herder``).

A unit is a ReplicationTask object: others write its spec, its holder writes its status. Each write
carries the version last seen and replaces the whole status, so that two drivers can never both
believe that they hold a unit.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from headrace.api import ReplicationTask, ReplicationTaskStatus, TaskType, TopicPartitions
from headrace.errors import HeadraceError, InvalidSpec


class Conflict(HeadraceError):
    """The object changed since it was read; ``current`` is what it is now, ``None`` when gone."""

    def __init__(self, message: str, current: ReplicationTask | None = None) -> None:
        super().__init__(message)
        self.current = current


class TargetTaken(InvalidSpec):
    """Another flow writes this topic of the target already."""


class Herder(Protocol):
    """All calls raise ``Retriable`` when the herder does not answer, ``Conflict`` as said there."""

    def claim(self, task: ReplicationTask, status: ReplicationTaskStatus) -> ReplicationTask:
        """Become the holder, with a higher epoch; returns the object as it is now."""
        ...

    def report(
        self, task: ReplicationTask, status: ReplicationTaskStatus
    ) -> ReplicationTask | None:
        """Say how it goes, as the holder; ``None``: not written now, report it again."""
        ...

    def release(self, task: ReplicationTask, status: ReplicationTaskStatus) -> ReplicationTask:
        """Stop being the holder; the epoch stays."""
        ...

    def published(self, connector: ReplicationTask, type: TaskType) -> list[ReplicationTask]:
        """The tasks of this connector's kind, with what their holders say.

        Asked several times a second while one of them has something to acknowledge.
        """
        ...

    def publish(
        self,
        connector: ReplicationTask,
        type: TaskType,
        tasks: Mapping[int, Sequence[TopicPartitions]],
        target_topics: Mapping[str, Sequence[str]],
    ) -> None:
        """Write the tasks of this connector's kind, by index; those not named are deleted.

        ``target_topics`` names, by target cluster id, the topics that they write. Raises
        ``TargetTaken`` when another flow writes one of them, ``Conflict`` when the connector's
        epoch is not the highest any more.
        """
        ...
