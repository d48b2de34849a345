"""A Spark job that stores its own offsets resumes at a target with the source's offsets."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support import streaming_job
from support.flows import FlowRun, manifest, spec
from support.groups import positions
from support.random_log import RandomLog, wire_client
from support.records import delete_records, make_topic, unique

from headrace.cli.mirror_test.spark_job import environment
from headrace.mirror_test import Stage
from headrace.sandbox import SandboxCluster

WaitUntil = Callable[..., Any]
Record = tuple[int, bytes | None]


@contextmanager
def streaming(topic: str, folder: Path) -> Iterator[Callable[[SandboxCluster], list[Record]]]:
    """Yield a running job as a function that returns the records it read from a cluster."""
    known: set[Path] = set()
    with (folder / "spark.log").open("wb") as log:
        job = subprocess.Popen(
            [sys.executable, streaming_job.__file__, topic, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment(Stage.VERIFY, 2, folder),
        )
    asked, answers = job.stdin, job.stdout
    assert asked is not None
    assert answers is not None

    def read(cluster: SandboxCluster) -> list[Record]:
        asked.write(f"{cluster.bootstrap_servers}\n".encode())
        asked.flush()
        assert answers.readline() == b"read\n", (folder / "spark.log").read_text()
        new = set((folder / "records").glob("*.json")) - known
        known.update(new)
        rows = [json.loads(line) for file in new for line in file.read_text().splitlines()]
        return sorted(
            (row["offset"], bytes.fromhex(row["value"]) if "value" in row else None) for row in rows
        )

    try:
        yield read
    finally:
        job.kill()
        job.wait()


@pytest.mark.long
def test_a_job_with_its_own_checkpoint_goes_on_at_the_target(
    east: SandboxCluster, west: SandboxCluster, wait_until: WaitUntil, tmp_path: Path
) -> None:
    """Stop the source, whose log has transactions and begins after offset 0."""
    topic = make_topic(spec(east), unique("orders"), 1, **{"retention.ms": "-1"})
    flow = manifest(
        unique("preserved"),
        east,
        west,
        topic,
        offsets={"mode": "Preserved"},
        replicationPolicy={"type": "Identity"},
    )

    def differ() -> Any:
        both = positions(east, topic), positions(west, topic)
        return both if both[0] != both[1] else None

    with streaming(topic, tmp_path) as read:
        with wire_client(spec(east)) as client:
            RandomLog(client, topic, "first").fill(20)
            delete_records(spec(east), topic, {0: positions(east, topic)[2][0]})
            with FlowRun(tmp_path, [flow]):
                before = read(east)
                assert before == positions(east, topic)
                RandomLog(client, topic, "second").fill(20)
                wait_until(differ, until=lambda found: not found)
        records = positions(east, topic)
        east.stop()
        assert read(west) == records[len(before) :]
    assert len(before) < len(records)
    offsets = [offset for offset, _ in records]
    assert len(offsets) < offsets[-1] - offsets[0] + 1, "there are no holes"
