"""The default: what need not move stays where it is and keeps running."""

from math import inf

from headrace.assign.allowance import Allowance
from headrace.assign.assignment import DriverAssignment, TaskAssignment, TaskAssignor
from headrace.assign.balance import Balance
from headrace.assign.draft import DraftAssignment
from headrace.assign.even_counts import even_counts
from headrace.assign.even_weights import even_weights
from headrace.assign.ids import DriverName, TaskId
from headrace.assign.orphans import deal, take_over
from headrace.assign.racks import RackSpread
from headrace.assign.standbys import place_standbys
from headrace.assign.state import ApplicationState, Lags


class StickyAssignor(TaskAssignor):
    """Goals, in this order:

    1. complete: every task has a driver, at once;
    2. balanced: counts within one (of the share by capacity), weights within 10 % of the mean;
    3. spread: each flow over the racks, its tasks over drivers;
    4. the fewest moves.

    Within these bounds nothing moves for balance. Outside them, a share of a flow's tasks moves at
    a time (its movement budget), and at most once a minute: the state says when it last happened,
    the answer when to ask again. A task without a driver goes to a standby if counts allow, and
    never waits for a budget. Where lags are known, a stateful task that moves for balance runs on
    where it is until its new driver has caught up (KIP-441).
    """

    def assign(self, state: ApplicationState) -> TaskAssignment:
        """See ``TaskAssignor``."""
        if not state.drivers:
            return TaskAssignment({}, waiting=frozenset(state.tasks))

        # Base sets: what each driver runs, and the orphans, which nobody runs.
        draft = DraftAssignment(state)
        lags = _Lags(state)

        # Decisions: the orphans first, then what is out of bounds, as far as it may move now.
        take_over(draft, _holders(draft, lags))
        deal(draft)
        due_ms = state.now_ms
        if state.last_balance_ms is not None:
            due_ms = max(due_ms, state.last_balance_ms + state.config.balance_interval_ms)
        reached, moves = _improve(draft, due=due_ms == state.now_ms)

        # Who runs a task until its next driver has caught up, and who keeps it restored.
        active, warm_up = _hand_over(draft, lags)
        standby = place_standbys(state, active, warm_up)

        follow_ups = []
        if not reached and due_ms > state.now_ms:
            follow_ups.append(due_ms)
        elif not reached and (draft.unassigned or draft.moved):  # Else it would come out the same.
            follow_ups.append(state.now_ms + state.config.balance_interval_ms)
        if any(warm_up.values()):
            follow_ups.append(state.now_ms + state.config.probing_interval_ms)
        return TaskAssignment(
            {
                name: DriverAssignment(active[name], standby[name], warm_up[name])
                for name in draft.names
            },
            follow_up_ms=min(follow_ups, default=None),
            balanced=moves > 0,
        )


class _Lags:
    """Asks for the lags when first needed, and not again."""

    def __init__(self, state: ApplicationState) -> None:
        self._fetch = state.fetch_lags
        self._acceptable = state.config.acceptable_recovery_lag
        self._fetched: Lags | None = None

    @property
    def are_known(self) -> bool:
        """Whether there is somebody to ask."""
        return self._fetch is not None

    def of(self, driver: DriverName, task: TaskId) -> float:
        """Records that a driver's copy of a task lacks; infinite when it has none."""
        if self._fetched is None:
            self._fetched = self._fetch() if self._fetch else {}
        return self._fetched.get(driver, {}).get(task, inf)

    def are_acceptable(self, driver: DriverName, task: TaskId) -> bool:
        """Whether a copy is as good as restored."""
        return self.of(driver, task) <= self._acceptable


def _holders(draft: DraftAssignment, lags: _Lags) -> dict[TaskId, list[int]]:
    """The drivers that hold a copy of an orphan: least lag first, else by their role."""
    holders: dict[TaskId, list[int]] = {}
    for role in ("warm_up", "standby", "cached"):
        for number, driver in enumerate(draft.drivers):
            held: frozenset[TaskId] = getattr(driver, role)
            for task in held & draft.unassigned:
                holders.setdefault(task, []).append(number)
    for task, numbers in holders.items():
        if len(numbers) > 1 and lags.are_known:
            numbers.sort(key=lambda number, task=task: lags.of(draft.names[number], task))  # type: ignore[misc]
    return holders


def _improve(draft: DraftAssignment, due: bool) -> tuple[bool, int]:
    """Move what may move towards the bounds; whether they are reached, and after how many moves."""
    allowance = Allowance(draft, due)
    balance = Balance(draft, allowance)
    if not balance.is_reached and not allowance.is_empty:
        even_counts(balance)
        if draft.unassigned:
            # What nobody runs comes first, and mostly a driver was lost: nothing else moves now.
            allowance.close()
        even_weights(balance)
    racks = draft.racks()
    if racks is None:
        return balance.is_reached, allowance.spent
    spread = RackSpread(balance, racks)
    if not spread.is_reached and not allowance.is_empty:
        spread.spread()
    return balance.is_reached and spread.is_reached, allowance.spent


_ByDriver = dict[DriverName, frozenset[TaskId]]


def _hand_over(draft: DraftAssignment, lags: _Lags) -> tuple[_ByDriver, _ByDriver]:
    """Active tasks and warm-ups: a move waits for its target, where one knows how far that is."""
    planned = dict(zip(draft.names, draft.result(), strict=True))
    late = {
        task: (draft.names[home], draft.names[target])
        for task, (home, target) in sorted(draft.moved.items())
        if lags.are_known
        and draft.state.tasks[task].stateful
        and not lags.are_acceptable(draft.names[target], task)
    }
    stays: dict[DriverName, set[TaskId]] = {}
    warms: dict[DriverName, set[TaskId]] = {}
    for task, (home, target) in late.items():
        stays.setdefault(home, set()).add(task)
        warms.setdefault(target, set()).add(task)
    nothing: set[TaskId] = set()
    active = {
        name: (tasks - warms.get(name, nothing)) | stays.get(name, nothing)
        if name in warms or name in stays
        else tasks
        for name, tasks in planned.items()
    }
    return active, {name: frozenset(warms.get(name, nothing)) for name in draft.names}
