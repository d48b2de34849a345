"""The default: what need not move stays where it is and keeps running."""

from headrace.assign.allowance import Allowance
from headrace.assign.assignment import DriverAssignment, TaskAssignment, TaskAssignor
from headrace.assign.balance import Balance
from headrace.assign.draft import DraftAssignment
from headrace.assign.even_counts import even_counts
from headrace.assign.even_weights import even_weights
from headrace.assign.ids import TaskId
from headrace.assign.nearby import read_nearby
from headrace.assign.orphans import deal, take_over
from headrace.assign.racks import RackSpread
from headrace.assign.standbys import place_standbys
from headrace.assign.state import ApplicationState


class StickyAssignor(TaskAssignor):
    """Goals, in this order:

    1. complete: every task has a driver, at once;
    2. balanced: counts within one, weights within 10 % of the mean;
    3. spread: each flow over the racks, its tasks over drivers;
    4. near: tasks run where their partitions can be read without leaving the rack;
    5. the fewest moves.

    Within these bounds nothing moves for balance. Outside them, a share of a flow's tasks moves at
    a time (its movement budget), and at most once a minute: the state says when it last happened,
    the answer when to ask again. A task without a driver goes to a standby if counts allow, and
    never waits for a budget. No move waits for its driver to catch up (KIP-441's warm-up): what is
    restored is a position, in a moment.
    """

    def assign(self, state: ApplicationState) -> TaskAssignment:
        """See ``TaskAssignor``."""
        if not state.drivers:
            return TaskAssignment({}, waiting=frozenset(state.tasks))

        # Base sets: what each driver runs, and the orphans, which nobody runs.
        draft = DraftAssignment(state)

        # Decisions: the orphans first, then what is out of bounds, as far as it may move now.
        take_over(draft, _holders(draft))
        deal(draft)
        due_ms = state.now_ms
        if state.last_balance_ms is not None:
            due_ms = max(due_ms, state.last_balance_ms + state.config.balance_interval_ms)
        reached, moves = _improve(draft, due=due_ms == state.now_ms)

        active = dict(zip(draft.names, draft.result(), strict=True))
        standby = place_standbys(state, active)

        follow_ups = []
        if not reached and due_ms > state.now_ms:
            follow_ups.append(due_ms)
        elif not reached and (draft.unassigned or draft.moved):  # Else it would come out the same.
            follow_ups.append(state.now_ms + state.config.balance_interval_ms)
        return TaskAssignment(
            {name: DriverAssignment(active[name], standby[name]) for name in draft.names},
            follow_up_ms=min(follow_ups, default=None),
            balanced=moves > 0,
        )


def _holders(draft: DraftAssignment) -> dict[TaskId, list[int]]:
    """The drivers that are standbys of an orphan."""
    holders: dict[TaskId, list[int]] = {}
    for number, driver in enumerate(draft.drivers):
        for task in driver.standby & draft.unassigned:
            holders.setdefault(task, []).append(number)
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
    if not allowance.is_empty:
        read_nearby(spread)
    return balance.is_reached and spread.is_reached, allowance.spent
