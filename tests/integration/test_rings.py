"""Rings of flows on three real clusters."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.flows import FlowRun, manifest, spec
from support.records import arrived, make_topic, numbered, produce, unique

from headrace.sandbox import SandboxCluster

WaitUntil = Callable[..., Any]


def test_the_flow_that_closes_a_ring_of_three_refuses_the_topic(
    east: SandboxCluster,
    west: SandboxCluster,
    start_cluster: Callable[..., SandboxCluster],
    tmp_path: Path,
    wait_until: WaitUntil,
) -> None:
    """The flows belong to two runs, which call the clusters by different aliases."""
    north = start_cluster("north")
    name = unique("ring")
    topic = make_topic(spec(east), name, 1)
    other = make_topic(spec(north), f"{name}-other", 1)
    produce(spec(east), topic, numbered(10, 1))
    produce(spec(north), other, numbered(3, 1))
    more = {
        "replicationPolicy": {"type": "Identity"},
        "heartbeats": {"enabled": False},
        "checkpoints": {"enabled": False},
        "discovery": {"topicsSeconds": 1},
    }
    there = [
        manifest(f"{name}-a", east, west, topic, **more),
        manifest(f"{name}-b", west, north, topic, **more),
    ]
    back = manifest(f"{name}-c", north, east, f"{name}.*", **more)
    back["spec"]["source"]["alias"], back["spec"]["target"]["alias"] = "far", "home"

    def counts() -> list[int]:
        return [arrived(spec(cluster), topic) for cluster in (east, west, north)]

    with FlowRun(tmp_path, [back]) as closing:
        with FlowRun(tmp_path, there):
            ready = wait_until(
                lambda: closing.condition("Ready"),
                until=lambda ready: ready.get("reason") == "ReplicationLoop",
            )
            assert (
                f"{topic} is not copied, because records would go round: flow default/{name}-a "
                f"copies {topic} of east to {topic} of west, flow default/{name}-b copies that "
                f"to {topic} of north, and this flow would copy that to {topic} of home;"
            ) in ready["message"]
            wait_until(lambda: arrived(spec(east), other) == 3)
            wait_until(lambda: counts() == [10, 10, 10])
        assert counts() == [10, 10, 10]
    with FlowRun(tmp_path, [back]) as alone:
        wait_until(alone.ready)
        wait_until(lambda: counts() == [20, 10, 10])
