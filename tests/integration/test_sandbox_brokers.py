"""Real brokers, started, stopped, killed and started again one by one."""

import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from support.flows import spec

from headrace.api import ClusterAccess, ClusterSpec
from headrace.errors import Fatal, HeadraceError, InvalidSpec, Retriable
from headrace.kafka import Admin
from headrace.sandbox import ClusterPlan, Sandbox, SandboxCluster
from headrace.sandbox.processes import HOST
from headrace.toolchain import ClassArchive, JarSet, jars

StartCluster = Callable[..., SandboxCluster]
WaitUntil = Callable[..., object]


def _admin(cluster: SandboxCluster) -> Admin:
    return Admin(spec(cluster))


def _brokers(cluster: SandboxCluster) -> int:
    """Return the number of brokers in the cluster's metadata."""
    client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    return len(client.list_topics(timeout=60).brokers)


def test_clusters_are_real_and_two(east: SandboxCluster, west: SandboxCluster) -> None:
    assert _admin(east).cluster_id() == east.cluster_id
    assert _admin(west).cluster_id() == west.cluster_id
    assert east.cluster_id != west.cluster_id


@pytest.mark.long
def test_one_of_three_brokers_is_killed_and_comes_back(
    start_cluster: StartCluster, wait_until: WaitUntil
) -> None:
    cluster = start_cluster("three", brokers=3)
    admin, brokers = _admin(cluster), partial(_brokers, cluster)
    wait_until(brokers, until=lambda seen: seen == 3)

    victim = cluster.broker(2)
    victim.kill()
    assert victim.process is None
    assert not cluster.running
    wait_until(brokers, until=lambda seen: seen == 2)
    assert admin.create_topic("made-by-two", 1, replication_factor=2)

    victim.start()
    assert cluster.running
    wait_until(brokers, until=lambda seen: seen == 3)
    archive = ClassArchive(victim.java, jars(JarSet.KAFKA_BROKER)).path
    assert victim.process is not None
    assert str(archive) in {mapped.path for mapped in victim.process.memory_maps()}

    cluster.stop()
    assert not any(broker.process for broker in cluster.brokers)


def test_no_other_process_gets_the_port_of_a_broker_that_is_down(east: SandboxCluster) -> None:
    (broker,) = east.brokers
    broker.kill()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind((HOST, broker.port))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HOST, broker.port))
    broker.start()
    assert _admin(east).cluster_id() == east.cluster_id


def test_a_frozen_broker_answers_nothing_until_it_thaws(
    start_cluster: StartCluster, wait_until: WaitUntil
) -> None:
    cluster = start_cluster("frozen")
    broker = cluster.broker(1)
    broker.freeze()
    assert broker.frozen
    assert cluster.running
    frozen = ClusterAccess(ClusterSpec(alias="f", bootstrap_servers=broker.address))
    with pytest.raises(
        Retriable, match=f"{broker.address} accepts connections and does not answer"
    ):
        Admin(frozen, timeout_s=2).topics()
    broker.thaw()
    assert not broker.frozen

    def creates() -> bool:
        # If it was frozen for longer than its session, it may not lead before its next heartbeat.
        try:
            return _admin(cluster).create_topic("after", 1)
        except HeadraceError:
            return False

    wait_until(creates)
    broker.freeze()
    broker.stop()
    assert broker.process is None


def test_a_restarted_broker_has_its_address_and_its_data(start_cluster: StartCluster) -> None:
    cluster = start_cluster("again")
    broker = cluster.broker(1)
    first = broker.process
    _admin(cluster).create_topic("kept", 1)
    broker.restart()
    assert broker.process != first
    assert "kept" in _admin(cluster).topics()
    with pytest.raises(InvalidSpec, match="cluster again has no broker 2: it has 1 to 1"):
        cluster.broker(2)


def test_a_broker_that_cannot_start_is_a_sentence_that_names_its_log(tmp_path: Path) -> None:
    plan = ClusterPlan("wrong", properties={"num.io.threads": "many"})
    with pytest.raises(Fatal) as caught:
        Sandbox.start("wrong", [plan], home=tmp_path)
    log = tmp_path / "wrong" / "wrong" / "broker-1" / "broker.log"
    assert "broker 1 of cluster wrong" in str(caught.value)
    assert "num.io.threads" in str(caught.value)
    assert str(caught.value).endswith(f"Its log: {log}")
    assert "num.io.threads" in log.read_text()
    assert not Sandbox.open("wrong", home=tmp_path).running


def test_an_error_keeps_the_logs_and_deletes_the_data(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), Sandbox.start("x", [ClusterPlan("a")], home=tmp_path):
        raise ZeroDivisionError
    left = Sandbox.open("x", home=tmp_path)
    assert not left.running
    (broker,) = left.cluster("a").brokers
    assert "Starting broker" in broker.log.read_text()
    assert not broker.data.exists()

    left.close()
    assert Sandbox.all(home=tmp_path) == ()


def test_a_running_sandbox_is_not_started_twice(tmp_path: Path) -> None:
    with Sandbox.start("one", [ClusterPlan("a")], home=tmp_path) as sandbox:
        with pytest.raises(InvalidSpec, match="sandbox one is already running"):
            Sandbox.start("one", [ClusterPlan("b")], home=tmp_path)
        assert sandbox.cluster("a").running
    assert not (tmp_path / "one").exists()
