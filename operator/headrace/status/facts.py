"""What a flow's status is judged from."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from headrace.api import FlowState, LastValid, Readiness, ReplicationFlow, ReplicationTask, TaskType


class PodFacts(Protocol):
    """A driver pod."""

    @property
    def name(self) -> str:
        """Of the pod."""

    @property
    def terminating(self) -> bool:
        """Whether it is being deleted."""

    @property
    def ended(self) -> bool:
        """Whether all its containers ended for good."""

    @property
    def problem(self) -> str:
        """Why it does not run; empty when it runs."""

    @property
    def running_since(self) -> datetime | None:
        """When its containers began to run."""


@dataclass(frozen=True)
class TakenTarget:
    """A target topic that an earlier flow writes."""

    by: ReplicationFlow
    topic: str


@dataclass(frozen=True)
class FlowFacts:
    """All that the checks may rest on; what only one mode knows has a default.

    ``flow.status`` is the status so far: a condition whose status did not change keeps its time.
    """

    now: datetime
    flow: ReplicationFlow
    tasks: Sequence[ReplicationTask]
    alive: int
    """Drivers that are alive."""
    placement_problem: str = ""
    """Why units are not placed as they should be."""

    # Standalone only.
    overdue: Mapping[str, Collection[str]] = field(default_factory=dict)
    """By driver: units that were taken from it because it did not release them in time."""

    # The operator only.
    blocked: Readiness | None = None
    """What a person has to change before the operator can make what the flow needs."""
    last_valid: LastValid | None = None
    """The spec that is in force instead of the flow's own, which is invalid."""
    taken: TakenTarget | None = None
    loop: str = ""
    """Why records would go round."""
    pods: Sequence[PodFacts] | None = None
    """The driver pods; None where drivers have none."""
    paused: bool = False
    """Whether the annotation pause-reconciliation keeps the operator from changing anything but
    the owners of units."""
    waits_for_rollout: bool = False
    """Whether the drivers are of an older template until other flows have rolled out."""
    refused_pods: str = ""
    """Why the API server refuses further driver pods, in its words."""
    selector: str | None = None
    """Labels of the driver pods, for the scale subresource."""

    @property
    def desired(self) -> int:
        """Drivers that there should be."""
        stopped = self.flow.spec.state is FlowState.STOPPED
        return 0 if stopped else self.flow.spec.drivers.replicas

    @property
    def source_tasks(self) -> list[ReplicationTask]:
        """The units that copy."""
        return [task for task in self.tasks if task.spec.type is TaskType.SOURCE_TASK]
