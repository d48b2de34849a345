"""Share groups whose start offsets are translated and set on the target, in memory."""

import pytest
from support.checkpoint_units import Units, message
from support.source_tasks import P0, P1, Scene

from headrace.api import TopicPartition
from headrace.connect.checkpoint.checkpointing import CheckpointTask
from headrace.connect.checkpoint.group_checkpoints import GroupCheckpoints
from headrace.connect.checkpoint.group_report import FOREIGN, GroupReport, report_groups
from headrace.connect.checkpoint.groups import NO_START, NOT_APPLIED
from headrace.errors import Fatal
from headrace.kafka import GroupActive, NoShareGroups

COPY = TopicPartition("east.orders", 0)
PRIVATE = TopicPartition("private", 0)
TOO_OLD = NoShareGroups("west is older than Kafka 4.1")


@pytest.fixture
def units(scene: Scene) -> Units:
    """Copy twenty records. The share group ``packing`` has finished four of them."""
    units = Units(scene)
    scene.change_spec(checkpoints={"applyToGroups": True}, tasks={"max": 1})
    units.copied(20)
    begins(scene, "packing", 4)
    return units


def begins(scene: Scene, group: str, offset: int, at: TopicPartition = P0) -> None:
    scene.source.kinds[group] = "share"
    scene.source.starts.setdefault(group, {})[at] = offset


def run(units: Units, task: CheckpointTask, offset: int | None = None) -> int | None:
    """Run the task an interval later, when the source's group starts at ``offset``."""
    if offset is not None:
        begins(units.scene, "packing", offset)
    units.scene.clock.advance(61)
    task.run_once()
    return units.scene.target.starts.get("packing", {}).get(COPY)


def untranslated(report: GroupReport) -> dict[str, str]:
    return {one.group: one.why for one in report.untranslated}


# Groups that are followed.


def test_share_groups_of_the_flows_topics_are_followed(units: Units) -> None:
    units.scene.source.consumer_commits("billing", P0, 5)
    begins(units.scene, "of-others", 5, PRIVATE)
    units.scene.source.kinds["new"] = "share"
    units.connector.run_once()
    assert units.split() == {0: ("billing", "packing")}
    assert message(units.connector) == (
        "follows 1 consumer groups and 1 share groups of east; their offsets are not translated: "
        "share group new"
    )


def test_a_share_group_that_comes_later_is_followed_within_an_interval(units: Units) -> None:
    units.connector.run_once()
    begins(units.scene, "sorting", 5)
    units.scene.clock.advance(60)
    units.connector.run_once()
    assert units.split() == {0: ("packing", "sorting")}


def test_none_is_followed_unless_it_is_asked_for(units: Units) -> None:
    units.connector.run_once()
    units.scene.change_spec(checkpoints={"applyToGroups": False})
    units.connector.run_once()
    assert units.split() == {}
    assert untranslated(report_groups(units.scene.context)) == {"packing": NOT_APPLIED}


def test_none_is_followed_to_a_target_without_share_groups(units: Units) -> None:
    units.scene.target.no_share_groups = TOO_OLD
    units.connector.run_once()
    assert units.split() == {}
    report = report_groups(units.scene.context)
    assert (report.positions, report.problems) == ((), ())
    assert untranslated(report) == {"packing": str(TOO_OLD)}


def test_a_share_group_that_may_not_be_read_for_a_while_is_followed_on(units: Units) -> None:
    units.connector.run_once()
    units.scene.source.forbidden.add("packing")
    units.scene.clock.advance(60)
    units.connector.run_once()
    assert units.split() == {0: ("packing",)}
    assert str(units.connector.problem) == "may not read packing"


# Offsets that are set.


def test_a_share_group_follows_its_start_offset(units: Units) -> None:
    task = units.make_task("packing")
    assert [run(units, task, offset) for offset in (4, 7, 7, 12)] == [4, 7, 7, 12]
    assert message(task) == "offsets of 1 groups: 1 exact; in groups of the target: 1 set"
    assert {one.metadata for one in units.checkpoints()} == {"share group"}
    assert units.scene.target.committed_by == {}


def test_beside_consumer_groups(units: Units) -> None:
    units.scene.source.consumer_commits("billing", P1, 0)
    task = units.make_task("billing", "packing")
    assert run(units, task) == 4
    assert units.scene.target.committed_by.keys() == {"billing"}


def test_one_that_was_used_is_left_alone_for_good(units: Units) -> None:
    task = units.make_task("packing")
    run(units, task)
    units.scene.target.used.add("packing")
    assert [run(units, task, 7), run(units, units.make_task("packing"), 12)] == [4, 4]
    assert message(task).endswith("1 not, as consumers there have committed")
    (shown,) = report_groups(units.scene.context).positions
    assert (shown.committed, shown.held, shown.note) == (12, 4, FOREIGN)


def test_the_start_offset_of_somebody_else_is_left_alone(units: Units) -> None:
    units.scene.target.starts["packing"] = {COPY: 2}
    assert run(units, units.make_task("packing")) == 2


def test_one_that_was_used_before_it_had_a_start_offset_is_left_alone(units: Units) -> None:
    units.scene.target.used.add("packing")
    assert run(units, units.make_task("packing")) is None


def test_one_with_members_is_left_alone(units: Units) -> None:
    units.scene.target.not_committable["packing"] = GroupActive("it has members")
    task = units.make_task("packing")
    assert run(units, task) is None
    assert message(task).endswith("1 not, as the group has members there")


def test_one_that_was_deleted_on_the_target_is_set_again(units: Units) -> None:
    task = units.make_task("packing")
    run(units, task)
    del units.scene.target.starts["packing"]
    assert run(units, task) == 4


def test_what_the_target_refuses_holds_up_no_consumer_group(units: Units) -> None:
    units.scene.source.consumer_commits("billing", P0, 3)
    units.scene.target.not_committable["packing"] = Fatal("may not set packing")
    task = units.make_task("billing", "packing")
    assert run(units, task) is None
    assert units.scene.target.committed_by["billing"][COPY].offset == 3
    assert str(task.problem) == "may not set packing"


@pytest.mark.parametrize(("applied", "start"), [(True, 4), (False, None)])
def test_without_the_source_a_share_group_is_known_by_its_checkpoint(
    units: Units, applied: bool, start: int | None
) -> None:
    run(units, units.make_task("packing"))
    del units.scene.target.starts["packing"]
    units.scene.source.away = True
    units.scene.change_spec(checkpoints={"applyToGroups": applied})
    groups = GroupCheckpoints(units.scene.context)
    groups.apply_written()
    groups.close()
    assert units.scene.target.starts.get("packing", {}).get(COPY) == start
    assert units.scene.target.committed_by == {}


# Offsets that are shown.


def test_what_is_set_is_shown_as_of_any_group(units: Units) -> None:
    run(units, units.make_task("packing"))
    units.scene.source.kinds["new"] = "share"
    report = report_groups(units.scene.context)
    (shown,) = report.positions
    assert (shown.group, shown.at, shown.committed, shown.held, shown.lag, shown.note) == (
        *("packing", P0, 4, 4, 0, ""),
    )
    assert untranslated(report) == {"new": NO_START}


def test_what_cannot_be_read_is_named(units: Units) -> None:
    run(units, units.make_task("packing"))
    units.scene.source.forbidden.add("packing")
    report = report_groups(units.scene.context)
    assert report.problems == ("may not read packing",)
    assert [(one.group, one.committed, one.note) for one in report.positions] == [
        ("packing", None, "")
    ]
