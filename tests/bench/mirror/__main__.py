"""How fast a topic is caught up, and what it costs: headrace beside MirrorMaker 2 and franz-go.

``make bench-mirror``. All run on the same brokers, one after another, in turns. CPU includes only
the replicator's processes; MB/s depends on this machine with its brokers. No figure is compared
with a limit.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.mirror import floor, neighbours
from bench.mirror.figures import CatchUp, middle, table
from bench.mirror.measure import access, measured
from bench.mirror.plot import draw
from bench.mirror.steady import RATES, Steady, rows, steady
from bench.mirror.subjects import DEFAULT, DELIVERY, FRANZ, PEERS, SUBJECTS, TUNED
from bench.mirror.workloads import ENCRYPTED, FULL, QUICK, REPEATED, produce
from rich.console import Console
from rich.status import Status

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
    plans = [
        ClusterPlan(name, heap_mb=512, properties=_BROKER, secure=True) for name in ("east", "west")
    ]
    least = floor.core_s_per_gb()
    console.print(f"Copying between two sockets: {least:.2f} core-s/GB")
    _OUT.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {"floor_core_s_per_gb": least}
    try:
        with (
            Sandbox.start("bench-mirror", plans, disk_bytes=8 << 30) as sandbox,
            console.status("starting ...") as status,
        ):
            if options.part in ("all", "catch-up"):
                for text in _catch_ups(sandbox, status, results, quick=options.quick):
                    console.print(text, soft_wrap=True)
            if options.part in ("all", "delivery"):
                for text in _delivery(sandbox, status, results):
                    console.print(text, soft_wrap=True)
            if options.part in ("all", "rates"):
                for text in _rates(sandbox, status, results, quick=options.quick):
                    console.print(text, soft_wrap=True)
            if options.part in ("all", "neighbours"):
                for text in _neighbours(sandbox, status, results):
                    console.print(text, soft_wrap=True)
    except GaveUp as gave_up:
        print(gave_up, file=sys.stderr)
        return 1
    return 0


def _catch_ups(
    sandbox: Sandbox, status: Status, results: dict[str, Any], *, quick: bool
) -> Iterator[str]:
    """Yield a table for each workload, when it is measured."""
    found: dict[str, dict[str, CatchUp]] = {}
    subjects, baselines = (PEERS, (FRANZ, TUNED)) if quick else (SUBJECTS, (FRANZ, TUNED, DEFAULT))
    for index, workload in enumerate(QUICK if quick else FULL):
        status.update(f"{workload.name}: sending {workload.records:,} records ...")
        produce(access(sandbox, "east"), workload)
        repeated = not quick and workload in REPEATED
        runs: dict[str, list[CatchUp]] = {one.name: [] for one in subjects}
        for turn in range(_REPETITIONS if repeated else 1):
            for number, subject in enumerate(subjects):
                status.update(f"{workload.name}, turn {turn + 1}: {subject.name} ...")
                alias = f"r{index}-{turn}-{number}"
                runs[subject.name].append(measured(subject, sandbox, alias, workload))
        found[workload.name] = {name: middle(each) for name, each in runs.items()}
        results.setdefault("workloads", {})[workload.name] = _plain(found[workload.name])
        _write(results)
        draw(found, _OUT / "mirror.svg")
        yield f"\n{workload.name}\n\n{table(found[workload.name], baselines)}"


def _delivery(sandbox: Sandbox, status: Status, results: dict[str, Any]) -> Iterator[str]:
    """Yield a table of one workload with the costs of TLS and transactions."""
    workload = ENCRYPTED
    status.update(f"{workload.name}: sending {workload.records:,} records ...")
    produce(access(sandbox, "east"), workload)
    found: dict[str, CatchUp] = {}
    for number, subject in enumerate(DELIVERY):
        status.update(f"{workload.name}: {subject.name} ...")
        found[subject.name] = measured(subject, sandbox, f"d{number}", workload)
    results["delivery"] = _plain(found)
    _write(results)
    baselines = (TUNED, f"{FRANZ}, TLS", f"{TUNED}, TLS")
    yield f"\n{workload.name}, TLS and exactly-once\n\n{table(found, baselines)}"


def _rates(
    sandbox: Sandbox, status: Status, results: dict[str, Any], *, quick: bool
) -> Iterator[str]:
    """Yield a table for each rate, when it is measured."""
    for rate in RATES[:1] if quick else RATES:
        found: dict[str, Steady] = {}
        for number, subject in enumerate(SUBJECTS):
            status.update(f"{rate:,} records/s: {subject.name} ...")
            found[subject.name] = steady(subject, sandbox, f"s{rate}-{number}", rate)
        results.setdefault("records_per_s", {})[rate] = _plain(found)
        _write(results)
        yield f"\n{rate:,} records/s\n\n{rows(found)}"


def _neighbours(sandbox: Sandbox, status: Status, results: dict[str, Any]) -> Iterator[str]:
    """Yield a table of what others notice of a catch-up."""
    for measure in (neighbours.beside_catch_up, neighbours.beside_backlog):
        found = measure(sandbox, status.update)
        results.setdefault("neighbours", {}).update(_plain(found))
        _write(results)
        yield f"\n{neighbours.rows(found)}"


def _plain(figures: Mapping[str, Any]) -> dict[str, Any]:
    return {name: asdict(one) for name, one in figures.items()}


def _write(results: dict[str, Any]) -> None:
    (_OUT / "mirror.json").write_text(json.dumps(results, indent=2) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.mirror", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="four workloads, once: ten minutes")
    parts = ("all", "catch-up", "delivery", "rates", "neighbours")
    parser.add_argument("--part", choices=parts, default="all", help="what to measure")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
