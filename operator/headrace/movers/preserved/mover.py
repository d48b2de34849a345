"""The batch mover of one flow whose copies have their sources' offsets."""

from collections.abc import Callable
from typing import Any

from headrace.api import ClusterAccess
from headrace.assign import TaskId
from headrace.movers.batch.mover import BatchMover
from headrace.movers.lane import CopiedCounts
from headrace.movers.preserved.fencing import PreservedFencing
from headrace.movers.preserved.lane import PreservedLane
from headrace.movers.preserved.openings import Openings


class PreservedMover(BatchMover):
    """See ``Mover``."""

    def __init__(
        self,
        source: ClusterAccess,
        target: ClusterAccess,
        target_topic: Callable[[str], str],
        *more: Any,
        **named: Any,
    ) -> None:
        """As ``BatchMover``."""
        super().__init__(source, target, target_topic, *more, **named)
        self._openings = Openings()
        self.fencing = PreservedFencing(source, target, self._openings, self.fencing.impossible)
        """See ``Mover.fencing``."""

    def lane(
        self, task: TaskId, on_error: Callable[[str], None], copied: CopiedCounts
    ) -> PreservedLane:
        """See ``Mover.lane``."""
        return PreservedLane(self._resources, self._openings, task, on_error, copied)
