"""What each task has to carry while partitions are dealt."""

from collections.abc import Iterable, Mapping, Set
from heapq import heapify, heapreplace
from math import inf
from statistics import median

from headrace.api import TopicPartition

_IDLE = 1.0
"""Records/s that any partition weighs: a position to keep, a place in each fetch."""
_LEAST_GAIN = 0.5
"""Of the average partition's weight: what carries less over is not worth a move."""
_MOST_SHIFT = 0.95
"""Of the difference of two tasks. The whole of it would just exchange their loads."""


def weigh(measured: Mapping[TopicPartition, float | None]) -> dict[TopicPartition, float]:
    """Records/s of each partition, with what it costs to have one; unknown ones are the median.

    Raises ``ValueError`` for a weight below 0, or that is no number.
    """
    known = [weight for weight in measured.values() if weight is not None]
    for at, weight in measured.items():
        if weight is not None and not 0 <= weight < inf:
            raise ValueError(f"the weight of partition {at} must be 0 or more, got {weight}")
    typical = median(known) if known else 0.0
    return {
        at: _IDLE + (typical if weight is None else weight)
        for at, weight in sorted(measured.items())
    }


class TaskWeights:
    """Partitions by task, and what they weigh together."""

    def __init__(self, weights: Mapping[TopicPartition, float], max_tasks: int) -> None:
        self._weights = weights
        self._loads = [0.0] * max_tasks
        self._held: list[set[TopicPartition]] = [set() for _ in range(max_tasks)]

    @property
    def split(self) -> dict[int, frozenset[TopicPartition]]:
        """The partitions of each task that has any."""
        return {task: frozenset(held) for task, held in enumerate(self._held) if held}

    def put(self, partition: TopicPartition, task: int) -> None:
        """A partition is in a task."""
        self._held[task].add(partition)
        self._loads[task] += self._weights[partition]

    def deal(self, partitions: Iterable[TopicPartition]) -> None:
        """Each to the lightest task, which may be one that has none yet; the heaviest first."""
        lightest = [(load, task) for task, load in enumerate(self._loads)]
        heapify(lightest)
        for partition in sorted(partitions, key=lambda at: (-self._weights[at], at)):
            _, task = lightest[0]
            self.put(partition, task)
            heapreplace(lightest, (self._loads[task], task))

    def relieve(
        self, movable: Set[TopicPartition], most: int, tolerance: float
    ) -> dict[TopicPartition, int]:
        """Take at most ``most`` of ``movable`` out of heavy tasks: what, and out of which task.

        Only as long as a task is off the mean by more than ``tolerance``, and only moves that bring
        two tasks closer together by something worth it; to begin a task, anything is worth it.
        """
        if not self._weights:
            return {}
        loads, held = self._loads, self._held
        # As many tasks as there are partitions for; those in use come first.
        tasks = sorted(range(len(held)), key=lambda task: (not held[task], task))
        tasks = tasks[: len(self._weights)]
        total = sum(self._weights.values())
        mean, worth_it = total / len(tasks), _LEAST_GAIN * total / len(self._weights)
        candidates = set(tasks)
        moves: dict[TopicPartition, int] = {}
        while candidates and len(moves) < most:
            light = min(tasks, key=lambda task: (loads[task], task))
            heavy = max(candidates, key=lambda task: (loads[task], -task))
            begins = not loads[light]
            off = max(loads[heavy] - mean, mean - loads[light])
            if not begins and (off <= tolerance * mean or loads[heavy] <= mean):
                break
            most_shift = _MOST_SHIFT * (loads[heavy] - loads[light])
            fits = [
                at
                for at in held[heavy] & movable
                if (begins or self._weights[at] >= worth_it) and self._weights[at] <= most_shift
            ]
            if not fits:
                candidates.remove(heavy)
                continue
            half = (loads[heavy] - loads[light]) / 2
            best = min(fits, key=lambda at: (abs(self._weights[at] - half), at))
            moves[best] = heavy
            held[heavy].remove(best)
            loads[heavy] -= self._weights[best]
            loads[light] += self._weights[best]  # it will get there: it counts there already
        return moves
