"""Movers that keep their lanes, so that a test can end them as a killed process does."""

from collections.abc import Callable
from typing import Any

from headrace.assign import TaskId
from headrace.datapath import BatchMover, CopiedCounts
from headrace.datapath.mover import BatchLane


class KeepingMover(BatchMover):
    """Mover that keeps its lanes, also as a mixin of another mover."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.lanes: list[BatchLane] = []

    def lane(
        self, task: TaskId, on_error: Callable[[str], None], copied: CopiedCounts
    ) -> BatchLane:
        lane = super().lane(task, on_error, copied)
        self.lanes.append(lane)
        return lane


class KeptLanes:
    """Argument ``make_mover`` of one scene, which ends all lanes of its mover."""

    def __init__(self, make: Callable[[Callable[[str], str]], KeepingMover]) -> None:
        """``make`` creates the mover, and receives the function that names a target's topic."""
        self._make = make
        self._movers: list[KeepingMover] = []

    def __call__(
        self, _: object, __: object, ___: object, target_topic: Callable[[str], str], ____: object
    ) -> KeepingMover:
        mover = self._make(target_topic)
        self._movers.append(mover)
        return mover

    def abandon(self, within_s: float) -> None:
        """Close all connections at once. Requests in flight may still reach a broker."""
        for mover in self._movers:
            for lane in mover.lanes:
                assert lane.abandon(within_s)
