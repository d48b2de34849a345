"""Start offsets of partitions without progress."""

from collections.abc import Iterator

import pytest
from support.fake_kafka import FakeRecord
from support.source_tasks import FLOW, P0, P1, Scene

from headrace.api import ReplicationFlow
from headrace.connect.takeover.first_start import origins_of, remember_first_start
from headrace.replication.first_start import Origin

MADE = "2026-01-01T00:00:00Z"
MADE_MS = 1_767_225_600_000


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene(P0)
    yield scene
    scene.close()


def start_from(scene: Scene, choice: str, **more: object) -> None:
    document = FLOW.model_dump(by_alias=True, exclude_unset=True)
    document["metadata"] |= {"creationTimestamp": MADE}
    document["spec"] |= {"startFrom": {"mode": choice, **more}}
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


def test_latest_copies_what_was_created_after_the_first_start_whole(scene: Scene) -> None:
    """The clock with which the flow was created is ahead of the records' timestamps."""
    start_from(scene, "Latest")
    write(scene, 0, (b"before", -5))
    scene.context.progress.start()
    scene.source.ids.pop("orders")
    remember_first_start(scene.context)
    scene.source.ids["orders"] = "created-later"
    scene.start()
    scene.settle()
    assert scene.copies() == [b"before"]


def test_latest_copies_a_partition_that_was_added_after_the_first_start_whole(
    scene: Scene,
) -> None:
    start_from(scene, "Latest")
    write(scene, 0, (b"before", -5))
    write(scene, 1, (b"first", -5))
    scene.context.progress.start()
    added = scene.source.logs.pop(P1)
    remember_first_start(scene.context)
    scene.source.logs[P1] = added
    scene.task.change(frozenset({P0, P1}))
    scene.start()
    scene.settle()
    assert (scene.copies(0), scene.copies(1)) == ([], [b"first"])


def test_a_topic_that_is_selected_later_begins_at_its_end_and_the_log_says_so(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    start_from(scene, "Latest")
    write(scene, 0, (b"since", 5))
    scene.change_spec(topics={"include": ["bills"]})
    scene.context.progress.start()
    remember_first_start(scene.context)
    scene.change_spec(topics={"include": ["orders"]})
    scene.start()
    write(scene, 0, (b"later", -5))
    scene.settle()
    assert scene.copies() == [b"later"]
    assert "spec.topics selected it later" in "".join(capsys.readouterr())


def test_the_first_start_is_stored_once(scene: Scene) -> None:
    scene.context.progress.start()
    scene.source.ids.pop("orders")
    remember_first_start(scene.context)
    scene.source.ids["orders"] = "created-later"
    remember_first_start(scene.context)
    assert origins_of(scene.context, {P0}) == {P0: Origin.CREATED_LATER}


def test_of_a_later_partition_latest_skips_old_records_and_earliest_copies_them(
    scene: Scene,
) -> None:
    start_from(scene, "Latest")
    write(scene, 0, (b"before", -5))
    scene.start()
    scene.settle()
    write(scene, 1, (b"restored", -7))
    # The reference advises this once all partitions have progress.
    start_from(scene, "Earliest")
    scene.task.change(frozenset({P0, P1}))
    write(scene, 0, (b"since", 5))
    scene.settle()
    assert (scene.copies(0), scene.copies(1)) == ([b"since"], [b"restored"])


def test_listed_offsets_begin_there_and_other_partitions_at_their_earliest_record(
    scene: Scene,
) -> None:
    write(scene, 0, (b"a", 0), (b"b", 1), (b"c", 2))
    write(scene, 1, (b"x", 0), (b"y", 1))
    start_from(scene, "Offsets", offsets=[{"topic": P0.topic, "partition": 0, "offset": 2}])
    scene.task.change(frozenset({P0, P1}))
    scene.start()
    scene.settle()
    assert (scene.copies(0), scene.copies(1)) == ([b"c"], [b"x", b"y"])


def test_a_partition_with_progress_ignores_its_listed_offset(scene: Scene) -> None:
    write(scene, 0, (b"a", 0), (b"b", 1))
    scene.start()
    scene.settle()
    start_from(scene, "Offsets", offsets=[{"topic": P0.topic, "partition": 0, "offset": 0}])
    scene.restart()
    write(scene, 0, (b"c", 2))
    scene.settle()
    assert scene.copies() == [b"a", b"b", b"c"]


def test_the_end_may_be_listed_and_an_offset_above_it_fails_the_task(scene: Scene) -> None:
    write(scene, 0, (b"a", 0))
    start_from(scene, "Offsets", offsets=[{"topic": P0.topic, "partition": 0, "offset": 2}])
    scene.task.activate()
    scene.restore_pool.run()
    scene.run_once()
    assert "lists offset 2 of orders-0, and" in scene.error
    assert "has offsets 0 to 1 there" in scene.error
    start_from(scene, "Offsets", offsets=[{"topic": P0.topic, "partition": 0, "offset": 1}])
    scene.restart()
    write(scene, 0, (b"b", 1))
    scene.settle()
    assert scene.copies() == [b"b"]
