"""How the partitions of a flow are split into tasks: sticky, weighted, one task at a time.

A new partition goes to the lightest task and touches no other (MirrorMaker 2 re-deals all of them
and stops the flow). A partition moves to another task in two phases, so that it is never in two:
it leaves its old task, and enters the new one when the old one has acknowledged that or, past a
deadline, is taken from it.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from headrace.api.partitions import TopicPartition
from headrace.replication.task_weights import TaskWeights, weigh

Split = Mapping[int, frozenset[TopicPartition]]
"""The partitions of each task, by the task's index."""


@dataclass(frozen=True)
class SplitConfig:
    """What a flow asks for (``spec.tasks``). Raises ``ValueError`` when that makes no sense."""

    max_tasks: int = 8
    movement_budget: float = 0.1
    """Largest share of the partitions that one round moves for balance; at least one, unless 0."""
    tolerance: float = 0.1
    """How far a task's weight may be off the mean before something moves."""
    balance_interval_ms: int = 60_000
    """Between two rounds that move something for balance."""
    acknowledge_within_ms: int = 10_000
    """How long a task may take to let a partition go: as long as a hand-over between drivers."""

    def __post_init__(self) -> None:
        if self.max_tasks < 1:
            raise ValueError(f"max_tasks must be at least 1, got {self.max_tasks}")
        if not 0 <= self.movement_budget <= 1:
            raise ValueError(f"the movement budget must be from 0 to 1, got {self.movement_budget}")


@dataclass(frozen=True)
class Move:
    """A partition between two tasks: in none, until the old one has let go."""

    source: int
    target: int | None
    """None: the one that is lightest when the time comes."""
    since_ms: int


@dataclass(frozen=True)
class TaskReport:
    """What a task's status says."""

    acknowledged: bool
    """Whether it speaks of the newest generation of the spec, or no driver holds the task."""
    held: frozenset[TopicPartition] = frozenset()

    def has_let_go(self, partition: TopicPartition) -> bool:
        """Whether a partition that the spec no longer has is not copied any more."""
        return self.acknowledged and partition not in self.held


@dataclass(frozen=True)
class SplitState:
    """A split, and what is under way."""

    tasks: Split = field(default_factory=dict)
    """A task that is empty stays until it has let go of all that it had."""
    moving: Mapping[TopicPartition, Move] = field(default_factory=dict)
    taken: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Partitions that entered a task in this step though the task named here never let go: whoever
    gets them fences that task's transactional id first."""
    last_balance_ms: int | None = None


def resplit(
    weights: Mapping[TopicPartition, float | None],
    state: SplitState,
    reports: Mapping[int, TaskReport],
    now_ms: int,
    config: SplitConfig,
) -> SplitState:
    """The next split of the partitions that there are; to be published, and kept if that worked.

    ``weights`` are records/s, smoothed; None is not known yet. ``reports`` are those of all tasks,
    read after ``state`` was published. Tasks beyond ``max_tasks`` are dissolved in the same two
    phases. After a restart, the split that is read back from the specs will do as ``state``: a
    partition that is in no spec but still held goes back to its holder. Raises ``ValueError`` for a
    negative weight.
    """
    loads = TaskWeights(weigh(weights), config.max_tasks)
    there = weights.keys()
    # Base sets: what tasks have (or had, and still hold), and what is between two tasks.
    had = {at: index for index, held in state.tasks.items() for at in held & there}
    moving = {at: move for at, move in state.moving.items() if at in there}
    stray = {
        at: index
        for index, report in sorted(reports.items())
        for at in report.held & there
        if at not in had and at not in moving
    }
    # Derived sets: what stays, what must leave its task, what has left it, what is new.
    owned = had | stray
    for at, index in sorted(owned.items()):
        if index < config.max_tasks:
            loads.put(at, index)
        else:
            moving[at] = Move(index, None, now_ms)
    released = {
        at
        for at, move in moving.items()
        if move.source in reports and reports[move.source].has_let_go(at) and at not in owned
    }
    taken = {
        at: move.source
        for at, move in moving.items()
        if at not in released and now_ms - move.since_ms >= config.acknowledge_within_ms
    }
    arriving = {at: moving.pop(at).target for at in released | taken.keys()}
    new = there - owned.keys() - moving.keys() - arriving.keys()
    # Decisions: each to where it was meant to go, else to the lightest; then moves for balance.
    homeless = set(new)
    for at, target in sorted(arriving.items()):
        if target is not None and target < config.max_tasks:
            loads.put(at, target)
        else:
            homeless.add(at)
    for at, move in sorted(moving.items()):
        loads.expect(at, move.target)
    loads.deal(homeless)
    last_balance_ms = state.last_balance_ms
    due = last_balance_ms is None or now_ms - last_balance_ms >= config.balance_interval_ms
    if due and not moving and not arriving:
        leaving = loads.relieve(owned.keys(), _budget(config, there), config.tolerance)
        moving = {at: Move(source, target, now_ms) for at, source, target in leaving}
        last_balance_ms = now_ms if leaving else last_balance_ms
    tasks = loads.split
    emptied = {move.source: frozenset[TopicPartition]() for move in moving.values()}
    return SplitState(
        tasks=dict(sorted({**emptied, **tasks}.items())),
        moving=dict(sorted(moving.items())),
        taken={
            at: source for at, source in sorted(taken.items()) if at not in tasks.get(source, ())
        },
        last_balance_ms=last_balance_ms,
    )


def _budget(config: SplitConfig, partitions: Set[TopicPartition]) -> int:
    share = config.movement_budget
    return max(1, int(share * len(partitions))) if share else 0


def split(partitions: Set[TopicPartition], previous: Split, max_tasks: int) -> Split:
    """Give every partition to one of at most ``max_tasks`` tasks, at once; none weighs more.

    What has a task keeps it. Partitions that are gone leave their task, one without any is no task,
    those beyond ``max_tasks`` are dissolved. Raises ``ValueError`` when that is below 1.
    """
    config = SplitConfig(max_tasks, movement_budget=0)
    kept = {index: held for index, held in previous.items() if index < max_tasks}
    state = SplitState({index: held & partitions for index, held in kept.items()})
    return resplit(dict.fromkeys(partitions), state, {}, 0, config).tasks
