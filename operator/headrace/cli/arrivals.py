"""How one sees, under anybody's mirror, that it has recovered from a fault."""

from collections.abc import Callable

from headrace.api import TopicPartition
from headrace.kafka import Admin
from headrace.mirror_test import Run

_ANSWER_S = 1.0
"""How long one question about the target may take: meanwhile nothing else is observed."""


class Arrivals:
    """A mirror has recovered when each partition of the target has a message that was sent after
    the fault, since those before it come first."""

    def __init__(self, run: Run) -> None:
        self._topics = tuple(run.topics.values())
        self._target = Admin(run.target, _ANSWER_S)

    def since(self, time_ms: int) -> Callable[[], bool]:
        """Whether each partition of the target has a message of that time, or later."""

        def arrived() -> bool:
            there = self._target.topics()
            partitions = [
                TopicPartition(name, number)
                for name in self._topics
                for number in range(there.get(name, 0))
            ]
            firsts = self._target.offsets_at(partitions, time_ms)
            return there.keys() >= set(self._topics) and all(at >= 0 for at in firsts.values())

        return arrived
