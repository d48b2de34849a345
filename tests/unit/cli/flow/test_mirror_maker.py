"""``headrace flow import mm2`` and ``export mm2``, with brokers in memory and without drivers.

tests/integration/test_take_turns.py has a real MirrorMaker 2.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.fake_kafka import MARKER, FakeRecord
from support.source_tasks import COPY, FLOW, P0, P1, TOPIC, Scene

from headrace.api import FlowState, ReplicationFlow, TopicPartition
from headrace.cli.flow import flow_access
from headrace.connect.checkpoint.group_checkpoints import GroupCheckpoints
from headrace.connect.runtime.context import FlowContext
from headrace.connect.runtime.offset_sync_writer import ensure_offset_syncs_topic
from headrace.kafka import Committed
from headrace.replication import (
    Checkpoint,
    ConnectPartition,
    OffsetSync,
    Progress,
    Switch,
    decode_position,
    encode_position,
)
from headrace.standalone import StandaloneHerder

pytestmark = pytest.mark.usefixtures("meanwhile")
Say = Callable[..., str]
OFFSETS = "mm2-offsets.east.internal"
SYNCS = "mm2-offset-syncs.west.internal"


@pytest.fixture(autouse=True)
def stopped(herder: StandaloneHerder, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write ten records each. MirrorMaker 2 has copied eight of partition 0, none of 1."""

    def context(flow: ReplicationFlow, *_: object, **__: object) -> FlowContext:
        scene.context.change(flow)
        return scene.context

    monkeypatch.setattr(flow_access, "FlowContext", context)
    monkeypatch.setattr(scene.context, "close", lambda: None)  # one command follows another
    herder.pause("f", state=FlowState.STOPPED)
    scene.target.create_topic(OFFSETS, 3)
    for number in (0, 1):
        scene.source.append(TOPIC, *[b"x"] * 10, partition=number)
    scene.target.append(COPY, *[b"x"] * 8)
    mirrored(scene, 8)


def mirrored(
    scene: Scene, offset: int, at: TopicPartition = P0, cluster: str = "east", name: str = "mm2"
) -> None:
    key = ConnectPartition(name, cluster, at).key()
    there = scene.target.partition_of(OFFSETS, key)
    scene.target.write(there, FakeRecord(key, encode_position(offset), 1_000))


def goes_on(found: dict[str, Any]) -> dict[int, int]:
    return {one["partition"]: one["goesOnAt"] for one in found["partitions"]}


def copied(scene: Scene, *offsets: int, **more: Any) -> None:
    """Write the flow's own progress."""
    ids = scene.source.ids[TOPIC], scene.target.ids[COPY]
    scene.context.progress.start()
    scene.context.progress.write(
        {
            scene.context.progress_key(at): Progress(ids[0], n, -1, ids[1], n, 3, "me", **more)
            for at, n in zip((P0, P1), offsets, strict=False)
        }
    )


def test_progress_is_where_it_stopped_and_a_dry_run_stores_nothing(say: Say, scene: Scene) -> None:
    printed = say("flow", "import", "mm2", "f", "--dry-run")
    assert "Nothing was changed." in printed
    assert scene.context.progress.topic not in scene.target.ids
    found = json.loads(say("flow", "import", "mm2", "f", "-o", "json"))
    assert goes_on(found) == {0: 8, 1: 0}, "what it never copied begins at the start"
    assert (scene.stored(P0).source_offset, scene.stored(P0).target_offset) == (8, 8)
    assert (scene.stored(P1).source_offset, scene.stored(P1).target_offset) == (0, 0)
    scene.start()
    scene.settle()
    assert scene.target.records(COPY) == [b"x"] * 10


def test_its_pairs_of_offsets_up_to_there_go_on_to_be_known(say: Say, scene: Scene) -> None:
    ensure_offset_syncs_topic(scene.context.source, SYNCS)
    for n in (2, 5, 9):
        sync = OffsetSync(TOPIC, 0, n, n)
        scene.source.write(TopicPartition(SYNCS, 0), FakeRecord(sync.key(), sync.value(), 1_000))
    assert json.loads(say("flow", "import", "mm2", "f", "-o", "json"))["offsetSyncs"] == 2
    pairs = scene.target.records("mm2-offset-syncs.east.internal")
    assert pairs == [OffsetSync(TOPIC, 0, n, n).value() for n in (2, 5)]


def checkpoints(scene: Scene, group: str, *offsets: int) -> None:
    """Write checkpoints as MirrorMaker 2 does, one after the other."""
    topic = scene.context.checkpoints_topic
    scene.target.create_topic(topic, 1, config={"cleanup.policy": "compact"})
    for n in offsets:
        one = Checkpoint(group, COPY, 0, n, n)
        scene.target.write(TopicPartition(topic, 0), FakeRecord(one.key(), one.value(), 1_000))


def test_groups_that_mirror_maker_has_synchronised_move_on_and_consumers_stay(
    say: Say, scene: Scene, herder: StandaloneHerder
) -> None:
    """Only ``synced`` moves, which MirrorMaker 2 has set to an earlier checkpoint.

    A consumer of the target has committed for ``other``. For ``same`` it has committed the offset
    of an earlier checkpoint by chance.
    """
    spec = herder.flow("f").spec.checkpoints
    herder.change_spec("f", checkpoints=spec.model_copy(update={"apply_to_groups": True}))
    copy = TopicPartition(COPY, 0)
    for group in ("other", "same", "synced"):
        checkpoints(scene, group, 3, 5)
        scene.source.consumer_commits(group, P0, 10)
    scene.target.committed_by |= {
        "other": {copy: Committed(4, "")},
        "same": {copy: Committed(3, "", leader_epoch=2)},
        "synced": {copy: Committed(3, "")},
    }
    dry = json.loads(say("flow", "import", "mm2", "f", "--dry-run", "-o", "json"))
    assert [one["group"] for one in dry["groupsTakenOver"]] == ["synced"]
    said = say("flow", "import", "mm2", "f")
    assert "has set 1 offsets of groups of the target to earlier checkpoints (synced)" in said
    assert "Consumers of the target have committed 2 offsets (other, same)" in said

    scene.start()
    scene.settle()
    groups = GroupCheckpoints(scene.context)
    groups.read(["other", "same", "synced"])
    groups.write(last=True, apply=True)
    groups.close()
    held = {group: offsets[copy].offset for group, offsets in scene.target.committed_by.items()}
    assert held == {"other": 4, "same": 3, "synced": 10}


def test_while_mirror_maker_runs_nothing_is_imported(
    say: Say, scene: Scene, meanwhile: list[Callable[[], object]]
) -> None:
    meanwhile.append(lambda: mirrored(scene, 9))
    assert f"{OFFSETS}-" in say("flow", "import", "mm2", "f", code=1)
    meanwhile.append(lambda: scene.target.append(COPY, b"x"))
    assert "east.orders-0 on west grew within 5 s" in say("flow", "import", "mm2", "f", code=1)
    scene.target.active.add("east-mm2")
    assert "group east-mm2 on west has members" in say("flow", "import", "mm2", "f", code=1)
    assert scene.context.progress.topic not in scene.target.ids


def test_mirror_maker_that_has_stored_nothing_is_not_a_wrong_alias(say: Say, scene: Scene) -> None:
    scene.target.recreate_topic(OFFSETS)
    scene.target.active.add("east-mm2")
    assert "MirrorMaker 2 runs: group east-mm2" in say("flow", "import", "mm2", "f", code=1)
    scene.target.active.clear()
    why = say("flow", "import", "mm2", "f", code=3)
    assert f"{OFFSETS} on west contains no offsets. MirrorMaker 2 stores them every" in why
    assert "alias" not in why

    copied(scene, 3, 7)
    say("flow", "export", "mm2", "f")
    assert positions(scene, "MirrorSourceConnector") == {P0: 3, P1: 7}


def test_a_wrong_source_alias_is_suspected(say: Say, scene: Scene) -> None:
    scene.target.delete_topic(OFFSETS)
    assert "name the one in which" in say("flow", "import", "mm2", "f", code=3)
    scene.target.create_topic("mm2-offsets.north.internal", 3)
    why = say("flow", "import", "mm2", "f", code=3)
    assert f"there is no topic {OFFSETS} on west, but there are offsets of a MirrorMaker 2" in why
    assert "whose source is north: spec.source.alias is east, and must be the alias" in why


def test_a_wrong_target_alias_is_refused(say: Say, scene: Scene) -> None:
    scene.source.create_topic("mm2-offset-syncs.vest.internal", 1)
    why = say("flow", "import", "mm2", "f", code=3)
    assert "offset syncs of a MirrorMaker 2 whose target is vest: spec.target.alias is west" in why
    scene.source.create_topic(SYNCS, 1)
    assert "But" not in say("flow", "import", "mm2", "f", "--dry-run")


def test_missing_offset_syncs_are_a_sentence(say: Say, scene: Scene) -> None:
    sentence = f"But east has no topic {SYNCS} that the user may describe: offsets of groups"
    assert sentence in say("flow", "import", "mm2", "f", "--dry-run")
    scene.target.create_topic("mm2-offset-syncs.east.internal", 1)
    assert sentence not in say("flow", "import", "mm2", "f", "--dry-run")


def test_the_plan_counts_what_is_already_there(say: Say, scene: Scene) -> None:
    """A killed MirrorMaker 2 has stored offset 8 and copied to offset 11."""
    for number in (0, 1):
        scene.source.append(TOPIC, *[b"%d" % n for n in range(5)], partition=number)
    scene.target.append(COPY, b"x", b"x", b"0")
    found = json.loads(say("flow", "import", "mm2", "f", "--dry-run", "-o", "json"))
    assert [one["sourceEnd"] - one["goesOnAt"] for one in found["partitions"]] == [7, 15]
    assert [one["alreadyOnTarget"] for one in found["partitions"]] == [3, 0]
    assert "Warning: the target already has 3 of the offsets to copy" in say(
        "flow", "import", "mm2", "f", "--dry-run"
    )


def test_a_flow_that_runs_is_left_alone(say: Say, herder: StandaloneHerder) -> None:
    herder.pause("f", state=FlowState.RUNNING)
    for verb in ("import", "export"):
        assert "stop it first, by `headrace flow pause f --stop`" in say(
            "flow", verb, "mm2", "f", code=3
        )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Write the manifest of the flow."""
    return manifest(tmp_path, "f")


def manifest(folder: Path, name: str) -> Path:
    document = FLOW.model_dump(mode="json", by_alias=True, exclude_unset=True)
    document |= {"apiVersion": "headrace.dev/v1beta1", "kind": "ReplicationFlow"}
    document["metadata"]["name"] = name
    document["spec"]["discovery"] = {"topicsSeconds": 7}
    (path := folder / f"{name}.yaml").write_text(yaml.safe_dump(document))
    return path


@pytest.mark.parametrize("name", ["f", "renamed"])
def test_a_manifest_of_a_flow_that_runs_here_is_refused(
    say: Say, scene: Scene, herder: StandaloneHerder, tmp_path: Path, name: str
) -> None:
    """A flow of another name that copies the same topic continues beside MirrorMaker 2."""
    copied(scene, 3, 7)
    herder.pause("f", state=FlowState.RUNNING)
    given = ("-f", str(manifest(tmp_path, name)))
    for words in (("import", "mm2", "--again"), ("export", "mm2")):
        said = say("flow", *words, *given, code=3)
        assert "stop it first, by `headrace flow pause f --stop`" in said, words
        assert (f"copies topics of {name}" in said) == (name != "f")
    assert positions(scene, "MirrorSourceConnector") == {}
    assert (scene.stored(P0).source_offset, scene.stored(P0).epoch) == (3, 3)

    herder.pause("f", state=FlowState.STOPPED)
    say("flow", "export", "mm2", *given)
    assert positions(scene, "MirrorSourceConnector") == {P0: 3, P1: 7}


def test_a_manifest_with_other_clusters_than_the_run_is_refused(
    say: Say, scene: Scene, herder: StandaloneHerder, file: Path
) -> None:
    copied(scene, 3, 7)
    elsewhere = FLOW.spec.target.model_copy(update={"bootstrap_servers": "127.0.0.1:3"})
    herder.change_spec("f", target=elsewhere)
    assert "a flow f between other addresses runs on this machine: leave out --file" in say(
        "flow", "export", "mm2", "-f", str(file), code=3
    )


def test_an_export_after_a_kill_warns_of_records_that_come_twice(say: Say, scene: Scene) -> None:
    copied(scene, 6, 0)
    found = json.loads(say("flow", "export", "mm2", "f", "--dry-run", "-o", "json"))
    assert [one["repeated"] for one in found["partitions"]] == [2, 0]
    said = say("flow", "export", "mm2", "f")
    assert (
        "Warning: the target has 2 records that are not in the progress of f (orders/0 2)" in said
    )
    assert positions(scene, "MirrorSourceConnector") == {P0: 6, P1: None}


def test_an_export_after_a_stop_warns_of_nothing(say: Say, scene: Scene) -> None:
    scene.target.write(TopicPartition(COPY, 0), MARKER)
    copied(scene, 8, 0)
    assert "Warning" not in say("flow", "export", "mm2", "f")


def test_what_does_not_fit_is_refused_with_a_sentence(say: Say, scene: Scene) -> None:
    def refused(*options: str) -> str:
        return say("flow", "import", "mm2", "f", *options, code=3)

    assert "no topic connect-offsets on west" in refused("--offsets-topic", "connect-offsets")
    assert "has no position of connector other" in refused("--connector", "other")
    mirrored(scene, 4, name="second")
    assert "several connectors from east: mm2, second" in refused()
    mirrored(scene, 11, name="mm2")
    why = refused("--connector", "mm2")
    assert "to offset 11, and it ends at 10 on east: the topic was created again" in why
    scene.target.delete_topic(COPY)
    assert "west has no topic east.orders: spec.replicationPolicy must" in refused(
        "--connector", "mm2"
    )


def test_another_alias_and_other_topics_are_refused(say: Say, scene: Scene) -> None:
    scene.target.recreate_topic(OFFSETS)
    mirrored(scene, 3, TopicPartition("users", 0))
    why = say("flow", "import", "mm2", "f", code=3)
    assert "copied none of the topics of flow f, but users" in why
    scene.target.recreate_topic(OFFSETS)
    mirrored(scene, 3, cluster="north")
    assert "these sources: north; spec.source.alias is east" in say(
        "flow", "import", "mm2", "f", code=3
    )


def test_a_flow_that_has_copied_gives_way_to_later_positions_only(say: Say, scene: Scene) -> None:
    copied(scene, 3, 7)
    assert "flow f has copied orders-0 before, to offset 3" in say(
        "flow", "import", "mm2", "f", code=3
    )
    found = json.loads(say("flow", "import", "mm2", "f", "--again", "-o", "json"))
    assert goes_on(found) == {0: 8, 1: 7}
    assert (scene.stored(P0).epoch, scene.stored(P1).epoch) == (4, 3)


def test_mirror_maker_goes_on_where_the_flow_stopped(say: Say, scene: Scene) -> None:
    assert "holds no progress of flow f" in say("flow", "export", "mm2", "f", code=3)
    copied(scene, 10, 0)
    assert goes_on(json.loads(say("flow", "export", "mm2", "f", "--dry-run", "-o", "json"))) == {
        0: 10,
        1: 0,
    }
    assert positions(scene, "MirrorSourceConnector") == {}
    say("flow", "export", "mm2", "f")
    assert positions(scene, "MirrorSourceConnector") == {P0: 10, P1: None}
    say("flow", "export", "mm2", "f", "--connector", "mm2")
    assert positions(scene, "mm2")[P0] == 10


def test_its_topic_is_made_unless_it_is_named(say: Say, scene: Scene) -> None:
    copied(scene, 10)
    scene.target.delete_topic(OFFSETS)
    why = say("flow", "export", "mm2", "f", "--offsets-topic", "typo", code=3)
    assert "there is no topic typo on west" in why
    say("flow", "export", "mm2", "f")
    assert scene.target.configs[OFFSETS] == {"cleanup.policy": "compact"}
    assert positions(scene, "MirrorSourceConnector") == {P0: 10}


def test_what_is_failed_over_is_not_exported(say: Say, scene: Scene) -> None:
    copied(scene, 10, switch=Switch(1, True, 10, 10))
    assert "orders-0 is failed over" in say("flow", "export", "mm2", "f", code=3)


def positions(scene: Scene, connector: str) -> dict[TopicPartition, int | None]:
    """Return the source offsets that the connector would find."""
    found = {}
    for at, log in scene.target.logs.items():
        for record in log.entries if at.topic == OFFSETS else ():
            one = ConnectPartition.decode((record and record.key) or b"")
            if record and one and one.connector == connector:
                found[one.at] = decode_position(record.value)
    return found


def test_a_flow_with_preserved_offsets_has_others_than_mirror_maker(say: Say, scene: Scene) -> None:
    scene.context.preserved = True
    said = say("flow", "import", "mm2", "f", code=3)
    assert "import with a flow that has offsets.mode: Translated" in said
