"""Standby tasks: which driver takes over when one is killed, and how soon."""

import time
from pathlib import Path

import pytest
from support.flows import spec
from support.scenes import PARTITIONS, WaitUntil, distribution, flow_under_load
from support.watch import Watch

from headrace.cli.main import main
from headrace.sandbox import SandboxCluster


def observed(watch: Watch, since: float) -> set[int]:
    """Return the partitions of which a record has arrived since then."""
    waited_s = time.monotonic() - since
    return {n for n, silence in watch.longest_silences(since).items() if silence < waited_s}


@pytest.mark.parametrize("standbys", [pytest.param(0, marks=pytest.mark.long), 1])
def test_a_killed_driver_s_tasks_are_taken_over(  # noqa: PLR0917 - fixtures
    east: SandboxCluster,
    west: SandboxCluster,
    tmp_path: Path,
    wait_until: WaitUntil,
    capsys: pytest.CaptureFixture[str],
    standbys: int,
) -> None:
    """Kill one of three drivers three times; with standbys, those take over."""
    more = {"drivers": {"replicas": 3}, "tasks": {"standbys": standbys}}
    with flow_under_load(east, west, tmp_path, wait_until, **more) as scene:
        taken: list[float] = []
        others: list[float] = []
        with Watch(spec(west), f"east.{scene.run.name}", PARTITIONS) as watch:
            for _ in range(3):
                scene.settle(3)
                time.sleep(2)  # earlier silence does not count
                tasks = scene.tasks()
                before = wait_until(
                    scene.run.units,
                    until=lambda units: (
                        {len(unit["standbys"]) for unit in units} == {standbys}
                        and all(unit["driverName"] for unit in units)
                        and len(units) >= PARTITIONS
                    ),
                )
                victim = min(unit["driverName"] for unit in before)
                lost = {unit["name"] for unit in before if unit["driverName"] == victim}
                began = time.monotonic()
                scene.process(victim).kill()
                wait_until(
                    lambda lost=lost, victim=victim: all(
                        scene.holders().get(task) not in (None, victim) for task in lost
                    )
                )
                over = time.monotonic()
                wait_until(
                    lambda over=over: observed(watch, over), until=lambda on: len(on) == PARTITIONS
                )
                for partition, silence in watch.longest_silences(began).items():
                    (taken if tasks[partition] in lost else others).append(silence)
        with capsys.disabled():
            print(f"\n{standbys} standbys: silence of {len(taken)} partitions that were taken over")
            print(f"  {distribution(taken)}; of {len(others)} others: {distribution(others)}")


def test_standbys_are_shown(
    east: SandboxCluster,
    west: SandboxCluster,
    tmp_path: Path,
    wait_until: WaitUntil,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with flow_under_load(east, west, tmp_path, wait_until, tasks={"standbys": 1}) as scene:
        found = wait_until(
            scene.run.settled, until=lambda units: units and all(u["standbys"] for u in units)
        )
        units = {unit["name"]: unit for unit in found}
        assert len(units) == PARTITIONS
        both = {unit["driverName"] for unit in units.values()}
        assert all({u["driverName"], *u["standbys"]} == both for u in units.values())
        capsys.readouterr()
        assert main(["task", "list", scene.run.name]) == 0
        shown = {
            line.split()[0]: line.split()[1:4] for line in capsys.readouterr().out.splitlines()
        }
        name, unit = next(iter(units.items()))
        assert shown[name] == ["Running", unit["driverName"], unit["standbys"][0]]
        described = scene.ask("describe", task=name)
        assert described["spec"]["standbyDriverNames"] == unit["standbys"]
        # Connectors keep no state, and have none.
        assert not any(unit["standbys"] for unit in scene.run.units("SourceConnector"))
