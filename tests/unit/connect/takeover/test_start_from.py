"""Where partitions without progress begin."""

from collections.abc import Iterator

import pytest
from support.fake_kafka import FakeRecord
from support.source_tasks import FLOW, P0, P1, Scene

from headrace.api import ReplicationFlow

MADE = "2026-01-01T00:00:00Z"
MADE_MS = 1_767_225_600_000


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene(P0)
    yield scene
    scene.close()


def start_from(scene: Scene, choice: str) -> None:
    document = FLOW.model_dump(by_alias=True, exclude_unset=True)
    document["metadata"] |= {"creationTimestamp": MADE}
    document["spec"] |= {"startFrom": choice}
    scene.context.change(ReplicationFlow.model_validate(document))


def write(scene: Scene, partition: int, *records: tuple[bytes, int]) -> None:
    for value, since_made_ms in records:
        at = (P0, P1)[partition]
        scene.source.write(at, FakeRecord(b"key", value, MADE_MS + since_made_ms))


def test_latest_begins_at_the_first_record_that_is_not_older_than_the_flow(scene: Scene) -> None:
    start_from(scene, "Latest")
    write(scene, 0, (b"before", -5), (b"since", 0), (b"restored", -7))
    scene.start()
    scene.settle()
    assert scene.copies() == [b"since", b"restored"]


def test_of_a_later_partition_latest_skips_old_records_and_earliest_copies_them(
    scene: Scene,
) -> None:
    start_from(scene, "Latest")
    write(scene, 0, (b"before", -5))
    scene.start()
    scene.settle()
    write(scene, 1, (b"restored", -7))
    # What the reference advises once all partitions have progress.
    start_from(scene, "Earliest")
    scene.task.change(frozenset({P0, P1}))
    write(scene, 0, (b"since", 5))
    scene.settle()
    assert (scene.copies(0), scene.copies(1)) == ([b"since"], [b"restored"])
