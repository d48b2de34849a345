"""How many bytes ``sticky`` has read from another zone: three zones, 6 drivers, 120 tasks.

Part of ``make bench-assign``. Weights are exponential; the means of ten sources drawn at random.
"""

import random
from collections.abc import Iterator
from statistics import fmean

from headrace.assign import ApplicationState, DriverState, StickyAssignor, TaskId, TaskInfo

ZONES = "abc"
TASKS, DRIVERS, SOURCES = 120, 6, 10


def tasks(seed: int, partitions: int, readable: int) -> Iterator[TaskInfo]:
    """Yield tasks of that many partitions, each of which can be read in ``readable`` zones."""
    draw = random.Random(seed)
    for index in range(TASKS):
        racks = tuple(frozenset(draw.sample(ZONES, readable)) for _ in range(partitions))
        yield TaskInfo(TaskId("f", "SourceTask", index), True, draw.expovariate(1.0), racks)


def far(seed: int, partitions: int, readable: int, *, aware: bool) -> float:
    """Return the share of the bytes that is read from another zone."""
    infos = {info.id: info for info in tasks(seed, partitions, readable)}
    seen = infos.values() if aware else [info._replace(racks=()) for info in infos.values()]
    drivers = [DriverState(f"{ZONES[n % 3]}{n}", rack=ZONES[n % 3]) for n in range(DRIVERS)]
    owners = StickyAssignor().assign(ApplicationState.of(seen, drivers)).owners
    of_other = sum(
        infos[id].weight * sum(owner[0] not in racks for racks in infos[id].racks) / partitions
        for id, owner in owners.items()
    )
    return of_other / sum(info.weight for info in infos.values())


def main() -> None:
    """Print a table."""
    print("| each partition can be read in | partitions a task | racks unknown | racks known |")
    print("| --- | --- | --- | --- |")
    for readable, where in (1, "the zone of its leader"), (2, "the zones of 2 replicas"):
        for partitions in (1, 4, 16):
            blind, aware = (
                fmean(far(n, partitions, readable, aware=known) for n in range(SOURCES))
                for known in (False, True)
            )
            print(f"| {where} | {partitions} | {blind:.0%} | {aware:.0%} |")


if __name__ == "__main__":
    main()
