"""The target's disk is full: its broker ends itself. A real one, small, in memory."""

import json
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from operator import eq
from pathlib import Path
from typing import Any

import pytest
from support.flows import FlowRun, manifest, spec
from support.records import arrived, make_topic, numbered, produce, read, unique

from headrace.cli.main import main
from headrace.sandbox import SandboxCluster

WaitUntil = Callable[..., Any]
SMALL, LARGE = "24m", "200m"
RECORDS, SIZE = 4_000, 10_000


class Disk:
    """A file system of its own. Mounting it requires root."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._mount("size=" + SMALL)

    def enlarge(self) -> None:
        """Add the space by which a disk is enlarged."""
        self._mount("remount,size=" + LARGE)

    def close(self) -> None:
        """Unmount the disk, which deletes its content."""
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True)

    def _mount(self, options: str) -> None:
        command = ["mount", "-t", "tmpfs", "-o", options, "headrace-test", str(self.folder)]
        subprocess.run(command, check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(tmp_path / "disk")
    yield disk
    disk.close()


@pytest.mark.long
def test_a_flow_says_that_its_target_is_down_and_goes_on_when_there_is_room(
    *,
    disk: Disk,
    east: SandboxCluster,
    start_cluster: Callable[..., SandboxCluster],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    wait_until: WaitUntil,
) -> None:
    west = start_cluster("west", properties={"log.dirs": str(disk.folder)})
    (broker,) = west.brokers
    name = unique("full")
    topic, copy = make_topic(spec(east), name, 1), f"east.{name}"
    records = [
        one._replace(value=(one.value or b"").ljust(SIZE, b"x")) for one in numbered(RECORDS, 1)
    ]
    large = make_topic(spec(east), unique("large"), 1)
    produce(spec(east), large, records)
    file = tmp_path / "large.yaml"
    FlowRun.write(file, [manifest(large, east, west, large)])
    main(["check", str(file), "-o", "json"])
    (document,) = json.loads(capsys.readouterr().out)
    (found,) = [one for one in document["findings"] if one["check"] == "free disk"]
    assert found["result"] == "warning"
    assert re.search(r"needs 4\d\.\d MB and has \d+\.\d MB free", found["message"])

    with FlowRun(tmp_path, [manifest(name, east, west, topic)]) as run:
        wait_until(run.ready)
        produce(spec(east), topic, records)
        wait_until(lambda: broker.process, until=lambda process: process is None)
        assert "No space left on device" in broker.log.read_text()
        words = (
            f"{broker.address} refuses connections",
            "start the brokers; one whose disk is full ends itself, and says so in its log",
        )
        ready = wait_until(
            lambda: run.condition("Ready"),
            until=lambda ready: all(one in ready.get("message", "") for one in words),
        )
        assert (ready["status"], ready["reason"]) == ("False", "TargetUnreachable")
        disk.enlarge()
        broker.start()
        wait_until(lambda: arrived(spec(west), copy), until=partial(eq, RECORDS))
        wait_until(run.ready)
    there = Counter(one.value for one in read(spec(west), copy)[0])
    assert there == Counter(one.value for one in records), "each record once"
