"""Splits partitions and groups into tasks by their weights.

A new partition enters the lightest task and changes no other task. (MirrorMaker 2 redistributes all
partitions and stops the flow.) A partition changes its task in two phases, so that it is never in
two tasks. It leaves the old task, and enters the lightest task when the old one has acknowledged
the release. If the old task misses the deadline, a partition that moves for balance returns to the
old task, because records in flight would be copied again. Any other partition is taken from the old
task.
"""

from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field
from heapq import heapify, heapreplace
from math import inf
from statistics import median
from typing import Self

from headrace.api import ReplicationTask, TopicPartition, TopicPartitions

_IDLE = 1.0
"""Weight in records/s that every partition has in addition to its rate.

It stands for the cost of an idle partition: its stored offset, and its entry in each fetch.
"""
_MIN_GAIN = 0.5
"""Minimum weight of a move, as a share of the average partition's weight."""
_MAX_SHIFT = 0.95
"""Maximum share of the difference between two tasks that a move may shift.

Shifting the whole difference would only exchange their loads.
"""


def weigh(measured: Mapping[TopicPartition, float | None]) -> dict[TopicPartition, float]:
    """Return the weight of each partition in records/s, including its base weight.

    Unknown rates count as the median. Raise ``ValueError`` for a weight that is negative or not
    finite.
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
    """Partitions of each task, and their total weights."""

    def __init__(self, weights: Mapping[TopicPartition, float], max_tasks: int) -> None:
        self._weights = weights
        self._loads = [0.0] * max_tasks
        self._held: list[set[TopicPartition]] = [set() for _ in range(max_tasks)]

    @property
    def split(self) -> dict[int, frozenset[TopicPartition]]:
        """Partitions of each task that has any."""
        return {task: frozenset(held) for task, held in enumerate(self._held) if held}

    def put(self, partition: TopicPartition, task: int) -> None:
        """Add a partition to a task."""
        self._held[task].add(partition)
        self._loads[task] += self._weights[partition]

    def add_unowned(self, partitions: Iterable[TopicPartition]) -> None:
        """Add each partition to the lightest task, heaviest partition first.

        Unused tasks may be used.
        """
        lightest = [(load, task) for task, load in enumerate(self._loads)]
        heapify(lightest)
        for partition in sorted(partitions, key=lambda at: (-self._weights[at], at)):
            _, task = lightest[0]
            self.put(partition, task)
            heapreplace(lightest, (self._loads[task], task))

    def relieve(
        self, movable: Set[TopicPartition], max_moves: int, tolerance: float
    ) -> dict[TopicPartition, int]:
        """Remove at most ``max_moves`` of the ``movable`` partitions from heavy tasks.

        Return each removed partition with its task. Partitions are removed only while a task
        deviates from the mean by more than ``tolerance``. Each move must bring two tasks closer
        together by a minimum weight, unless the lighter task is empty.
        """
        if not self._weights:
            return {}
        loads, held = self._loads, self._held
        # Use at most one task per partition. Tasks in use come first.
        tasks = sorted(range(len(held)), key=lambda task: (not held[task], task))
        tasks = tasks[: len(self._weights)]
        total = sum(self._weights.values())
        mean, worth_it = total / len(tasks), _MIN_GAIN * total / len(self._weights)
        candidates = set(tasks)
        moves: dict[TopicPartition, int] = {}
        while candidates and len(moves) < max_moves:
            light = min(tasks, key=lambda task: (loads[task], task))
            heavy = max(candidates, key=lambda task: (loads[task], -task))
            begins = not loads[light]
            off = max(loads[heavy] - mean, mean - loads[light])
            if not begins and (off <= tolerance * mean or loads[heavy] <= mean):
                break
            most_shift = _MAX_SHIFT * (loads[heavy] - loads[light])
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
            loads[light] += self._weights[best]  # it will enter this task
        return moves


Split = Mapping[int, frozenset[TopicPartition]]
"""Partitions of each task, by the task's index."""


@dataclass(frozen=True)
class SplitConfig:
    """Settings of ``spec.tasks``. Contradictory values raise ``ValueError``."""

    max_tasks: int = 8
    movement_budget: float = 0.1
    """Maximum share of the partitions that one round moves for balance. At least one, unless 0."""
    tolerance: float = 0.1
    """Maximum deviation of a task's weight from the mean, as a share, before partitions move."""
    balance_interval_ms: int = 60_000
    """Minimum time between two rounds that move partitions for balance."""
    acknowledge_within_ms: int = 10_000
    """Time limit for releasing a partition, equal to the time limit of a move between drivers."""

    def __post_init__(self) -> None:
        if self.max_tasks < 1:
            raise ValueError(f"max_tasks must be at least 1, got {self.max_tasks}")
        if not 0 <= self.movement_budget <= 1:
            raise ValueError(f"the movement budget must be from 0 to 1, got {self.movement_budget}")

    def budget(self, partitions: int) -> int:
        """Return the maximum number of ``partitions`` that one round may move."""
        return max(1, int(self.movement_budget * partitions)) if self.movement_budget else 0


@dataclass(frozen=True)
class Leaving:
    """A partition that left its task, and waits until the old task has released it.

    A partition that was deleted on the source also leaves, because it may be created again at any
    time.
    """

    task: int
    since_ms: int
    for_balance: bool = False


@dataclass(frozen=True)
class TaskReport:
    """Assignment and progress that a task reports."""

    acknowledged: bool
    """True if the report is about the latest generation of the spec, or the task has no owner."""
    held: frozenset[TopicPartition] = frozenset()

    @classmethod
    def of(cls, task: ReplicationTask, published: frozenset[TopicPartition]) -> Self:
        """Read the status of a source task.

        ``published`` contains its last published partitions.
        """
        status = task.status
        held = TopicPartitions.unpack(status.partitions)
        if TopicPartitions.unpack(task.spec.partitions) != published:
            return cls(False, held)  # an older state, for example from a watch
        return cls(
            not status.driver_name or status.observed_generation == task.metadata.generation, held
        )

    def has_released(self, partition: TopicPartition) -> bool:
        """Return True if the task has released a partition that was removed from its spec."""
        return self.acknowledged and partition not in self.held


@dataclass(frozen=True)
class SplitState:
    """A split and its unfinished moves."""

    tasks: Split = field(default_factory=dict)
    """Partitions of each task. An empty task remains until it has released all its partitions."""
    leaving: Mapping[TopicPartition, Leaving] = field(default_factory=dict)
    taken: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Partitions that a new task got in this step although the old task has not released them.

    The value is the old task.
    """
    returned: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Partitions whose move for balance was cancelled in this step, with their tasks.

    The task had not released the partition in time, and keeps it.
    """
    last_balance_ms: int | None = None
    resumed_ms: int | None = None
    """Time at which a new connector read ``tasks`` from the specs.

    A new connector does not know which partitions are leaving their task. The time is None once all
    tasks have acknowledged their specs.
    """

    @property
    def settled(self) -> bool:
        """True if no partition is leaving its task, and ``resumed_ms`` is None."""
        return not self.leaving and self.resumed_ms is None


def resplit(
    weights: Mapping[TopicPartition, float | None],
    state: SplitState,
    reports: Mapping[int, TaskReport],
    now_ms: int,
    config: SplitConfig,
) -> SplitState:
    """Return the next split of the existing partitions.

    Args:
        weights: Smoothed records/s of each partition, or None if not known yet.
        state: Split that was published last.
        reports: Reports of all tasks, read after ``state`` was published.
        now_ms: Current time.
        config: Settings of the flow. Tasks beyond ``max_tasks`` are dissolved in the same two
            phases.

    Raises:
        ValueError: A weight is negative.
    """
    loads = TaskWeights(weigh(weights), config.max_tasks)
    there = weights.keys()
    # Base sets: partitions with a task, partitions that left one and wait, and unknown partitions.
    owners, waiting = _owners(there, state, reports), state.leaving
    unknown = there - owners.keys() - waiting.keys()
    # Derived sets: partitions that must leave their task, and partitions that may enter one now.
    leaving = {at for at, task in owners.items() if at not in there or task >= config.max_tasks}
    released = {at for at, left in waiting.items() if _let_go(at, reports.get(left.task))}
    overdue_ms = now_ms - config.acknowledge_within_ms
    overdue = {at for at, left in waiting.items() if left.since_ms <= overdue_ms} - released
    returned = {
        at: left.task
        for at, left in sorted(waiting.items())
        if at in overdue & there and left.for_balance and left.task < config.max_tasks
    }
    taken = overdue - returned.keys()
    # A task that has not acknowledged yet may have been assigned an unknown partition by an earlier
    # connector.
    resuming = (
        state.resumed_ms is not None
        and state.resumed_ms > overdue_ms
        and not all(task in reports and reports[task].acknowledged for task in state.tasks)
    )
    # Decisions: each partition keeps its task or gets the lightest one. Then some leave for
    # balance.
    kept_by = {at: owners[at] for at in owners.keys() - leaving} | returned
    for at, task in sorted(kept_by.items()):
        loads.put(at, task)
    loads.add_unowned(there & (released | taken | (set() if resuming else unknown)))
    on_its_way = {at: waiting[at] for at in waiting.keys() - released - overdue}
    on_its_way |= {at: Leaving(owners[at], now_ms) for at in leaving}
    last_ms = state.last_balance_ms
    if not on_its_way and not resuming and _may_balance(weights, last_ms, now_ms, config):
        moves = loads.relieve(owners.keys(), config.budget(len(there)), config.tolerance)
        on_its_way = {at: Leaving(task, now_ms, for_balance=True) for at, task in moves.items()}
        last_ms = now_ms if moves else last_ms
    # Keep the tasks that must report a release, because a deleted task reports nothing.
    kept = {left.task for left in on_its_way.values()} | (state.tasks.keys() if resuming else set())
    tasks = dict.fromkeys(kept, frozenset[TopicPartition]()) | loads.split
    return SplitState(
        tasks=dict(sorted(tasks.items())),
        leaving=dict(sorted(on_its_way.items())),
        taken={at: waiting[at].task for at in sorted(taken & there)},
        returned=returned,
        last_balance_ms=last_ms,
        resumed_ms=state.resumed_ms if resuming else None,
    )


def _owners(
    partitions: Set[TopicPartition], state: SplitState, reports: Mapping[int, TaskReport]
) -> dict[TopicPartition, int]:
    """Return the task of each partition.

    For a partition that is in no spec, return the task that still holds it.
    """
    owners = {at: task for task, held in state.tasks.items() for at in held}
    rest = partitions - owners.keys() - state.leaving.keys()
    return owners | {
        at: task for task, report in sorted(reports.items()) for at in report.held & rest
    }


def _let_go(at: TopicPartition, report: TaskReport | None) -> bool:
    return report is not None and report.has_released(at)


def _may_balance(
    weights: Mapping[TopicPartition, float | None],
    last_ms: int | None,
    now_ms: int,
    config: SplitConfig,
) -> bool:
    """Return True if a round may move partitions for balance.

    A connector that has just started has no weights yet. It moves nothing, because moves by the
    number of partitions would undo the balance by weight of an earlier connector.
    """
    known = any(weight is not None for weight in weights.values())
    return known and (last_ms is None or now_ms - last_ms >= config.balance_interval_ms)


GroupSplit = Mapping[int, tuple[str, ...]]
"""Groups by the index of their task."""


def split_groups(
    groups: Collection[str], before: GroupSplit, max_tasks: int
) -> dict[int, list[str]]:
    """Split groups into at most ``max_tasks`` tasks, whose numbers of groups differ by at most one.

    A group keeps its task. Only new groups, and as few existing groups as needed, get another task.
    Two tasks may follow a group for a short time. They write the same checkpoints, so nothing has
    to be released first.
    """
    wanted = set(groups)
    there = sorted(wanted)
    count = min(max_tasks, len(there))
    split: dict[int, list[str]] = {index: [] for index in range(count)}
    placed: set[str] = set()
    for index, held in sorted(before.items()):
        if index in split:
            split[index] = [one for one in sorted(set(held)) if one in wanted and one not in placed]
            placed.update(split[index])
    waiting = [group for group in there if group not in placed]
    for group in waiting:
        min(split.items(), key=lambda item: (len(item[1]), item[0]))[1].append(group)
    while count and (heaviest := max(split.values(), key=len)):
        lightest = min(split.values(), key=len)
        if len(heaviest) - len(lightest) <= 1:
            break
        lightest.append(heaviest.pop())
    return {index: sorted(held) for index, held in split.items()}


_HALF_LIFE_S = 60.0
"""Half-life of the average growth in seconds.

It equals the time between two moves for balance, so that a short burst causes no move.
"""
_KNOWN_AFTER_S = 5.0
"""Minimum observation time of a rate in seconds. With the default interval, two polls suffice."""


@dataclass(frozen=True)
class Growth:
    """Observed growth of one partition. Times are on a monotonic clock."""

    end_offset: int
    first_seen_s: float
    last_seen_s: float
    smoothed: float = 0.0
    """Average growth in records/s."""

    @property
    def records_per_s(self) -> float | None:
        """Average growth, or None until the partition was observed for long enough."""
        known = self.last_seen_s - self.first_seen_s >= _KNOWN_AFTER_S
        return self.smoothed if known else None


def observe(before: Growth | None, end_offset: int, now_s: float) -> Growth:
    """Return the growth with one more observation.

    If the end has decreased, the partition is new and its history is dropped.
    """
    if before is None or end_offset < before.end_offset:
        return Growth(end_offset, now_s, now_s)
    elapsed_s = now_s - before.last_seen_s
    if elapsed_s <= 0:
        return before
    rate = (end_offset - before.end_offset) / elapsed_s
    # The mean of all observations, and after a long time the mean of the recent ones.
    share = max(elapsed_s / (now_s - before.first_seen_s), 1 - 0.5 ** (elapsed_s / _HALF_LIFE_S))
    smoothed = before.smoothed + share * (rate - before.smoothed)
    return Growth(end_offset, before.first_seen_s, now_s, smoothed)
