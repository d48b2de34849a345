"""A source that loses records it had served: never silent."""

from collections.abc import Callable
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic
from support.flows import FlowRun, manifest, spec
from support.records import arrived, numbered, produce, unique

from headrace.sandbox import Cluster

WaitUntil = Callable[..., object]


def test_a_log_that_was_truncated_and_filled_again_while_the_flow_was_stopped_is_data_loss(
    start_cluster: Callable[..., Cluster], west: Cluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    source = start_cluster("unclean", brokers=3)
    topic = unique("elected")
    admin = AdminClient({"bootstrap.servers": source.bootstrap_servers})
    unclean = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    admin.create_topics([NewTopic(topic, 1, replica_assignment=[[1, 2]], config=unclean)])[
        topic
    ].result()

    def leader() -> int:
        return int(admin.list_topics(topic, timeout=10).topics[topic].partitions[0].leader)

    produce(spec(source), topic, numbered(100, 1))
    source.broker(2).kill()
    produce(spec(source), topic, numbered(50, 1))
    flow = manifest("elected", source, west, topic)
    with FlowRun(tmp_path, [flow], "--until-caught-up", "--timeout", "60") as run:
        assert run.end(90) == 0
    assert arrived(spec(west), f"unclean.{topic}") == 150

    source.broker(1).kill()
    source.broker(2).start()
    wait_until(leader, within_s=60, until=lambda leads: leads == 2)
    produce(spec(source), topic, numbered(200, 1))  # Offset 150 is there again, another record.

    with FlowRun(tmp_path, [flow]) as run:
        lost = wait_until(lambda: run.condition("DataLossDetected").get("message"), within_s=60)
    assert f"{topic}-0 on unclean" in str(lost)
    assert "ended at offset 100, but offsets up to 149 were copied" in str(lost)
    assert arrived(spec(west), f"unclean.{topic}") == 150
