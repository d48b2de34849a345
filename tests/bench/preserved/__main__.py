"""Benchmark of ``offsets.mode: Preserved``: ``make bench-preserved``.

Each part by itself: ``PART=cpu``, ``transactions``, ``padding``, ``compacted``. Brokers run on the
same machine. No figure is compared with a limit.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.preserved import compacted, cpu, padding, rates
from bench.preserved.distance import from_far
from rich.console import Console
from support.preserved_topics import CLEANER

from headrace import logs
from headrace.api.offsets import GapPolicy
from headrace.errors import GaveUp
from headrace.sandbox import ClusterPlan, Sandbox

_BROKER = {"message.max.bytes": "8388608", "log.segment.delete.delay.ms": "1000"}
_OUT = Path(__file__).parents[3] / "dist" / "bench" / "preserved.json"
_ROUND_TRIP_S = 0.1
_REPLICATIONS = (1, 3)

Say = Callable[[str], None]


def main() -> int:
    """Measure, print tables, write the file; 1 when a copy did not end."""
    options = _options()
    logs.configure("ERROR")
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    _OUT.parent.mkdir(parents=True, exist_ok=True)
    with console.status("starting ...") as status:
        for name in PARTS if options.part == "all" else [options.part]:
            figures: dict[str, Any] = {"date": time.strftime("%Y-%m-%d")}
            try:
                for text in PARTS[name](options, status.update, figures):
                    console.print(text, soft_wrap=True)
            except GaveUp as gave_up:
                print(gave_up, file=sys.stderr)
                return 1
            _write(name, figures)
    return 0


def _cpu(options: argparse.Namespace, say: Say, figures: dict[str, Any]) -> Iterator[str]:
    found = {}
    with _sandbox() as sandbox:
        for number, workload in enumerate(cpu.WORKLOADS):
            one = cpu.pairs(sandbox, number, workload, options.pairs, say)
            found[workload.name] = one
            figures[workload.name] = asdict(one) | {"ratio": one.ratio}
    yield f"\nWithout holes\n\n{cpu.rows(found)}"


def _transactions(options: argparse.Namespace, say: Say, figures: dict[str, Any]) -> Iterator[str]:
    found = {}
    for replication in _REPLICATIONS:
        with _sandbox(replication) as sandbox, from_far(sandbox, _ROUND_TRIP_S) as far:
            near = {one.name: one.bootstrap_servers for one in sandbox.clusters}
            places = [
                rates.Place("near both", near["east"], near["west"], near["east"], far=False),
                rates.Place("source far", far["east"], near["west"], near["east"], far=False),
                rates.Place("target far", near["east"], far["west"], near["east"], far=True),
            ]
            for number, place in enumerate(places):
                one = rates.highest_rate(sandbox.folder, place, number, say)
                name = f"replication {replication} of the target, {place.name}"
                found[name], figures[name] = one, asdict(one)
    yield f"\nTransactions of one record, {rates.PARTITIONS} partitions\n\n{rates.rows(found)}"


def _padding(options: argparse.Namespace, say: Say, figures: dict[str, Any]) -> Iterator[str]:
    with _sandbox() as sandbox:
        one = padding.padded(sandbox, options.offsets or 1_000_000, say)
    figures |= asdict(one)
    yield f"\nFilled up to the source's start\n\n{padding.rows(one)}"


def _compacted(options: argparse.Namespace, say: Say, figures: dict[str, Any]) -> Iterator[str]:
    found: dict[str, compacted.Compacted] = {}
    with _sandbox(source=CLEANER) as sandbox:
        count = options.offsets or 1_000_000
        topic, records = compacted.compacted_topic(sandbox, count, say)
        for method in map(str, GapPolicy):
            one = compacted.copied(sandbox, topic, records, method, say)
            found[method], figures[method] = one, asdict(one) | {"whole_s": one.whole_s}
    yield f"\nCompacted, {compacted.PARTITIONS} partitions\n\n{compacted.rows(found)}"


PARTS: dict[str, Callable[[argparse.Namespace, Say, dict[str, Any]], Iterator[str]]] = {
    "cpu": _cpu,
    "transactions": _transactions,
    "padding": _padding,
    "compacted": _compacted,
}


def _sandbox(target_brokers: int = 1, source: dict[str, str] | None = None) -> Sandbox:
    """Start the clusters. Three brokers of a source could not commit 100 transactions/s here."""
    plans = [
        ClusterPlan("east", heap_mb=512, properties=_BROKER | (source or {})),
        ClusterPlan("west", target_brokers, heap_mb=512, properties=_BROKER),
    ]
    return Sandbox.start("bench-preserved", plans, disk_bytes=8 << 30)


def _write(part: str, figures: dict[str, Any]) -> None:
    """Write the figures of one part, and keep the figures of other parts."""
    known = json.loads(_OUT.read_text()) if _OUT.exists() else {}
    _OUT.write_text(json.dumps(known | {part: figures}, indent=2) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.preserved", description=__doc__)
    parser.add_argument("--part", choices=["all", *PARTS], default="all", help="what to measure")
    parser.add_argument("--pairs", type=int, default=cpu.PAIRS, help="of the part cpu")
    parser.add_argument("--offsets", type=int, help="of padding and compacted: 1,000,000")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
