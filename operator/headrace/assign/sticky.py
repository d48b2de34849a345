"""Default assignor, which moves as few running tasks as possible."""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from itertools import accumulate, chain, groupby, islice
from math import ceil
from operator import eq, itemgetter

from headrace.assign.assignor import (
    ApplicationState,
    DriverAssignment,
    TaskAssignment,
    TaskAssignor,
    TaskId,
    TaskInfo,
)
from headrace.assign.balancing import even_counts, even_weights
from headrace.assign.draft import ID, WEIGHT, Allowance, Balance, DraftAssignment, Group
from headrace.assign.rack_moves import RackSpread, read_nearby
from headrace.assign.standbys import place_standbys

_ONE_IN = 4
"""At least one in four drivers gets a task in each turn of ``_level``, to limit the turns."""


def assign_to_standbys(draft: DraftAssignment, holders: Mapping[TaskId, Sequence[int]]) -> None:
    """Give orphans to drivers that have a standby of them, as far as the counts allow."""
    if not holders:
        return
    extras = _extras(draft)
    rest = []
    for info in sorted(draft.orphans, key=ID):
        for driver in holders.get(info.id, ()):
            count = draft.counts[driver]
            if count < draft.least or (count < draft.most and extras > 0):
                extras -= count >= draft.least
                _give(draft, driver, info)
                break
        else:
            rest.append(info)
    draft.orphans = rest


def _extras(draft: DraftAssignment) -> int:
    """Return the number of drivers that may still get one task more than ``least``."""
    return len(draft.state.tasks) - sum(max(draft.least, count) for count in draft.counts)


def _give(draft: DraftAssignment, driver: int, info: TaskInfo) -> None:
    draft.given[driver].append(info)
    draft.counts[driver] += 1
    draft.loads[driver] += info.weight


def assign_unowned(draft: DraftAssignment) -> None:
    """Distribute the orphans, heaviest first, in rows that give each driver at most one task.

    The rows make the counts equal. The kinds are distributed one after the other, so the tasks of
    a flow are spread over drivers and, if racks are known, over racks.
    """
    kinds = _by_descending_weight(draft.orphans)
    queue = list(chain.from_iterable(kinds))
    rooms, extras = _free_slots(draft, len(queue))
    start = 0
    for block in _blocks(rooms, kinds):
        end = start + sum(block.values())
        _level(draft, block, queue[start:end])
        start = end
    _level(draft, dict.fromkeys(_one_more(draft, extras), 1), queue[start:])
    draft.orphans = []
    draft.counts = list(map(len, draft.given))


def _by_descending_weight(orphans: Sequence[TaskInfo]) -> list[list[TaskInfo]]:
    """Return the tasks by kind. The kind of the heaviest task comes first.

    Within a kind, tasks are sorted by weight, and by id if weights are equal.
    """
    by_kind: defaultdict[Group, list[TaskInfo]] = defaultdict(list)
    for kind, info in zip(map(itemgetter(0, 1), map(ID, orphans)), orphans, strict=True):
        by_kind[kind].append(info)
    for tasks in by_kind.values():
        tasks.sort(key=WEIGHT, reverse=True)
        # Sort by id only if weights are equal, because comparing ids takes ten times as long.
        weights = list(map(WEIGHT, tasks))
        if any(map(eq, weights, islice(weights, 1, None))):
            tasks[:] = chain.from_iterable(
                sorted(same, key=ID) for _, same in groupby(tasks, key=WEIGHT)
            )
    return sorted(by_kind.values(), key=lambda tasks: (-tasks[0].weight, tasks[0].id))


def _free_slots(draft: DraftAssignment, orphans: int) -> tuple[list[int], int]:
    """Return each driver's room, the number of tasks that it should receive.

    Also return the number of drivers that receive one task more than that.
    """
    rooms = [max(0, draft.least - count) for count in draft.counts]
    extras = orphans - sum(rooms)
    return (rooms, extras) if extras >= 0 else (_emptiest(draft, orphans), 0)


def _one_more(draft: DraftAssignment, extras: int) -> list[int]:
    """Return the drivers with the lowest loads that may have one task more than ``least``."""
    counts = map(len, draft.given)
    row = [d for d, count in enumerate(counts) if max(count, draft.least) < draft.most]
    row.sort(key=draft.loads.__getitem__)
    racks = draft.racks()
    return (_alternate(row, racks) if racks else row)[:extras]


def _blocks(rooms: Sequence[int], kinds: Iterable[Sequence[TaskInfo]]) -> Iterator[dict[int, int]]:
    """Yield blocks of consecutive rows, as the number of tasks that each driver gets in a block.

    A row gives each driver at most one task. ``rooms`` are the numbers of tasks that the drivers
    can receive. The driver with the largest room gets a task in every row, and the tasks of other
    drivers are spread evenly over the rows. All tasks of a block have one kind, but a row with
    tasks of several kinds is a separate block.
    """
    rows = max(rooms)
    if not rows:
        return
    ends = list(accumulate(map(len, kinds)))
    sizes = Counter(rooms).items()
    starts = [sum(n * (room * row // rows) for room, n in sizes) for row in range(rows + 1)]
    for _, block in groupby(
        range(rows),
        lambda row: (bisect_right(ends, starts[row]), bisect_left(ends, starts[row + 1])),
    ):
        first, *others = block
        end = max(others, default=first) + 1
        given = [room * end // rows - room * first // rows for room in rooms]
        yield {driver: room for driver, room in enumerate(given) if room}


def _level(draft: DraftAssignment, rooms: Mapping[int, int], tasks: list[TaskInfo]) -> None:
    """Distribute tasks, heaviest first, to the drivers with the lowest loads.

    In each turn, a driver gets one task unless its load exceeds the load that the least loaded
    driver will have after the turn. A driver with a very heavy task is therefore left out until the
    others have caught up, and gets the lightest tasks.
    """
    given, loads = draft.given, draft.loads
    racks = draft.racks()
    limits = {driver: len(given[driver]) + room for driver, room in rooms.items()}
    drivers = list(rooms)
    tasks.sort(key=WEIGHT, reverse=True)
    start = 0
    while start < len(tasks):
        # No driver is full before these turns have ended.
        for _ in range(min(limits[driver] - len(given[driver]) for driver in drivers)):
            drivers.sort(key=loads.__getitem__)
            reach = loads[drivers[0]] + tasks[start][2]
            fit = bisect_right(drivers, reach, key=loads.__getitem__)
            turn = drivers[: max(fit, ceil(len(drivers) / _ONE_IN))]
            turn = _alternate(turn, racks) if racks else turn
            for driver, info in zip(turn, tasks[start : start + len(turn)], strict=True):
                given[driver].append(info)
                loads[driver] += info[2]
            start += len(turn)
        drivers = [driver for driver in drivers if len(given[driver]) < limits[driver]]


def _emptiest(draft: DraftAssignment, orphans: int) -> list[int]:
    """Return each driver's number of orphans if they cannot fill all drivers to the minimum count.

    The orphans are too few if some drivers have more tasks than the minimum. Drivers with the
    fewest tasks are filled first.
    """
    rooms = [0] * len(draft.counts)
    fill = [(count, driver) for driver, count in enumerate(draft.counts) if count < draft.least]
    heapify(fill)
    for _ in range(orphans):
        level, driver = fill[0]
        rooms[driver] += 1
        if draft.counts[driver] + rooms[driver] < draft.least:
            heapreplace(fill, (level + 1, driver))
        else:
            heappop(fill)
    return rooms


def _alternate(row: list[int], racks: Sequence[str]) -> list[int]:
    """Return the drivers in their order, but alternate between racks."""
    seen: dict[str, int] = {}
    turns = []
    for driver in row:
        turn = seen.get(racks[driver], 0)
        seen[racks[driver]] = turn + 1
        turns.append((turn, driver))
    turns.sort(key=lambda item: item[0])
    return [driver for _, driver in turns]


class StickyAssignor(TaskAssignor):
    """Default assignor, with goals in a fixed order.

    1. Complete: every task has a driver at once.
    2. Balanced: counts differ by at most one, and loads are within 10 % of the mean.
    3. Spread: the tasks of each flow are spread over racks and drivers.
    4. Near: tasks run in racks with replicas of their partitions.
    5. Sticky: as few tasks as possible move.

    A running task moves only in a balance round, for goals 2 to 4. A round moves at most a share of
    a flow's tasks (its movement budget), and there is at most one round a minute. If another round
    is needed, ``TaskAssignment.follow_up_ms`` contains its time. A task without a driver moves to a
    standby if the counts allow it, and never waits for a budget. No move waits for the new driver
    to catch up (KIP-441's warm-up), because restoring an offset takes only a moment.
    """

    def assign(self, state: ApplicationState) -> TaskAssignment:
        if not state.drivers:
            return TaskAssignment({}, waiting=frozenset(state.tasks))

        # Base sets: the tasks of each driver, and the orphans, which have no driver.
        draft = DraftAssignment(state)

        # Decisions: first the orphans, then moves towards the limits, as far as allowed now.
        assign_to_standbys(draft, _holders(draft))
        assign_unowned(draft)
        due_ms = state.now_ms
        if state.last_balance_ms is not None:
            due_ms = max(due_ms, state.last_balance_ms + state.config.balance_interval_ms)
        reached, moves = _improve(draft, due=due_ms == state.now_ms)

        active = dict(zip(draft.names, draft.result(), strict=True))
        standby = place_standbys(state, active)

        follow_ups = []
        if not reached and due_ms > state.now_ms:
            follow_ups.append(due_ms)
        # without unassigned or moved tasks, the next result would be the same
        elif not reached and (draft.unassigned or draft.moved):
            follow_ups.append(state.now_ms + state.config.balance_interval_ms)
        return TaskAssignment(
            {name: DriverAssignment(active[name], standby[name]) for name in draft.names},
            follow_up_ms=min(follow_ups, default=None),
            balanced=moves > 0,
        )


def _holders(draft: DraftAssignment) -> dict[TaskId, list[int]]:
    """Return the drivers that have a standby of each orphan."""
    holders: dict[TaskId, list[int]] = {}
    for number, driver in enumerate(draft.drivers):
        for task in driver.standby & draft.unassigned:
            holders.setdefault(task, []).append(number)
    return holders


def _improve(draft: DraftAssignment, due: bool) -> tuple[bool, int]:
    """Move tasks towards the limits, as far as the allowance permits.

    Return whether the limits are reached, and the number of moves that were not free.
    """
    allowance = Allowance(draft, due)
    balance = Balance(draft, allowance)
    if not balance.is_reached and not allowance.is_empty:
        even_counts(balance)
        if draft.unassigned:
            # Unassigned tasks come first. Usually a driver was lost, so nothing else moves now.
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
