"""Partitions that the user paused: they stay with their task, and are not read."""

from collections.abc import Set

from headrace.api import TopicPartition
from headrace.connect.runtime.context import FlowContext
from headrace.movers import Lane


class Pausing:
    """Has a lane leave them alone. One thread calls it."""

    def __init__(self, context: FlowContext) -> None:
        self._context = context
        self.partitions: frozenset[TopicPartition] = frozenset()
        """Partitions of the task that ``spec.pausedPartitions`` names."""

    def apply(self, lane: Lane, wanted: Set[TopicPartition]) -> None:
        """Have the lane read what is not paused; ``wanted``: what the task is to hold."""
        self.partitions = self._context.pauses.among(wanted | lane.partitions)
        lane.pause(self.partitions)
