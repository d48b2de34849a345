"""A flow under load, its faults, and its figures."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from support.flows import ANSWER_S, FlowRun, manifest, spec, words_of
from support.records import Load, compare, make_topic, read, unique

from headrace.api.partitions import parse_ranges
from headrace.control import control
from headrace.sandbox import SandboxCluster

WaitUntil = Callable[..., Any]
PARTITIONS = 8


class Scene:
    """A flow under load, and the faults of a test."""

    def __init__(self, run: FlowRun, wait_until: WaitUntil) -> None:
        self.run = run
        self._wait_until = wait_until

    def holders(self) -> dict[str, str]:
        """Return the driver that holds each running source task."""
        return {
            unit["name"]: unit["driverName"]
            for unit in self.run.units()
            if unit.get("phase") == "Running" and unit["driverName"] == unit["assignedTo"]
        }

    def settle(self, drivers: int) -> dict[str, str]:
        """Wait until all tasks run on that number of drivers, and return their holders."""
        on: dict[str, str] = self._wait_until(
            self.holders,
            until=lambda on: len(on) == PARTITIONS and len(set(on.values())) == drivers,
        )
        return on

    def epochs(self) -> dict[str, int]:
        """Return the epoch of each source task."""
        units = self._wait_until(self.run.units)
        return {unit["name"]: unit["epoch"] for unit in units}

    def tasks(self) -> dict[int, str]:
        """Return the source task of each partition of the topic.

        A task may also have ``heartbeats``, which other tests may have left here.
        """

        def owners() -> dict[int, str]:
            return {
                number: unit["name"]
                for unit in self.run.units()
                for packed in unit.get("partitions", [])
                if packed["topic"] == self.run.name
                for number in parse_ranges(packed["partitions"])
            }

        found: dict[int, str] = self._wait_until(owners, until=lambda of: len(of) == PARTITIONS)
        return found

    def process(self, driver: str) -> psutil.Process:
        """Return the process of a driver."""
        return next(p for p in self.run.drivers() if driver in words_of(p))

    def ask(self, verb: str, **arguments: Any) -> dict[str, Any]:
        """Over the control socket."""
        return control.request(self.run.name, verb, ANSWER_S, **arguments)


@contextmanager
def flow_under_load(
    east: SandboxCluster, west: SandboxCluster, folder: Path, wait_until: WaitUntil, **more: Any
) -> Iterator[Scene]:
    """Eight tasks of one partition each, on two drivers; afterwards nothing is missing."""
    name = unique("move")
    topic = make_topic(spec(east), name, PARTITIONS)
    drivers = {"replicas": 2, **more.pop("drivers", {})}  # in the spec: a test may scale it
    more = {"heartbeats": {"enabled": False}, "drivers": drivers, **more}
    flow = manifest(name, east, west, topic, **more)
    with FlowRun(folder, [flow]) as run, Load(spec(east), topic, PARTITIONS, per_second=1_000):
        scene = Scene(run, wait_until)
        scene.settle(drivers["replicas"])
        yield scene
        wait_until(lambda: len(scene.holders()) == PARTITIONS)
    with FlowRun(folder, [flow], "--until-caught-up") as rest:
        assert rest.end() == 0, rest.output
    result = compare(read(spec(east), topic), read(spec(west), f"east.{topic}"))
    assert result.missing == 0
    assert result.in_order
    print(f"{name}: 0 missing, {result.repeated} repeated")


def distribution(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    return (
        f"min {ordered[0]:.2f}, median {median(ordered):.2f}, "
        f"p90 {ordered[int(0.9 * len(ordered))]:.2f}, max {ordered[-1]:.2f}"
    )
