"""How one sees, under anybody's mirror, that it has recovered from a fault."""

from collections.abc import Callable, Mapping

from headrace.api import TopicPartition
from headrace.kafka import Admin
from headrace.mirror_test import Run

_ANSWER_S = 1.0
"""How long one question about the target may take: meanwhile nothing else is observed."""


class Arrivals:
    """A mirror has recovered when each partition of the target has a message that was sent after
    the fault, since those before it come first."""

    def __init__(self, run: Run) -> None:
        self._first = tuple(run.first_topics.values())
        self._target = Admin(run.target, _ANSWER_S)

    def since(self, time_ms: int) -> Callable[[], bool]:
        """Whether each partition of the target's topics that the load began with has a message of
        that time, or later."""
        return self.in_topics(dict.fromkeys(self._first, 1), time_ms)

    def in_topics(self, topics: Mapping[str, int], time_ms: int) -> Callable[[], bool]:
        """The same of any topics of the target, which must have so many partitions."""

        def arrived() -> bool:
            there = self._target.topics()
            if any(there.get(name, 0) < count for name, count in topics.items()):
                return False
            partitions = [
                TopicPartition(name, number) for name in topics for number in range(there[name])
            ]
            firsts = self._target.offsets_at(partitions, time_ms)
            return all(at >= 0 for at in firsts.values())

        return arrived
