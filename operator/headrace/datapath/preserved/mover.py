"""Mover and lanes of a flow with preserved offsets."""

from collections.abc import Callable, Set
from functools import partial
from typing import Any

from headrace.api import ClusterAccess, TopicPartition
from headrace.assign import TaskId
from headrace.datapath.lane import CopiedCounts, CopyFrom
from headrace.datapath.mover import BatchLane, BatchMover
from headrace.datapath.preserved.owner import Openings
from headrace.datapath.preserved.takeover import PreservedFencing
from headrace.datapath.preserved.writer import PreservedPipeline
from headrace.datapath.resources import LaneResources, LoopThread
from headrace.errors import Fatal
from headrace.replication import OwnerProducer


class PreservedLane(BatchLane):
    """Lane with preserved offsets. One writer opens all its partitions and fills their holes."""

    _pipeline: PreservedPipeline

    def __init__(
        self,
        resources: LaneResources,
        openings: Openings,
        task: TaskId,
        on_error: Callable[[str], None],
        copied: CopiedCounts,
    ) -> None:
        """Create a lane. ``Mover.lane`` describes most arguments."""
        self._openings = openings
        self._writer: OwnerProducer | None = None
        super().__init__(resources, task, on_error, copied)

    def _make_pipeline(self, thread: LoopThread) -> PreservedPipeline:
        return PreservedPipeline(self._resources, self._state, thread)

    def _open(self, at: TopicPartition, target: TopicPartition, position: CopyFrom) -> None:
        if position.writer is None:
            raise Fatal(f"internal error: {at} would be copied without a transactional id")
        opening = self._openings.begin(position.writer, target)
        if position.offset != opening.end.offset:
            raise Fatal(
                f"internal error: {at} would be copied from {position.offset} to "
                f"{opening.end.offset}"
            )
        self._writer = position.writer
        self._state.open(at, target, position)
        self._post(partial(self._pipeline.write_from, target, opening))

    def _write_as(self, target: TopicPartition, writer: OwnerProducer) -> None:
        """Do nothing, because data are written with the partition's producer id."""

    def leave(self, partitions: Set[TopicPartition]) -> None:
        """Leave partitions without waiting for a long hole to be filled."""
        with self._state.lock:
            for at in partitions - self._state.leaving:
                self._post(partial(self._pipeline.leave, at))
            super().leave(partitions)

    def forget(self, partitions: Set[TopicPartition]) -> None:
        with self._state.lock:
            for at in partitions:
                self._post(partial(self._pipeline.forget, self._state.windows[at].target))
            super().forget(partitions)

    def drop_unsent(self) -> None:
        """Drop unsent data, and end the use of this lane's writer."""
        if self._writer is not None:
            self._openings.close(self._writer)
        super().drop_unsent()


class PreservedMover(BatchMover):
    """Mover that preserves the source's offsets."""

    def __init__(
        self,
        source: ClusterAccess,
        target: ClusterAccess,
        target_topic: Callable[[str], str],
        *more: Any,
        **named: Any,
    ) -> None:
        super().__init__(source, target, target_topic, *more, **named)
        self._openings = Openings()
        self.fencing = PreservedFencing(source, target, self._openings, self.fencing.impossible)

    def lane(
        self, task: TaskId, on_error: Callable[[str], None], copied: CopiedCounts
    ) -> PreservedLane:
        return PreservedLane(self._resources, self._openings, task, on_error, copied)
