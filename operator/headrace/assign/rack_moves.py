"""Moves that spread flows over racks, and moves that reduce traffic between racks.

The optimum of KIP-925 (``rack_aware``) respects only counts, and each of its steps takes O(bins³).
These moves also respect weights, the spread over racks and the movement budget. They are greedy:
the largest saving comes first.
"""

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import permutations
from math import ceil

from headrace.assign.assignor import TaskId, TaskInfo
from headrace.assign.draft import Balance, Group, group

_DRIVERS = 8
"""Number of drivers to try in each of the two racks of a move."""


class RackSpread:
    """Moves tasks until no rack has more of a flow's tasks than its share.

    The share is in proportion to the rack's drivers. It is rounded up or increased by the
    tolerance, whichever is more.
    """

    def __init__(self, balance: Balance, racks: list[str]) -> None:
        self.balance = balance
        self.draft = balance.draft
        self.racks = racks
        self._in_rack: dict[str, list[int]] = {}
        for driver, rack in enumerate(racks):
            self._in_rack.setdefault(rack, []).append(driver)
        self._held: dict[str, Counter[str]] = {}
        """Number of tasks by flow and rack."""
        for driver, rack in enumerate(racks):
            for (flow, _), count in self.draft.groups(driver).items():
                self._held.setdefault(flow, Counter())[rack] += count
        tolerance = 1 + self.draft.state.config.tolerance
        self._most: dict[tuple[str, str], int] = {}
        for flow, held in self._held.items():
            for rack, drivers in self._in_rack.items():
                share = held.total() * len(drivers) / len(racks)
                self._most[flow, rack] = max(ceil(share - 1e-9), int(share * tolerance))

    @property
    def is_reached(self) -> bool:
        """True if no rack has too many tasks of a flow."""
        return next(self._crowded(), None) is None

    def spread(self) -> None:
        """Move or swap tasks out of racks that have too many tasks of a flow."""
        stuck: set[tuple[str, str]] = set()
        while crowded := next((c for c in self._crowded() if c not in stuck), None):
            if not self._relieve(*crowded):
                stuck.add(crowded)

    def _crowded(self) -> Iterator[tuple[str, str]]:
        for flow, rack in sorted(self._most):
            if self._held[flow][rack] > self._most[flow, rack]:
                yield flow, rack

    def _relieve(self, flow: str, rack: str) -> bool:
        """Move one task of a flow out of a rack. Return False if no move is possible."""
        loads = self.draft.loads
        held = self._held[flow]
        donors = [
            driver
            for driver in sorted(self._in_rack[rack], key=lambda d: (-loads[d], d))
            if any(kind[0] == flow for kind in +self.draft.groups(driver))
        ]
        roomy = [other for other in self._in_rack if held[other] < self._most[flow, other]]
        for other in sorted(roomy, key=lambda r: (held[r] / len(self._in_rack[r]), r)):
            receivers = sorted(self._in_rack[other], key=lambda d: (loads[d], d))
            for donor in donors[:_DRIVERS]:
                for receiver in receivers[:_DRIVERS]:
                    if self._exchange(flow, donor, receiver):
                        return True
        return False

    def _exchange(self, flow: str, donor: int, receiver: int) -> bool:
        """Move a task of ``flow``, or swap it with a task of another flow.

        Return False if neither is possible.
        """
        draft, allowance = self.draft, self.balance.allowance
        gone = [
            info
            for _, info in draft.tasks_by_weight(donor)
            if info.id.flow == flow and allowance.covers(info)
        ]
        if draft.counts[donor] > draft.least and draft.counts[receiver] < draft.most:
            middle = (draft.loads[donor] - draft.loads[receiver]) / 2
            fits = (i for i in gone if self.balance.stays_even(donor, receiver, i.weight))
            single = min(fits, key=lambda i: (abs(i.weight - middle), i.id), default=None)
            if single:
                self.move(single, donor, receiver)
                return True
        back = self.racks[donor]
        come = [
            info
            for _, info in draft.tasks_by_weight(receiver)
            if info.id.flow != flow
            and self._held[info.id.flow][back] < self._most[info.id.flow, back]
            and allowance.covers(info)
        ]
        pair = min(
            ((one, other) for one in gone for other in come if allowance.covers_both(one, other)),
            key=lambda two: (abs(two[0].weight - two[1].weight), two[0].id, two[1].id),
            default=None,
        )
        if pair is None or not self.balance.stays_even(
            donor, receiver, pair[0].weight - pair[1].weight
        ):
            return False
        self.move(pair[0], donor, receiver)
        self.move(pair[1], receiver, donor)
        return True

    def takes(self, info: TaskInfo, source: int, target: int) -> bool:
        """Return True if the move is within a rack, or to a rack with room for the flow's task."""
        flow, rack = info.id.flow, self.racks[target]
        return rack == self.racks[source] or self._held[flow][rack] < self._most[flow, rack]

    def move(self, info: TaskInfo, source: int, target: int) -> None:
        """Move a task and update the counts."""
        self.balance.move(info, source, target)
        self._held[info.id.flow][self.racks[source]] -= 1
        self._held[info.id.flow][self.racks[target]] += 1


_NEIGHBOURS = 8
"""Number of lighter tasks to try as swap partners, and number of equal or heavier ones.

Tasks are grouped by their saving (``_TasksBySaving``). Both numbers apply to each group.
"""

_TasksBySaving = defaultdict[int, list[tuple[float, TaskInfo]]]
"""Tasks with their weights, by the saving of a move to the other rack.

The saving is the number of the task's partitions that have a replica in the other rack, minus the
number that have one in the current rack.
"""


def read_nearby(spread: RackSpread) -> None:
    """Exchange tasks between racks as long as that reduces reads from other racks."""
    if any(info.racks for info in spread.draft.state.tasks.values()):
        _Nearby(spread).improve()


class _Nearby:
    def __init__(self, spread: RackSpread) -> None:
        self._spread, self._balance, self._draft = spread, spread.balance, spread.draft
        self._racks = spread.racks
        self._readable: dict[TaskId, Counter[str]] = {}
        """Number of a task's partitions with a replica in each rack."""
        self._driver: dict[TaskId, int] = {}
        self._in_rack: defaultdict[str, list[int]] = defaultdict(list)
        for driver, rack in enumerate(self._racks):
            self._in_rack[rack].append(driver)
            for _, info in self._draft.tasks_by_weight(driver):
                if info.racks:
                    self._driver[info.id] = driver
                    self._readable[info.id] = Counter(r for racks in info.racks for r in racks)

    def improve(self) -> None:
        moved = True
        while moved:
            moved = False
            for here, there in permutations(sorted(self._in_rack), 2):
                moved |= self._between(here, there)

    def _between(self, from_rack: str, to_rack: str) -> bool:
        """Move tasks from one rack to another, and return True if any moved.

        Each task is swapped with a task of the same flow and type, or moves alone if the counts
        allow it.
        """
        candidates = sorted(
            (-saving, info.weight, info)
            for info in self._of(from_rack)
            if (saving := self._saving(info, from_rack, to_rack)) > 0
        )
        if not candidates:
            return False
        offered: defaultdict[Group, _TasksBySaving] = defaultdict(lambda: defaultdict(list))
        for info in self._of(to_rack):
            insort(
                offered[group(info.id)][self._saving(info, to_rack, from_rack)], (info.weight, info)
            )
        moved = False
        for negative, _, info in candidates:
            moved |= self._exchange(info, -negative, offered[group(info.id)]) or self._move(
                info, to_rack
            )
        return moved

    def _of(self, rack: str) -> Iterator[TaskInfo]:
        """Yield the movable tasks in a rack."""
        for driver in self._in_rack[rack]:
            for _, info in self._draft.tasks_by_weight(driver):
                if info.racks and self._balance.allowance.covers(info):
                    yield info

    def _saving(self, info: TaskInfo, from_rack: str, to_rack: str) -> int:
        """Return the saving of a move, as in ``_TasksBySaving``."""
        readable = self._readable[info.id]
        return readable[to_rack] - readable[from_rack]

    def _exchange(self, info: TaskInfo, saving: int, offered: _TasksBySaving) -> bool:
        if not self._balance.allowance.covers(info):
            return False
        donor = self._driver[info.id]
        for back in sorted(offered, reverse=True):
            if saving + back <= 0:
                return False
            tasks = offered[back]
            middle = bisect_left(tasks, info.weight, key=lambda item: item[0])
            near = tasks[max(0, middle - _NEIGHBOURS) : middle + _NEIGHBOURS]
            for weight, other in sorted(near, key=lambda item: abs(item[0] - info.weight)):
                receiver = self._driver[other.id]
                if self._balance.allowance.covers_both(info, other) and self._balance.stays_even(
                    donor, receiver, info.weight - weight
                ):
                    tasks.remove((weight, other))
                    self._carry(info, receiver)
                    self._carry(other, donor)
                    return True
        return False

    def _move(self, info: TaskInfo, to_rack: str) -> bool:
        """Move a task without a swap. Return False if no move is possible."""
        draft, donor = self._draft, self._driver[info.id]
        if draft.counts[donor] <= draft.least or not self._balance.allowance.covers(info):
            return False
        for receiver in sorted(self._in_rack[to_rack], key=draft.loads.__getitem__)[:_DRIVERS]:
            if (
                draft.counts[receiver] < draft.most
                and self._spread.takes(info, donor, receiver)
                and self._balance.stays_even(donor, receiver, info.weight)
            ):
                self._carry(info, receiver)
                return True
        return False

    def _carry(self, info: TaskInfo, target: int) -> None:
        self._spread.move(info, self._driver[info.id], target)
        self._driver[info.id] = target
