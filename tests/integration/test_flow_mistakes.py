"""Mistakes that users make in a flow: the message and the exit code of each."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from support.flows import FlowRun, manifest, spec
from support.records import arrived, make_topic, numbered, produce, unique
from support.security import add_acls

from headrace.sandbox import SandboxCluster

WaitUntil = Callable[..., Any]
NOBODY = "127.0.0.1:1"  # a port that no broker listens on


def test_an_unreachable_source_is_retried_and_shown(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    flow = manifest("lonely", east, west, "orders")
    flow["spec"]["source"]["bootstrapServers"] = NOBODY
    with FlowRun(tmp_path, [flow]) as run:
        ready = wait_until(
            lambda: run.condition("Ready"),
            until=lambda ready: ready.get("reason") == "SourceUnreachable",
        )
        assert f"east ({NOBODY})" in ready["message"]
        assert run.process.poll() is None


def test_until_caught_up_gives_up_on_an_unreachable_target(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path
) -> None:
    flow = manifest("hopeless", east, west, "orders")
    flow["spec"]["target"]["bootstrapServers"] = NOBODY
    with FlowRun(tmp_path, [flow], "--until-caught-up", "--timeout", "20") as run:
        assert run.end() == 2
    assert "not caught up, and nothing moved for 20 s: hopeless: " in run.output
    assert f"west ({NOBODY}): {NOBODY} refuses connections" in run.output


def test_a_source_that_is_the_target_ends_the_run(east: SandboxCluster, tmp_path: Path) -> None:
    flow = manifest("circle", east, east, "orders")
    flow["spec"]["target"]["alias"] = "west"
    flow["spec"]["source"]["bootstrapServers"] = f"localhost:{east.brokers[0].port}"
    with FlowRun(tmp_path, [flow]) as run:
        assert run.end() == 3
    assert f"are the same cluster ({east.cluster_id})" in run.output
    assert "correct one of spec.source.bootstrapServers and spec.target" in run.output


def test_two_flows_of_a_run_cannot_write_one_topic(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path
) -> None:
    topic = make_topic(spec(east), unique("both"), 1)
    flows = [
        manifest(name, east, west, topic, heartbeats={"enabled": False}) for name in ("one", "two")
    ]
    with FlowRun(tmp_path, flows) as run:
        assert run.end() == 3
    assert "both write topic" in run.output
    assert "narrow spec.topics of one" in run.output


def test_two_flows_of_a_run_cannot_copy_a_topic_round_and_round(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    """Their patterns do not show it, and their addresses are not the same."""
    name = unique("round")
    topic = make_topic(spec(east), f"{name}-eu", 1)
    produce(spec(east), topic, numbered(10, 1))
    more = {
        "replicationPolicy": {"type": "Identity"},
        "heartbeats": {"enabled": False},
        "discovery": {"topicsSeconds": 1},
    }
    there = manifest(f"{name}-there", east, west, f"{name}-.*", **more)
    back = manifest(f"{name}-back", west, east, f"{name}.*-eu", **more)
    for cluster, side in ((west, "source"), (east, "target")):
        port = cluster.brokers[0].port
        back["spec"][side]["bootstrapServers"] = f"localhost:{port}"
    with FlowRun(tmp_path, [back, there]) as run:
        ready = wait_until(
            lambda: run.condition("Ready"),
            until=lambda ready: ready.get("reason") == "ReplicationLoop",
        )
        assert (
            f"{topic} is not copied, because records would go round: flow default/{name}-there "
            f"copies {topic} of east to {topic} of west, and this flow would copy that to {topic} "
            "of east; exclude the topic"
        ) in ready["message"]
        wait_until(lambda: arrived(spec(west), topic) == 10)
    assert arrived(spec(east), topic) == 10


def test_a_second_run_of_a_flow_is_refused(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    flow = manifest("single", east, west, unique("none"))
    with FlowRun(tmp_path, [flow]) as run:
        wait_until(run.status)
        with FlowRun(tmp_path, [flow]) as second:
            assert second.end() == 3
        assert "flow single runs already" in second.output
        assert run.process.poll() is None


def test_a_pattern_that_matches_nothing_stays_visible(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    topic = make_topic(spec(east), unique("here"), 1)
    with FlowRun(tmp_path, [manifest("typo", east, west, topic, "ordres.*")]) as run:
        ready = wait_until(
            lambda: run.condition("Ready"),
            until=lambda ready: ready.get("reason") == "NoTopicMatches",
        )
        assert ready["status"] == "True"
        assert "no topic of east matches ordres.* in spec.topics.include" in ready["message"]
        assert topic not in ready["message"]


def test_a_target_topic_that_may_not_grow_is_said_and_the_rest_is_copied(
    east: SandboxCluster,
    start_cluster: Callable[..., SandboxCluster],
    tmp_path: Path,
    wait_until: WaitUntil,
) -> None:
    west = start_cluster(
        "strict",
        properties={
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
        },
    )
    topic = make_topic(spec(east), unique("short"), 4)
    make_topic(spec(west), f"east.{topic}", 2)
    _forbid_alter(west, f"east.{topic}")
    produce(spec(east), topic, numbered(400, 4))

    with FlowRun(tmp_path, [manifest("short", east, west, topic)]) as run:
        message = wait_until(
            lambda: run.condition("Ready"),
            until=lambda ready: ready.get("reason") == "TargetPartitionsTooFew",
        )["message"]
        assert f"grow topic east.{topic} to 4 partitions" in message
        assert f"Topic {topic} has 4 partitions on the source" in message
        assert "those from 2 on are not replicated" in message
        wait_until(lambda: arrived(spec(west), f"east.{topic}") == 200)


def _forbid_alter(cluster: SandboxCluster, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for operation, permission in (
        (AclOperation.ALL, AclPermissionType.ALLOW),
        (AclOperation.ALTER, AclPermissionType.DENY),
    ):
        acl = AclBinding(
            ResourceType.TOPIC,
            topic,
            ResourcePatternType.LITERAL,
            "User:ANONYMOUS",
            "*",
            operation,
            permission,
        )
        add_acls(admin, acl)


def test_no_default_is_warned_of(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path
) -> None:
    modest = manifest("modest", east, west, unique("none"))
    with FlowRun(tmp_path, [modest], "--until-caught-up") as run:
        assert run.end() == 0
    assert not [line for line in run.output.splitlines() if line.startswith("headrace: ")]
