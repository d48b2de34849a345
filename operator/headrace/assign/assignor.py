"""Interface of assignors: ids, input, result and errors (KIP-924).

``headrace.placement`` creates the input, except ``ApplicationState.config``, which has its default.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from operator import itemgetter, ne
from statistics import median
from typing import NamedTuple, Protocol, Self

from headrace.errors import Retriable

DriverName = str

_STATEFUL = frozenset({"SourceTask"})


class TaskId(NamedTuple):
    """Identity of a connector or task of a flow, the unit of assignment.

    It is a tuple, because a million of them must be hashed and compared within a second.
    """

    flow: str
    type: str
    """Type as in ReplicationTask, such as ``SourceConnector`` or ``SourceTask``."""
    index: int  # type: ignore[assignment]  # hides tuple.index, which means nothing here

    @property
    def name(self) -> str:
        """Name of the ReplicationTask, such as ``orders-source-task-3``."""
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", self.type).lower()
        return f"{self.flow}-{words}-{self.index}"

    @property
    def is_connector(self) -> bool:
        """True for a connector.

        Kafka Connect's assignors distribute connectors and tasks separately.
        """
        return self.type.endswith("Connector")

    @property
    def is_stateful(self) -> bool:
        """True if the unit has offsets that a standby can restore in advance."""
        return self.type in _STATEFUL


class TaskInfo(NamedTuple):
    """Task with its weight and its racks (KIP-924, TaskInfo)."""

    id: TaskId
    stateful: bool
    """True if the task may have standbys. Only source tasks may."""
    weight: float = 0.0
    """Measured rate in bytes/s, smoothed."""
    racks: tuple[frozenset[str], ...] = ()
    """Racks with a replica, for each partition of the task."""


def weigh(measured: Mapping[TaskId, float | None]) -> dict[TaskId, TaskInfo]:
    """Return tasks with their measured rate in bytes/s.

    A task without a measured rate gets the median of its type. If a type has no measured rates, as
    with connectors, its tasks have the weight 0.
    """
    known: dict[str, list[float]] = {}
    for id, weight in measured.items():
        if weight is not None:
            known.setdefault(id.type, []).append(weight)
    typical = {type: median(weights) for type, weights in known.items()}
    return {
        id: TaskInfo(id, id.is_stateful, typical.get(id.type, 0.0) if weight is None else weight)
        for id, weight in measured.items()
    }


@dataclass(frozen=True)
class DriverState:
    """Running driver and its current tasks (KIP-924, KafkaStreamsState)."""

    name: DriverName
    active: frozenset[TaskId] = frozenset()
    standby: frozenset[TaskId] = frozenset()
    rack: str | None = None


@dataclass(frozen=True)
class FlowConfig:
    """Settings of a flow (``spec.tasks``)."""

    standbys: int = 0
    movement_budget: float = 0.1
    """Maximum share of the flow's tasks that one balance round may move.

    Unless it is 0, a round may move at least one task, or swap two. Moves of tasks without a driver
    are not counted.
    """


@dataclass(frozen=True)
class AssignmentConfig:
    """Settings for all flows (KIP-924, AssignmentConfigs)."""

    tolerance: float = 0.1
    """Tolerated deviation of a driver's weight from its share, as a fraction of the share."""
    balance_interval_ms: int = 60_000
    """Time in ms between two rounds that move tasks for balance."""

    def __post_init__(self) -> None:
        for name in (
            "tolerance",
            "balance_interval_ms",
        ):
            if not 0 <= (value := getattr(self, name)) < inf:
                raise ValueError(f"{name} must be 0 or more, got {value}")


@dataclass(frozen=True)
class ApplicationState:
    """Tasks, drivers with their current tasks, and the time.

    Raise ``ValueError`` if the values are inconsistent.
    """

    tasks: Mapping[TaskId, TaskInfo]
    drivers: Mapping[DriverName, DriverState]
    """Drivers that may have tasks. A driver that is about to stop is not included."""
    flows: Mapping[str, FlowConfig] = field(default_factory=dict)
    """Settings by flow. Flows that are missing here have the defaults."""
    config: AssignmentConfig = AssignmentConfig()
    now_ms: int = 0
    last_balance_ms: int | None = None
    """Time of the last ``TaskAssignment`` that was ``balanced``, or None."""
    pinned: frozenset[TaskId] = frozenset()
    """Tasks that must stay with the driver that runs them."""

    def __post_init__(self) -> None:
        weights = [info[2] for info in self.tasks.values()]
        # Only the sum detects NaN, because comparisons with NaN are false.
        if weights and not (min(weights) >= 0 and max(weights) < inf and sum(weights) >= 0):
            wrong = next(i for i in self.tasks.values() if not 0 <= i.weight < inf)
            raise ValueError(f"the weight of {wrong.id.name} must be 0 or more, got {wrong.weight}")
        if any(map(ne, self.tasks, map(itemgetter(0), self.tasks.values()))):
            id, info = next((id, i) for id, i in self.tasks.items() if id != i.id)
            raise ValueError(
                f"key {id.name} has task {info.id.name}: a task's key must be its own id"
            )
        for name, driver in self.drivers.items():
            if name != driver.name:
                raise ValueError(
                    f"key {name} has driver {driver.name}: a driver's key must be its own name"
                )
        for flow, wanted in self.flows.items():
            if wanted.standbys < 0 or not 0 <= wanted.movement_budget <= 1:
                raise ValueError(
                    f"flow {flow}: standbys must be 0 or more and the movement budget a share "
                    f"from 0 to 1, got {wanted.standbys} and {wanted.movement_budget}"
                )

    @classmethod
    def of(
        cls,
        tasks: Iterable[TaskInfo],
        drivers: Iterable[DriverState],
        *,
        flows: Mapping[str, FlowConfig] | None = None,
        config: AssignmentConfig | None = None,
        now_ms: int = 0,
        last_balance_ms: int | None = None,
    ) -> Self:
        """Return a state from lists. Raise ``ValueError`` if a list contains a duplicate."""
        tasks, drivers = list(tasks), list(drivers)
        by_id = {info.id: info for info in tasks}
        by_name = {driver.name: driver for driver in drivers}
        if len(by_id) < len(tasks):
            twice = Counter(info.id for info in tasks).most_common(1)[0][0]
            raise ValueError(f"task {twice.name} is given twice")
        if len(by_name) < len(drivers):
            twice_named = Counter(driver.name for driver in drivers).most_common(1)[0][0]
            raise ValueError(f"driver {twice_named} is given twice")
        return cls(
            tasks=by_id,
            drivers=by_name,
            flows=flows or {},
            config=config or AssignmentConfig(),
            now_ms=now_ms,
            last_balance_ms=last_balance_ms,
        )

    def flow(self, name: str) -> FlowConfig:
        """Return the settings of a flow."""
        return self.flows.get(name, FlowConfig())


class AssignmentError(StrEnum):
    """Errors of assignments, with the names of Kafka Streams (``TaskAssignor.AssignmentError``).

    A process and a Kafka Streams client both correspond to a driver. Errors that Kafka Streams
    lacks are marked.
    """

    NONE = "NONE"
    ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES = "ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES"
    INVALID_STANDBY_TASK = "INVALID_STANDBY_TASK"
    """A stateless task has a standby."""
    MISSING_PROCESS_ID = "MISSING_PROCESS_ID"
    """The assignment lacks a driver of the state, which would not learn which tasks to stop."""
    UNKNOWN_PROCESS_ID = "UNKNOWN_PROCESS_ID"
    UNKNOWN_TASK_ID = "UNKNOWN_TASK_ID"
    ACTIVE_AND_STANDBY_TASK_ASSIGNED_TO_SAME_KAFKASTREAMS = (
        "ACTIVE_AND_STANDBY_TASK_ASSIGNED_TO_SAME_KAFKASTREAMS"
    )
    """A driver has a task both as active and as standby.

    KIP-924 names this error. Kafka Streams lacks it, because it stores a client's tasks by task id.
    """
    TASK_NOT_ASSIGNED = "TASK_NOT_ASSIGNED"
    """A task has no driver and is not in ``waiting``. Kafka Streams has no such error."""


class TaskAssignmentError(Retriable):
    """Error of an assignor.

    The caller keeps the current assignment and calls the assignor again at once (KIP-924).
    """


_NONE: frozenset[TaskId] = frozenset()


@dataclass(frozen=True)
class DriverAssignment:
    """Tasks of one driver (KIP-924, KafkaStreamsAssignment)."""

    active: frozenset[TaskId] = _NONE
    standby: frozenset[TaskId] = _NONE


@dataclass(frozen=True)
class TaskAssignment:
    """Tasks of every driver, and the time of the next decision."""

    drivers: Mapping[DriverName, DriverAssignment]
    """Assignment of each driver of the state. A driver without tasks is included."""
    waiting: frozenset[TaskId] = _NONE
    """Tasks without a driver, for example because there is none, or because a delay is running."""
    follow_up_ms: int | None = None
    """Time of the next decision if nothing changes before, or None if none is needed.

    It is on the clock of ``now_ms``.
    """
    balanced: bool = False
    """True if tasks move for balance. The caller then passes ``now_ms`` to the next decision as
    ``last_balance_ms``."""

    @property
    def owners(self) -> dict[TaskId, DriverName]:
        """Driver that runs each task."""
        return {task: name for name, driver in self.drivers.items() for task in driver.active}


class TaskAssignor(Protocol):
    """Decides which driver runs each task.

    An assignor has no I/O, no clock and no randomness, so equal states give equal results. It
    raises ``TaskAssignmentError`` to keep the current assignment and to be called again at once.
    """

    def assign(self, state: ApplicationState) -> TaskAssignment:
        """Return the assignment of all tasks."""
        ...

    def on_assignment_computed(
        self, assignment: TaskAssignment, state: ApplicationState, error: AssignmentError
    ) -> None:
        """Receive the outcome of an assignment.

        ``error`` is ``NONE`` if the assignment is in force, or the reason why it was rejected.
        """
        del assignment, state, error  # An assignor without memory does not need them.
