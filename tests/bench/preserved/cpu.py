"""Topics without holes: CPU per GB of Preserved and of Translated, in pairs."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from bench.mirror.figures import CatchUp
from bench.mirror.measure import access, measured
from bench.mirror.subjects import Replicator, Subject
from bench.mirror.workloads import Workload, produce

from headrace.sandbox import Sandbox

PAIRS = 9
WORKLOADS = (
    Workload(1000, 16 << 10, "none", 1_000_000),
    Workload(1000, 1 << 20, "lz4", 1_000_000),
)
_TRANSLATED = Subject("Translated", Replicator.HEADRACE)
_PRESERVED = Subject("Preserved", Replicator.HEADRACE, offsets="Preserved")


@dataclass(frozen=True)
class Pairs:
    """Core-seconds per GB of one workload, run by run; the medians."""

    translated: list[float]
    preserved: list[float]

    @property
    def ratio(self) -> float:
        """Preserved divided by Translated: the median of the pairs' ratios."""
        both = zip(self.preserved, self.translated, strict=True)
        return median(one / other for one, other in both)


def pairs(
    sandbox: Sandbox, number: int, workload: Workload, count: int, say: Callable[[str], None]
) -> Pairs:
    """Run the pairs one after the other; every second pair begins with Preserved.

    ``number`` is the workload's.
    """
    say(f"{workload.name}: sending {workload.records:,} records ...")
    produce(access(sandbox, "east"), workload)
    found: dict[Subject, list[CatchUp]] = {_TRANSLATED: [], _PRESERVED: []}
    for turn in range(count):
        both = (_TRANSLATED, _PRESERVED) if turn % 2 else (_PRESERVED, _TRANSLATED)
        for one in both:
            say(f"{workload.name}, pair {turn + 1} of {count}: {one.name} ...")
            alias = f"c{number}-{turn}-{one.offsets[0].lower()}"
            found[one].append(measured(one, sandbox, alias, workload))
    cpu = {one: [run.cpu_s_per_gb for run in runs] for one, runs in found.items()}
    return Pairs(cpu[_TRANSLATED], cpu[_PRESERVED])


def rows(found: dict[str, Pairs]) -> str:
    """Return a Markdown table."""
    lines = ["| | Translated, core-s/GB | Preserved | ratio of the pairs, median | least, most |"]
    lines.append("| --- | ---: | ---: | ---: | ---: |")
    for name, one in found.items():
        ratios = sorted(p / t for p, t in zip(one.preserved, one.translated, strict=True))
        lines.append(
            f"| {name} | {median(one.translated):.3f} | {median(one.preserved):.3f} "
            f"| {one.ratio:.2f} | {ratios[0]:.2f}, {ratios[-1]:.2f} |"
        )
    return "\n".join(lines)
