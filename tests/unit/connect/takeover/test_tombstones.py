"""Compacted topics whose tombstones the source may have deleted before they were copied."""

from collections.abc import Callable

import pytest
from support.fake_kafka import FakeRecord
from support.source_tasks import P0, TOPIC, Scene

from headrace.api import RESET_ANNOTATION, ConditionType, TaskPhase, find_condition
from headrace.errors import Fatal

DAY_S = 86_400
COMPACTED = {"cleanup.policy": "compact", "delete.retention.ms": str(DAY_S * 1000)}


def write(scene: Scene, value: bytes | None) -> None:
    """Write a record with the current time, as a user's producer does."""
    scene.source.write(P0, FakeRecord(b"key", value, scene.context.now_ms))


@pytest.fixture
def before(scene: Scene) -> Scene:
    """Return a scene that has copied one record and stored its progress."""
    scene.clock.end_s = 100 * DAY_S
    scene.source.configs[TOPIC] = dict(COMPACTED)
    write(scene, b"a")
    scene.start()
    scene.settle()
    return scene


@pytest.fixture
def continued(before: Scene, scenes: Callable[..., Scene]) -> Callable[[], Scene]:
    """Return a function that lets another driver continue."""

    def go_on() -> Scene:
        after = scenes(kafka=before.kafka)
        after.start()
        after.settle()
        return after

    return go_on


def message(scene: Scene) -> str:
    found = find_condition(scene.task.status.conditions, ConditionType.TOMBSTONES_AT_RISK)
    return found.message if found else ""


def test_what_was_not_copied_for_longer_than_tombstones_are_kept_is_named(
    before: Scene, continued: Callable[[], Scene]
) -> None:
    write(before, None)
    before.clock.advance(DAY_S + 60)
    before.log(P0).entries[1] = None  # compaction
    write(before, b"b")
    after = continued()
    assert "deletions" in message(after)
    assert "orders-0 (not copied from 2023-11-14T22:30:" in message(after)
    assert "orders-1" not in message(after)
    assert (after.phase, after.copies()) == (TaskPhase.RUNNING, [b"a", b"b"])


def test_it_is_reported_by_all_who_follow_until_the_partition_is_reset(
    before: Scene, continued: Callable[[], Scene]
) -> None:
    write(before, None)
    before.clock.advance(DAY_S + 60)
    first = message(continued())
    before.clock.advance(3 * DAY_S)
    following = continued()
    assert message(following) == first != ""
    flow = following.context.flow
    annotations = {RESET_ANNOTATION: "orders/0@2026-01-31T18:00:00Z"}
    metadata = flow.metadata.model_copy(update={"annotations": annotations})
    following.context.change(flow.model_copy(update={"metadata": metadata}))
    following.settle()
    following.settle()
    assert message(following) == ""


def test_a_pause_that_is_shorter_loses_nothing(
    before: Scene, continued: Callable[[], Scene]
) -> None:
    write(before, None)
    before.clock.advance(DAY_S - 60)
    assert message(continued()) == ""


def test_progress_of_a_topic_that_was_idle_is_old_and_misses_nothing(
    before: Scene, continued: Callable[[], Scene]
) -> None:
    before.clock.advance(9 * DAY_S)
    assert message(continued()) == "", "nothing is left to copy"
    before.clock.advance(9 * DAY_S)
    write(before, None)
    assert message(continued()) == "", "what is left begins with a young record"


def test_a_topic_that_is_not_compacted_keeps_no_tombstones(
    before: Scene, continued: Callable[[], Scene]
) -> None:
    before.source.configs[TOPIC]["cleanup.policy"] = "delete"
    write(before, None)
    before.clock.advance(9 * DAY_S)
    assert message(continued()) == ""


def test_without_the_right_to_read_its_settings_nothing_is_said_of_a_topic(
    before: Scene, continued: Callable[[], Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(_: str) -> dict[str, str]:
        raise Fatal("not authorized")

    monkeypatch.setattr(before.source, "topic_config", forbidden)
    write(before, b"b")
    before.clock.advance(9 * DAY_S)
    after = continued()
    assert (message(after), after.copies()) == ("", [b"a", b"b"])


def test_a_usual_take_over_asks_for_no_settings(
    before: Scene, continued: Callable[[], Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(before.source, "topic_config", asked.append)
    write(before, b"b")
    before.clock.advance(10)
    assert continued().copies() == [b"a", b"b"]
    assert asked == []
