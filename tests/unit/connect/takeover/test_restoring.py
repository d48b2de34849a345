"""Start offsets of partitions without progress, with clusters in memory."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from support.fake_kafka import FakeRecord
from support.source_tasks import COPY, FLOW, P0, Scene

from headrace.api import ConditionType, StartFrom, StartMode, TaskPhase, find_condition
from headrace.api.partitions import TopicPartition

MADE = datetime(2026, 1, 31, tzinfo=UTC)
MADE_MS = int(MADE.timestamp() * 1000)


@pytest.fixture
def scene(scenes: Callable[..., Scene]) -> Scene:
    """Return a scene whose flow copies only records newer than itself. One older record exists."""
    scene = scenes(P0)
    spec = FLOW.spec.model_copy(update={"start_from": StartFrom(mode=StartMode.LATEST)})
    metadata = FLOW.metadata.model_copy(update={"creation_timestamp": MADE})
    scene.context.change(FLOW.model_copy(update={"spec": spec, "metadata": metadata}))
    scene.source.write(P0, FakeRecord(None, b"old", MADE_MS - 1))
    return scene


def test_latest_skips_nothing_that_comes_between_two_look_ups(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    offsets_at = scene.source.offsets_at

    def append_and_answer(*args: Any) -> dict[TopicPartition, int]:
        found = offsets_at(*args)
        scene.source.write(P0, FakeRecord(None, b"new", MADE_MS + 1))
        return found

    monkeypatch.setattr(scene.source, "offsets_at", append_and_answer)
    scene.start()
    scene.settle()
    assert scene.copies() == [b"new"]


def test_latest_copies_what_was_written_since_the_flow_was_made(scene: Scene) -> None:
    scene.source.write(P0, FakeRecord(None, b"new", MADE_MS))
    scene.start()
    scene.settle()
    assert scene.copies() == [b"new"]


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("how", ["leaderless", "silent"])
def test_a_partition_without_a_leader_delays_no_other(
    scenes: Callable[..., Scene], side: str, how: str
) -> None:
    before = scenes()
    before.source.append("orders", b"early", partition=1)
    before.start()
    before.settle()  # a silent target is noticed only after earlier copies
    scene = scenes(kafka=before.kafka, driver="other")
    cluster = getattr(scene, side)
    topic = "orders" if side == "source" else COPY
    away: set[TopicPartition] = getattr(cluster, how)
    away.add(TopicPartition(topic, 1))
    for partition in (0, 1):
        scene.source.append("orders", b"late", partition=partition)
    scene.start()
    scene.settle()
    assert (scene.copies(0), scene.copies(1)) == ([b"late"], [b"early"])
    assert f"{topic}-1" in scene.error
    caught_up = find_condition(scene.task.status.conditions, ConditionType.CAUGHT_UP)
    assert caught_up is not None
    assert caught_up.status == "False"
    # A task that waits for the partitions released by this one continues.
    assert scene.task.status.observed_generation == scene.herder.task.metadata.generation

    away.clear()
    scene.recover()
    scene.settle()
    assert scene.copies(1) == [b"early", b"late"]
    assert scene.error == ""


def test_a_task_none_of_whose_partitions_has_a_leader_goes_on_restoring(
    scenes: Callable[..., Scene],
) -> None:
    scene = scenes(P0)
    scene.target.leaderless.add(TopicPartition(COPY, 0))
    scene.task.activate()
    scene.restore_pool.run()
    scene.run_once()
    assert (scene.phase, scene.error) == (
        TaskPhase.RESTORING,
        "east.orders-0 on west has no leader: it waits until a replica of it is back",
    )
    scene.target.leaderless.clear()
    scene.recover()
    assert scene.phase is TaskPhase.RUNNING
