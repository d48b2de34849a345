"""Offsets that a rebuild would delete, and rebuilds that are rejected."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from support.preserved_scenes import PRESERVED
from support.source_tasks import COPY, P0, P1, TOPIC, Scene

from headrace.api.partitions import TopicPartition
from headrace.connect.takeover.preserving import Copy, plan_rebuild
from headrace.errors import InvalidSpec
from headrace.replication import Switch

BOTH = frozenset({P0, P1})


@pytest.fixture
def scene(scenes: Callable[..., Scene]) -> Scene:
    """Return a scene whose first source partition has ten offsets from 5 on.

    The second source partition is empty. Each target partition has three records.
    """
    scene = scenes(flow=PRESERVED)
    scene.source.append(TOPIC, *[b"a"] * 10)
    scene.log(P0).delete_before(5)
    for number in (0, 1):
        for _ in range(3):
            scene.target.write(TopicPartition(COPY, number), scene.log(P0).entries[-1])
    return scene


def refused(scene: Scene, *partitions: TopicPartition) -> str:
    with pytest.raises(InvalidSpec) as caught:
        plan_rebuild(scene.context, frozenset(partitions or BOTH))
    return str(caught.value)


def test_all_partitions_are_their_topic(scene: Scene) -> None:
    plan = plan_rebuild(scene.context, BOTH)
    assert (plan.topic, plan.topic_id) == (COPY, scene.target.describe([COPY])[COPY].topic_id)
    assert plan.copies == {P0: Copy(5, 10, 0, 3), P1: Copy(0, 0, 0, 3)}
    assert [one.only_there for one in plan.copies.values()] == [3, 3]


@pytest.mark.parametrize(
    ("copy", "only_there", "overtaken"),
    [
        (Copy(5, 10, 0, 7), 5, False),
        (Copy(5, 10, 5, 10), 0, False),
        (Copy(5, 10, 4, 12), 3, False),
        (Copy(5, 10, 11, 12), 1, False),
        (Copy(5, 10, 0, 5), 5, True),
        (Copy(0, 0, 0, 0), 0, True),
    ],
)
def test_what_the_source_does_not_have_is_only_there(
    copy: Copy, only_there: int, overtaken: bool
) -> None:
    assert (copy.only_there, copy.overtaken) == (only_there, overtaken)


def test_one_partition_is_done_where_its_source_begins_behind_the_copy(scene: Scene) -> None:
    assert plan_rebuild(scene.context, {P0}).topic_id == ""
    said = refused(scene, P1)
    assert f"{COPY}/1 cannot be rebuilt without the other partitions" in said
    assert f"`headrace flow rebuild {scene.context.name} {TOPIC}` rebuilds all 2 partitions" in said


def test_what_is_not_there_is_said(scene: Scene) -> None:
    scene.target.delete_topic(COPY)
    assert f"west has no topic {COPY}: the flow creates it" in refused(scene)
    scene.target.create_topic(COPY, 2)
    scene.source.delete_topic(TOPIC)
    assert f"east has no topic {TOPIC} any more" in refused(scene)


def test_translated_offsets_are_reset(scenes: Callable[..., Scene]) -> None:
    assert "has offsets.mode: Translated, where no copy has to be rebuilt" in refused(scenes())


def test_what_applications_have_written_since_a_fail_over_is_kept(
    scenes: Callable[..., Scene],
) -> None:
    scene = scenes()
    scene.source.append(TOPIC, b"a")
    scene.start()
    scene.settle()
    stored = scene.stored(P0)
    switched = replace(stored, switch=Switch(1, planned=True, source_end=1, target_end=1))
    scene.context.progress.write({scene.context.progress_key(P0): switched})
    preserved = scenes(kafka=scene.kafka, flow=PRESERVED)
    assert f"{P0} was failed over to west" in refused(preserved)
