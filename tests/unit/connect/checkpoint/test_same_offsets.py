"""Groups whose copies have their sources' offsets: committed offsets are copied unchanged."""

from collections.abc import Iterator

import pytest
from support.checkpoint_units import Units
from support.fake_kafka import MARKER
from support.preserved_scenes import PreservedScenes, preserved_scenes
from support.source_tasks import COPY, P0

from headrace.api import TopicPartition
from headrace.connect.checkpoint.group_report import report_groups
from headrace.kafka import Committed
from headrace.replication import CopiedTo, Precision, SameOffsets, Translated

THERE = TopicPartition(COPY, 0)


@pytest.fixture
def scenes() -> Iterator[PreservedScenes]:
    with preserved_scenes(P0) as scenes:
        scenes.scene.change_spec(checkpoints={"applyToGroups": True})
        yield scenes


def held(scenes: PreservedScenes, group: str) -> Committed | None:
    return scenes.scene.target.committed_by.get(group, {}).get(THERE)


def test_groups_have_the_offsets_and_metadata_that_they_have_on_the_source(
    scenes: PreservedScenes,
) -> None:
    scenes.fill("ab--cd-e")
    scenes.scene.task.activate()
    scenes.until(lambda: scenes.is_copied(P0))
    commits = {"at-a-record": 4, "in-a-hole": 3, "at-the-start": 0, "at-the-end": 8}
    for group, offset in commits.items():
        scenes.scene.source.consumer_commits(group, P0, offset, f"of {group}")
    task = Units(scenes.scene).make_task(*commits)
    task.run_once()
    for group, offset in commits.items():
        assert held(scenes, group) == Committed(offset, f"of {group}")
    topics = scenes.scene.target.ids
    assert not any("offset-syncs" in one for one in topics), "nobody needs them"
    report = report_groups(scenes.scene.context)
    assert report.problems == ()
    for one in report.positions:
        assert one.checkpoint is not None
        assert (one.held, one.checkpoint.target_offset, one.note) == (one.committed, one.held, "")


def test_a_group_ahead_of_the_copy_is_at_its_end_until_it_is_copied(
    scenes: PreservedScenes,
) -> None:
    scenes.fill("ab")
    scenes.scene.task.activate()
    scenes.until(lambda: scenes.is_copied(P0))
    scenes.scene.source.write(P0, MARKER)
    scenes.fill("cd")
    scenes.scene.source.consumer_commits("billing", P0, 4, "")
    task = Units(scenes.scene).make_task("billing")
    task.run_once()
    assert held(scenes, "billing") is None, "it waits"
    scenes.scene.clock.advance(16)
    task.run_once()
    assert held(scenes, "billing") == Committed(2, "")
    scenes.until(lambda: scenes.is_copied(P0))
    scenes.scene.clock.advance(61)
    task.run_once()
    assert held(scenes, "billing") == Committed(4, "")


@pytest.mark.parametrize(
    ("offset", "copied", "found"),
    [
        (7, CopiedTo(9, 9), Translated(7, Precision.EXACT)),
        (9, CopiedTo(9, 9), Translated(9, Precision.EXACT)),
        (10, CopiedTo(9, 9), Translated(9, Precision.AHEAD)),
        (7, CopiedTo(5, 3), None),  # filled so far
        (7, None, None),
    ],
)
def test_offsets_are_those_of_the_source(
    offset: int, copied: CopiedTo | None, found: Translated | None
) -> None:
    assert SameOffsets().translate(P0, offset, copied) == found


@pytest.mark.parametrize(
    ("offset", "copied", "found"), [(7, CopiedTo(9, 9), 7), (12, CopiedTo(9, 9), 9), (7, None, 7)]
)
def test_what_the_source_never_had_is_its_end(
    offset: int, copied: CopiedTo | None, found: int
) -> None:
    assert SameOffsets().translate_back(P0, offset, copied) == found
