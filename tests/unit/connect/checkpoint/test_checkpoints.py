"""Checkpoint connector and its tasks, with clusters in memory and the store of ``headrace run``."""

import pytest
from support.checkpoint_units import CHECKPOINTS, SYNCS, Units, message
from support.fake_kafka import FakeRecord
from support.source_tasks import P0, P1, Scene

from headrace.api import TaskType, TopicPartition
from headrace.connect.checkpoint.checkpoint_log import CheckpointLog
from headrace.connect.runtime.ownership import OwnershipLost
from headrace.errors import Retriable
from headrace.replication import Checkpoint, OffsetSync, StoredCheckpoint


@pytest.fixture
def units(scene: Scene) -> Units:
    return Units(scene)


# Connector.


def test_a_flow_without_groups_has_no_checkpoint_task(units: Units) -> None:
    units.connector.run_once()
    assert units.split() == {}
    assert "no consumer group of east that matches spec.groups" in message(units.connector)


def test_only_groups_with_offsets_of_the_flows_topics_are_followed(units: Units) -> None:
    units.scene.source.consumer_commits("billing", P0, 5)
    units.scene.source.consumer_commits("of-others", TopicPartition("private", 0), 5)
    units.scene.source.consumer_commits("console-consumer-1", P0, 5)
    assert units.connector.run_once() == 10
    assert units.split() == {0: ("billing",)}
    assert message(units.connector) == "follows 1 consumer groups of east"


def test_groups_that_are_not_translated_are_named(units: Units) -> None:
    units.scene.source.kinds = {f"g{n}": "share" for n in range(6)} | {"a": "streams"}
    units.connector.run_once()
    assert units.split() == {}
    assert message(units.connector).endswith(
        "; their offsets are not translated: Streams group a, share group g0, share group g1, "
        "share group g2, share group g3 and 2 more"
    )
    units.scene.source.kinds = {}
    units.connector.run_once()
    assert "share group g0" in message(units.connector), "they are listed every ten minutes"
    units.scene.clock.advance(600)
    units.connector.run_once()
    assert "share group" not in message(units.connector)


def test_groups_are_split_over_tasks_and_keep_theirs(units: Units) -> None:
    units.scene.change_spec(tasks={"max": 2})
    for group in "abc":
        units.scene.source.consumer_commits(group, P0, 5)
    units.connector.run_once()
    assert units.split() == {0: ("a", "c"), 1: ("b",)}
    units.scene.source.consumer_commits("d", P1, 5)
    del units.scene.source.committed_by["a"]
    units.connector.run_once()
    assert units.split() == {0: ("c", "d"), 1: ("b",)}


def test_a_group_that_commits_its_first_offset_later_is_found(units: Units) -> None:
    units.scene.source.committed_by["billing"] = {}
    units.connector.run_once()
    assert units.split() == {}
    units.scene.source.consumer_commits("billing", P0, 5)
    units.connector.run_once()
    assert units.split() == {0: ("billing",)}


def test_a_group_that_may_not_be_read_is_named_and_the_others_are_followed(units: Units) -> None:
    units.scene.source.consumer_commits("billing", P0, 5)
    units.scene.source.consumer_commits("secret", P0, 5)
    units.scene.source.forbidden.add("secret")
    units.connector.run_once()
    assert units.split() == {0: ("billing",)}
    assert str(units.connector.problem) == "may not read secret"


def test_checkpoints_that_are_disabled_have_no_task(units: Units) -> None:
    units.scene.source.consumer_commits("billing", P0, 5)
    units.connector.run_once()
    units.scene.change_spec(checkpoints={"enabled": False})
    units.connector.run_once()
    assert units.split() == {}


def test_a_connector_that_a_later_one_followed_stops(units: Units) -> None:
    units.scene.source.consumer_commits("billing", P0, 5)
    units.herder.store.put("f", TaskType.CHECKPOINT_TASK, 0, ["billing"], connector_epoch=9)
    with pytest.raises(OwnershipLost, match="a later connector"):
        units.connector.run_once()


# Task.


def test_committed_offsets_become_checkpoints(units: Units) -> None:
    units.copied(10)
    units.scene.source.consumer_commits("billing", P0, 4, "note")
    task = units.make_task("billing")
    task.run_once()
    assert task.problem is None
    assert units.checkpoints() == [Checkpoint("billing", "east.orders", 0, 4, 4, "note")]
    assert message(task) == "offsets of 1 groups: 1 exact"


def test_what_has_not_changed_is_not_written_again(units: Units) -> None:
    units.copied(10)
    units.scene.source.consumer_commits("billing", P0, 4)
    for task in (units.make_task("billing"), units.make_task("billing")):  # a restart
        for _ in range(3):
            task.run_once()
            units.scene.clock.advance(61)
    assert len(units.checkpoints()) == 1
    units.scene.source.consumer_commits("billing", P0, 5)
    task.run_once()
    assert [one.source_offset for one in units.checkpoints()] == [4, 5]


def test_an_offset_that_is_not_copied_yet_waits_for_its_record(units: Units) -> None:
    units.copied(10)
    units.scene.source.consumer_commits("billing", P0, 12)
    task = units.make_task("billing")
    assert task.run_once() == 1
    assert units.checkpoints() == []
    units.more(10)
    task.run_once()
    assert units.checkpoints() == [Checkpoint("billing", "east.orders", 0, 12, 12)]


def test_an_offset_that_stays_ahead_is_written_as_the_end_of_the_copy(units: Units) -> None:
    units.copied(10)
    units.scene.source.consumer_commits("billing", P0, 12)
    task = units.make_task("billing")
    task.run_once()
    units.scene.clock.advance(16)
    task.run_once()
    assert units.checkpoints() == [Checkpoint("billing", "east.orders", 0, 12, 10)]
    assert "1 at the end of the copy" in message(task)


def test_a_group_behind_the_retention_of_the_target_begins_where_its_log_begins(
    units: Units,
) -> None:
    units.copied(10)
    units.scene.source.consumer_commits("billing", P0, 4)
    task = units.make_task("billing")
    task.run_once()
    units.scene.target.logs[TopicPartition("east.orders", 0)].delete_before(7)
    for _ in range(2):
        units.scene.clock.advance(61)
        task.run_once()
    assert [one.target_offset for one in units.checkpoints()] == [4, 7]
    units.scene.source.consumer_commits("billing", P0, 8)
    units.scene.clock.advance(61)
    task.run_once()
    assert units.checkpoints()[-1] == Checkpoint("billing", "east.orders", 0, 8, 8)


def test_an_offset_older_than_all_syncs_has_no_checkpoint(units: Units) -> None:
    units.copied(0)
    sync = OffsetSync(*P0, 100, 40)
    units.scene.target.write(SYNCS, FakeRecord(sync.key(), sync.value(), 1))
    units.scene.source.consumer_commits("billing", P0, 99)
    task = units.make_task("billing")
    task.run_once()
    units.scene.clock.advance(16)
    task.run_once()
    assert units.checkpoints() == []
    assert "1 without a checkpoint" in message(task)


def test_a_group_that_may_not_be_read_is_named_until_it_is_read(units: Units) -> None:
    units.copied(10)
    units.scene.source.consumer_commits("billing", P0, 14)
    units.scene.source.consumer_commits("secret", P0, 4)
    units.scene.source.forbidden.add("secret")
    task = units.make_task("billing", "secret")
    for _ in range(2):
        task.run_once()
        assert str(task.problem) == "may not read secret"
    units.scene.source.forbidden.clear()
    units.scene.clock.advance(61)
    task.run_once()
    assert task.problem is None
    assert [one.group for one in units.checkpoints()] == ["secret"]


def test_without_the_pairs_of_before_a_group_is_not_sent_back(units: Units) -> None:
    units.copied(0)
    units.scene.target.append("east.orders", *[b"x"] * 130)
    for source, target in ((100, 40), (200, 130)):  # MirrorMaker 2 has no offsets in between
        sync = OffsetSync(*P0, source, target)
        units.scene.target.write(SYNCS, FakeRecord(sync.key(), sync.value(), 1))
    before = Checkpoint("billing", "east.orders", 0, 150, 80)
    units.scene.target.create_topic(CHECKPOINTS.topic, 1)
    units.scene.target.write(CHECKPOINTS, FakeRecord(before.key(), before.value(), 1))
    units.scene.source.consumer_commits("billing", P0, 160)
    units.scene.source.consumer_commits("late", P0, 140)
    task = units.make_task("billing", "late")
    task.run_once()
    units.scene.clock.advance(16)
    task.run_once()
    assert set(units.checkpoints()[1:]) == {
        Checkpoint("billing", "east.orders", 0, 160, 80),
        Checkpoint("late", "east.orders", 0, 140, 41),
    }


def test_a_topic_that_may_not_be_made_is_named_and_tried_again(units: Units) -> None:
    units.copied(10)
    units.scene.source.consumer_commits("billing", P0, 4)
    units.scene.target.forbidden.add(CHECKPOINTS.topic)
    task = units.make_task("billing")
    assert task.run_once() == 10
    assert isinstance(task.problem, Retriable)
    assert CHECKPOINTS.topic in str(task.problem)
    units.scene.target.forbidden.clear()
    task.run_once()
    assert task.problem is None
    assert len(units.checkpoints()) == 1


def test_a_checkpoint_that_the_target_refuses_is_written_later(units: Units) -> None:
    units.copied(10)
    units.scene.source.consumer_commits("billing", P0, 4)
    denied = 29  # TOPIC_AUTHORIZATION_FAILED
    units.scene.target.refuses = lambda at, _: denied if at == CHECKPOINTS else 0
    task = units.make_task("billing")
    task.run_once()
    assert "write checkpoints to topic east.checkpoints.internal" in str(task.problem)
    units.scene.target.refuses = lambda at, _: 0
    task.run_once()
    assert len(units.checkpoints()) == 1


def test_groups_that_come_later_are_followed_at_once(units: Units) -> None:
    units.copied(10)
    units.scene.source.consumer_commits("billing", P0, 4)
    units.scene.source.consumer_commits("audit", P0, 6)
    task = units.make_task("billing")
    task.run_once()
    units.herder.store.put("f", TaskType.CHECKPOINT_TASK, 0, ["audit", "billing"])
    task.ownership.update(units.herder.unit(TaskType.CHECKPOINT_TASK))
    task.run_once()
    assert {one.group for one in units.checkpoints()} == {"audit", "billing"}


def test_what_a_group_would_read_again_is_counted_of_those_with_most(units: Units) -> None:
    scene = units.scene
    units.copied(20)
    for n in range(60):
        scene.source.consumer_commits(f"g{n}", P0, 3)
    task = units.make_task(*(f"g{n}" for n in range(60)))
    task.run_once()
    assert set(task.groups.values()) == {0}, "without a checkpoint nothing is known"
    assert task.translations == {"Exact": 60}
    scene.source.consumer_commits("g7", P0, 12)
    scene.clock.advance(60)
    task.run_once()
    assert (len(task.groups), task.groups["g7"], sum(task.groups.values())) == (50, 9, 9)
    scene.clock.advance(60)
    task.run_once()
    assert list(task.groups) == sorted(f"g{n}" for n in range(60))[:50]
    assert set(task.groups.values()) == {0}


def test_unchanged_checkpoints_are_written_to_a_topic_that_was_created_again(units: Units) -> None:
    stored = StoredCheckpoint(Checkpoint("billing", "east.orders", 0, 4, 4), applied=(3, 4))
    log = CheckpointLog(units.scene.context)
    log.prepare()
    log.write([stored])
    log.prepare()
    units.scene.target.recreate_topic(CHECKPOINTS.topic)
    with pytest.raises(Retriable, match="it was deleted and created again"):
        log.prepare()
    log.prepare()
    assert log.before(stored.checkpoint.key()) == stored, "what was applied to groups is kept"
    log.write([stored])
    log.write([stored])
    log.close()
    assert units.checkpoints() == [stored.checkpoint]
