"""Units that move between drivers under load: planned, killed, frozen, scaled."""

import time
from pathlib import Path

import pytest
from support.flows import spec
from support.scenes import PARTITIONS, WaitUntil, distribution, flow_under_load
from support.watch import Watch

from headrace.cli.main import main
from headrace.errors import InvalidSpec
from headrace.sandbox import SandboxCluster

pytestmark = pytest.mark.long


def test_a_planned_move_touches_one_task_only(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    drivers = {"leaseSeconds": 20}
    with flow_under_load(east, west, tmp_path, wait_until, drivers=drivers) as scene:
        before, epochs = scene.settle(2), scene.epochs()
        task = min(before)
        other = next(driver for driver in before.values() if driver != before[task])
        assert main(["task", "move", task, other]) == 0
        wait_until(lambda: scene.holders().get(task) == other)
        after = scene.epochs()
        assert {name for name in after if after[name] != epochs[name]} == {task}

        with pytest.raises(InvalidSpec, match="driver nobody does not exist; there are driver-"):
            scene.ask("move", task=task, driver="nobody")
        with pytest.raises(InvalidSpec, match="has no task nothing; it has "):
            scene.ask("describe", task="nothing")
        assert scene.ask("describe", task=task)["status"]["driverName"] == other


def test_a_restart_and_a_pause(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    with flow_under_load(east, west, tmp_path, wait_until) as scene:
        epochs = scene.epochs()
        task = min(epochs)
        assert main(["task", "restart", task]) == 0
        wait_until(lambda: scene.epochs()[task] > epochs[task])
        scene.settle(2)

        assert main(["flow", "pause", scene.run.name]) == 0
        wait_until(lambda: {unit.get("phase") for unit in scene.run.units()} == {"Paused"})
        assert main(["flow", "resume", scene.run.name]) == 0
        scene.settle(2)


def test_partitions_are_paused_without_a_restart_and_a_flow_is_stopped(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    drivers = {"leaseSeconds": 20}
    with flow_under_load(east, west, tmp_path, wait_until, drivers=drivers) as scene:
        name, epochs = scene.run.name, scene.epochs()
        paused = {scene.tasks()[0], scene.tasks()[1]}

        def behind() -> set[str]:
            return {
                unit["name"]
                for unit in scene.run.units()
                if unit.get("lag", {}).get("records", 0) > 500
            }

        assert main(["flow", "pause", name, f"{name}/0-1"]) == 0
        wait_until(behind, until=lambda lag: lag == paused)
        words = f"1 of 1 partitions are paused by spec.pausedPartitions: {name}/0"
        wait_until(
            lambda: scene.run.condition("PartitionsPaused").get("message", ""),
            until=lambda message: words in message,
        )
        assert main(["flow", "resume", name, f"{name}/1"]) == 0
        wait_until(behind, until=lambda lag: lag == {scene.tasks()[0]})
        assert main(["flow", "resume", name, name]) == 0
        wait_until(behind, until=lambda lag: not lag)
        assert scene.epochs() == epochs

        assert main(["flow", "pause", name, "--stop"]) == 0
        wait_until(
            lambda: scene.run.condition("Ready").get("reason"),
            until=lambda reason: reason == "Stopped",
        )
        assert {unit["driverName"] for unit in scene.run.units()} == {""}
        assert len(scene.run.drivers()) == 2, "they may run other flows"
        assert main(["flow", "resume", name]) == 0
        scene.settle(2)


def test_a_frozen_driver_loses_its_tasks_and_stops_when_it_thaws(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    drivers = {"replicas": 2, "leaseSeconds": 3}
    with flow_under_load(east, west, tmp_path, wait_until, drivers=drivers) as scene:
        before = scene.settle(2)
        victim = min(before.values())
        lost = {task for task, driver in before.items() if driver == victim}
        process = scene.process(victim)
        process.suspend()
        wait_until(lambda: all(scene.holders().get(task) not in (None, victim) for task in lost))
        process.resume()
        # It finds its tasks taken, and takes back what balance gives it.
        scene.settle(2)


def test_scaling_moves_what_must_move(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    drivers = {"leaseSeconds": 20}
    with flow_under_load(east, west, tmp_path, wait_until, drivers=drivers) as scene:
        before = scene.settle(2)
        assert main(["flow", "scale", "4"]) == 0
        four = scene.settle(4)
        assert sum(four[task] != before[task] for task in four) == PARTITIONS // 2
        assert main(["flow", "scale", "1"]) == 0
        one = scene.settle(1)
        assert set(one.values()) <= set(before.values())
        wait_until(lambda: len(scene.run.drivers()) == 1)


def test_the_silence_of_a_move(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    """Twenty moves: how long nothing arrived, of what moved and of what did not."""
    with flow_under_load(east, west, tmp_path, wait_until) as scene:
        topic = f"east.{scene.run.name}"
        moved: list[float] = []
        added: list[float] = []  # beyond the others' silence, which a stall of the machine causes
        unmoved: list[float] = []
        both = sorted(set(scene.settle(2).values()))
        with Watch(spec(west), topic, PARTITIONS) as watch:
            for number in range(20):
                partition = number % PARTITIONS
                task = scene.tasks()[partition]
                holder = wait_until(lambda t=task: scene.holders().get(t))
                other = next(driver for driver in both if driver != holder)
                began = time.monotonic()
                scene.ask("move", task=task, driver=other)
                wait_until(lambda t=task, o=other: scene.holders().get(t) == o)
                time.sleep(0.5)  # a window with the same margin for all partitions
                silences = watch.longest_silences(began)
                moved.append(silences.pop(partition))
                added.append(moved[-1] - max(silences.values()))
                unmoved.extend(silences.values())
        print(f"silence of 20 moved partitions, s: {distribution(moved)}")
        print(f"silence of the {len(unmoved)} others, s: {distribution(unmoved)}")
        assert max(added) < 10
