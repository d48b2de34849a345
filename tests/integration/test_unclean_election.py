"""A cluster that loses records it had served: never silent, neither as a source nor as a target."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from support.flows import FlowRun, manifest, spec
from support.patience import WITHIN_S
from support.random_log import wire_client
from support.records import arrived, make_topic, numbered, produce, unique

from headrace.api import TopicPartition
from headrace.datapath import KAFKA, ProgressLog
from headrace.kafka import Admin
from headrace.kafka.wire import ClusterClient as WireCluster
from headrace.kafka.wire import Transactions, start
from headrace.sandbox import ClusterPlan, Sandbox, SandboxCluster

pytestmark = [pytest.mark.in_one_worker, pytest.mark.long]
WaitUntil = Callable[..., object]


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxCluster]:
    home = tmp_path_factory.mktemp("sandboxes")
    with Sandbox.start("unclean", [ClusterPlan("unclean", brokers=3)], home=home) as sandbox:
        yield sandbox.cluster("unclean")


@pytest.fixture
def unclean(brokers: SandboxCluster) -> SandboxCluster:
    """Return the cluster with all brokers running; a test leaves some dead."""
    brokers.start()
    return brokers


def make_unclean(cluster: SandboxCluster, topic: str) -> str:
    """Create a topic of one partition on two brokers that may lead even without all records."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    settings = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    made = NewTopic(topic, 1, replica_assignment=[[1, 2]], config=settings)
    admin.create_topics([made])[topic].result()
    return topic


def let_the_other_lead(cluster: SandboxCluster, topic: str, wait_until: WaitUntil) -> None:
    """Return broker 2, which lacks the records of the time when it was dead."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})

    def leader() -> int:
        return int(admin.list_topics(topic, timeout=60).topics[topic].partitions[0].leader)

    cluster.broker(1).kill()
    cluster.broker(2).start()
    wait_until(leader, until=lambda leads: leads == 2)


def test_a_log_that_was_truncated_and_filled_again_while_the_flow_was_stopped_is_data_loss(
    unclean: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    source, topic = unclean, make_unclean(unclean, unique("elected"))
    produce(spec(source), topic, numbered(100, 1))
    source.broker(2).kill()
    produce(spec(source), topic, numbered(50, 1))
    flow = manifest("elected", source, west, topic)
    with FlowRun(tmp_path, [flow], "--until-caught-up", "--timeout", "240") as run:
        assert run.end(WITHIN_S) == 0
    assert arrived(spec(west), f"unclean.{topic}") == 150

    let_the_other_lead(source, topic, wait_until)
    produce(spec(source), topic, numbered(200, 1))  # Offset 150 has another record now.

    with FlowRun(tmp_path, [flow]) as run:
        lost = wait_until(lambda: run.condition("DataLossDetected").get("message"))
    assert f"{topic}-0 on unclean" in str(lost)
    assert "ended at offset 100, but offsets up to 149 were copied" in str(lost)
    assert arrived(spec(west), f"unclean.{topic}") == 150


def write_markers(client: WireCluster, at: TopicPartition, count: int) -> None:
    """Write empty transactions, as the fences of many owners would."""
    transactions = Transactions(client, unique("markers"))

    async def write() -> None:
        identity = await transactions.init_producer_id()
        for _ in range(count):
            await transactions.add_partitions(identity, [at])
            await transactions.end(identity, commit=False)

    client.loop.wait(start(write()), WITHIN_S)


def test_a_target_that_was_truncated_and_is_longer_again_by_markers_is_data_loss(
    unclean: SandboxCluster, east: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    topic = make_topic(spec(east), unique("elected"), 1)
    copy = TopicPartition(make_unclean(unclean, f"east.{topic}"), 0)
    produce(spec(east), topic, numbered(100, 1))
    flow = manifest("elected-target", east, unclean, topic)

    def end() -> int:
        return Admin(spec(unclean)).known_ends([copy]).get(copy, 0)

    with (
        FlowRun(tmp_path, [flow]),
        closing(ProgressLog(spec(unclean), east.name, KAFKA, time)) as progress,
    ):
        wait_until(end, until=lambda found: found == 100)
        unclean.broker(2).kill()
        produce(spec(east), topic, numbered(50, 1, first=100))
        progress.start()

        def seen() -> list[int]:
            stored = progress.entries().values()
            return [one.target_seen.offset for one in stored if one.target_seen is not None]

        wait_until(seen, until=lambda found: 150 in found)

    let_the_other_lead(unclean, copy.topic, wait_until)
    with wire_client(spec(unclean)) as client:
        write_markers(client, copy, 60)
    wait_until(end, until=lambda found: found >= 160)

    with FlowRun(tmp_path, [flow]) as run:
        lost = wait_until(lambda: run.condition("DataLossDetected").get("message"))
    assert f"{copy} on unclean" in str(lost)
    assert "continued at offset 100, but all offsets below 150 were acknowledged" in str(lost)
