"""The batch mover of one flow."""

from collections.abc import Callable

from headrace.api import ClusterAccess
from headrace.api.flow import BatchVerification
from headrace.api.offsets import Holes
from headrace.assign import TaskId
from headrace.movers.bandwidth import Bandwidth
from headrace.movers.batch.fencing import MarkerFencing
from headrace.movers.batch.lane import BatchLane
from headrace.movers.batch.lane_resources import LaneResources
from headrace.movers.batch.loop_thread import LoopThread, shared_loop
from headrace.movers.batch.transactional_lane import TransactionalLane
from headrace.movers.lane import Copied


class BatchMover:
    """See ``Mover``. All lanes of a process share one thread."""

    def __init__(
        self,
        source: ClusterAccess,
        target: ClusterAccess,
        target_topic: Callable[[str], str],
        thread: Callable[[], LoopThread] = shared_loop,
        verification: Callable[[], BatchVerification] = lambda: BatchVerification.DISABLED,
        *,
        bandwidth: Bandwidth | None = None,
        exactly_once: bool = False,
        holes: Holes = Holes.MARKERS,
    ) -> None:
        """``target_topic`` names topics on the target; ``verification``: what is asked for now;
        ``bandwidth``: how fast its lanes read together; ``exactly_once``: they copy in
        transactions; ``holes``: how ``Preserved`` ones fill them."""
        self._resources = LaneResources(
            source,
            target,
            target_topic,
            thread,
            verification,
            bandwidth=bandwidth or Bandwidth(),
            exactly_once=exactly_once,
            holes=holes,
        )
        self.fencing = MarkerFencing(source, target)
        """See ``Mover.fencing``."""

    def lane(self, task: TaskId, on_error: Callable[[str], None], copied: Copied) -> BatchLane:
        """See ``Mover.lane``."""
        make = TransactionalLane if self._resources.exactly_once else BatchLane
        return make(self._resources, task, on_error, copied)
