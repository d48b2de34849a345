"""How long an audit takes, and in what memory, beside a Spark job that only reads and counts.

``make bench-audit``. Records of 100 B and of 1,000 B are on both sides of a copy, without any
difference. Both jobs read them in turns, with the same memory and cores. Then one audit continues
after the last one with 1 % new records, and one audit finds the last record of the source, which
the target lacks. No figure is compared with a limit: brokers and Spark share this machine.
"""

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench.audit.topics import audited_copy, workload
from bench.mirror.workloads import Workload
from bench.spark_jobs import Job
from rich.console import Console
from rich.status import Status
from rich.table import Table

from headrace import logs
from headrace.api import Verdict
from headrace.errors import GaveUp

_NEW_SHARE = 100
"""Ratio of all records to the new records of the incremental audit."""
_COUNT, _FULL, _NEW, _LACKING = "read and count", "audit", "1 % new records", "last record missing"


@dataclass
class Figures:
    """Jobs of one workload, by what they do."""

    jobs: dict[str, list[Job]] = field(default_factory=dict)
    missing: str = ""
    """Reason of the verdict of the audit that finds a missing record."""

    def add(self, name: str, job: Job) -> None:
        """Add a job."""
        self.jobs.setdefault(name, []).append(job)

    def middle(self, name: str, figure: str) -> float:
        """Return the median of a figure of the jobs with this name."""
        return float(median(getattr(job, figure) for job in self.jobs[name]))


def main() -> int:
    """Measure, and print a table; 1 if a verdict is wrong."""
    options = _options()
    logs.configure("ERROR")
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    workloads = (
        workload(100, options.messages, options.codec),
        workload(1000, options.gigabytes * 1_000_000, options.codec),
    )
    try:
        for one in workloads:
            if one.records:
                with console.status("") as status:
                    found = _measured(one, options.turns, status)
                _show(console, one, found)
    except GaveUp as gave_up:
        print(gave_up, file=sys.stderr)
        return 1
    return 0


def _measured(workload: Workload, turns: int, status: Status) -> Figures:
    found = Figures()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        status.update(f"{workload.name}: writing both sides ...")
        with audited_copy(workload, Path(name)) as copy:
            for turn in range(turns):
                status.update(f"{workload.name}, turn {turn + 1}: reading and counting ...")
                found.add(_COUNT, copy.counted())
                status.update(f"{workload.name}, turn {turn + 1}: auditing ...")
                # The first audit stores its frontier.
                start = "Earliest" if turn else "LastAudit"
                found.add(_FULL, copy.audited(f"full-{turn}", start)[0])
            status.update(f"{workload.name}: auditing new records ...")
            copy.append(workload.records // _NEW_SHARE)
            found.add(_NEW, copy.audited("new", "LastAudit")[0])
            status.update(f"{workload.name}: auditing without the last record ...")
            copy.append_to_source(1)
            job, result = copy.audited("lacking", expected=Verdict.FAILED)
            found.add(_LACKING, job)
            found.missing = result.reasons[0]
    return found


def _show(console: Console, workload: Workload, found: Figures) -> None:
    console.print(
        f"\n{workload.records:,} records of {workload.value_bytes:,} B on each side, "
        f"compression {workload.codec}"
    )
    table = Table(
        "job", "s", "Spark's start, s", "records/s of a side", "CPU s", "peak MB", "phases, s"
    )
    for name, jobs in found.jobs.items():
        table.add_row(
            name,
            f"{found.middle(name, 'seconds'):.1f}",
            f"{found.middle(name, 'start_s'):.1f}",
            f"{jobs[0].records / found.middle(name, 'seconds'):,.0f}",
            f"{found.middle(name, 'cpu_s'):.1f}",
            f"{max(job.peak_bytes for job in jobs) / 1e6:,.0f}",
            _phases([job.phases for job in jobs]),
        )
    console.print(table)
    full_s = found.middle(_FULL, "seconds")
    pairs = zip(found.jobs[_FULL], found.jobs[_COUNT], strict=True)
    ratios = sorted(ours.seconds / theirs.seconds for ours, theirs in pairs)
    console.print(
        f"An audit takes {median(ratios):.2f} times as long as reading and counting "
        f"({ratios[0]:.2f} to {ratios[-1]:.2f} in {len(ratios)} turns), and "
        f"{found.middle(_FULL, 'cpu_s') / found.middle(_COUNT, 'cpu_s'):.2f} times the CPU time."
    )
    new_s, whole_s = found.middle(_NEW, "seconds"), full_s + found.middle(_FULL, "start_s")
    with_start_s = new_s + found.middle(_NEW, "start_s")
    console.print(
        f"An audit of 1 % new records takes {new_s / full_s:.1%} of the full audit's time, and "
        f"{with_start_s / whole_s:.1%} with Spark's start."
    )
    console.print(f"The last record of the source is missing on the target: {found.missing}")


def _phases(of_jobs: Sequence[Mapping[str, float]]) -> str:
    return "\n".join(
        f"{name}: {median(phases[name] for phases in of_jobs if name in phases):.1f}"
        for name in dict.fromkeys(name for phases in of_jobs for name in phases)
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.audit", description=__doc__)
    parser.add_argument(
        "--messages", type=int, default=1_000_000, help="records of 100 B (1,000,000)"
    )
    parser.add_argument("--gigabytes", type=int, default=1, help="records of 1,000 B, in GB (1)")
    parser.add_argument("--turns", type=int, default=3, help="full audits of each size (3)")
    parser.add_argument("--codec", default="none", help="compression of the records (none)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
