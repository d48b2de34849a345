"""Starts of copies follow the starts of their sources, with clusters in memory."""

from collections.abc import Iterator

import pytest
from support.source_tasks import COPY, P0, P1, Scene

from headrace.api import TopicPartition
from headrace.connect.topics.copy_starts import follow_starts
from headrace.errors import Retriable


@pytest.fixture
def scene() -> Iterator[Scene]:
    """Yield a scene with three records in each partition, all of which are copied."""
    scene = Scene()
    for number in (0, 1):
        scene.source.append("orders", b"a", b"b", b"c", partition=number)
        scene.target.append(COPY, b"a", b"b", b"c", partition=number)
    yield scene
    scene.close()


def starts(scene: Scene) -> list[int]:
    return [scene.target.logs[TopicPartition(COPY, number)].start for number in (0, 1)]


def test_copy_starts_where_its_source_starts(scene: Scene) -> None:
    scene.source.logs[P0].delete_before(2)
    scene.source.logs[P1].delete_before(3)
    follow_starts(scene.context, {P0: 3, P1: 3})
    assert starts(scene) == [2, 3]


def test_copy_stays_if_its_source_starts_after_last_copied_record(scene: Scene) -> None:
    scene.source.logs[P0].delete_before(3)
    scene.source.logs[P1].delete_before(1)
    follow_starts(scene.context, {P0: 2, P1: 2})
    assert starts(scene) == [0, 1]


def test_copy_stays_while_foreign_broker_answers(scene: Scene) -> None:
    scene.source.logs[P0].delete_before(2)
    scene.source.foreign_broker = True
    with pytest.raises(Retriable, match="another cluster"):
        follow_starts(scene.context, {P0: 3})
    assert starts(scene) == [0, 0]


def test_refused_deletion_is_tried_again_with_next_call(scene: Scene) -> None:
    scene.source.logs[P0].delete_before(2)
    scene.target.forbidden.add(COPY)
    follow_starts(scene.context, {P0: 3})
    assert starts(scene) == [0, 0]
    scene.target.forbidden.clear()
    follow_starts(scene.context, {P0: 3})
    assert starts(scene) == [2, 0]


def test_partition_without_leader_does_not_hold_up_others(scene: Scene) -> None:
    for at in (P0, P1):
        scene.source.logs[at].delete_before(2)
    scene.source.silent.add(P0)
    follow_starts(scene.context, {P0: 3, P1: 3})
    assert starts(scene) == [0, 2]
