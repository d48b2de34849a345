"""A broker of another cluster answers at an address of a flow's cluster (KIP-1242)."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.flows import FlowRun, manifest, spec
from support.records import Comparison, compare, make_topic, numbered, produce, read, unique

from headrace.sandbox import Cluster

WaitUntil = Callable[..., Any]


@pytest.mark.parametrize("side", ["source", "target"])
def test_nothing_is_read_from_or_written_to_a_foreign_broker(
    side: str, start_cluster: Callable[..., Cluster], tmp_path: Path, wait_until: WaitUntil
) -> None:
    east, west = start_cluster("east"), start_cluster("west")
    topic = make_topic(spec(east), unique("owned"), 2)
    copy = f"east.{topic}"
    produce(spec(east), topic, numbered(1_000, 2))
    flow = manifest("owned", east, west, topic, discovery={"topicsSeconds": 1})

    def copied(count: int) -> Callable[[], bool]:
        return lambda: sum(map(len, read(spec(west), copy).values())) >= count

    with FlowRun(tmp_path, [flow]) as run:
        wait_until(copied(1_000))
        replaced, name = (east, topic) if side == "source" else (west, copy)
        (broker,) = replaced.brokers
        broker.kill()
        stranger = start_cluster("stranger", port=broker.port)
        make_topic(spec(stranger), name, 2)
        if side == "source":
            produce(spec(stranger), topic, numbered(4_000, 2, first=50_000))
        else:
            produce(spec(east), topic, numbered(1_000, 2, first=1_000))
        wait_until(lambda: "belongs to another cluster" in json.dumps(run.status()))
        if side == "target":
            assert read(spec(stranger), name) in ({}, {0: [], 1: []})
        for one in stranger.brokers:
            one.stop()
        broker.start()
        if side == "source":
            produce(spec(east), topic, numbered(1_000, 2, first=1_000))
        wait_until(copied(2_000))
        wait_until(run.ready)
        assert run.condition("DataLossDetected").get("status") != "True", run.output
        assert run.stop() == 0, run.output

    found = compare(read(spec(east), topic), read(spec(west), copy))
    assert found == Comparison(missing=0, repeated=0, in_order=True)
    assert sum(map(len, read(spec(west), copy).values())) == 2_000
