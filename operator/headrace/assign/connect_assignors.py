"""Assignors of Kafka Connect: eager, and incremental cooperative (KIP-415).

They reproduce Kafka Connect's trunk, including its oddities. Successive revocations back off
(KAFKA-12495), and a maximum delay of 0 reassigns at once (KAFKA-15693). There are two differences:

- Workers are ordered by name. Java uses the order of a HashMap.
- A worker never has to stop a unit that it does not run. When a delay ends, Java assigns all lost
  units to the workers that joined without units. In the same round it may revoke some of these
  units for balance, although they never ran there. Here such a unit is assigned to another worker
  at once.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice

from headrace.assign.assignor import (
    ApplicationState,
    AssignmentError,
    DriverAssignment,
    DriverName,
    TaskAssignment,
    TaskAssignor,
    TaskId,
)


class RoundRobinAssignor(TaskAssignor):
    """Assigns all connectors, then all tasks, in turn to the drivers sorted by name.

    It has no memory. When a driver or a task is added or removed, most tasks change their driver.
    """

    def assign(self, state: ApplicationState) -> TaskAssignment:
        if not state.drivers:
            return TaskAssignment({}, waiting=frozenset(state.tasks))
        units = sorted(state.tasks, key=lambda task: (not task.is_connector, task))
        dealt: dict[DriverName, set[TaskId]] = {name: set() for name in sorted(state.drivers)}
        for task, name in zip(units, cycle(dealt), strict=False):
            dealt[name].add(task)
        return TaskAssignment(
            {name: DriverAssignment(active=frozenset(active)) for name, active in dealt.items()}
        )


Units = dict[TaskId, None]
"""Ordered set of units, like Java's LinkedHashSet. The first units are revoked first."""


@dataclass
class ConnectorsAndTasks:
    """Connectors and tasks of one worker or of the whole group.

    They are always distributed separately.
    """

    connectors: Units = field(default_factory=dict)
    tasks: Units = field(default_factory=dict)

    @classmethod
    def union(cls, loads: Iterable["ConnectorsAndTasks"]) -> "ConnectorsAndTasks":
        """Return the units that any of ``loads`` contains."""
        union = cls()
        for load in loads:
            union.add(load)
        return union

    def __bool__(self) -> bool:
        return bool(self.connectors or self.tasks)

    def copy(self) -> "ConnectorsAndTasks":
        return ConnectorsAndTasks(self.connectors.copy(), self.tasks.copy())

    def add(self, other: "ConnectorsAndTasks") -> None:
        """Append the units of ``other`` that are missing here."""
        self.connectors |= other.connectors
        self.tasks |= other.tasks

    def remove(self, other: "ConnectorsAndTasks") -> None:
        """Remove the units of ``other``."""
        for connector in other.connectors:
            self.connectors.pop(connector, None)
        for task in other.tasks:
            self.tasks.pop(task, None)

    def without(self, *others: "ConnectorsAndTasks") -> "ConnectorsAndTasks":
        """Return the units that none of ``others`` contains, sorted (Java: a TreeSet)."""
        return ConnectorsAndTasks(
            dict.fromkeys(sorted(self.connectors.keys() - _all(o.connectors for o in others))),
            dict.fromkeys(sorted(self.tasks.keys() - _all(o.tasks for o in others))),
        )

    def shared_with(self, other: "ConnectorsAndTasks") -> "ConnectorsAndTasks":
        """Return the units that both contain."""
        return ConnectorsAndTasks(
            {connector: None for connector in self.connectors if connector in other.connectors},
            {task: None for task in self.tasks if task in other.tasks},
        )


def _all(units: Iterable[Units]) -> set[TaskId]:
    return set[TaskId]().union(*units)


_Kind = Callable[[ConnectorsAndTasks], Units]
_KINDS: tuple[_Kind, _Kind] = (lambda load: load.connectors, lambda load: load.tasks)


@dataclass(frozen=True)
class RebalanceResult:
    """Result of a rebalance round, which is sent to the workers."""

    next: Mapping[DriverName, ConnectorsAndTasks]
    """All units of each worker after the round."""
    revoked: Mapping[DriverName, ConnectorsAndTasks]
    """Units that each worker must stop. They are assigned in a later round."""
    delay_ms: int
    """Time in ms after which all workers rejoin if nothing changes before, or 0."""


class IncrementalCooperative:
    """Leader of a group of workers. It remembers previous rounds."""

    def __init__(self, max_delay_ms: int) -> None:
        if max_delay_ms < 0:
            raise ValueError(f"the maximal delay must be 0 or more, got {max_delay_ms} ms")
        self.max_delay_ms = max_delay_ms
        self._previous = ConnectorsAndTasks()
        self._previous_revocation = ConnectorsAndTasks()
        self._previous_members: frozenset[DriverName] = frozenset()
        self._candidates: dict[DriverName, None] = {}
        """Workers that had no units while the leader waited for a lost worker.

        One of them is probably that worker, which has restarted.
        """
        self._scheduled_ms = 0
        """Time at which the delay ends, or 0 if none is running."""
        self._delay_ms = 0
        self._revoked_in_previous = False
        self._successive_revocations = 0

    def forget_previous(self) -> None:
        """Forget the last round, which failed. Its units may not be running."""
        self._previous = ConnectorsAndTasks()

    def round(
        self,
        configured: ConnectorsAndTasks,
        members: Mapping[DriverName, ConnectorsAndTasks],
        now_ms: int,
    ) -> RebalanceResult:
        """Compute one rebalance round.

        ``members`` are the workers, at least one, with the units that they report to run.
        """
        members = dict(sorted(members.items()))
        active = ConnectorsAndTasks.union(members.values())
        self._recognise_failed_revocation(active)

        # Derived sets.
        deleted = self._previous.without(configured)
        duplicated = _duplicated(members.values())
        lost = self._previous.without(active, deleted)
        created = configured.without(self._previous, active)

        # A duplicated unit stops everywhere, and is new in the next round.
        revoked = {name: load.shared_with(deleted) for name, load in members.items()}
        for name, load in members.items():
            revoked[name].add(load.shared_with(duplicated))
        following = {name: load.copy() for name, load in members.items()}
        for name, load in following.items():
            load.remove(revoked[name])

        to_assign = created.copy()
        to_assign.add(self._handle_lost(lost, following, now_ms))
        if self._delay_ms == 0:
            surplus = _surplus(configured, following)
            for name, load in surplus.items():
                not_running = load.without(members[name])
                following[name].remove(not_running)
                to_assign.add(not_running)
                load.remove(not_running)
            for name, load in self._revocations(surplus, now_ms).items():
                revoked[name].add(load)
                following[name].remove(load)
        else:
            self._revoked_in_previous = False

        for kind in _KINDS:
            _deal(kind(to_assign), following, kind)

        self._previous_revocation = ConnectorsAndTasks.union(revoked.values())
        self._previous = ConnectorsAndTasks.union(following.values())
        self._previous.remove(self._previous_revocation)
        self._previous.add(lost)
        self._previous_members = frozenset(members)
        return RebalanceResult(following, revoked, self._delay_ms)

    def _recognise_failed_revocation(self, active: ConnectorsAndTasks) -> None:
        """Detect revoked units that still run, and treat them as assigned.

        They still run because the last round did not reach their worker.
        """
        if self._previous_revocation.shared_with(active):
            self._previous = active.copy()
        self._previous_revocation = ConnectorsAndTasks()

    def _handle_lost(
        self,
        lost: ConnectorsAndTasks,
        following: Mapping[DriverName, ConnectorsAndTasks],
        now_ms: int,
    ) -> ConnectorsAndTasks:
        """Return the lost units to assign now.

        When a delay ends, add them to the candidates instead, if there are any.
        """
        if not lost and not self._revoked_in_previous:
            self._reset_delay()
            return ConnectorsAndTasks()
        nobody_left = self._scheduled_ms <= 0 and self._previous_members <= following.keys()
        if nobody_left or self.max_delay_ms == 0:
            return lost
        if 0 < self._scheduled_ms <= now_ms:
            candidates = [following[name] for name in self._candidates if name in following]
            self._reset_delay()
            self._revoked_in_previous = False
            if not candidates:
                return lost
            for kind in _KINDS:
                for unit, worker in zip(kind(lost), cycle(candidates), strict=False):
                    kind(worker)[unit] = None
            return ConnectorsAndTasks()
        self._candidates |= {name: None for name, load in following.items() if not load}
        remaining_ms = min(self._scheduled_ms - now_ms, self.max_delay_ms)
        self._delay_ms = remaining_ms if remaining_ms > 0 else self.max_delay_ms
        self._scheduled_ms = now_ms + self._delay_ms
        return ConnectorsAndTasks()

    def _reset_delay(self) -> None:
        self._candidates = {}
        self._scheduled_ms = 0
        self._delay_ms = 0

    def _revocations(
        self, surplus: Mapping[DriverName, ConnectorsAndTasks], now_ms: int
    ) -> Mapping[DriverName, ConnectorsAndTasks]:
        """Return the units of ``surplus`` to revoke now. Successive revocations back off."""
        if not any(surplus.values()):
            if self._revoked_in_previous:
                self._revoked_in_previous = False
                self._successive_revocations = 0
            return {}
        if not self._revoked_in_previous:
            self._revoked_in_previous = True
            return surplus
        self._successive_revocations += 1
        # ExponentialBackoff(initial 1 ms, multiplier 40, no jitter), in integers.
        self._delay_ms = min(40**self._successive_revocations, self.max_delay_ms)
        if self._delay_ms == 0:
            return surplus
        self._scheduled_ms = now_ms + self._delay_ms
        return {}


def _duplicated(loads: Iterable[ConnectorsAndTasks]) -> ConnectorsAndTasks:
    """Return the units that more than one worker runs."""
    loads = list(loads)
    counts = [Counter(unit for load in loads for unit in kind(load)) for kind in _KINDS]
    connectors, tasks = ({unit: None for unit, n in c.items() if n > 1} for c in counts)
    return ConnectorsAndTasks(connectors, tasks)


def _surplus(
    configured: ConnectorsAndTasks, following: Mapping[DriverName, ConnectorsAndTasks]
) -> dict[DriverName, ConnectorsAndTasks]:
    """Return the units beyond each worker's share.

    The units that the worker reported first are returned (cause of KAFKA-17049).
    """
    if not configured or not any(following.values()):
        return {}
    surplus: dict[DriverName, ConnectorsAndTasks] = {}
    for kind in _KINDS:
        least, extras = divmod(len(kind(configured)), len(following))
        sizes = Counter(len(kind(load)) for load in following.values())
        if sizes[least + 1] == extras and sizes[least] + extras == len(following):
            continue
        for name, load in following.items():
            share = least
            if len(kind(load)) > least and extras > 0:
                share, extras = least + 1, extras - 1
            if (beyond := len(kind(load)) - share) > 0:
                chosen = dict.fromkeys(islice(kind(load), beyond))
                kind(surplus.setdefault(name, ConnectorsAndTasks())).update(chosen)
    return surplus


def _deal(units: Units, following: Mapping[DriverName, ConnectorsAndTasks], kind: _Kind) -> None:
    """Distribute units, one at a time, to the workers with the fewest units."""
    workers: Sequence[Units] = [
        kind(load)
        for _, load in sorted(following.items(), key=lambda item: (len(kind(item[1])), item[0]))
    ]
    left = iter(units)
    rest = len(units)
    while rest > 0:
        least = len(workers[0])
        up_to = next((i for i, w in enumerate(workers) if len(w) > least), len(workers))
        for worker, unit in zip(workers[:up_to], islice(left, min(rest, up_to)), strict=False):
            worker[unit] = None
        rest -= up_to


class CooperativeAssignor(TaskAssignor):
    """Balances the numbers of connectors and of tasks, separately.

    A unit that moves has no driver for one round. When a driver is lost, its units wait for it up
    to ``max_delay_ms`` (``scheduled.rebalance.max.delay.ms``). Kafka Connect waits 300,000 ms,
    because a lost worker may only be restarting. Here the default is 0, because the caller knows
    which drivers are lost. Weights and racks are ignored.
    """

    def __init__(self, max_delay_ms: int = 0) -> None:
        self._leader = IncrementalCooperative(max_delay_ms)

    def assign(self, state: ApplicationState) -> TaskAssignment:
        """Return the assignment. If units were revoked, request the next round at once."""
        if not state.drivers:
            return TaskAssignment({}, waiting=frozenset(state.tasks))
        outcome = self._leader.round(
            _load(state.tasks.keys()),
            # Deleted units are left out, because a driver stops units that are not assigned to it.
            {
                name: _load(driver.active & state.tasks.keys())
                for name, driver in state.drivers.items()
            },
            state.now_ms,
        )
        drivers = {
            name: DriverAssignment(active=frozenset(load.connectors | load.tasks))
            for name, load in outcome.next.items()
        }
        owned = frozenset[TaskId]().union(*(driver.active for driver in drivers.values()))
        follow_up_ms = None
        if any(outcome.revoked.values()):
            follow_up_ms = state.now_ms
        elif outcome.delay_ms:
            follow_up_ms = state.now_ms + outcome.delay_ms
        return TaskAssignment(drivers, frozenset(state.tasks.keys() - owned), follow_up_ms)

    def on_assignment_computed(
        self, assignment: TaskAssignment, state: ApplicationState, error: AssignmentError
    ) -> None:
        """Treat a rejected round as one that failed."""
        if error is not AssignmentError.NONE:
            self._leader.forget_previous()


def _load(units: Collection[TaskId]) -> ConnectorsAndTasks:
    ordered = sorted(units)
    return ConnectorsAndTasks(
        {unit: None for unit in ordered if unit.is_connector},
        {unit: None for unit in ordered if not unit.is_connector},
    )
