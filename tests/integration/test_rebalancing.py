"""Units that move between drivers under load: planned, killed, frozen, scaled."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import pytest
from support.flows import FlowRun, manifest, spec
from support.records import Load, compare, make_topic, read, unique
from support.watch import Watch

from headrace.cli.main import main
from headrace.errors import InvalidSpec
from headrace.herder import control
from headrace.sandbox import Cluster

WaitUntil = Callable[..., object]
PARTITIONS = 8


@pytest.fixture(autouse=True)
def own_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control sockets of this test's own."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


class Scene:
    """A flow under load, and what the test does to it."""

    def __init__(self, run: FlowRun, wait_until: WaitUntil) -> None:
        self.run = run
        self._wait_until = wait_until

    def holders(self) -> dict[str, str]:
        """The driver that holds each running source task."""
        return {
            unit["name"]: unit["driverName"]
            for unit in self.run.units()
            if unit.get("phase") == "Running" and unit["driverName"] == unit["assignedTo"]
        }

    def settle(self, drivers: int, within_s: float = 20) -> dict[str, str]:
        """Wait until all tasks run on so many drivers."""
        self._wait_until(
            lambda: (
                len(holders := self.holders()) == PARTITIONS
                and len(set(holders.values())) == drivers
            ),
            within_s=within_s,
        )
        return self.holders()

    def process(self, driver: str) -> psutil.Process:
        """The process of a driver."""
        return next(p for p in self.run.drivers() if driver in p.cmdline())

    def ask(self, verb: str, **arguments: Any) -> dict[str, Any]:
        """Over the control socket."""
        return control.request(self.run.name, verb, **arguments)


@contextmanager
def flow_under_load(
    east: Cluster, west: Cluster, folder: Path, wait_until: WaitUntil, **more: Any
) -> Iterator[Scene]:
    """Two drivers, eight tasks of one partition each; afterwards nothing is missing."""
    name = unique("move")
    topic = make_topic(spec(east), name, PARTITIONS)
    flow = manifest(name, east, west, topic, heartbeats={"enabled": False}, **more)
    with FlowRun(folder, [flow]) as run, Load(spec(east), topic, PARTITIONS, per_second=1_000):
        scene = Scene(run, wait_until)
        scene.settle(2, within_s=40)
        yield scene
        scene.settle(len(set(scene.holders().values())))
    with FlowRun(folder, [flow], "--until-caught-up") as rest:
        assert rest.end(60) == 0, rest.output
    result = compare(read(spec(east), topic), read(spec(west), f"east.{topic}"))
    assert result.missing == 0
    assert result.in_order
    print(f"{name}: 0 missing, {result.repeated} repeated")


def test_a_planned_move_touches_one_task_only(
    east: Cluster, west: Cluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    with flow_under_load(east, west, tmp_path, wait_until) as scene:
        before = scene.holders()
        epochs = {unit["name"]: unit["epoch"] for unit in scene.run.units()}
        task = min(before)
        other = next(driver for driver in before.values() if driver != before[task])
        assert main(["move", task, other]) == 0
        wait_until(lambda: scene.holders().get(task) == other, within_s=10)
        after = {unit["name"]: unit["epoch"] for unit in scene.run.units()}
        assert {name for name in after if after[name] != epochs[name]} == {task}

        with pytest.raises(InvalidSpec, match="driver nobody is not there; there are driver-"):
            scene.ask("move", task=task, driver="nobody")
        with pytest.raises(InvalidSpec, match="has no task nothing; it has "):
            scene.ask("describe", task="nothing")
        assert scene.ask("describe", task=task)["status"]["driverName"] == other


def test_a_restart_and_a_pause(
    east: Cluster, west: Cluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    with flow_under_load(east, west, tmp_path, wait_until) as scene:
        task, epochs = scene.run.units()[0]["name"], {}
        epochs = {unit["name"]: unit["epoch"] for unit in scene.run.units()}
        assert main(["restart", task]) == 0
        wait_until(
            lambda: any(
                unit["name"] == task and unit["epoch"] > epochs[task] for unit in scene.run.units()
            ),
            within_s=10,
        )
        scene.settle(2)

        assert main(["pause", scene.run.name]) == 0
        wait_until(
            lambda: {unit.get("phase") for unit in scene.run.units()} == {"Paused"}, within_s=10
        )
        assert main(["resume", scene.run.name]) == 0
        scene.settle(2)


def test_a_frozen_driver_loses_its_tasks_and_stops_when_it_thaws(
    east: Cluster, west: Cluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    drivers = {"replicas": 2, "leaseSeconds": 3}
    with flow_under_load(east, west, tmp_path, wait_until, drivers=drivers) as scene:
        before = scene.holders()
        victim = min(before.values())
        lost = {task for task, driver in before.items() if driver == victim}
        process = scene.process(victim)
        process.suspend()
        wait_until(
            lambda: all(scene.holders().get(task) not in (None, victim) for task in lost),
            within_s=20,
        )
        process.resume()
        # It finds its tasks taken, and takes back what balance gives it.
        scene.settle(2)


def test_scaling_moves_what_must_move(
    east: Cluster, west: Cluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    with flow_under_load(east, west, tmp_path, wait_until) as scene:
        before = scene.holders()
        assert main(["scale", "4"]) == 0
        four = scene.settle(4)
        assert sum(four[task] != before[task] for task in four) == PARTITIONS // 2
        assert main(["scale", "1"]) == 0
        one = scene.settle(1)
        assert set(one.values()) <= set(before.values())
        wait_until(lambda: len(scene.run.drivers()) == 1, within_s=10)


def test_the_silence_of_a_move(
    east: Cluster, west: Cluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    """Twenty moves: how long nothing arrived, of what moved and of what did not."""
    with flow_under_load(east, west, tmp_path, wait_until) as scene:
        topic = f"east.{scene.run.name}"
        moved: list[float] = []
        unmoved: list[float] = []
        with Watch(spec(west), topic, PARTITIONS) as watch:
            for number in range(20):
                holders = scene.holders()
                task = f"{scene.run.name}-source-task-{number % PARTITIONS}"
                other = next(d for d in sorted(set(holders.values())) if d != holders[task])
                began = time.monotonic()
                scene.ask("move", task=task, driver=other)
                wait_until(lambda t=task, o=other: scene.holders().get(t) == o, within_s=15)
                time.sleep(0.5)  # a window with the same margin for all partitions
                partition = number % PARTITIONS
                silences = watch.longest_silences(began)
                moved.append(silences.pop(partition))
                unmoved.extend(silences.values())
        print(f"silence of 20 moved partitions, s: {_distribution(moved)}")
        print(f"silence of the {len(unmoved)} others, s: {_distribution(unmoved)}")
        assert max(moved) < 10


def _distribution(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    return (
        f"min {ordered[0]:.2f}, median {median(ordered):.2f}, "
        f"p90 {ordered[int(0.9 * len(ordered))]:.2f}, max {ordered[-1]:.2f}"
    )
