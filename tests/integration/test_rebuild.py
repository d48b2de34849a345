"""``headrace flow rebuild`` creates stopped partitions with preserved offsets again."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cluster.api_server import ApiServer
from cluster.kubelet import Kubelet
from support.flows import FlowRun, manifest, spec
from support.groups import commit, committed
from support.operators import Operator, Resources
from support.preserved_topics import KEPT, bounds, visible
from support.records import delete_records, make_topic, numbered, produce, unique

from headrace.cli.main import main
from headrace.kafka import Admin
from headrace.sandbox import SandboxCluster

Say = Callable[..., str]


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    def say(*words: str, code: int = 0) -> str:
        assert main(["flow", "rebuild", *words]) == code
        printed = capsys.readouterr()
        return " ".join((printed.out + printed.err).split())

    return say


@pytest.mark.long
def test_partitions_that_cannot_go_on_are_rebuilt(
    east: SandboxCluster,
    west: SandboxCluster,
    tmp_path: Path,
    wait_until: Callable[..., Any],
    say: Say,
) -> None:
    """Rebuild a partition that another client has written to, and one that retention has overtaken.

    The first is rebuilt with its whole topic, the second by itself.
    """
    written, late = (make_topic(spec(east), unique(word), 2, **KEPT) for word in ("w", "late"))
    name, group = unique("rebuilt"), unique("group")
    flow = manifest(
        name, east, west, written, late, offsets={"mode": "Preserved"}, tasks={"max": 1},
        checkpoints={"applyToGroups": True, "intervalSeconds": 5},
    )  # fmt: skip
    there = Admin(spec(west))
    for topic in (written, late):
        produce(spec(east), topic, numbered(100, 2))
    delete_records(spec(east), written, {1: 20})
    commit(east, group, written, {0: 30, 1: 40})

    def differ() -> list[Any]:
        both = [
            (bounds(spec(east), topic, number), bounds(there, f"east.{topic}", number))
            for topic in (written, late)
            for number in (0, 1)
        ]
        return [one for one in both if one[0] != one[1]]

    def positions() -> list[int]:
        return [offset for _, (offset, _) in sorted(committed(west, group).items())]

    with FlowRun(tmp_path, [flow]) as run:
        wait_until(differ, until=lambda found: not found)
        wait_until(positions, until=lambda found: found == [30, 40])
        run.stop()

    def ids() -> list[str]:
        names = [f"east.{topic}" for topic in (written, late)]
        found = there.describe(names)
        return [found[one].topic_id for one in names]

    before = ids()
    produce(spec(west), f"east.{written}", numbered(3, [0], first=900))
    for topic in (written, late):
        produce(spec(east), topic, numbered(100, 2, first=100))
    delete_records(spec(east), late, {0: 70})

    with FlowRun(tmp_path, [flow]) as run:

        def said() -> str:
            return str(run.units())

        wait_until(said, until=lambda text: text.count("headrace flow rebuild") >= 2)
        end = bounds(spec(east), written, 1)
        wait_until(lambda: bounds(there, f"east.{written}", 1), until=lambda found: found == end)
        # Impossible rebuilds, and rebuilds that are only shown: nothing is changed.
        assert f"`headrace flow rebuild {name} {written}` rebuilds all 2 partitions" in say(
            name, f"{written}/0", "--yes", code=3
        )
        shown = say(name, written, "--dry-run")
        assert f"{written}/0 0-100 0-53 0 100 0" in shown
        assert f"{written}/1 20-100 20-100 20 80 0" in shown
        assert f"To be deleted: topic east.{written} on west" in shown
        shown = say(name, f"{late}/0", "--dry-run")
        assert f"{late}/0 70-100 0-50 20 30 50" in shown
        assert re.search(r"\b50 offsets are on west .* only: what they hold is lost", shown)
        assert ids() == before

        assert f"the content of east.{late}/0 is deleted" in say(name, f"{late}/0", "--yes")
        assert f"topic east.{written} is deleted" in say(name, written, "--yes")
        wait_until(differ, until=lambda found: not found)
        wait_until(run.ready)
        wait_until(positions, until=lambda found: found == [30, 40])
        wait_until(lambda: not run.condition("PartitionsPaused"))
    assert [one == other for one, other in zip(ids(), before, strict=True)] == [False, True]
    for topic in (written, late):
        for number in (0, 1):
            copy = visible(spec(west), f"east.{topic}", 0, number)
            assert copy == visible(spec(east), topic, 0, number)
            assert len(copy) > 0


@pytest.mark.long
def test_a_flow_of_a_cluster_has_its_copy_made_again(
    *,
    api_server: ApiServer,
    operator: Operator,
    resources: Resources,
    kubelet: Kubelet,
    east: SandboxCluster,
    west: SandboxCluster,
    monkeypatch: pytest.MonkeyPatch,
    wait_until: Callable[..., Any],
    say: Say,
) -> None:
    """Give its driver the annotation and ``spec.pausedPartitions``; the command uses brokers."""
    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig))
    topic, name = make_topic(spec(east), unique("pods"), 2, **KEPT), unique("rebuilt")
    produce(spec(east), topic, numbered(100, 2))
    drivers = {"replicas": 1, "leaseSeconds": 60}  # which is not lost on a busy machine
    resources.apply(
        manifest(name, east, west, topic, offsets={"mode": "Preserved"}, drivers=drivers)
    )

    def differ() -> list[Any]:
        both = [
            (bounds(spec(east), topic, number), bounds(spec(west), f"east.{topic}", number))
            for number in (0, 1)
        ]
        return [one for one in both if one[0] != one[1]]

    wait_until(differ, until=lambda found: not found)
    produce(spec(west), f"east.{topic}", numbered(1, [0], first=900))
    produce(spec(east), topic, numbered(100, 2, first=100))
    wait_until(
        lambda: str(resources.flow(name).get("status")),
        until=lambda status: "headrace flow rebuild" in status,
    )
    there = ("-n", resources.namespace)
    assert f"topic east.{topic} is deleted" in say(name, topic, "--yes", *there)
    wait_until(differ, until=lambda found: not found)
    flow = resources.flow(name)
    assert not flow["spec"].get("pausedPartitions")
    assert f"{topic}@" in flow["metadata"]["annotations"]["headrace.dev/reset"]
    for number in (0, 1):
        copy = visible(spec(west), f"east.{topic}", 0, number)
        assert copy == visible(spec(east), topic, 0, number)
