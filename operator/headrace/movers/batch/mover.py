"""The batch mover of one flow: what its lanes have in common."""

from collections.abc import Callable

from headrace.api import ClusterAccess, TopicPartition
from headrace.assign import TaskId
from headrace.kafka.wire import Settings
from headrace.movers.batch.lane import BatchLane
from headrace.movers.batch.loop_thread import LoopThread, shared_loop
from headrace.movers.lane import Copied


class BatchMover:
    """See ``Mover``. All lanes of a process share one thread."""

    def __init__(
        self,
        source: ClusterAccess,
        target: ClusterAccess,
        target_topic: Callable[[str], str],
        thread: Callable[[], LoopThread] = shared_loop,
    ) -> None:
        """``target_topic`` names topics on the target."""
        self.source, self.target = source, target
        self.target_topic = target_topic
        self.thread = thread
        self.settings = Settings(client_id=source.spec.config.get("client.id", "headrace"))
        self.rack = source.spec.config.get("client.rack", "")
        self.corrupt: dict[TopicPartition, int] = {}
        """Source offsets of batches that came damaged once."""

    def lane(self, task: TaskId, on_error: Callable[[str], None], copied: Copied) -> BatchLane:
        """See ``Mover.lane``."""
        return BatchLane(self, task, on_error, copied)
