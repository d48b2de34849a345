"""Moves by which fewer partitions are read from another rack, within the bounds of balance.

KIP-925's optimum (``rack_aware``) keeps counts only, and takes O(bins³) a step. This keeps weights,
the spread over racks and the movement budget too, and is greedy: the largest saving first.
"""

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import permutations

from headrace.assign.draft import Group, group
from headrace.assign.ids import TaskId
from headrace.assign.racks import RackSpread
from headrace.assign.state import TaskInfo

_NEIGHBOURS = 8
"""Tasks of one saving that are tried in exchange, on either side of the same weight."""
_DRIVERS = 8
"""Drivers of a rack that are tried."""

_Shelves = defaultdict[int, list[tuple[float, TaskInfo]]]
"""By what a task saves when it moves, the tasks by weight."""


def read_nearby(spread: RackSpread) -> None:
    """Exchange tasks between racks as long as that saves reads from another rack."""
    if any(info.racks for info in spread.draft.state.tasks.values()):
        _Nearby(spread).improve()


class _Nearby:
    def __init__(self, spread: RackSpread) -> None:
        self._spread, self._balance, self._draft = spread, spread.balance, spread.draft
        self._racks = spread.racks
        self._readable: dict[TaskId, Counter[str]] = {}
        """Of each task, how many partitions can be read in each rack."""
        self._driver: dict[TaskId, int] = {}
        self._in_rack: defaultdict[str, list[int]] = defaultdict(list)
        for driver, rack in enumerate(self._racks):
            self._in_rack[rack].append(driver)
            for _, info in self._draft.shelf(driver):
                if info.racks:
                    self._driver[info.id] = driver
                    self._readable[info.id] = Counter(r for racks in info.racks for r in racks)

    def improve(self) -> None:
        moved = True
        while moved:
            moved = False
            for here, there in permutations(sorted(self._in_rack), 2):
                moved |= self._between(here, there)

    def _between(self, here: str, there: str) -> bool:
        """Move tasks of one rack to another, each in exchange for one of its kind, or alone where
        counts allow it; whether any moved."""
        candidates = sorted(
            (-saving, info.weight, info)
            for info in self._of(here)
            if (saving := self._saving(info, here, there)) > 0
        )
        if not candidates:
            return False
        offered: defaultdict[Group, _Shelves] = defaultdict(lambda: defaultdict(list))
        for info in self._of(there):
            insort(offered[group(info.id)][self._saving(info, there, here)], (info.weight, info))
        moved = False
        for negative, _, info in candidates:
            moved |= self._exchange(info, -negative, offered[group(info.id)]) or self._move(
                info, there
            )
        return moved

    def _of(self, rack: str) -> Iterator[TaskInfo]:
        """The tasks there that may move."""
        for driver in self._in_rack[rack]:
            for _, info in self._draft.shelf(driver):
                if info.racks and self._balance.allowance.covers(info):
                    yield info

    def _saving(self, info: TaskInfo, here: str, there: str) -> int:
        """How many partitions fewer are read from another rack after a move."""
        readable = self._readable[info.id]
        return readable[there] - readable[here]

    def _exchange(self, info: TaskInfo, saving: int, offered: _Shelves) -> bool:
        if not self._balance.allowance.covers(info):
            return False
        donor = self._driver[info.id]
        for back in sorted(offered, reverse=True):
            if saving + back <= 0:
                return False
            shelf = offered[back]
            middle = bisect_left(shelf, info.weight, key=lambda item: item[0])
            near = shelf[max(0, middle - _NEIGHBOURS) : middle + _NEIGHBOURS]
            for weight, other in sorted(near, key=lambda item: abs(item[0] - info.weight)):
                receiver = self._driver[other.id]
                if self._balance.allowance.covers_both(info, other) and self._balance.stays_even(
                    donor, receiver, info.weight - weight
                ):
                    shelf.remove((weight, other))
                    self._carry(info, receiver)
                    self._carry(other, donor)
                    return True
        return False

    def _move(self, info: TaskInfo, there: str) -> bool:
        """Without another in exchange."""
        draft, donor = self._draft, self._driver[info.id]
        if draft.counts[donor] <= draft.least or not self._balance.allowance.covers(info):
            return False
        for receiver in sorted(self._in_rack[there], key=draft.loads.__getitem__)[:_DRIVERS]:
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
