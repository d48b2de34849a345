"""How long a mirror test's comparison takes, in what memory, and how fast its load is sent.

``make bench-verify``. Brokers, load and jobs are real. The mirror is a copy of every record: the
verdict must be Passed, because other figures would be meaningless. Next to the comparison, a job of
Spark only reads and counts both sides, with the same memory and cores, and the checks run alone, on
records in memory. No figure is compared with a limit: brokers and Spark share this machine.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from bench.spark_jobs import Job, judged, spark_figures
from bench.verify.clusters import MESSAGE_BYTES, RUN, Load, copy, described, loaded
from rich.console import Console
from rich.table import Table

from headrace import logs
from headrace.errors import GaveUp
from headrace.sandbox import ClusterPlan, Sandbox

_DISK_BYTES_A_MESSAGE = 400
"""Bytes in both clusters: headers and body of each message, twice."""


def main() -> int:
    """Measure, and print a table; 1 when the verdict is not Passed."""
    options = _options()
    logs.configure("ERROR")
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    plans = [ClusterPlan("east"), ClusterPlan("west")]
    disk_bytes = (1 << 30) + options.messages * _DISK_BYTES_A_MESSAGE
    try:
        with (
            tempfile.TemporaryDirectory(prefix="headrace-bench-") as name,
            Sandbox.start("bench-verify", plans, disk_bytes=disk_bytes) as sandbox,
            console.status("sending the load ...") as status,
        ):
            folder = Path(name)
            run = described(sandbox, folder, options.messages)
            load = loaded(folder)
            status.update("copying it ...")
            copy(run.test, run.topics, folder)
            status.update("reading and counting ...")
            counting = spark_figures("bench.counting", folder, *run.topics)
            status.update("comparing ...")
            comparing, _ = judged(RUN, folder)
            status.update("checking records in memory ...")
            checking = spark_figures("bench.verify.checking", folder)
    except GaveUp as gave_up:
        print(gave_up, file=sys.stderr)
        return 1
    _show(console, load, {"read and count": counting, "compare": comparing, "checks": checking})
    return 0


def _show(console: Console, load: Load, jobs: dict[str, Job]) -> None:
    sent = f"{load.messages:,} messages of {MESSAGE_BYTES} B"
    console.print(f"{sent} were sent at {load.messages / load.seconds:,.0f} messages/s.")
    table = Table("job", "s", "records/s of a side", "peak MiB", "phases")
    for name, job in jobs.items():
        phases = "\n".join(f"{phase}: {seconds:.1f} s" for phase, seconds in job.phases.items())
        each_s = f"{job.records / job.seconds:,.0f}"
        table.add_row(name, f"{job.seconds:.1f}", each_s, f"{job.peak_bytes >> 20:,}", phases)
    console.print(table)
    ratio = jobs["compare"].seconds / jobs["read and count"].seconds
    console.print(f"The comparison takes {ratio:.2f} times as long as reading and counting.")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.verify", description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000, help="of the load (1,000,000)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
