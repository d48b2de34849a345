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
    """Mover that preserves the source's offsets."""

    def __init__(
        self,
        source: ClusterAccess,
        target: ClusterAccess,
        target_topic: Callable[[str], str],
        *more: Any,
        **named: Any,
    ) -> None:
        """Create the mover with the arguments of ``BatchMover``."""
        super().__init__(source, target, target_topic, *more, **named)
        self._openings = Openings()
        self.fencing = PreservedFencing(source, target, self._openings, self.fencing.impossible)
        """Fencing for copies with the source's offsets."""

    def lane(
        self, task: TaskId, on_error: Callable[[str], None], copied: CopiedCounts
    ) -> PreservedLane:
        """Create a lane of a task."""
        return PreservedLane(self._resources, self._openings, task, on_error, copied)
