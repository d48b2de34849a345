"""Copies are deleted after their sources, with guard rails and clusters in memory."""

from collections.abc import Iterator
from typing import Any

import pytest
from support.source_tasks import COPY, P0, TOPIC, Scene

from headrace.api import LossAction, LossCause, TopicPartition
from headrace.connect.topics.topic_deletion import DeletedTopics, TopicDeleter
from headrace.errors import Fatal, Retriable
from headrace.replication import Loss, Progress, Switch

MEMORY = "mm2-headrace-topics.east.internal"


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    scene.change_spec(topics={"include": [".*"]}, topicDeletion=enabled())
    yield scene
    scene.close()


@pytest.fixture
def deletion(scene: Scene) -> Iterator[TopicDeleter]:
    """Yield a deleter that remembers the creation of the only topic's copy."""
    deletion = TopicDeleter(scene.context)
    deletion.made([TOPIC])
    deletion.poll([TOPIC], set())
    assert deletion.conditions == ()
    scene.context.progress.start()
    yield deletion
    deletion.close()


def enabled(**more: Any) -> dict[str, Any]:
    return {"mode": "Enabled", "delaySeconds": 60, "maxTopics": 2, **more}


def poll(scene: Scene, deletion: TopicDeleter, held: set[str] | None = None) -> str:
    """Poll as after a discovery, and return the condition."""
    deletion.poll(scene.source.topics(), held or set())
    return "".join(f"{one.reason}: {one.message}" for one in deletion.conditions)


def later(scene: Scene, deletion: TopicDeleter, held: set[str] | None = None) -> str:
    """Poll after the source's topics have been missing for long enough."""
    poll(scene, deletion)
    scene.clock.advance(60)
    return poll(scene, deletion, held)


def stored(scene: Scene, **more: Any) -> None:
    ids = scene.source.ids.get(TOPIC, "gone"), scene.target.ids[COPY]
    progress = Progress(ids[0], 5, -1, ids[1], 5, 3, "me", **more)
    scene.context.progress.write({scene.context.progress_key(P0): progress})


def test_a_copy_goes_when_its_source_is_gone_for_long_enough(
    scene: Scene, deletion: TopicDeleter
) -> None:
    scene.source.delete_topic(TOPIC)
    assert poll(scene, deletion).startswith("DeletionPending: their sources are deleted")
    scene.clock.advance(59)
    poll(scene, deletion)
    assert COPY in scene.target.ids
    scene.clock.advance(1)
    assert poll(scene, deletion) == f"CopiesDeleted: deleted: {COPY}"
    assert COPY not in scene.target.ids
    scene.clock.advance(3600)
    assert poll(scene, deletion) == ""


def test_a_source_that_comes_back_begins_the_time_again(
    scene: Scene, deletion: TopicDeleter
) -> None:
    scene.source.delete_topic(TOPIC)
    poll(scene, deletion)
    scene.clock.advance(59)
    scene.source.create_topic(TOPIC, 2)
    assert poll(scene, deletion) == ""
    scene.source.delete_topic(TOPIC)
    assert "DeletionPending" in later(scene, deletion, {TOPIC})
    assert COPY in scene.target.ids, "a task holds its partitions"
    assert "CopiesDeleted" in poll(scene, deletion)


def test_a_dry_run_names_what_it_would_delete(scene: Scene, deletion: TopicDeleter) -> None:
    scene.change_spec(topicDeletion=enabled(mode="DryRun"))
    scene.source.delete_topic(TOPIC)
    assert later(scene, deletion) == f"DeletionDryRun: would be deleted: {COPY}"
    assert COPY in scene.target.ids
    scene.change_spec(topicDeletion=enabled(mode="Disabled"))
    assert poll(scene, deletion) == ""


def test_what_the_flow_has_not_made_is_never_deleted(scene: Scene) -> None:
    scene.source.create_topic("users", 1)
    scene.target.create_topic("east.users", 1)
    deletion = TopicDeleter(scene.context)
    scene.source.delete_topic("users")
    assert later(scene, deletion) == ""
    assert "east.users" in scene.target.ids
    scene.target.recreate_topic(COPY)
    deletion.made([TOPIC])
    deletion.poll([TOPIC], set())
    scene.target.recreate_topic(COPY)  # by another client
    scene.source.delete_topic(TOPIC)
    assert later(scene, deletion) == ""
    assert COPY in scene.target.ids
    assert scene.target.records(MEMORY)[-1] is None, "it is forgotten"


def test_without_an_answer_of_the_source_nothing_is_deleted(
    scene: Scene, deletion: TopicDeleter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list may lack topics, and each is therefore requested again by its name."""
    deletion.poll([], set())
    scene.clock.advance(60)
    deletion.poll([], set())
    assert (deletion.conditions, COPY in scene.target.ids) == ((), True)
    scene.source.delete_topic(TOPIC)
    scene.clock.advance(60)
    deletion.poll([], set())
    scene.clock.advance(60)
    scene.source.away = True
    deletion.poll([], set())
    assert "no broker of east answered" in deletion.conditions[0].message
    assert COPY in scene.target.ids
    scene.source.away = False
    monkeypatch.setattr(scene.context, "source_cluster_id", "another")
    deletion.poll([], set())
    assert (deletion.conditions, COPY in scene.target.ids) == ((), True)


def test_of_too_many_none_is_deleted(scene: Scene, deletion: TopicDeleter) -> None:
    names = {TOPIC, "users", "events"}
    for topic in names - {TOPIC}:
        scene.source.create_topic(topic, 1)
        scene.target.create_topic(f"east.{topic}", 1)
    deletion.made(names - {TOPIC})
    poll(scene, deletion)
    for topic in names:
        scene.source.delete_topic(topic)
    assert "DeletionRefused: 3 copies have no source any more" in later(scene, deletion)
    assert {f"east.{topic}" for topic in names} <= scene.target.ids.keys()
    scene.change_spec(topicDeletion=enabled(maxTopics=3))
    assert "CopiesDeleted" in poll(scene, deletion)


def test_what_was_failed_over_lost_or_is_read_is_kept(scene: Scene, deletion: TopicDeleter) -> None:
    stored(scene, switch=Switch(1, True, 5, 5))
    scene.source.delete_topic(TOPIC)
    assert later(scene, deletion) == f"DeletionRefused: kept: {COPY}: it was failed over"
    lost = Loss(LossCause.SOURCE_DELETED, 5, 9, 1, action=LossAction.STOPPED)
    stored(scene, loss=lost)
    assert "records of its source were lost" in poll(scene, deletion)
    stored(scene)
    scene.target.consumer_commits("billing", TopicPartition(COPY, 0), 3)
    scene.target.active.add("billing")
    assert "kept: east.orders: group billing reads it" in poll(scene, deletion)
    assert COPY in scene.target.ids
    scene.target.forbidden.add("billing")
    assert "may not read billing" in poll(scene, deletion)
    assert COPY in scene.target.ids, "its group may read it"
    scene.target.forbidden.clear()
    scene.target.active.clear()
    assert "CopiesDeleted" in poll(scene, deletion)


def test_copy_that_was_failed_over_is_kept_after_its_deletion_was_noticed(
    scene: Scene, deletion: TopicDeleter
) -> None:
    """The connector first settles the progress of deleted topics, then deletes copies."""
    stored(scene, switch=Switch(1, True, 5, 5))
    scene.source.delete_topic(TOPIC)
    deleted = DeletedTopics(scene.context)
    for _ in range(3):
        deleted.find(scene.source.topics(), set())
        condition = poll(scene, deletion)
        scene.clock.advance(60)
    assert condition == f"DeletionRefused: kept: {COPY}: it was failed over"
    assert COPY in scene.target.ids


def test_what_the_target_refuses_is_a_sentence_and_tried_again(
    scene: Scene, deletion: TopicDeleter, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.source.delete_topic(TOPIC)
    poll(scene, deletion)
    scene.clock.advance(60)
    with monkeypatch.context() as patch:

        def refuse(name: str) -> None:
            raise Retriable(f"could not delete topic {name}")

        patch.setattr(scene.target, "delete_topic", refuse)
        assert "no copy is deleted: could not delete topic east.orders" in poll(scene, deletion)
    assert "CopiesDeleted" in poll(scene, deletion)


def delete_both(scene: Scene, deletion: TopicDeleter) -> None:
    """Create a copy of ``users``, then delete both topics on the source."""
    scene.source.create_topic("users", 1)
    scene.target.create_topic("east.users", 1)
    deletion.made(["users"])
    poll(scene, deletion)
    for topic in (TOPIC, "users"):
        scene.source.delete_topic(topic)


def test_a_copy_that_the_target_refuses_to_delete_does_not_keep_the_others(
    scene: Scene, deletion: TopicDeleter, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete_both(scene, deletion)
    delete = scene.target.delete_topic

    def refuse(name: str) -> None:
        if name == COPY:
            raise Fatal(f"could not delete topic {name}: grant Delete")
        delete(name)

    monkeypatch.setattr(scene.target, "delete_topic", refuse)
    assert later(scene, deletion) == (
        f"DeletionRefused: kept: {COPY}: could not delete topic {COPY}: grant Delete; "
        "deleted: east.users"
    )
    assert (COPY in scene.target.ids, "east.users" in scene.target.ids) == (True, False)


def test_after_a_deletion_of_the_record_only_later_copies_are_deleted(
    scene: Scene, deletion: TopicDeleter
) -> None:
    scene.target.recreate_topic(MEMORY)
    assert "it was deleted and created again" in poll(scene, deletion)
    assert poll(scene, deletion) == ""
    delete_both(scene, deletion)
    assert later(scene, deletion) == "CopiesDeleted: deleted: east.users"
    assert (COPY in scene.target.ids, "east.users" in scene.target.ids) == (True, False)
