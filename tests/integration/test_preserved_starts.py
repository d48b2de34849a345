"""The start of a copy with preserved offsets follows the start of its source."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.flows import FlowRun, manifest, spec
from support.preserved_topics import KEPT, bounds
from support.records import delete_records, make_topic, numbered, produce, unique

from headrace.kafka import Admin
from headrace.sandbox import SandboxCluster


def test_start_of_copy_follows_deletion_on_idle_source(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    topic = make_topic(spec(east), unique("trimmed"), 2, **KEPT)
    produce(spec(east), topic, numbered(100, 2))
    flow = manifest(
        unique("trimming"), east, west, topic, offsets={"mode": "Preserved"}, tasks={"max": 1},
        discovery={"topicsSeconds": 1},
    )  # fmt: skip
    there = Admin(spec(west))

    def copies() -> list[Any]:
        return [bounds(there, f"east.{topic}", number) for number in (0, 1)]

    def sources() -> list[Any]:
        return [bounds(spec(east), topic, number) for number in (0, 1)]

    with FlowRun(tmp_path, [flow]):
        wait_until(copies, until=lambda found: found == sources())
        delete_records(spec(east), topic, {0: 30, 1: sources()[1][-1]})
        wait_until(copies, until=lambda found: found == sources())
