"""A source in three racks: each driver reads the replica in its rack, by the kernel's counts."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from psutil import Process
from support.flows import FlowRun, manifest, spec, words_of
from support.records import arrived, numbered, produce, unique
from support.tcp_bytes import received

from headrace.kafka import Admin
from headrace.sandbox import SandboxCluster

RACKS = ("a", "b", "c")
PARTITIONS, RECORDS, VALUE_BYTES = 12, 6_000, 2_000


def bytes_of_other_racks(run: FlowRun, cluster: SandboxCluster) -> tuple[int, int]:
    """Return the bytes that drivers received from brokers in other racks, and from all brokers."""
    ports = [int(server.rpartition(":")[2]) for server in cluster.bootstrap_servers.split(",")]
    drivers = {process.pid: rack_of(process) for process in run.drivers()}
    assert sorted(drivers.values()) == list(RACKS)
    other = total = 0
    for (pid, port), count in received(drivers).items():
        if port in ports:
            total += count
            other += count * (RACKS[ports.index(port)] != drivers[pid])
    return other, total


def rack_of(process: Process) -> str:
    arguments = words_of(process)
    return arguments[arguments.index("--rack") + 1]


@pytest.mark.long
def test_drivers_read_in_their_own_rack(
    start_cluster: Callable[..., SandboxCluster],
    west: SandboxCluster,
    tmp_path: Path,
    wait_until: Callable[..., Any],
) -> None:
    """Place two replicas of each partition; its task is on a driver in the rack of one of them.

    The task fetches from that replica, even if it is a follower.
    """
    cluster = start_cluster("racks", brokers=3, racks=RACKS)
    topic = topic_of_two_replicas(cluster, wait_until)
    flow = manifest(
        topic, cluster, west, topic,
        heartbeats={"enabled": False},
        checkpoints={"enabled": False},
        tasks={"max": PARTITIONS},
        drivers={"replicas": 3, "leaseSeconds": 60},
    )  # fmt: skip
    options = [f"--rack={rack}" for rack in RACKS]
    with FlowRun(tmp_path, [flow], *options) as run:
        copies = f"racks.{topic}"
        # A driver that joins first gets all tasks, and reads in other racks until they move.
        wait_until(lambda: run.settled(3))
        produce_what_does_not_compress(cluster, topic)
        wait_until(
            lambda: arrived(spec(west), copies),
            until=lambda count: count == RECORDS,
        )
        other, total = bytes_of_other_racks(run, cluster)
    print(f"{100 * other / total:.1f} % of {total} bytes from other racks")
    assert total > RECORDS * VALUE_BYTES
    assert other < 0.1 * total


def topic_of_two_replicas(cluster: SandboxCluster, wait_until: Callable[..., Any]) -> str:
    topic = unique("racks")
    admin = Admin(spec(cluster))
    admin.create_topic(topic, PARTITIONS, 2)
    wait_until(lambda: admin.topics().get(topic) == PARTITIONS)
    return topic


def produce_what_does_not_compress(cluster: SandboxCluster, topic: str) -> None:
    records = [
        record._replace(value=os.urandom(VALUE_BYTES)) for record in numbered(RECORDS, PARTITIONS)
    ]
    produce(spec(cluster), topic, records)
