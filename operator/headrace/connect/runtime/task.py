"""Interface of a task for a TaskManager (Kafka Streams' ``Task``)."""

from collections.abc import Set
from enum import StrEnum
from typing import Protocol

from headrace.api import ReplicationTaskStatus, TaskPhase, TopicPartition
from headrace.assign import TaskId
from headrace.connect.runtime.ownership import Ownership
from headrace.errors import HeadraceError


class Role(StrEnum):
    """Role of a task. A standby's state stays Restoring until it takes over."""

    ACTIVE = "Active"
    STANDBY = "Standby"


class Task(Protocol):
    """No call waits for a broker: what takes time runs in a pool; ``advance`` takes its outcome.

    Each may raise an error of ours: the task then fails, and no other. Properties and attributes
    may be read from any thread; every method is called by the loop's thread only.
    """

    id: TaskId
    role: Role
    ownership: Ownership

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """Partitions to copy."""
        ...

    @property
    def phase(self) -> TaskPhase:
        """Where in its life it is."""
        ...

    @property
    def started_at(self) -> float:
        """Monotonic seconds."""
        ...

    @property
    def status(self) -> ReplicationTaskStatus:
        """Status to report."""
        ...

    @property
    def commit_requested(self) -> bool:
        """Whether it asks for a commit before the next regular one."""
        ...

    @property
    def leaving(self) -> bool:
        """Whether it releases the unit already: it cannot come back from that."""
        ...

    def superseded(self, partitions: Set[TopicPartition]) -> bool:
        """Return whether a user has changed the flow or partitions of a failed task since.

        Any thread may call it.
        """
        ...

    def change(self, partitions: frozenset[TopicPartition]) -> None:
        """Copy these from now on; those that stay are not touched."""
        ...

    def activate(self) -> None:
        """Claim the unit and restore; a standby takes over."""
        ...

    def advance(self) -> bool:
        """Take background results and start missing steps; return whether the task runs."""
        ...

    def process(self) -> int:
        """Move what is there; returns the records moved."""
        ...

    def commit(self) -> bool:
        """Store progress; whether there was any to store."""
        ...

    def punctuate(self, now_s: float) -> bool:
        """Do what is due by the clock (monotonic seconds); whether anything was."""
        ...

    def pause(self, paused: bool) -> None:
        """Whether the user wants it to rest."""
        ...

    def suspend(self) -> None:
        """Stop reading; the ownership stays."""
        ...

    def resume(self) -> None:
        """Resume as before the suspension, without restoring."""
        ...

    def close(self) -> bool:
        """Store what is acknowledged, free all, release the unit.

        Returns false while that is not done yet: call again.
        """
        ...

    def fail(self, error: HeadraceError) -> None:
        """Stop permanently, and keep the reason."""
        ...
