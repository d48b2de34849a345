"""Two runs that copy the same partitions without a common herder: one of them copies each."""

from contextlib import ExitStack
from itertools import groupby
from pathlib import Path

import pytest
from support.flows import FlowRun, manifest, spec
from support.progress import progress_records
from support.records import Load, compare, count, make_topic, read, unique
from support.scenes import WaitUntil

from headrace.sandbox import SandboxCluster

PER_SECOND = 500


def owners(target: SandboxCluster, flows: set[str]) -> dict[tuple[str, int], list[str]]:
    """Return which of these flows owned each partition, one after the other, by progress."""
    stored: dict[tuple[str, int], list[str]] = {}
    for key, progress in progress_records(spec(target)):
        owner = progress.owner if progress is not None else ""
        flow = next((flow for flow in flows if f"{flow}-source-task" in owner), None)
        if flow is not None:
            stored.setdefault((key.topic, key.partition), []).append(flow)
    return {at: [flow for flow, _ in groupby(names)] for at, names in stored.items()}


@pytest.mark.long
def test_of_two_runs_that_copy_one_topic_one_gives_way_and_both_are_named(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    topic = make_topic(spec(east), unique("contested"), 4)
    names = [unique("one"), unique("other")]
    flows = [manifest(name, east, west, topic) for name in names]
    load = Load(spec(east), topic, 4, per_second=PER_SECOND)
    with FlowRun(tmp_path, flows[:1]) as one, load, ExitStack() as later:
        # Without a backlog: each change of owner repeats the copies of a second.
        wait_until(lambda: count(spec(west), f"east.{topic}"), until=PER_SECOND.__lt__)
        other = later.enter_context(FlowRun(tmp_path, flows[1:]))
        runs = (one, other)

        def contested() -> list[str]:
            """Return the messages of the runs, first the one of the run that gave way."""
            found = [run.condition("PartitionContested").get("message", "") for run in runs]
            return sorted(found, key=lambda said: "not copied by this task" not in said)

        def given_way() -> int:
            return sum(
                unit.get("phase") == "Running" and not unit.get("partitions")
                for run in runs
                for unit in run.units()
            )

        wait_until(contested, until=lambda said: "not copied by" in said[0])
        wait_until(given_way, until=lambda tasks: tasks >= 1)
        seen = count(spec(east), topic)
        wait_until(lambda: count(spec(east), topic), until=lambda n: n > seen + 40 * PER_SECOND)
        message, _ = wait_until(contested, until=lambda said: "not copied by" in said[0])
        assert f"{topic}/" in message
        assert any(f"default/{name}-source-task-" in message for name in names)
        wait_until(one.ready)
        wait_until(other.ready)
        had = owners(west, set(names))
        print({f"{name}-{number}": len(flows) for (name, number), flows in had.items()})
    assert had.pop(("heartbeats", 0))
    assert had.keys() == {(topic, number) for number in range(4)}
    # Four, and what an owner stores late; without the back-off about one a second (45).
    assert max(map(len, had.values())) <= 12
    with FlowRun(tmp_path, flows[:1], "--until-caught-up") as rest:
        assert rest.end() == 0, rest.output
    result = compare(read(spec(east), topic), read(spec(west), f"east.{topic}"))
    assert result.missing == 0
    assert result.in_order
    print(f"{result.repeated} repeated")
    assert result.repeated < 20 * PER_SECOND
