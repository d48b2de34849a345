"""Where tasks without a driver go."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from itertools import chain

from headrace.assign.ids import TaskId
from headrace.assign.plan import WEIGHT, Plan, group
from headrace.assign.state import TaskInfo


def take_over(plan: Plan, holders: Mapping[TaskId, Sequence[int]]) -> None:
    """Give orphans to the drivers that hold them restored, best first, while counts allow."""
    extras = _extras(plan)
    rest = []
    for info in plan.orphans:
        for driver in holders.get(info.id, ()):
            count = plan.counts[driver]
            if count < plan.least[driver] or (count < plan.most[driver] and extras > 0):
                extras -= count >= plan.least[driver]
                _give(plan, driver, info)
                break
        else:
            rest.append(info)
    plan.orphans = rest


def _extras(plan: Plan) -> int:
    """How many drivers may still get one task more than their least."""
    return len(plan.state.tasks) - sum(map(max, plan.least, plan.counts))


def _give(plan: Plan, driver: int, info: TaskInfo) -> None:
    plan.given[driver].append(info)
    plan.counts[driver] += 1
    plan.loads[driver] += info.weight / plan.capacities[driver]
    plan.untouched.discard(driver)


def deal(plan: Plan) -> None:
    """Deal the orphans: in rows of one for each driver that has room, heaviest to the lightest.

    The counts come out right by that alone. Kinds are dealt one after the other, so that the tasks
    of a flow land on different drivers, and where racks are known, on different racks.
    """
    queue = _heavy_first(plan.orphans)
    racks = plan.racks()
    given, loads, capacities = plan.given, plan.loads, plan.capacities
    start = 0
    for row in _rows(plan, len(queue)):
        row.sort(key=loads.__getitem__)
        turns = _alternate(row, racks) if racks else row
        batch = queue[start : start + len(row)]
        batch.sort(key=WEIGHT, reverse=True)
        start += len(row)
        for driver, info in zip(turns, batch, strict=False):
            given[driver].append(info)
            loads[driver] += info[2] / capacities[driver]
        plan.untouched.difference_update(row)
    plan.orphans = []
    plan.counts = list(map(len, given))


def _heavy_first(orphans: Sequence[TaskInfo]) -> list[TaskInfo]:
    """By kind, the kind with the heaviest task first; in each by weight; equal ones by id."""
    kinds = []
    start = 0
    while start < len(orphans):
        kind = group(orphans[start].id)
        end = bisect_right(orphans, kind, lo=start, key=lambda info: group(info.id))
        kinds.append(sorted(orphans[start:end], key=WEIGHT, reverse=True))
        start = end
    kinds.sort(key=lambda tasks: (-tasks[0].weight, tasks[0].id))
    return list(chain.from_iterable(kinds))


def _rows(plan: Plan, orphans: int) -> Iterator[list[int]]:
    """Which drivers get one task, turn by turn; the last row is as long as it needs to be."""
    rooms = [max(0, least - count) for least, count in zip(plan.least, plan.counts, strict=True)]
    extras = orphans - sum(rooms)
    if extras < 0:
        rooms = _emptiest(plan, orphans)
    # The larger the room, the more rows; evenly over all of them, as later ones are lighter.
    rows = max(rooms, default=0)
    always = [driver for driver, room in enumerate(rooms) if room == rows]
    at_times = [(driver, room) for driver, room in enumerate(rooms) if 0 < room < rows]
    for row in range(rows):
        yield always + [d for d, room in at_times if (row + 1) * room // rows > row * room // rows]
    if extras > 0:
        one_more = [
            d for d, count in enumerate(plan.counts) if max(count, plan.least[d]) < plan.most[d]
        ]
        one_more.sort(key=plan.loads.__getitem__)
        racks = plan.racks()
        yield (_alternate(one_more, racks) if racks else one_more)[:extras]


def _emptiest(plan: Plan, orphans: int) -> list[int]:
    """Rooms when there are fewer orphans than room: others have too many. The emptiest fill up."""
    rooms = [0] * len(plan.counts)
    fill = [
        ((count + 0.5) / plan.capacities[driver], driver)
        for driver, count in enumerate(plan.counts)
        if count < plan.least[driver]
    ]
    heapify(fill)
    for _ in range(orphans):
        level, driver = fill[0]
        rooms[driver] += 1
        if plan.counts[driver] + rooms[driver] < plan.least[driver]:
            heapreplace(fill, (level + 1 / plan.capacities[driver], driver))
        else:
            heappop(fill)
    return rooms


def _alternate(row: list[int], racks: Sequence[str]) -> list[int]:
    """The lightest driver of each rack, then the second of each, and so on."""
    seen: dict[str, int] = {}
    turns = []
    for driver in row:
        turn = seen.get(racks[driver], 0)
        seen[racks[driver]] = turn + 1
        turns.append((turn, driver))
    turns.sort(key=lambda item: item[0])
    return [driver for _, driver in turns]
