"""``headrace flow groups`` for a run without drivers, with brokers in memory."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.fake_kafka import FakeRecord
from support.source_tasks import FLOW, P0, TOPIC, Scene

from headrace.api import TopicPartition
from headrace.replication import Checkpoint

pytestmark = pytest.mark.usefixtures("herder", "scene")

Say = Callable[..., str]
CHECKPOINTS = TopicPartition("east.checkpoints.internal", 0)


def copied(scene: Scene) -> None:
    """Copy ten records, commit offsets of two groups, and write a checkpoint of one."""
    scene.source.append(TOPIC, *[b"x"] * 10)
    scene.start()
    scene.settle()
    scene.source.consumer_commits("audit", P0, 7)
    scene.source.consumer_commits("billing", P0, 9)
    scene.target.create_topic(CHECKPOINTS.topic, 1)
    written = Checkpoint("billing", "east.orders", 0, 4, 4)
    scene.target.write(CHECKPOINTS, FakeRecord(written.key(), written.value(), 1))


def test_a_line_for_each_partition_of_a_group(say: Say, scene: Scene) -> None:
    copied(scene)
    rows = [row.split() for row in say("flow", "groups", "f").splitlines()]
    why = ["no", "offset", "sync", "up", "to", "this", "offset", "is", "known"]
    assert rows == [
        ["GROUP", "PARTITION", "COMMITTED", "CHECKPOINT", "ON", "TARGET", "LAG", "NOTE"],
        ["audit", "orders/0", "7", "-", "-", "-", *why],
        ["billing", "orders/0", "9", "4", "4", "5", *why],
    ]


def test_with_what_groups_of_the_target_hold_where_they_are_set(say: Say, scene: Scene) -> None:
    scene.change_spec(checkpoints={"applyToGroups": True})
    copied(scene)
    scene.target.consumer_commits("billing", TopicPartition("east.orders", 0), 4)
    rows = [row.split() for row in say("flow", "groups", "f").splitlines()]
    assert rows[0][4:8] == ["ON", "TARGET", "GROUP", "THERE"]
    assert [row[:7] for row in rows[1:]] == [
        ["audit", "orders/0", "7", "-", "-", "-", "-"],
        ["billing", "orders/0", "9", "4", "4", "4", "5"],
    ]


@pytest.mark.parametrize(("output", "parse"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_all_of_it_for_programs(
    say: Say, scene: Scene, output: str, parse: Callable[[str], Any]
) -> None:
    copied(scene)
    found = parse(say("flow", "groups", "-o", output))
    assert (found["flow"], found["problems"], len(found["groups"])) == ("f", [], 2)
    assert found["groups"][1] == {
        "group": "billing",
        "topic": "orders",
        "partition": 0,
        "targetTopic": "east.orders",
        "committed": 9,
        "checkpoint": {"sourceOffset": 4, "targetOffset": 4},
        "lag": 5,
        "note": "no offset sync up to this offset is known",
    }


def test_groups_that_are_not_translated_stand_below(say: Say, scene: Scene) -> None:
    copied(scene)
    scene.source.kinds["orders-share"] = "share"
    last = say("flow", "groups", "f").splitlines()[-1]
    assert last.startswith("share group orders-share: its offsets are not translated (")
    found = json.loads(say("flow", "groups", "-o", "json"))
    assert found["notTranslated"] == [{"group": "orders-share", "kind": "share", "note": last}]


def test_that_there_is_none_is_said(say: Say) -> None:
    assert "No group that flow f follows has an offset of its topics." in say("flow", "groups", "f")


def test_the_source_that_does_not_answer_is_named_below_the_checkpoints(
    say: Say, scene: Scene
) -> None:
    copied(scene)
    scene.source.away = True
    rows = say("flow", "groups", "f").splitlines()
    assert rows[1].split() == ["billing", "orders/0", "-", "4", "4", "-"]
    assert rows[2] == "no broker of east answered"


def test_a_target_that_does_not_answer_is_an_error(say: Say, scene: Scene) -> None:
    scene.target.away = True
    assert say("flow", "groups", "f", code=1) == "headrace: no broker of west answered\n"


def test_a_flow_of_a_manifest_need_not_run(say: Say, scene: Scene, tmp_path: Path) -> None:
    copied(scene)
    file = tmp_path / "flow.yaml"
    document = FLOW.model_dump(mode="json", by_alias=True, exclude_unset=True)
    document |= {"apiVersion": "headrace.dev/v1beta1", "kind": "ReplicationFlow"}
    file.write_text(yaml.safe_dump(document))
    assert "billing" in say("flow", "groups", "-f", str(file))
    assert "billing" in say("flow", "groups", "f", "-f", str(file))
    sentence = "contains these ReplicationFlows: f; name one of them"
    assert sentence in say("flow", "groups", "other", "-f", str(file), code=3)


def test_a_flow_without_checkpoints_is_refused(say: Say, scene: Scene) -> None:
    scene.change_spec(checkpoints={"enabled": False})
    assert say("flow", "groups", "f", code=3) == (
        "headrace: flow f writes no checkpoints: spec.checkpoints.enabled is false\n"
    )
