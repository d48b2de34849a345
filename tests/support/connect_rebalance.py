"""Kafka Connect's cooperative rebalance on a mock clock."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from headrace.assign.assignor import TaskId
from headrace.assign.connect_assignors import ConnectorsAndTasks, IncrementalCooperative

Task = tuple[str, int]
"""Connector of a unit, and its index."""
SortedUnits = tuple[tuple[str, ...], tuple[Task, ...]]
"""Connectors and tasks, each sorted."""


@dataclass(frozen=True)
class Round:
    """The decisions of one rebalance. Every current worker is a key."""

    delay_ms: int
    """Time until the workers join again by themselves, or 0 for never."""
    assigned: Mapping[str, SortedUnits]
    """Units that each worker runs once the round is done."""
    revoked: Mapping[str, SortedUnits]
    """Units that each worker has to stop."""


class CooperativeSimulation:
    """A group of Connect workers and its leader (IncrementalCooperativeAssignorTest).

    Workers report in the order in which they were given their units.
    """

    def __init__(self, max_delay_ms: int = 300_000) -> None:
        self._leader = IncrementalCooperative(max_delay_ms)
        self._configured = ConnectorsAndTasks()
        self._workers: dict[str, ConnectorsAndTasks] = {}
        self._now_ms = 0

    def set_units(self, units: Mapping[str, int]) -> None:
        """Set the number of tasks of each connector."""
        for connector, tasks in units.items():
            if tasks < 0:
                raise ValueError(f"connector {connector} must have 0 or more tasks, got {tasks}")
        self._configured = _load(
            units, [(c, n) for c, tasks in units.items() for n in range(tasks)]
        )

    def add_worker(
        self, name: str, connectors: Iterable[str] = (), tasks: Iterable[Task] = ()
    ) -> None:
        """Add a worker, which reports the units that it runs already."""
        if name in self._workers:
            raise ValueError(f"there is a worker {name} already")
        self._workers[name] = _load(connectors, tasks)

    def remove_worker(self, name: str) -> None:
        """Remove a worker."""
        if name not in self._workers:
            raise ValueError(f"there is no worker {name}")
        del self._workers[name]

    def restart_leader(self) -> None:
        """Replace the leader by one that has no earlier rounds and delays."""
        self._leader = IncrementalCooperative(self._leader.max_delay_ms)

    def sleep(self, ms: int) -> None:
        """Let time pass."""
        if ms < 0:
            raise ValueError(f"time does not run backwards: {ms} ms")
        self._now_ms += ms

    def rebalance(self, apply: bool = True) -> Round:
        """Run one round. With ``apply=False``, only the leader gets its result.

        Without workers there is no leader, and the state is unchanged.
        """
        if not self._workers:
            return Round(0, {}, {})
        outcome = self._leader.round(self._configured, self._workers, self._now_ms)
        if apply:
            self._workers = {name: load.copy() for name, load in outcome.next.items()}
        return Round(outcome.delay_ms, _shown(outcome.next), _shown(outcome.revoked))


def _load(connectors: Iterable[str], tasks: Iterable[Task]) -> ConnectorsAndTasks:
    return ConnectorsAndTasks(
        dict.fromkeys(TaskId(connector, "Connector", 0) for connector in connectors),
        dict.fromkeys(TaskId(connector, "Task", index) for connector, index in tasks),
    )


def _shown(loads: Mapping[str, ConnectorsAndTasks]) -> dict[str, SortedUnits]:
    return {
        name: (_connectors(load.connectors), _tasks(load.tasks)) for name, load in loads.items()
    }


def _connectors(units: Collection[TaskId]) -> tuple[str, ...]:
    return tuple(sorted(unit.flow for unit in units))


def _tasks(units: Collection[TaskId]) -> tuple[Task, ...]:
    return tuple(sorted((unit.flow, unit.index) for unit in units))
