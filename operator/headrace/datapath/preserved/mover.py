"""Mover of a flow with preserved offsets."""

from collections.abc import Callable
from functools import partial
from typing import Any

from headrace.api import ClusterAccess
from headrace.datapath.mover import BatchMover
from headrace.datapath.preserved.delivery import Preserving
from headrace.datapath.preserved.owner import Openings
from headrace.datapath.preserved.takeover import PreservedFencing


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
        openings = Openings()
        self._deliver = partial(Preserving, openings)
        self.fencing = PreservedFencing(source, target, openings, self.fencing.impossible)
