"""Faults of drivers, brokers and assignors while a flow copies; no record is missing."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.flows import spec
from support.proxy import Proxy
from support.records import count
from support.scenes import PARTITIONS, Scene, WaitUntil, flow_under_load

from headrace.cli.main import main
from headrace.errors import InvalidSpec
from headrace.host import write_whole
from headrace.sandbox import SandboxCluster
from headrace.sandbox.processes import HOST, held_ports

PLUG_IN = """
import os
from pathlib import Path
from headrace.assign import DriverAssignment, StickyAssignor, TaskAssignment

class Moody(StickyAssignor):
    def assign(self, state):
        mood = Path(os.environ["MOOD"]).read_text()
        good = super().assign(state)
        first, *_, last = sorted(good.drivers)
        given = dict(good.drivers)
        all = DriverAssignment(frozenset(state.tasks))
        if mood == "raises":
            raise KeyError("nothing fits")
        while mood == "loops":
            pass
        if mood == "assigns twice":
            given |= {first: all, last: all}
        if mood == "forgets":
            given |= {first: DriverAssignment()}
        if mood == "knows a stranger":
            given |= {"stranger": DriverAssignment()}
        return TaskAssignment(given)
"""
HANGS = """
import os, sys, time
from pathlib import Path

if "run" in sys.orig_argv:  # drivers are forked from it
    from headrace.connect.runtime.ownership import Ownership
    release = Ownership.release

    def hang(self):
        while Path(os.environ["HANGING"], self.driver.name).exists():
            time.sleep(0.1)
        release(self)

    Ownership.release = hang
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder from which started processes import."""
    site = tmp_path / "site"
    site.mkdir()
    paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    return site


@pytest.fixture
def mood(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install the plug-in ``moody`` as pip would, and return the file that sets its behaviour."""
    (site / "moody.py").write_text(PLUG_IN)
    info = site / "moody-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: moody\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[headrace.assignors]\nmoody = moody:Moody\n")
    mood = tmp_path / "mood"
    write_whole(mood, b"good")
    monkeypatch.setenv("MOOD", str(mood))
    return mood


def message_of(scene: Scene, type: str) -> str:
    """Return the message of a condition, or an empty one."""
    condition: dict[str, Any] = scene.run.condition(type)
    message: str = condition.get("message", "")
    return message


@pytest.mark.long
def test_a_plug_in_that_gives_no_good_answer_changes_nothing_and_is_named(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil, mood: Path
) -> None:
    more = {"tasks": {"assignor": "moody"}, "drivers": {"leaseSeconds": 20}}
    with flow_under_load(east, west, tmp_path, wait_until, **more) as scene:
        before = scene.settle(2)
        for how, sentence in {
            "raises": "assignor moody raised KeyError: 'nothing fits'",
            "loops": "assignor moody did not answer within 5 s",
            "assigns twice": "is given to driver driver-1 and to driver driver-",
            "forgets": "tasks have no driver",
            "knows a stranger": "there is no driver stranger",
        }.items():
            write_whole(mood, how.encode())
            scene.ask("scale", drivers=3)  # running or starting: it requests again
            message = wait_until(
                lambda: message_of(scene, "AssignmentFailed"),
                until=lambda seen, sentence=sentence: sentence in seen,
            )
            assert message.endswith("; the assignment in force stays")
            wait_until(scene.run.ready)
            held = wait_until(scene.holders, until=lambda on: len(on) == PARTITIONS)
            assert held == before

        # A task that loses its driver in this state waits, and the flow reports it.
        victim = min(before.values())
        scene.process(victim).kill()
        wait_until(
            lambda: message_of(scene, "Ready"),
            until=lambda seen: "units wait for a driver: assignor moody gave" in str(seen),
        )
        write_whole(mood, b"good")
        scene.ask("scale", drivers=3)
        scene.settle(3)
        wait_until(lambda: not message_of(scene, "AssignmentFailed"))


@pytest.mark.long
def test_a_driver_that_does_not_let_go_is_named_and_its_units_are_taken(  # noqa: PLR0917 - fixtures
    east: SandboxCluster,
    west: SandboxCluster,
    tmp_path: Path,
    wait_until: WaitUntil,
    site: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (site / "sitecustomize.py").write_text(HANGS)
    monkeypatch.setenv("HANGING", str(tmp_path))
    drivers = {"leaseSeconds": 20}
    with flow_under_load(east, west, tmp_path, wait_until, drivers=drivers) as scene:
        before = scene.settle(2)
        victim, other = sorted(set(before.values()), reverse=True)
        (tmp_path / victim).touch()
        assert main(["flow", "scale", "1"]) == 0
        task = next(task for task, driver in before.items() if driver == other)
        with pytest.raises(InvalidSpec, match=f"driver {victim} is leaving; there are {other}"):
            scene.ask("move", task=task, driver=victim)
        wait_until(
            lambda: message_of(scene, "DriverUnresponsive"),
            until=lambda seen: f"{victim} (" in str(seen),
        )
        scene.settle(1)
        # It holds no unit any more, and ends.
        wait_until(lambda: len(scene.run.drivers()) == 1)
        wait_until(lambda: not message_of(scene, "DriverUnresponsive"))
        assert "driver lost" not in scene.run.output


@pytest.mark.long
def test_without_drivers_units_wait(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    drivers = {"leaseSeconds": 20}
    with flow_under_load(east, west, tmp_path, wait_until, drivers=drivers) as scene:
        assert main(["flow", "scale", "0"]) == 0
        wait_until(lambda: not scene.run.drivers())
        ready = wait_until(
            lambda: scene.run.condition("Ready"),
            until=lambda ready: ready.get("reason") == "NoDrivers",
        )
        assert ready["status"] == "False"
        assert "driver lost" not in scene.run.output
        assert scene.run.output.count("driver left") == 2
        assert main(["flow", "scale", "2"]) == 0
        scene.settle(2)


@pytest.mark.long
@pytest.mark.parametrize("side", ["source", "target"])
def test_a_broker_that_stands_still_for_a_while(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil, side: str
) -> None:
    with flow_under_load(east, west, tmp_path, wait_until, heartbeats={"enabled": True}) as scene:
        broker = (east if side == "source" else west).broker(1)
        broker.freeze()
        try:
            # The heartbeat task writes a record a second: it notices and reports the fault first.
            wait_until(
                lambda: [unit.get("lastError") for unit in scene.run.units("HeartbeatTask")],
                until=lambda seen: "did not acknowledge a heartbeat" in str(seen),
            )
        finally:
            broker.thaw()
        wait_until(
            lambda: [unit.get("lastError") for unit in scene.run.units("HeartbeatTask")],
            until=lambda seen: seen == [None],
        )
        wait_until(scene.run.ready)


@pytest.mark.long
def test_a_target_at_the_end_of_a_slow_line(
    east: SandboxCluster,
    start_cluster: Callable[..., SandboxCluster],
    tmp_path: Path,
    wait_until: WaitUntil,
) -> None:
    """Add 100 ms each way, which costs a tenth of a second more of lag, and nothing else."""
    with held_ports([None]) as (port,), Proxy(HOST, port, delay_s=0.1) as line:
        advertised = {"advertised.listeners": f"PLAINTEXT://{HOST}:{line.port}"}
        west = start_cluster("west", port=port, properties=advertised)
        with flow_under_load(east, west, tmp_path, wait_until) as scene:
            wait_until(scene.run.ready)
            topic = f"east.{scene.run.name}"
            copied = count(spec(west), topic)
            wait_until(lambda: count(spec(west), topic) > copied + 10_000)
