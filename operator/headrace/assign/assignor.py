"""Interface of assignors: identities, input, answer and errors (KIP-924).

``headrace.placement`` fills it, but for ``ApplicationState.config``, which has its default.
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
    """A connector or a task of a flow: the unit that is assigned.

    A tuple, as a million of them are hashed and compared within a second.
    """

    flow: str
    type: str
    """``SourceConnector``, ``SourceTask`` ... as in ReplicationTask."""
    index: int  # type: ignore[assignment]  # hides tuple.index, which means nothing here

    @property
    def name(self) -> str:
        """The name of its ReplicationTask: ``orders-source-task-3``."""
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", self.type).lower()
        return f"{self.flow}-{words}-{self.index}"

    @property
    def is_connector(self) -> bool:
        """Whether it is a connector; Connect deals those apart from tasks."""
        return self.type.endswith("Connector")

    @property
    def is_stateful(self) -> bool:
        """Whether it keeps positions, so that a standby can keep itself restored for it."""
        return self.type in _STATEFUL


class TaskInfo(NamedTuple):
    """A task as it is weighed (KIP-924, TaskInfo)."""

    id: TaskId
    stateful: bool
    """Whether it may have standbys: source tasks; not others, not connectors."""
    weight: float = 0.0
    """Measured bytes/s, smoothed."""
    racks: tuple[frozenset[str], ...] = ()
    """For each of its partitions, the racks that hold a replica of it."""


def weigh(measured: Mapping[TaskId, float | None]) -> dict[TaskId, TaskInfo]:
    """Tasks by their measured bytes/s; what has none yet counts as the median of its type.

    A type of which nothing was ever measured (connectors) weighs nothing.
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
    """A driver that is there, and what it held so far (KIP-924, KafkaStreamsState)."""

    name: DriverName
    active: frozenset[TaskId] = frozenset()
    standby: frozenset[TaskId] = frozenset()
    rack: str | None = None


@dataclass(frozen=True)
class FlowConfig:
    """Settings of a flow (``spec.tasks``)."""

    standbys: int = 0
    movement_budget: float = 0.1
    """Largest share of the flow's tasks that one balance round moves; unless 0, at least one task,
    or two that swap their drivers. Tasks without a driver never count."""


@dataclass(frozen=True)
class AssignmentConfig:
    """Settings for all flows (KIP-924, AssignmentConfigs)."""

    tolerance: float = 0.1
    """How far a driver's weight may be off its share before something moves for balance."""
    balance_interval_ms: int = 60_000
    """Time between two rounds that move something for balance."""

    def __post_init__(self) -> None:
        for name in (
            "tolerance",
            "balance_interval_ms",
        ):
            if not 0 <= (value := getattr(self, name)) < inf:
                raise ValueError(f"{name} must be 0 or more, got {value}")


@dataclass(frozen=True)
class ApplicationState:
    """Tasks, drivers, what the drivers held, and the time. Raises ``ValueError`` on nonsense."""

    tasks: Mapping[TaskId, TaskInfo]
    drivers: Mapping[DriverName, DriverState]
    """Drivers that may have tasks. A driver that is about to leave is not included."""
    flows: Mapping[str, FlowConfig] = field(default_factory=dict)
    """A flow that is not here has the defaults."""
    config: AssignmentConfig = AssignmentConfig()
    now_ms: int = 0
    last_balance_ms: int | None = None
    """When a ``TaskAssignment`` was last ``balanced``."""
    pinned: frozenset[TaskId] = frozenset()
    """Tasks that stay with the driver that runs them, whatever balance asks for."""

    def __post_init__(self) -> None:
        weights = [info[2] for info in self.tasks.values()]
        # The sum is what shows NaN, which compares with nothing.
        if weights and not (min(weights) >= 0 and max(weights) < inf and sum(weights) >= 0):
            wrong = next(i for i in self.tasks.values() if not 0 <= i.weight < inf)
            raise ValueError(f"the weight of {wrong.id.name} must be 0 or more, got {wrong.weight}")
        if any(map(ne, self.tasks, map(itemgetter(0), self.tasks.values()))):
            id, info = next((id, i) for id, i in self.tasks.items() if id != i.id)
            raise ValueError(f"{id.name} stands for {info.id.name}: a task goes by its own id")
        for name, driver in self.drivers.items():
            if name != driver.name:
                raise ValueError(f"{name} stands for driver {driver.name}: it goes by its own name")
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
        """Return a state from plain lists; raise ``ValueError`` if one contains a duplicate."""
        tasks, drivers = list(tasks), list(drivers)
        by_id = {info.id: info for info in tasks}
        by_name = {driver.name: driver for driver in drivers}
        if len(by_id) < len(tasks):
            twice = Counter(info.id for info in tasks).most_common(1)[0][0]
            raise ValueError(f"task {twice.name} is there twice")
        if len(by_name) < len(drivers):
            twice_named = Counter(driver.name for driver in drivers).most_common(1)[0][0]
            raise ValueError(f"driver {twice_named} is there twice")
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
    """Errors with the names of Kafka Streams (``TaskAssignor.AssignmentError``), and three more.

    A process corresponds to a driver here, and so does a Kafka Streams client.
    """

    NONE = "NONE"
    ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES = "ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES"
    INVALID_STANDBY_TASK = "INVALID_STANDBY_TASK"
    """A standby or warm-up of a stateless task."""
    MISSING_PROCESS_ID = "MISSING_PROCESS_ID"
    """A driver of the state is left out: it would not know that it is to stop what it runs."""
    UNKNOWN_PROCESS_ID = "UNKNOWN_PROCESS_ID"
    UNKNOWN_TASK_ID = "UNKNOWN_TASK_ID"
    ACTIVE_AND_STANDBY_TASK_ASSIGNED_TO_SAME_KAFKASTREAMS = (
        "ACTIVE_AND_STANDBY_TASK_ASSIGNED_TO_SAME_KAFKASTREAMS"
    )
    """On the KIP's page; not in Kafka, where a client's tasks are a map by task."""
    TASK_NOT_ASSIGNED = "TASK_NOT_ASSIGNED"
    """Ours: a task has no driver and is not known to wait. In Kafka that is no error."""


class TaskAssignmentError(Retriable):
    """Raised by an assignor: keep the assignment in force and ask again at once (KIP-924)."""


_NONE: frozenset[TaskId] = frozenset()


@dataclass(frozen=True)
class DriverAssignment:
    """Tasks that one driver is to run (KIP-924, KafkaStreamsAssignment)."""

    active: frozenset[TaskId] = _NONE
    standby: frozenset[TaskId] = _NONE


@dataclass(frozen=True)
class TaskAssignment:
    """Tasks that every driver is to run, and the time of the next decision."""

    drivers: Mapping[DriverName, DriverAssignment]
    """Each driver of the state is a key, also one that gets nothing."""
    waiting: frozenset[TaskId] = _NONE
    """Tasks that are left without a driver on purpose: there is none, or a delay is running."""
    follow_up_ms: int | None = None
    """Time of the next decision if nothing happens before, on the clock of ``now_ms``; None if not
    needed.
    """
    balanced: bool = False
    """Whether something moves for balance; ``now_ms`` is then the next ``last_balance_ms``."""

    @property
    def owners(self) -> dict[TaskId, DriverName]:
        """The driver that runs each task."""
        return {task: name for name, driver in self.drivers.items() for task in driver.active}


class TaskAssignor(Protocol):
    """Decides the assignment. Without I/O, clock or randomness: one state, one answer.

    Raise ``TaskAssignmentError`` to keep the assignment in force and be asked again at once.
    """

    def assign(self, state: ApplicationState) -> TaskAssignment:
        """Decide for all tasks of ``state``."""
        ...

    def on_assignment_computed(
        self, assignment: TaskAssignment, state: ApplicationState, error: AssignmentError
    ) -> None:
        """Receive the outcome of an answer: ``NONE`` if it is in force, or the error."""
        del assignment, state, error  # An assignor without memory does not need them.
