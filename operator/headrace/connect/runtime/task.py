"""What a TaskManager asks of a task (Kafka Streams' ``Task``)."""

from collections.abc import Set
from enum import StrEnum
from typing import Protocol

from headrace.api import ReplicationTaskStatus, TaskPhase, TopicPartition
from headrace.assign import TaskId
from headrace.connect.runtime.ownership import Ownership
from headrace.errors import HeadraceError


class Role(StrEnum):
    """Beside the state: a standby stays Restoring until it takes over."""

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
        """What it is to copy."""
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
        """What there is to report."""
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
        """Of a task that failed: whether a person has changed its flow or its partitions since.
        From any thread."""
        ...

    def change(self, partitions: frozenset[TopicPartition]) -> None:
        """Copy these from now on; those that stay are not touched."""
        ...

    def activate(self) -> None:
        """Claim the unit and restore; a standby takes over."""
        ...

    def advance(self) -> bool:
        """Take the outcome of what ran in the background, start what is missing; whether the task
        now does what it is for."""
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
        """Go on as before the suspension, without restoring."""
        ...

    def close(self) -> bool:
        """Store what is acknowledged, free all, release the unit.

        Returns false while that is not done yet: call again.
        """
        ...

    def fail(self, error: HeadraceError) -> None:
        """Stop for good, and keep the reason."""
        ...
