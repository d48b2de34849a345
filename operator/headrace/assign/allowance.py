"""What a round may move for balance."""

from collections import Counter
from functools import cached_property

from headrace.assign.draft import DraftAssignment, Shelf
from headrace.assign.state import TaskInfo


class Allowance:
    """A share of each flow's tasks, and that only when a balance round is due.

    Tasks that nobody runs yet and tasks that are on the move anyway are free; pinned ones stay. A
    round that has moved nothing may swap two tasks, however small the share: where the counts are
    even, nothing but a swap can even the weights.
    """

    def __init__(self, draft: DraftAssignment, due: bool) -> None:
        self.spent = 0
        """Tasks that move for nothing but balance."""
        self._draft = draft
        self._due = due

    @cached_property
    def _left(self) -> dict[str, int]:
        """How many more tasks of each flow may move."""
        if not self._due:
            return {}
        state = self._draft.state
        return {
            flow: max(1, int(budget * tasks)) if budget else 0
            for flow, tasks in Counter(task[0] for task in state.tasks).items()
            for budget in [state.flow(flow).movement_budget]
        }

    @property
    def is_used_up(self) -> bool:
        """Whether no task may move that is not free."""
        return not any(left > 0 for left in self._left.values())

    @property
    def is_empty(self) -> bool:
        """Whether nothing may move."""
        return self.is_used_up and not self._draft.unassigned and not self._draft.moved

    def close(self) -> None:
        """From now on, only what is free may move."""
        self._left = {}

    def movable(self, shelf: Shelf) -> Shelf:
        """Those of some tasks that may move, in the same order."""
        if len(self._draft.unassigned) == len(self._draft.state.tasks):
            return shelf
        return [item for item in shelf if self.covers(item[1])]

    def covers(self, task: TaskInfo) -> bool:
        """Whether a task may move."""
        if task.id in self._draft.state.pinned:
            return False
        return self._is_free(task) or self._left.get(task.id.flow, 0) > 0

    def covers_both(self, one: TaskInfo, other: TaskInfo) -> bool:
        """Whether two tasks may move together."""
        if one.id.flow != other.id.flow or self._is_free(one) or self._is_free(other):
            return self.covers(one) and self.covers(other)
        left = self._left.get(one.id.flow, 0)
        return left > 1 or (left == 1 and not self.spent)

    def spend(self, task: TaskInfo) -> bool:
        """A task is about to move; whether that costs anything."""
        if self._is_free(task):
            return False
        self._left[task.id.flow] -= 1
        self.spent += 1
        return True

    def refund(self, task: TaskInfo) -> None:
        """A move that cost something was taken back."""
        self._left[task.id.flow] += 1
        self.spent -= 1

    def _is_free(self, task: TaskInfo) -> bool:
        return task.id in self._draft.unassigned or task.id in self._draft.moved
