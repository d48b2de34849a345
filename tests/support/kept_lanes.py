"""Movers that keep their lanes, so that a test can end them as a killed process does."""

from collections.abc import Callable
from typing import Any

from headrace.assign import TaskId
from headrace.datapath import BatchMover, CopiedCounts
from headrace.datapath.clients import MakeMover
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
    """Lanes of scenes that follow each other. Owners of earlier scenes may still run."""

    def __init__(self, make: Callable[[Callable[[str], str]], KeepingMover]) -> None:
        """``make`` creates a mover, and receives the function that names a target's topic."""
        self._make = make
        self._scenes: list[list[KeepingMover]] = []
        """Movers of each scene."""

    def next_scene(self) -> MakeMover:
        """Return the argument ``make_mover`` of the next scene."""
        movers: list[KeepingMover] = []
        self._scenes.append(movers)

        def make_mover(
            _: object, __: object, ___: object, target_topic: Callable[[str], str], ____: object
        ) -> KeepingMover:
            movers.append(self._make(target_topic))
            return movers[-1]

        return make_mover

    def abandon(self, within_s: float) -> None:
        """Close all connections of the last scene, whose requests may still reach a broker."""
        self._abandon(self._scenes[-1:], within_s)

    def close(self, within_s: float) -> None:
        """Close all connections of all scenes."""
        self._abandon(self._scenes, within_s)

    def _abandon(self, scenes: list[list[KeepingMover]], within_s: float) -> None:
        for movers in scenes:
            for mover in movers:
                for lane in mover.lanes:
                    assert lane.abandon(within_s)
