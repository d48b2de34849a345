"""A draft on its way to balance: what its bounds are, and moves that can be taken back."""

from bisect import bisect_left
from collections.abc import Iterator

from headrace.assign.allowance import Allowance
from headrace.assign.draft import DraftAssignment
from headrace.assign.state import TaskInfo

_NEIGHBOURS = 32
"""Tasks considered on either side of the weight that would be best."""


class Balance:
    """Moves tasks of a draft, as far as they are allowed to."""

    def __init__(self, draft: DraftAssignment, allowance: Allowance) -> None:
        self.draft = draft
        self.allowance = allowance
        self.fair = draft.fair_loads()
        """The load that each driver should have."""
        self.drivers = range(len(self.fair))
        self._tolerance = draft.state.config.tolerance
        self._rounding = 1e-9 * draft.weight / len(draft.drivers)
        self._journal: list[tuple[TaskInfo, int, int, bool]] = []

    @property
    def is_reached(self) -> bool:
        """Whether counts and weights are within their bounds."""
        draft = self.draft
        is_even = all(draft.least <= count <= draft.most for count in draft.counts)
        return is_even and not any(map(self.is_off, self.drivers))

    def excess(self, driver: int) -> float:
        """By how much a driver's load is above what it should be; negative when below."""
        return self.draft.loads[driver] - self.fair[driver]

    def is_off(self, driver: int) -> bool:
        """Whether a driver's load is further off than is tolerated."""
        return abs(self.excess(driver)) > self.tolerated(driver) + self._rounding

    def tolerated(self, driver: int) -> float:
        """How far off a driver's load may be."""
        return self._tolerance * self.fair[driver]

    def stays_even(self, donor: int, receiver: int, shift: float) -> bool:
        """Whether both stay within the tolerance, or at least come no further from the mean, when
        the donor gives so much weight to the receiver."""
        for driver, change in (donor, -shift), (receiver, shift):
            before = self.excess(driver)
            after = before + change
            if abs(after) > max(self.tolerated(driver), abs(before)):
                return False
        return True

    def movable_near(self, driver: int, weight: float) -> Iterator[TaskInfo]:
        """Some tasks of a driver that may move: those next to a weight, on either side."""
        shelf = self.draft.shelf(driver)
        middle = bisect_left(shelf, weight, key=lambda item: item[0])
        for side in range(middle, len(shelf)), range(middle - 1, -1, -1):
            found = 0
            for place in side:
                info = shelf[place][1]
                if self.allowance.covers(info):
                    yield info
                    found += 1
                    if found == _NEIGHBOURS:
                        break

    def move(self, info: TaskInfo, source: int, target: int) -> None:
        """Move a task, at the cost of the allowance."""
        self._journal.append((info, source, target, self.allowance.spend(info)))
        self._carry(info, source, target)

    @property
    def moves(self) -> int:
        """How many there were; the argument of ``undo``."""
        return len(self._journal)

    def undo(self, since: int) -> None:
        """Take back all moves but the first ``since``."""
        for info, source, target, cost in reversed(self._journal[since:]):
            self._carry(info, target, source)
            if cost:
                self.allowance.refund(info)
        del self._journal[since:]

    def _carry(self, info: TaskInfo, source: int, target: int) -> None:
        self.draft.move(info, source, target)
        if info.weight >= min(self.fair):
            self.fair = self.draft.fair_loads()
