"""Partitions that a user resets are copied again from ``spec.startFrom``, once."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from support.fake_kafka import FakeRecord
from support.source_tasks import COPY, P0, P1, TOPIC, Scene

from headrace.api import RESET_ANNOTATION, ConditionType, TaskPhase, find_condition
from headrace.api.partitions import TopicPartition
from headrace.connect.takeover.starts import Preview, preview_reset

FIRST, SECOND = "2026-01-31T18:00:00Z", "2026-01-31T18:00:01Z"
P0_COPY = TopicPartition(COPY, 0)


def reset(scene: Scene, *partitions: str) -> None:
    """Annotate the flow, as its owner does while it runs."""
    flow = scene.context.flow
    annotations = {RESET_ANNOTATION: " ".join(partitions)}
    metadata = flow.metadata.model_copy(update={"annotations": annotations})
    scene.context.change(flow.model_copy(update={"metadata": metadata}))


def reset_message(scene: Scene) -> str:
    found = find_condition(scene.task.status.conditions, ConditionType.PARTITIONS_RESET)
    return found.message if found else ""


def test_a_running_partition_is_copied_again_once_and_the_others_go_on(scene: Scene) -> None:
    scene.source.append(TOPIC, b"a", b"b")
    scene.source.append(TOPIC, b"x", partition=1)
    scene.start()
    scene.settle()
    producer = scene.producer
    reset(scene, f"orders/0@{FIRST}")
    scene.source.append(TOPIC, b"y", partition=1)
    scene.settle()
    scene.settle()
    assert (scene.copies(0), scene.copies(1)) == ([b"a", b"b", b"a", b"b"], [b"x", b"y"])
    assert (scene.position(P0), scene.position(P1)) == (2, 2)
    assert scene.producer is producer, "the task has its lane still"
    assert scene.task.status.last_error is None
    assert reset_message(scene) == (
        f"copied again from spec.startFrom on, as headrace.dev/reset asks: orders/0@{FIRST}"
    )
    reset(scene, f"orders/0@{SECOND}", f"orders/1@{SECOND}")
    scene.settle()
    scene.settle()
    assert (scene.copies(0), scene.copies(1)) == ([b"a", b"b"] * 3, [b"x", b"y"] * 2)


def test_neither_a_restart_nor_an_older_annotation_resets_again(
    scene: Scene, scenes: Callable[..., Scene]
) -> None:
    scene.source.append(TOPIC, b"a")
    scene.start()
    scene.settle()
    reset(scene, f"orders@{SECOND}")
    scene.settle()
    scene.settle()
    assert scene.copies() == [b"a", b"a"]
    assert scene.stored(P0).reset_ms == scene.context.resets.time_ms(P0)
    reset(scene, f"orders@{FIRST}")  # Git is reverted, or another driver has an older view
    scene.settle()
    scene.source.append(TOPIC, b"b")
    scene.settle()
    following = scenes(kafka=scene.kafka)
    reset(following, f"orders@{SECOND}")
    following.start()
    following.settle()
    assert following.copies() == [b"a", b"a", b"b"]
    assert following.stored(P0).reset_ms == scene.stored(P0).reset_ms


def test_what_begins_under_an_annotation_is_not_copied_twice(
    scene: Scene, scenes: Callable[..., Scene]
) -> None:
    reset(scene, f"orders@{FIRST}")
    scene.source.append(TOPIC, b"a")
    scene.start()
    scene.settle()
    following = scenes(kafka=scene.kafka)
    reset(following, f"orders@{FIRST}")
    following.start()
    following.settle()
    assert following.copies() == [b"a"]


def test_a_partition_that_data_loss_stopped_goes_on_at_once(scene: Scene) -> None:
    scene.source.append(TOPIC, b"a", b"b", b"c")
    scene.source.append(TOPIC, b"x", partition=1)
    scene.start()
    scene.settle()
    scene.log(P0).truncate(1)
    scene.source.append(TOPIC, b"B")
    scene.recover()
    scene.observe()
    assert scene.stops(P0)
    reset(scene, f"orders/0@{FIRST}")
    for _ in range(3):  # no time elapses: its back-off takes minutes
        scene.run_once()
    scene.observe()
    assert scene.copies() == [b"a", b"b", b"c", b"a", b"B"]
    assert (scene.copies(1), scene.lost_data, scene.stops(P0)) == ([b"x"], "", False)
    assert scene.error == ""


def test_a_task_that_failed_as_its_only_partition_was_stopped_is_superseded(
    scenes: Callable[..., Scene],
) -> None:
    scene = scenes(P0)
    scene.source.append(TOPIC, b"a", b"b")
    scene.start()
    scene.settle()
    scene.log(P0).truncate(1)
    scene.recover()
    assert scene.phase is TaskPhase.FAILED
    reset(scene, f"orders/0@{FIRST}")
    assert scene.task.superseded(scene.task.partitions)
    scene.restart()
    scene.recover()
    scene.settle()
    assert (scene.phase, scene.error) == (TaskPhase.RUNNING, "")
    assert scene.copies() == [b"a", b"b", b"a"]


@pytest.mark.parametrize(
    ("side", "copies"), [("source", [b"a", b"b", b"c"]), ("target", [b"a", b"b"])]
)
def test_a_topic_that_was_created_again_is_copied_as_it_is_now(
    scene: Scene, side: str, copies: list[bytes]
) -> None:
    scene.source.append(TOPIC, b"a", b"b")
    scene.start()
    scene.settle()
    cluster, topic = (scene.source, TOPIC) if side == "source" else (scene.target, COPY)
    cluster.recreate_topic(topic)
    if side == "source":
        scene.source.append(TOPIC, b"c")
    scene.check_topics()
    scene.recover()
    assert scene.stops(P0)
    reset(scene, f"orders@{FIRST}")
    scene.restart()  # all its partitions had stopped
    scene.recover()
    scene.settle()
    assert scene.copies() == copies
    assert (scene.lost_data, scene.task.status.losses, scene.stops(P0)) == ("", (), False)


def test_the_target_may_go_on_at_its_end_whatever_it_lost(scene: Scene) -> None:
    scene.source.append(TOPIC, b"a", b"b", b"c")
    scene.start()
    scene.settle()
    scene.target.logs[P0_COPY].truncate(1)
    reset(scene, f"orders/0@{FIRST}")
    scene.settle()
    scene.settle()
    assert scene.copies() == [b"a", b"a", b"b", b"c"]
    assert (scene.lost_data, scene.error) == ("", "")


def test_a_reset_of_a_paused_partition_takes_effect_when_it_goes_on(scene: Scene) -> None:
    scene.source.append(TOPIC, b"a")
    scene.start()
    scene.settle()
    scene.change_spec(pausedPartitions=[{"topic": TOPIC}])
    reset(scene, f"orders/0@{FIRST}")
    scene.settle()
    scene.settle()
    assert (scene.copies(), scene.position()) == ([b"a"], 0)
    scene.change_spec(pausedPartitions=[])
    scene.settle()
    scene.settle()
    assert scene.copies() == [b"a", b"a"]


def test_a_reset_that_comes_while_the_task_restores_is_not_missed(scene: Scene) -> None:
    scene.source.append(TOPIC, b"a")
    scene.start()
    scene.settle()
    reset(scene, f"orders/0@{FIRST}")
    for _ in range(3):  # closed, and restored in a pool that has not answered yet
        scene.guard(scene.task.advance)
        scene.commit()
    step = scene.restore_pool.waiting
    assert step
    scene.restore_pool.run()
    reset(scene, f"orders/0@{SECOND}")
    scene.settle()
    scene.settle()
    # The first round did not copy.
    assert scene.copies() == [b"a", b"a"]
    assert scene.stored(P0).reset_ms == scene.context.resets.time_ms(P0)


def test_an_annotation_that_cannot_be_read_resets_nothing(scene: Scene) -> None:
    scene.source.append(TOPIC, b"a")
    scene.start()
    scene.settle()
    reset(scene, "orders/0")
    scene.settle()
    assert (scene.phase, scene.error, scene.copies()) == (TaskPhase.RUNNING, "", [b"a"])


def test_progress_that_cannot_be_read_is_remedied_by_a_later_reset_only(
    scene: Scene, scenes: Callable[..., Scene]
) -> None:
    scene.source.append(TOPIC, b"a")
    scene.start()
    scene.settle()
    key, later = scene.context.progress_key(P0).encode(), replace(scene.stored(P0), version=9)
    written_ms = scene.context.now_ms
    at = scene.target.partition_of(scene.context.progress.topic, key)
    scene.target.write(at, FakeRecord(key, later.encode(), written_ms))

    following = scenes(kafka=scene.kafka)
    reset(following, "orders/0@2020-01-01T00:00:00Z")
    following.guard(following.task.activate)
    following.recover()
    assert following.phase is TaskPhase.FAILED
    assert "reset the partition (`headrace flow reset`)" in following.error
    assert preview_reset(following.context, {P0})[P0].repeated == 1
    reset(following, f"orders/0@{FIRST}")
    assert following.task.superseded(following.task.partitions)
    following.restart()
    following.recover()
    following.settle()
    assert (following.phase, following.error) == (TaskPhase.RUNNING, "")
    assert following.copies() == [b"a", b"a"]
    assert following.stored(P0).source_offset == 1


def test_a_preview_says_what_would_be_copied_again_and_writes_nothing(scene: Scene) -> None:
    scene.source.append(TOPIC, b"a", b"b", b"c")
    both = {P0, P1}
    assert preview_reset(scene.context, both) == {
        P0: Preview(None, 0, 3, 0),
        P1: Preview(None, 0, 0, 0),
    }
    assert not scene.target.describe([scene.context.progress.topic])
    scene.start()
    scene.settle()
    scene.source.append(TOPIC, b"d")
    scene.log(P0).delete_before(1)
    before = scene.stored(P0)
    assert preview_reset(scene.context, both) == {
        P0: Preview(3, 1, 4, 2),
        P1: Preview(0, 0, 0, 0),
    }
    assert scene.stored(P0) == before
    scene.source.recreate_topic(TOPIC)
    scene.source.append(TOPIC, b"n")
    assert preview_reset(scene.context, {P0}) == {P0: Preview(3, 0, 1, 0)}
