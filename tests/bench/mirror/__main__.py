"""How fast a topic is caught up, and what it costs: headrace beside MirrorMaker 2.

``make bench-mirror``. All run on the same brokers, one after another, in turns. CPU is that of the
replicator's processes alone; MB/s is that of this machine with its brokers. Nothing is held against
a limit.
"""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from bench.mirror import floor
from bench.mirror.figures import CatchUp, middle, table
from bench.mirror.measure import access, measured
from bench.mirror.plot import draw
from bench.mirror.subjects import DEFAULT, SUBJECTS, TUNED
from bench.mirror.workloads import FULL, QUICK, REPEATED, produce
from rich.console import Console

from headrace import logs
from headrace.errors import GaveUp
from headrace.sandbox import ClusterPlan, Sandbox

_REPETITIONS = 5
_BROKER = {"message.max.bytes": "8388608", "log.segment.delete.delay.ms": "1000"}
_OUT = Path(__file__).parents[3] / "dist" / "bench"


def main() -> int:
    """Measure, print tables, write the files; 1 when a copy did not end."""
    options = _options()
    logs.configure("ERROR")
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    plans = [ClusterPlan(name, heap_mb=512, properties=_BROKER) for name in ("east", "west")]
    results: dict[str, dict[str, CatchUp]] = {}
    least = floor.core_s_per_gb()
    console.print(f"Copying between two sockets: {least:.2f} core-s/GB")
    _OUT.mkdir(parents=True, exist_ok=True)
    try:
        with (
            Sandbox.start("bench-mirror", plans, disk_bytes=8 << 30) as sandbox,
            console.status("starting ...") as status,
        ):
            for index, workload in enumerate(QUICK if options.quick else FULL):
                status.update(f"{workload.name}: sending {workload.records:,} records ...")
                produce(access(sandbox, "east"), workload)
                repeated = not options.quick and workload in REPEATED
                runs: dict[str, list[CatchUp]] = {one.name: [] for one in SUBJECTS}
                for turn in range(_REPETITIONS if repeated else 1):
                    for number, subject in enumerate(SUBJECTS):
                        status.update(f"{workload.name}, turn {turn + 1}: {subject.name} ...")
                        alias = f"r{index}-{turn}-{number}"
                        runs[subject.name].append(measured(subject, sandbox, alias, workload))
                results[workload.name] = {name: middle(each) for name, each in runs.items()}
                text = table(results[workload.name], (TUNED, DEFAULT))
                console.print(f"\n{workload.name}\n\n{text}", soft_wrap=True)
                _write(least, results)
    except GaveUp as gave_up:
        print(gave_up, file=sys.stderr)
        return 1
    return 0


def _write(least: float, results: dict[str, dict[str, CatchUp]]) -> None:
    figures = {
        workload: {name: asdict(one) for name, one in each.items()}
        for workload, each in results.items()
    }
    content = {"floor_core_s_per_gb": least, "workloads": figures}
    (_OUT / "mirror.json").write_text(json.dumps(content, indent=2) + "\n")
    draw(results, _OUT / "mirror.svg")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.mirror", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="three workloads, once: ten minutes")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
