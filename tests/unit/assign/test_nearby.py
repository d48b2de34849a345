"""Tasks run in a rack with replicas of their partitions, as far as balance permits."""

import random
from collections import Counter
from collections.abc import Iterable, Mapping

import pytest

from headrace.assign import (
    ApplicationState,
    DriverName,
    DriverState,
    FlowConfig,
    StickyAssignor,
    TaskAssignment,
    TaskId,
    TaskInfo,
)

ZONES = "abc"


def task(index: int, *racks: str, weight: float = 1.0) -> TaskInfo:
    """Return a task with a partition for each of ``racks``, the zones of its replicas."""
    partitions = tuple(map(frozenset, racks))
    return TaskInfo(TaskId("orders", "SourceTask", index), True, weight, partitions)


def drivers(count: int = 3, active: Mapping[str, Iterable[int]] = {}) -> list[DriverState]:
    """Return drivers that alternate over three zones.

    ``active`` are the tasks of the first driver of each zone.
    """
    return [
        DriverState(
            f"{ZONES[n % 3]}{n // 3}",
            active=frozenset(
                TaskId("orders", "SourceTask", index)
                for index in (active.get(ZONES[n], ()) if n < 3 else ())
            ),
            rack=ZONES[n % 3],
        )
        for n in range(count)
    ]


def foreign(tasks: Iterable[TaskInfo], assignment: TaskAssignment) -> float:
    """Return the share of the bytes that is read from another zone."""
    owners: Mapping[TaskId, DriverName] = assignment.owners
    far = total = 0.0
    for info in tasks:
        for racks in info.racks:
            share = info.weight / len(info.racks)
            total += share
            far += share * (owners[info.id][0] not in racks)
    return far / total


def random_tasks(count: int, replicas: int, seed: int = 1) -> list[TaskInfo]:
    draw = random.Random(seed)
    return [
        task(n, "".join(draw.sample(ZONES, replicas)), weight=draw.expovariate(1.0))
        for n in range(count)
    ]


@pytest.mark.parametrize(("replicas", "blind", "near"), [(1, 0.5, 0.12), (2, 0.2, 0.0)])
def test_three_zones(replicas: int, blind: float, near: float) -> None:
    tasks = random_tasks(120, replicas)
    unknown = [info._replace(racks=()) for info in tasks]
    before = StickyAssignor().assign(ApplicationState.of(unknown, drivers(6)))
    after = StickyAssignor().assign(ApplicationState.of(tasks, drivers(6)))
    assert foreign(tasks, before) > blind
    assert foreign(tasks, after) <= near
    weights = {info.id: info.weight for info in tasks}
    mean = sum(weights.values()) / 6
    for driver in after.drivers.values():
        assert len(driver.active) == 20
        assert sum(map(weights.__getitem__, driver.active)) <= 1.1 * mean


def test_tasks_that_run_move_within_the_budget_and_then_stay() -> None:
    tasks = [task(n, ZONES[n // 10]) for n in range(30)]
    held = {"a": range(10, 20), "b": range(20, 30), "c": range(10)}  # each is in the next zone
    state = ApplicationState.of(tasks, drivers(active=held), flows={"orders": FlowConfig(0, 0.2)})
    moved = []
    for minute in range(12):
        after = StickyAssignor().assign(state)
        owners = {id: name for name, one in state.drivers.items() for id in one.active}
        moved.append(sum(after.owners[id] != owner for id, owner in owners.items()))
        state = ApplicationState.of(
            tasks,
            [
                DriverState(name, active=after.drivers[name].active, rack=name[0])
                for name in state.drivers
            ],
            flows=state.flows,
            now_ms=60_000 * (minute + 1),
        )
    assert foreign(tasks, after) == 0
    assert max(moved) <= 6
    assert moved[-1] == 0
    assert sum(moved) < 60, "most units move once, some of three in a circle twice"


def test_nothing_moves_that_would_be_read_from_as_far() -> None:
    tasks = [task(n, "abc") for n in range(6)] + [task(n, "") for n in range(6, 9)]
    held = {"a": range(3), "b": range(3, 6), "c": range(6, 9)}
    before = drivers(active=held)
    after = StickyAssignor().assign(ApplicationState.of(tasks, before))
    assert {name: one.active for name, one in after.drivers.items()} == {
        driver.name: driver.active for driver in before
    }


def test_a_task_that_is_pinned_stays() -> None:
    tasks = [task(0, "b"), task(1, "a"), task(2, "c")]
    state = ApplicationState(
        tasks={info.id: info for info in tasks},
        drivers={one.name: one for one in drivers(active={"a": [0], "b": [1], "c": [2]})},
        flows={"orders": FlowConfig(0, 1.0)},
        pinned=frozenset({tasks[0].id}),
    )
    assert StickyAssignor().assign(state).owners[tasks[0].id] == "a0"


def test_one_moves_alone_where_counts_allow_it() -> None:
    tasks = [task(0, "a"), task(1, "b"), task(2, "c"), task(3, "b", weight=0.1)]
    after = StickyAssignor().assign(
        ApplicationState.of(tasks, drivers(active={"a": [0, 3], "b": [1], "c": [2]}))
    )
    assert Counter(after.owners.values()) == {"a0": 1, "b0": 2, "c0": 1}
    assert foreign(tasks, after) == 0
