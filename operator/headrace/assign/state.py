"""What an assignor is told and what it answers."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

DriverName = str


@dataclass(frozen=True, order=True)
class TaskId:
    """A connector or a task of a flow: the unit that is assigned."""

    flow: str
    type: str
    """``SourceConnector``, ``SourceTask`` ... as in ReplicationTask."""
    index: int

    @property
    def name(self) -> str:
        """The name of its ReplicationTask: ``orders-source-task-3``."""
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", self.type).lower()
        return f"{self.flow}-{words}-{self.index}"


@dataclass(frozen=True)
class ApplicationState:
    """Everything a decision may rest on."""

    tasks: frozenset[TaskId]
    drivers: frozenset[DriverName]
    previous: Mapping[TaskId, DriverName] = field(default_factory=dict)
    """The assignment in force; may name tasks and drivers that are gone."""


@dataclass(frozen=True)
class TaskAssignment:
    """The driver of every task; empty when there is no driver."""

    drivers: Mapping[TaskId, DriverName]


class TaskAssignor(Protocol):
    """An assignor: the same state always gives the same assignment."""

    def assign(self, state: ApplicationState) -> TaskAssignment:
        """Decide for all tasks of ``state``."""
        ...
