"""Settings of topics, kept equal by a running flow between real clusters."""

import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from support.flows import FlowRun, manifest, spec
from support.records import arrived, make_topic, numbered, produce, set_topic, unique

from headrace.kafka import Admin
from headrace.sandbox import SandboxCluster

WaitUntil = Callable[..., Any]
FAST = {"topicsSeconds": 1}


def test_settings_follow_the_source_and_those_of_the_target_stay(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    wanted = {"cleanup.policy": "compact", "max.message.bytes": "2000000"}
    topic = make_topic(spec(east), unique("set"), 1, **wanted, **{"min.insync.replicas": "1"})
    copy, admin = f"east.{topic}", Admin(spec(west))
    there = make_topic(spec(east), unique("there"), 1, **{"retention.ms": "86400000"})
    make_topic(spec(west), f"east.{there}", 1, **{"segment.ms": "3600000"})

    def own(name: str) -> dict[str, str]:
        found, refused = admin.topic_configs([name])
        assert refused == {}
        return dict(found[name].own) if name in found else {}

    flow = manifest("set", east, west, topic, there, topicConfigs={"intervalSeconds": 1})
    with FlowRun(tmp_path, [flow]) as run:
        wait_until(partial(own, copy), until=lambda found: found == wanted)
        both = {"retention.ms": "86400000", "segment.ms": "3600000"}
        wait_until(partial(own, f"east.{there}"), until=lambda found: found == both)

        set_topic(spec(west), copy, "max.message.bytes", "1000")
        wait_until(partial(own, copy), until=lambda found: found == wanted)
        set_topic(spec(east), topic, "max.message.bytes", "3000000")
        wanted["max.message.bytes"] = "3000000"
        wait_until(partial(own, copy), until=lambda found: found == wanted)
        Admin(spec(east)).change_topic_configs({topic: {"max.message.bytes": None}})
        del wanted["max.message.bytes"]
        wait_until(partial(own, copy), until=lambda found: found == wanted)

        wait_until(run.ready)
        assert "not synchronized" not in str(run.condition("Ready"))
    assert own(f"east.{there}") == both


def test_copies_of_deleted_topics_are_deleted_if_the_flow_made_them(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    made, there, stays = (make_topic(spec(east), unique("deleted"), 1) for _ in range(3))
    make_topic(spec(west), f"east.{there}", 1)
    source, target = Admin(spec(east)), Admin(spec(west))
    wanted = {"mode": "DryRun", "delaySeconds": 1}
    flow = manifest("deletes", east, west, made, there, stays, topicDeletion=wanted, discovery=FAST)
    with FlowRun(tmp_path, [flow]) as run:
        wait_until(run.ready)
        for topic in (made, there):
            produce(spec(east), topic, numbered(10, 1))
            wait_until(partial(arrived, spec(west), f"east.{topic}"))
        source.delete_topic(made)
        source.delete_topic(there)
        would = ("DeletionDryRun", f"would be deleted: east.{made}")

        def condition() -> tuple[str, str]:
            found = run.condition("TopicDeletion")
            return found.get("reason", ""), found.get("message", "")

        wait_until(condition, until=lambda found: found == would)
        assert f"east.{made}" in target.topics()
        flow["spec"]["topicDeletion"] = {**wanted, "mode": "Enabled"}
        FlowRun.write(run.file, [flow])
        run.process.send_signal(signal.SIGHUP)
        done = ("CopiesDeleted", f"deleted: east.{made}")
        wait_until(condition, until=lambda found: found == done)
        kept = {f"east.{topic}" for topic in (there, stays)}
        wait_until(target.topics, until=lambda found: f"east.{made}" not in found)
        assert kept <= target.topics().keys()
