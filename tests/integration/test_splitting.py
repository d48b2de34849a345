"""Tasks that share the partitions of a flow by their rates, under load."""

import re
import time
from collections.abc import Callable
from functools import partial
from operator import eq
from pathlib import Path
from typing import Any

from support.flows import FlowRun, manifest, spec
from support.patience import WITHIN_S
from support.records import Load, compare, make_topic, numbered, produce, read, unique
from support.watch import Watch

from headrace.api.partitions import HEARTBEATS, TopicPartition, TopicPartitions
from headrace.api.task import ReplicationTask
from headrace.cli.main import main
from headrace.control import control
from headrace.errors import InvalidSpec
from headrace.kafka import Admin
from headrace.sandbox import SandboxCluster

WaitUntil = Callable[..., Any]
Partitions = frozenset[TopicPartition]
PARTITIONS = 8


def source_tasks(run: FlowRun) -> dict[str, ReplicationTask]:
    """Return the present source tasks, by name; none if a task does not answer.

    The dict starts with the task that receives partitions.
    """
    try:
        return {
            unit["name"]: ReplicationTask.model_validate(
                control.request(run.name, "describe", WITHIN_S, task=unit["name"])
            )
            for unit in reversed(run.units())
        }
    except InvalidSpec:
        return {}


def assigned(task: ReplicationTask) -> Partitions:
    """Return a task's assigned partitions without heartbeats, which other tests may have left."""
    return _data(TopicPartitions.unpack(task.spec.partitions))


def held(task: ReplicationTask) -> Partitions:
    """Return the partitions that a task copies."""
    return _data(TopicPartitions.unpack(task.status.partitions))


def _data(partitions: Partitions) -> Partitions:
    return frozenset(at for at in partitions if at.topic != HEARTBEATS)


def settled(run: FlowRun, partitions: int) -> dict[str, ReplicationTask]:
    """Return the source tasks if they copy that number of partitions as assigned, else none."""
    tasks = source_tasks(run)
    copied = [at for task in tasks.values() for at in held(task)]
    as_assigned = all(held(task) == assigned(task) for task in tasks.values())
    return tasks if as_assigned and len(copied) == partitions else {}


def test_partitions_of_unequal_rate_are_evened_out_in_two_phases(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    name = unique("uneven")
    make_topic(spec(east), name, PARTITIONS)
    flow = manifest(
        name,
        east,
        west,
        f"{name}.*",
        heartbeats={"enabled": False},
        discovery={"topicsSeconds": 1},
        drivers={"leaseSeconds": 20},
        tasks={"max": 2, "movementBudget": 0.25},
    )
    with FlowRun(tmp_path, [flow], drivers=2) as run:
        wait_until(run.settled)
        before = wait_until(lambda: settled(run, PARTITIONS))
        full, light = sorted(before)
        # All heavy partitions are in one task: 100 records for each one of the others.
        heavy = sorted(at.partition for at in assigned(before[full]))
        rest = sorted(at.partition for at in assigned(before[light]))
        with (
            Watch(spec(west), f"east.{name}", PARTITIONS) as watch,
            Load(spec(east), name, heavy * 100 + rest, per_second=1_200),
        ):
            limbo: set[TopicPartition] = set()

            def evened_out() -> bool:
                tasks = source_tasks(run)
                if not tasks:
                    return False
                for of in assigned, held:
                    everywhere = [at for task in tasks.values() for at in of(task)]
                    assert len(set(everywhere)) == len(everywhere), "a partition in two tasks"
                limbo.update(
                    assigned(before[full]) - assigned(tasks[full]) - assigned(tasks[light])
                )
                return len(held(tasks[light])) == PARTITIONS // 2 + 2

            began = time.monotonic()
            wait_until(evened_out)  # rates are compared again after 60 s
            after = wait_until(lambda: settled(run, PARTITIONS))
            moved = {at.partition for at in assigned(after[light]) - assigned(before[light])}
            assert moved < set(heavy)
            # Some are in neither task for a moment; a poll may be too late to see each of them.
            assert {at.partition for at in limbo} <= moved
            leaving = [int(n) for n in re.findall(r"event=split .* leaving=(\d+)", run.output)]
            assert sum(leaving) >= len(moved)
            assert leaving[-1] == 0
            # The task that released partitions ran on: it was not claimed again.
            assert after[full].status.epoch == before[full].status.epoch
            silences = watch.longest_silences(began + 1)  # the load needs a moment to begin
            figures = {
                "moved": [round(silences[n], 2) for n in moved],
                "not moved": [round(silences[n], 2) for n in sorted({*heavy} - moved)],
            }
            print(f"silence of partitions with 300 records/s, s: {figures}")

            # Another connector continues with this split.
            drivers = {unit["driverName"] for unit in wait_until(run.settled)}
            (connector,) = wait_until(lambda: run.units("SourceConnector"))
            (other,) = drivers - {connector["driverName"]}
            assert main(["task", "move", connector["name"], other]) == 0
            wait_until(
                lambda: [unit["driverName"] for unit in run.units("SourceConnector")],
                until=partial(eq, [other]),
            )
            make_topic(spec(east), f"{name}-later", 1)
            grown = wait_until(lambda: settled(run, PARTITIONS + 1))
            for task, now in grown.items():
                assert assigned(after[task]) <= assigned(now)
        assert run.stop() == 0
    with FlowRun(tmp_path, [flow], "--until-caught-up") as rest_of_it:
        assert rest_of_it.end(WITHIN_S) == 0, rest_of_it.output
    result = compare(read(spec(east), name), read(spec(west), f"east.{name}"))
    assert result == (0, 0, True)


def test_a_new_topic_touches_one_task_only(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    name = unique("new")
    make_topic(spec(east), name, PARTITIONS)
    flow = manifest(
        name,
        east,
        west,
        f"{name}.*",
        heartbeats={"enabled": False},
        discovery={"topicsSeconds": 1},
        drivers={"leaseSeconds": 20},
        tasks={"max": 4},
    )
    with (
        FlowRun(tmp_path, [flow], drivers=2) as run,
        Load(spec(east), name, PARTITIONS, per_second=400),
    ):
        wait_until(run.settled)
        before = wait_until(lambda: settled(run, PARTITIONS))
        make_topic(spec(east), f"{name}-later", 1)
        after = wait_until(lambda: settled(run, PARTITIONS + 1))
        touched = [
            task
            for task in before
            if (before[task].metadata.generation, before[task].status.epoch)
            != (after[task].metadata.generation, after[task].status.epoch)
        ]
        assert len(touched) == 1
        assert assigned(after[touched[0]]) - assigned(before[touched[0]]) == {
            TopicPartition(f"{name}-later", 0)
        }


def test_the_end_of_a_partition_that_is_not_there_is_left_out(east: SandboxCluster) -> None:
    topic = make_topic(spec(east), unique("ends"), 2)
    produce(spec(east), topic, numbered(6, [1]))
    there = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    ends = Admin(spec(east)).known_ends(
        [*there, TopicPartition(topic, 2), TopicPartition("nothing", 0)]
    )
    assert ends == {there[0]: 0, there[1]: 6}
