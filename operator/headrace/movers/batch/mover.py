"""The batch mover of one flow."""

from collections.abc import Callable

from headrace.api import ClusterAccess
from headrace.api.client_settings import AS_ON_SOURCE, Compression
from headrace.api.flow import BatchVerification
from headrace.api.offsets import GapPolicy
from headrace.assign import TaskId
from headrace.movers.bandwidth import TokenBucket
from headrace.movers.batch.fencing import MarkerFencing
from headrace.movers.batch.lane import BatchLane
from headrace.movers.batch.lane_resources import LaneResources
from headrace.movers.batch.loop_thread import LoopThread, shared_loop
from headrace.movers.batch.transactional_lane import TransactionalLane
from headrace.movers.lane import CopiedCounts
from headrace.replication import RecordChanges


class BatchMover:
    """Mover that copies batches. All its lanes in a process share one thread."""

    def __init__(
        self,
        source: ClusterAccess,
        target: ClusterAccess,
        target_topic: Callable[[str], str],
        thread: Callable[[], LoopThread] = shared_loop,
        verification: Callable[[], BatchVerification] = lambda: BatchVerification.DISABLED,
        *,
        bandwidth: TokenBucket | None = None,
        exactly_once: bool = False,
        holes: GapPolicy = GapPolicy.MARKERS,
        records: RecordChanges | None = None,
        compression: Compression = AS_ON_SOURCE,
        fences_impossible: str = "",
    ) -> None:
        """Accept what the flow's spec says, as ``LaneResources`` does.

        ``fences_impossible`` is why the target cannot fence writers, or empty.
        """
        self._resources = LaneResources(
            source,
            target,
            target_topic,
            thread,
            verification,
            bandwidth=bandwidth or TokenBucket(),
            exactly_once=exactly_once,
            holes=holes,
            records=records,
            compression=compression,
        )
        self.fencing = MarkerFencing(source, target, records, fences_impossible)
        """Fencing by transaction markers."""

    def lane(
        self, task: TaskId, on_error: Callable[[str], None], copied: CopiedCounts
    ) -> BatchLane:
        """Create a lane of a task."""
        make = TransactionalLane if self._resources.exactly_once else BatchLane
        return make(self._resources, task, on_error, copied)
