"""The configuration of MirrorMaker 2."""

from pathlib import Path

from headrace.sandbox import BrokerProcess, SandboxCluster
from headrace.sandbox.mirror_maker import settings
from headrace.toolchain import Java

JAVA = Java(Path("/java"), 17, "PATH")


def cluster(name: str, brokers: int, port: int) -> SandboxCluster:
    return SandboxCluster(
        name,
        "id",
        tuple(
            BrokerProcess(name, n + 1, port + n, Path("/b"), JAVA, heap_mb=256, ends_with_us=True)
            for n in range(brokers)
        ),
    )


def test_it_copies_one_way_with_as_many_replicas_as_both_clusters_can_have() -> None:
    found = settings(cluster("east", 3, 9001), cluster("west", 2, 9011), "orders,users-.*")
    assert found["clusters"] == "east, west"
    assert found["west.bootstrap.servers"] == "127.0.0.1:9011,127.0.0.1:9012"
    assert found["east->west.topics"] == "orders,users-.*"
    assert (found["east->west.enabled"], found["west->east.enabled"]) == ("true", "false")
    factors = {value for key, value in found.items() if key.endswith("replication.factor")}
    assert factors == {"2"}
