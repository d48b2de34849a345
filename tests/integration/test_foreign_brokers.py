"""A broker of another cluster answers at an address of the target (KIP-1242)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.flows import FlowRun, manifest, spec
from support.groups import commit
from support.proxy import Proxy
from support.records import arrived, count, make_topic, numbered, produce, read, unique
from support.scenes import WaitUntil

from headrace.api import (
    ClusterAccess,
    TopicPartition,
    checkpoints_topic,
    offset_syncs_topic,
    progress_topic,
)
from headrace.kafka import Admin, Position
from headrace.sandbox import SandboxCluster
from headrace.sandbox.processes import HOST, held_ports

PARTITIONS = 2


def ends(cluster: ClusterAccess, topics: dict[str, int]) -> dict[str, int]:
    """Return the sum of the ends of each topic's partitions."""
    partitions = [TopicPartition(topic, one) for topic, n in topics.items() for one in range(n)]
    found = Admin(cluster).offsets(partitions, Position.LATEST)
    return {one: sum(end for at, end in found.items() if at.topic == one) for one in topics}


def test_no_client_of_a_flow_believes_a_foreign_broker_or_writes_to_it(
    east: SandboxCluster,
    west: SandboxCluster,
    start_cluster: Callable[..., SandboxCluster],
    tmp_path: Path,
    wait_until: WaitUntil,
) -> None:
    alias, foreign = unique("from"), spec(west)
    topic = make_topic(spec(east), unique("orders"), PARTITIONS)
    copy, dead = f"{alias}.{topic}", unique("dead")
    internal = {
        progress_topic(alias): 8,
        offset_syncs_topic(alias, "."): 1,
        checkpoints_topic(alias, "."): 1,
        "heartbeats": 1,
    }
    compacted = {"cleanup.policy": "compact"}
    made = {
        name
        for name, partitions in internal.items()
        if Admin(foreign).create_topic(name, partitions, config=compacted)
    }
    assert len(made) >= len(internal) - 1  # other tests also use heartbeats
    for name in (copy, dead):
        make_topic(foreign, name, PARTITIONS)
    written = {**internal, copy: PARTITIONS, dead: PARTITIONS}
    before = ends(foreign, written)

    with held_ports([None]) as (port,):
        pass
    with Proxy(HOST, port) as line:
        advertised = {"advertised.listeners": f"PLAINTEXT://{HOST}:{line.port}"}
        home = start_cluster("home", port=port, properties=advertised)
        produce(spec(east), topic, numbered(20, PARTITIONS))
        flow: dict[str, Any] = manifest(
            topic,
            east,
            home,
            topic,
            tasks={"max": 1},
            heartbeats={"intervalSeconds": 1, "onSource": False},
            checkpoints={"intervalSeconds": 1},
            groups={"include": [topic]},
            discovery={"topicsSeconds": 5},
            onRecordError={"action": "DeadLetter", "deadLetterTopic": dead},
        )
        flow["spec"]["source"]["alias"] = alias
        flow["spec"]["target"]["config"] = {"request.timeout.ms": "3000"}
        make_topic(spec(home), dead, PARTITIONS)
        commit(east, topic, topic, {0: 3})
        with FlowRun(tmp_path, [flow]) as run:
            wait_until(lambda: arrived(spec(home), copy) == 20)
            wait_until(run.ready)
            wait_until(lambda: count(spec(home), checkpoints_topic(alias, ".")) > 0)

            kept = {name: internal[name] for name in ("heartbeats", progress_topic(alias))}
            at_home = ends(spec(home), kept)
            line.lead_to(west.brokers[0].port)
            produce(spec(east), topic, numbered(20, PARTITIONS, 20))
            commit(east, topic, topic, {0: 9, 1: 7})
            wait_until(
                lambda: run.condition("Ready"),
                until=lambda ready: ready.get("reason") == "TargetUnreachable",
            )
            wait_until(lambda: "belongs to another cluster than home" in str(run.status()))
            assert ends(foreign, written) == before

            line.lead_to(port)
            wait_until(lambda: arrived(spec(home), copy) == 40)
            wait_until(run.ready)
            wait_until(lambda: run.status()["lag"], until=lambda lag: lag["records"] == 0)
            assert run.condition("DataLossDetected") == {}
            wait_until(
                lambda: ends(spec(home), kept),
                until=lambda found: all(found[name] > at for name, at in at_home.items()),
            )
            assert ends(foreign, written) == before
        values = [one.value for each in read(spec(home), copy).values() for one in each]
    assert len(values) == len(set(values)) == 40
