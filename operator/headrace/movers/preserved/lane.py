"""One task's share of the batch mover where copies have their sources' offsets."""

from collections.abc import Callable, Set
from functools import partial

from headrace.api import TopicPartition
from headrace.assign import TaskId
from headrace.errors import Fatal
from headrace.movers.batch.lane import BatchLane
from headrace.movers.batch.lane_resources import LaneResources
from headrace.movers.batch.loop_thread import LoopThread
from headrace.movers.lane import CopiedCounts, CopyFrom
from headrace.movers.preserved.openings import Openings
from headrace.movers.preserved.pipeline import PreservedPipeline
from headrace.replication import OwnerProducer


class PreservedLane(BatchLane):
    """Lane with preserved offsets. One writer opens all its partitions and fills their gaps."""

    _pipeline: PreservedPipeline

    def __init__(
        self,
        resources: LaneResources,
        openings: Openings,
        task: TaskId,
        on_error: Callable[[str], None],
        copied: CopiedCounts,
    ) -> None:
        """Create a lane; the arguments are the ones of ``Mover.lane``."""
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
        """Do nothing: the producer of data belongs to its partition."""

    def leave(self, partitions: Set[TopicPartition]) -> None:
        """Leave partitions without waiting for a long gap."""
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
        """Drop unsent data; the next takeover uses a higher epoch."""
        if self._writer is not None:
            self._openings.close(self._writer)
        super().drop_unsent()
