"""How long the assignors take, in what memory, and whether only necessary moves happen.

`make bench`. Each case has a process of its own, so that peak memory is its own. Times are those of
`assign()` alone. The times to build its input and to validate its answer are printed next to them.
It waits for nothing, so on an idle machine its CPU time is its wall time. On a busy machine only
CPU time is meaningful, and the lowest of several runs. Limits are compared with that one.
"""

import random
import resource
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from statistics import median
from time import perf_counter, process_time

from rich.console import Console
from rich.table import Table

from headrace.assign import (
    SHIPPED,
    ApplicationState,
    AssignmentUtils,
    DriverState,
    TaskAssignment,
    TaskAssignor,
    TaskId,
    TaskInfo,
)

MEMORY_LIMIT_GB = 2.0
FLOWS = 10
RUNS = 5

WEIGHTS: dict[str, Callable[[random.Random], float]] = {
    "even": lambda rng: rng.uniform(0, 2_000_000),
    "exponential": lambda rng: rng.expovariate(1e-6),
    # A percent of the tasks carries a fifth of the bytes.
    "heavy tail": lambda rng: rng.lognormvariate(12, 1.5),
}
"""Bytes/s of a task; all of them differ."""


@dataclass(frozen=True)
class Case:
    """One line of the table: an assignor at a size, and its limits."""

    assignor: str
    tasks: int
    drivers: int
    weights: str
    limit_s: float


@dataclass(frozen=True)
class Step:
    """One decision of a case: its times, and whether its moves were the expected ones."""

    name: str
    cpu_s: Sequence[float]
    wall_s: Sequence[float]
    build_s: float
    validate_s: float
    outcome: str
    is_right: bool


CASES = [
    Case("sticky", 1_000_000, 1_000, "even", 2.0),
    Case("sticky", 1_000_000, 1_000, "exponential", 2.0),
    Case("sticky", 1_000_000, 1_000, "heavy tail", 2.0),
    Case("sticky", 10_000, 100, "even", 0.050),
    Case("sticky", 10_000, 100, "heavy tail", 0.050),
    Case("cooperative", 10_000, 100, "even", 1.0),
]

PUBLISHED = [
    ("headrace sticky", "O(T log T)", "as measured above; evening out weights comes on top"),
    ("headrace cooperative", "O(T log T)", "a round, as measured above"),
    ("Connect, eager", "none published", "sorts all, then deals in turn"),
    ("Connect, incremental cooperative", "none published (KIP-415)", "sorts all, deals in turn"),
    ("Streams, sticky", "none published (KIP-924)", "one task at a time, to the lightest client"),
    ("Streams, high availability", "none published (KIP-441)", "the same, and swaps to balance"),
    ("Streams, rack-aware", "O(T² D²) (KIP-925)", "time to cancel cycles, costs being constant"),
]


def state(case: Case) -> ApplicationState:
    """Source tasks of ten flows and drivers that hold nothing yet."""
    rng = random.Random(case.tasks)
    weigh = WEIGHTS[case.weights]
    return ApplicationState.of(
        (
            TaskInfo(TaskId(f"flow-{n % FLOWS}", "SourceTask", n // FLOWS), True, weigh(rng))
            for n in range(case.tasks)
        ),
        (DriverState(f"driver-{n:04}") for n in range(case.drivers)),
    )


def following(
    state: ApplicationState, answer: TaskAssignment, drivers: Iterable[str], now_ms: int = 0
) -> ApplicationState:
    """Return the state in which ``drivers`` exist and hold their assigned tasks."""
    held = {name: driver.active for name, driver in answer.drivers.items()}
    return replace(
        state,
        drivers={name: DriverState(name, active=held.get(name, frozenset())) for name in drivers},
        now_ms=now_ms,
    )


def decide(
    name: str,
    asked: ApplicationState,
    build_s: float,
    assignors: Iterable[TaskAssignor],
    judge: Callable[[TaskAssignment], tuple[str, bool]],
) -> tuple[TaskAssignment, Step]:
    """Run each of ``assignors`` once; their answers are equal."""
    cpu_s, wall_s = [], []
    for assignor in assignors:
        cpu, wall = process_time(), perf_counter()
        answer = assignor.assign(asked)
        cpu_s.append(process_time() - cpu)
        wall_s.append(perf_counter() - wall)
    start = process_time()
    violation = AssignmentUtils.find_violation(asked, answer)
    validate_s = process_time() - start
    outcome, is_right = judge(answer)
    if violation:
        outcome, is_right = violation.message, False
    return answer, Step(name, cpu_s, wall_s, build_s, validate_s, outcome, is_right)


def moves(before: TaskAssignment, after: TaskAssignment) -> set[TaskId]:
    """Return tasks that had an owner and now have another, or none."""
    owners = after.owners
    return {task for task, owner in before.owners.items() if owners.get(task) != owner}


def sticky(case: Case) -> Iterator[Step]:
    """Measure a first assignment, and the loss of one driver."""
    assignors = [SHIPPED[case.assignor]() for _ in range(RUNS)]
    start = process_time()
    empty = state(case)
    build_s = process_time() - start

    def loads(answer: TaskAssignment) -> tuple[str, bool]:
        weights = [
            sum(empty.tasks[task].weight for task in driver.active)
            for driver in answer.drivers.values()
        ]
        mean = sum(weights) / len(weights)
        off = sum(abs(weight - mean) > 0.1 * mean for weight in weights)
        return f"loads {min(weights) / mean:.3f} to {max(weights) / mean:.3f} of the mean", off == 0

    first, step = decide("first assignment", empty, build_s, assignors, loads)
    yield step

    gone, *others = sorted(empty.drivers)
    start = process_time()
    left = following(empty, first, others)
    build_s = process_time() - start

    def exactly(answer: TaskAssignment) -> tuple[str, bool]:
        moved, lost = moves(first, answer), first.drivers[gone].active
        return f"{len(moved):,} tasks move, it had {len(lost):,}", moved == lost

    yield decide("one driver leaves", left, build_s, assignors, exactly)[1]


def cooperative(case: Case) -> Iterator[Step]:
    """Measure five rounds of Connect's rules, with an assignor for each run: it has a memory."""
    assignors = [SHIPPED[case.assignor]() for _ in range(RUNS)]
    start = process_time()
    empty = state(case)
    build_s = process_time() - start
    gone, *others = sorted(empty.drivers)
    answer = TaskAssignment({})
    for name, drivers, now_ms in (
        ("first round", [gone, *others], 0),
        ("a worker leaves", others, 1),
        ("its delay is over", others, 300_001),
        ("a worker joins: revoke", [gone, *others], 300_002),
        ("the round after: assign", [gone, *others], 300_003),
    ):
        before = answer
        asked = following(empty, before, drivers, now_ms)

        def moved(answer: TaskAssignment, before: TaskAssignment = before) -> tuple[str, bool]:
            stopped = len(moves(before, answer))
            return f"{stopped:,} stopped, {len(answer.waiting):,} wait", True

        answer, step = decide(name, asked, build_s, assignors, moved)
        yield step


def measure(case: Case) -> tuple[list[Step], float]:
    """Run all steps of a case, and return them with the peak memory of the process in GB."""
    steps = list({"sticky": sticky, "cooperative": cooperative}[case.assignor](case))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB, on macOS bytes
    return steps, peak / (1 << 30 if sys.platform == "darwin" else 1 << 20)


def main() -> int:
    """Print the tables; the exit code says whether all was within its limits."""
    console = Console(width=max(190, Console().width))
    table = Table(title=f"assign(), {RUNS} runs each, Python {sys.version.split()[0]}")
    for column in ("assignor", "tasks x drivers", "weights", "step"):
        table.add_column(column, no_wrap=True)
    for column in ("CPU min", "median", "limit", "wall min", "build", "validate", "peak"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("outcome", no_wrap=True)
    good = True
    for case in CASES:
        # Spawned, not forked: nothing of this process counts as its memory.
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            steps, peak_gb = pool.submit(measure, case).result()
        for step in steps:
            fits = min(step.cpu_s) < case.limit_s and peak_gb < MEMORY_LIMIT_GB
            good = good and fits and step.is_right
            table.add_row(
                case.assignor,
                f"{case.tasks:,} x {case.drivers:,}",
                case.weights,
                step.name,
                _shown(min(step.cpu_s)),
                _shown(median(step.cpu_s)),
                _shown(case.limit_s),
                _shown(min(step.wall_s)),
                _shown(step.build_s),
                _shown(step.validate_s),
                f"{peak_gb:.2f} GB",
                step.outcome if step.is_right and fits else f"[red]{step.outcome}: FAILED",
            )
        table.add_section()
    console.print(table)
    published = Table(
        "assignor",
        "complexity",
        "remark",
        title="Complexity: T tasks, D drivers; not measured here but for headrace",
    )
    for row in PUBLISHED:
        published.add_row(*row)
    console.print(published)
    console.print("All within their limits." if good else "[red]Not all within their limits.")
    return 0 if good else 1


def _shown(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"


if __name__ == "__main__":
    sys.exit(main())
