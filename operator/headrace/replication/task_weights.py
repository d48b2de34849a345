"""What each task has to carry while partitions are dealt."""

from collections.abc import Iterable, Mapping, Set
from heapq import heapify, heapreplace
from math import inf
from statistics import median

from headrace.api.partitions import TopicPartition

_IDLE = 1.0
"""Records/s that any partition weighs: a position to keep, a place in each fetch."""
_LEAST_GAIN = 0.5
"""Of the average partition's weight: what carries less over is not worth a move."""
_MOST_SHIFT = 0.95
"""Of the difference of two tasks. The whole of it would just exchange their loads."""


def weigh(measured: Mapping[TopicPartition, float | None]) -> dict[TopicPartition, float]:
    """Records/s of each partition, with what it costs to have one; unknown ones are the median."""
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
        return {index: frozenset(held) for index, held in enumerate(self._held) if held}

    def put(self, partition: TopicPartition, task: int) -> None:
        """A partition is in a task."""
        self._held[task].add(partition)
        self._loads[task] += self._weights[partition]

    def expect(self, partition: TopicPartition, task: int | None) -> None:
        """A partition is on its way to a task, and counts there already."""
        if task is not None and task < len(self._loads):
            self._loads[task] += self._weights[partition]

    def deal(self, partitions: Iterable[TopicPartition]) -> None:
        """Each to the lightest task, or to one that has none yet; the heaviest first."""
        lightest = [
            (load, len(held), task)
            for task, (load, held) in enumerate(zip(self._loads, self._held, strict=True))
        ]
        heapify(lightest)
        for partition in sorted(partitions, key=lambda at: (-self._weights[at], at)):
            _, _, task = lightest[0]
            self.put(partition, task)
            heapreplace(lightest, (self._loads[task], len(self._held[task]), task))

    def relieve(
        self, movable: Set[TopicPartition], most: int, tolerance: float
    ) -> list[tuple[TopicPartition, int, int]]:
        """Take at most ``most`` of ``movable`` from heavy tasks, for light ones: each, from, to.

        Only as long as a task is off the mean by more than ``tolerance``, and only moves that bring
        two tasks closer together by something worth it; to begin a task, anything is worth it.
        """
        moves: list[tuple[TopicPartition, int, int]] = []
        tasks = range(min(len(self._loads), len(self._weights)))
        total = sum(self._loads[task] for task in tasks)
        stuck: set[int] = set()
        while len(moves) < most and len(stuck) < len(tasks):
            mean = total / len(tasks)
            light = min(tasks, key=lambda task: (self._loads[task], task))
            heavy = max(set(tasks) - stuck, key=lambda task: (self._loads[task], -task))
            begins = self._loads[light] == 0
            if not begins and (
                self._loads[heavy] <= mean
                or max(self._loads[heavy] - mean, mean - self._loads[light]) <= tolerance * mean
            ):
                break
            least = 0.0 if begins else _LEAST_GAIN * total / len(self._weights)
            chosen = self._choose(self._held[heavy] & movable, heavy, light, least)
            if chosen is None:
                stuck.add(heavy)
                continue
            self._held[heavy].remove(chosen)
            self._loads[heavy] -= self._weights[chosen]
            self._loads[light] += self._weights[chosen]
            moves.append((chosen, heavy, light))
        return moves

    def _choose(
        self, among: Set[TopicPartition], heavy: int, light: int, least: float
    ) -> TopicPartition | None:
        """The partition that brings two tasks closest together; None when it is not worth it."""
        difference = self._loads[heavy] - self._loads[light]
        fits = [
            (abs(self._weights[at] - difference / 2), at)
            for at in among
            if least <= self._weights[at] <= _MOST_SHIFT * difference
        ]
        return min(fits)[1] if fits else None
