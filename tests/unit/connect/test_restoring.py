"""Where a partition without progress begins; clusters are in memory."""

from datetime import UTC, datetime
from typing import Any

import pytest
from support.fake_kafka import FakeRecord
from support.source_tasks import FLOW, P0, Scene

from headrace.api import StartFrom
from headrace.api.partitions import TopicPartition

MADE = datetime(2026, 1, 31, tzinfo=UTC)
MADE_MS = int(MADE.timestamp() * 1000)


@pytest.fixture
def scene() -> Scene:
    """Of a flow that copies what is written since it was made; one older record is there."""
    scene = Scene(P0)
    spec = FLOW.spec.model_copy(update={"start_from": StartFrom.LATEST})
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
