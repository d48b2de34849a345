"""Places units on drivers according to the answer of a flow's assignor."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import exp

from headrace.api import ConditionType, ReplicationFlow, ReplicationTask, find_condition
from headrace.assign import (
    ApplicationState,
    AssignmentUtils,
    DriverName,
    DriverState,
    TaskAssignment,
    TaskId,
)
from headrace.errors import InvalidSpec
from headrace.placement.assignor_input import (
    drivers_with_their_units,
    flow_configs,
    is_to_be_filled,
    racks,
    task_id,
    weights,
)
from headrace.placement.assignors import Decider, Decision, open_assignor
from headrace.timing import Backoff


@dataclass(frozen=True)
class Placement:
    """Drivers of one unit."""

    driver: DriverName
    """Name of the active driver. Empty if the unit waits for one."""
    standbys: tuple[DriverName, ...] = ()
    """Names of the standby drivers, sorted."""


@dataclass(frozen=True)
class PlacementDecision:
    """A decision on all units of some flows."""

    placements: Mapping[TaskId, Placement]
    """Placements by unit. A unit that is not in this mapping stays on its driver."""
    problems: Mapping[str, str]
    """Problem of each flow whose assignor gave no valid answer, or whose units have no driver."""
    follow_up_ms: int | None
    """Latest time of the next decision in ms, on the clock of ``now_ms``. None without a limit."""


_SMOOTHING_MS = 60_000
"""Time constant for averaging a unit's rate, in ms.

A status contains the mean rate of about 5 s. A peak of that length must not move units.
"""
_SETTLED_MS = 30_000
"""Time in ms after a unit's start for which its rate is ignored, because the unit is catching
up."""


@dataclass
class _Rate:
    since_ms: int
    last_ms: int
    per_second: float


class Rates:
    """Average rates of running units. Frequent calls of ``observe`` make them more precise."""

    def __init__(self) -> None:
        self._rates: dict[TaskId, _Rate] = {}

    def observe(self, tasks: Iterable[ReplicationTask], now_ms: int) -> None:
        """Read the statuses of all units. Forget units that are not in ``tasks``."""
        known, self._rates = self._rates, {}
        for task in tasks:
            measured, id = task.status.bytes_per_second, task_id(task)
            rate = known.get(id)
            if rate is None and measured is not None:
                rate = _Rate(now_ms, now_ms, measured)
            elif rate is not None and measured is not None:
                # A unit reports no rate while it moves. That does not count as a rate of 0.
                elapsed = now_ms - rate.last_ms
                rate.per_second += (1 - exp(-elapsed / _SMOOTHING_MS)) * (
                    measured - rate.per_second
                )
                rate.last_ms = now_ms
            if rate is not None:
                self._rates[id] = rate

    def of(self, id: TaskId) -> float | None:
        """Return a unit's bytes per second, or None if it was not observed for long enough."""
        rate = self._rates.get(id)
        settled = rate is not None and rate.last_ms - rate.since_ms >= _SETTLED_MS
        return rate.per_second if rate is not None and settled else None


NO_DRIVER = "there is no driver: units wait for one"
_REVIEW_INTERVAL_MS = 60_000
"""Maximum time in ms between two decisions, because weights change without an event."""
_FIRST_RETRY_S, _LAST_RETRY_S = 1.0, 60.0
"""Initial and maximum delay before an assignor without a valid answer is called again."""


def _retries() -> Backoff:
    return Backoff(_FIRST_RETRY_S, _LAST_RETRY_S, jitter=False)


@dataclass
class _Known:
    """An assignor in use, with its state."""

    decider: Decider
    last_balance_ms: int | None = None
    retries: Backoff = field(default_factory=_retries)


class Placer:
    """Places units on one set of drivers.

    All flows of a ``headrace run`` share its drivers and have one placer. On Kubernetes each flow
    has its own drivers and placer.

    Flows with the same assignor are decided together. An assignor receives only its own flows'
    units. Each assignor distributes its units evenly over all drivers, so the total is even.

    Not thread-safe, except for ``close``. The state (assignors, the last move for balance, rates)
    may be lost at any time: at worst a unit moves a minute too early.
    """

    def __init__(
        self,
        plug_in_limit_s: float = 5.0,
        open_decider: Callable[[str, float], Decider] = open_assignor,
    ) -> None:
        """Create a placer.

        Args:
            plug_in_limit_s: Time in seconds that plug-ins have to respond.
            open_decider: Opens an assignor by its name, with ``plug_in_limit_s``.
        """
        self._limit_s, self._open_decider = plug_in_limit_s, open_decider
        self._known: dict[str, _Known] = {}
        self._rates = Rates()

    def observe(self, tasks: Iterable[ReplicationTask], now_ms: int) -> None:
        """Read the rates that all units report. Call it often."""
        self._rates.observe(tasks, now_ms)

    def decide(
        self,
        flows: Iterable[ReplicationFlow],
        tasks: Iterable[ReplicationTask],
        drivers: Iterable[DriverState],
        now_ms: int,
        *,
        pins: Mapping[TaskId, DriverName] | None = None,
        balance: bool = True,
    ) -> PlacementDecision:
        """Assign all ``tasks`` of ``flows``, which currently run on the drivers in their specs.

        May block for seconds, because plug-ins run in processes.

        Args:
            flows: Flows of the placer.
            tasks: All units of these flows.
            drivers: Drivers that may have units, with name and rack. Their units are taken from
                ``tasks``. Drivers that are lost or leaving are not included.
            now_ms: Time on a monotonic clock.
            pins: Driver of each pinned unit. Pins to other drivers than ``drivers`` have no effect.
                In a round that moves a pinned unit, no unit moves for balance.
            balance: True if units may move for balance. If False, only units without a driver get
                one, whatever the assignor answers. A unit that has an error, or
                ``ProgressNotStored``, is never moved for balance.
        """
        flows, tasks, drivers = list(flows), list(tasks), list(drivers)
        self.observe(tasks, now_ms)
        placements: dict[TaskId, Placement] = {}
        problems: dict[str, str] = {}
        follow_ups: list[int] = []
        groups = _by_assignor(flows)
        for name, group in groups.items():
            names = {flow.metadata.name for flow in group}
            theirs = [task for task in tasks if task.spec.flow_name in names]
            there = drivers_with_their_units(drivers, theirs, pins or {})
            state = ApplicationState(
                tasks=weights(map(task_id, theirs), self._rates.of, racks(theirs)),
                drivers=there,
                flows=flow_configs(group, list(there.values())),
                now_ms=now_ms,
                pinned=_pinned(theirs, there, pins or {}, balance),
            )
            decision = self._ask(name, state, _has_moves_by_hand(theirs, there, pins or {}))
            placements |= _placements(state, decision.assignment)
            if decision.reason:
                problems |= dict.fromkeys(names, decision.reason)
            if (follow_up_ms := decision.assignment.follow_up_ms) is not None:
                if _overrules(state, decision.assignment):
                    # The next answer would request another decision at once, without end.
                    follow_up_ms = max(follow_up_ms, now_ms + int(_FIRST_RETRY_S * 1000))
                follow_ups.append(follow_up_ms)
        self._forget(self._known.keys() - groups.keys())
        if placements and drivers:
            follow_ups.append(now_ms + _REVIEW_INTERVAL_MS)
        return PlacementDecision(placements, problems, min(follow_ups, default=None))

    def close(self) -> None:
        """End the processes of plug-ins, including one that another thread is using."""
        self._forget(list(self._known))

    def _ask(self, name: str, state: ApplicationState, by_hand: bool) -> Decision:
        if not state.drivers:
            return Decision(AssignmentUtils.identity(state), reason=NO_DRIVER)
        try:
            known = self._open(name)
        except InvalidSpec as unknown:
            kept = AssignmentUtils.identity(state)
            reason = f"{unknown}; the assignment in force stays"
            return _retry_after(Decision(kept, reason=reason), state, _LAST_RETRY_S)
        if by_hand:
            # A user who moves one unit does not expect another one to move in the same round.
            known.last_balance_ms = state.now_ms
        # A driver that has just joined gets units at once, without waiting for the minute to end.
        fill = is_to_be_filled(state) and not by_hand
        last_ms = None if fill else known.last_balance_ms
        decision = known.decider.decide(replace(state, last_balance_ms=last_ms))
        if decision.assignment.balanced:
            known.last_balance_ms = state.now_ms
        if decision.reason:
            return _retry_after(decision, state, known.retries.next_s())
        known.retries.reset()
        return decision

    def _open(self, name: str) -> _Known:
        if name not in self._known:
            self._known[name] = _Known(self._open_decider(name, self._limit_s))
        return self._known[name]

    def _forget(self, names: Iterable[str]) -> None:
        for name in list(names):
            self._known.pop(name).decider.close()


def _by_assignor(flows: Iterable[ReplicationFlow]) -> dict[str, Sequence[ReplicationFlow]]:
    def assignor(flow: ReplicationFlow) -> str:
        return flow.spec.tasks.assignor

    return {name: list(group) for name, group in groupby(sorted(flows, key=assignor), assignor)}


def _has_moves_by_hand(
    tasks: Iterable[ReplicationTask],
    drivers: Mapping[DriverName, DriverState],
    pins: Mapping[TaskId, DriverName],
) -> bool:
    """Return True if a unit is pinned to another driver than the one in its spec."""
    return any(
        pins.get(task_id(task)) in drivers and pins[task_id(task)] != task.spec.driver_name
        for task in tasks
    )


def _pinned(
    tasks: Iterable[ReplicationTask],
    drivers: Mapping[DriverName, DriverState],
    pins: Mapping[TaskId, DriverName],
    balance: bool,
) -> frozenset[TaskId]:
    run = frozenset[TaskId]().union(*(driver.active for driver in drivers.values()))
    if not balance:
        return run
    held_up = {task_id(task) for task in tasks if _is_held_up(task)}
    return frozenset(id for id in run if id in held_up or pins.get(id) in drivers)


def _is_held_up(task: ReplicationTask) -> bool:
    """Return True if a unit may be unable to store its progress.

    A move of such a unit would copy records again.
    """
    unstored = find_condition(task.status.conditions, ConditionType.PROGRESS_NOT_STORED)
    return task.status.last_error is not None or unstored is not None


def _overrules(state: ApplicationState, answer: TaskAssignment) -> bool:
    """Return True if pins contradict the answer. Some assignors do not support pins."""
    given = answer.drivers
    return any(
        driver.active & state.pinned - given[name].active for name, driver in state.drivers.items()
    )


def _placements(state: ApplicationState, answer: TaskAssignment) -> dict[TaskId, Placement]:
    """Return the placement of each unit.

    A pinned unit is not moved, even if the assignor does not support pins.
    """
    owners = answer.owners | {
        id: name for name, driver in state.drivers.items() for id in driver.active & state.pinned
    }
    standbys: dict[TaskId, list[DriverName]] = {}
    for name, given in sorted(answer.drivers.items()):
        for id in given.standby:
            if name != owners.get(id):
                standbys.setdefault(id, []).append(name)
    return {id: Placement(owners.get(id, ""), tuple(standbys.get(id, ()))) for id in state.tasks}


def _retry_after(decision: Decision, state: ApplicationState, delay_s: float) -> Decision:
    """Return the decision with a follow-up after ``delay_s``."""
    answer = replace(decision.assignment, follow_up_ms=state.now_ms + int(delay_s * 1000))
    return replace(decision, assignment=answer)
