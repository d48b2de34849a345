"""Groups of the target that receive the offsets of checkpoints, with clusters in memory."""

from typing import Any

import pytest
from support.checkpoint_units import CHECKPOINTS, Units, message
from support.source_tasks import P0, Scene

from headrace.api import TopicPartition
from headrace.connect.checkpoint.checkpoint_log import CheckpointLog
from headrace.connect.checkpoint.checkpointing import CheckpointTask
from headrace.connect.checkpoint.group_checkpoints import GroupCheckpoints
from headrace.errors import Fatal, Retriable
from headrace.kafka import Committed, GroupActive, Position
from headrace.replication import Checkpoint, StoredCheckpoint

COPY = TopicPartition("east.orders", 0)


@pytest.fixture
def units(scene: Scene) -> Units:
    """Copy twenty records. The group ``billing`` has read four of them."""
    units = Units(scene)
    scene.change_spec(checkpoints={"applyToGroups": True})
    units.copied(20)
    scene.source.consumer_commits("billing", P0, 4, "note")
    return units


def held(units: Units) -> Committed | None:
    return units.scene.target.committed_by.get("billing", {}).get(COPY)


def headers(units: Units) -> list[object]:
    entries = units.scene.target.logs[CHECKPOINTS].entries
    return [dict(one.headers or ()) for one in entries if one]


def run(units: Units, task: CheckpointTask, offset: int | None = None) -> int | None:
    """Run the task an interval later, after the source's group has committed ``offset``."""
    if offset is not None:
        units.scene.source.consumer_commits("billing", P0, offset)
    units.scene.clock.advance(61)
    task.run_once()
    found = held(units)
    return found.offset if found else None


def test_a_group_follows_its_checkpoint(units: Units) -> None:
    task = units.make_task("billing")
    task.run_once()
    assert held(units) == Committed(4, "note")
    assert message(task) == "offsets of 1 groups: 1 exact; in groups of the target: 1 set"
    assert [run(units, task, offset) for offset in (7, 7, 12)] == [7, 7, 12]
    assert headers(units) == [
        {},
        {"headrace.applied": b"4"},
        {"headrace.applied": b"7"},
    ]


def test_a_group_whose_records_the_target_has_deleted_is_set_to_what_is_left(units: Units) -> None:
    task = units.make_task("billing")
    task.run_once()
    units.scene.target.logs[TopicPartition("east.orders", 0)].delete_before(7)
    units.scene.clock.advance(61)
    task.run_once()
    assert held(units) == Committed(7, "note")
    assert run(units, task, 8) == 8


def test_nothing_is_set_unless_it_is_asked_for(units: Units) -> None:
    units.scene.change_spec(checkpoints={"applyToGroups": False})
    task = units.make_task("billing")
    task.run_once()
    assert held(units) is None
    assert headers(units) == [{}]
    assert message(task) == "offsets of 1 groups: 1 exact"


def test_what_a_consumer_of_the_target_has_committed_is_left_alone(units: Units) -> None:
    task = units.make_task("billing")
    task.run_once()
    units.scene.target.consumer_commits("billing", COPY, 5)
    assert [run(units, task, offset) for offset in (7, 12)] == [5, 5]
    assert message(task).endswith("1 not, as consumers there have committed")
    assert task.problem is None
    after_a_restart = units.make_task("billing")
    assert run(units, after_a_restart, 13) == 5


def test_consumers_offset_that_equals_the_translated_one_is_left_alone(units: Units) -> None:
    task = units.make_task("billing")
    task.run_once()
    units.scene.target.consumer_commits("billing", COPY, 15)
    assert run(units, task, 14) == 15
    units.scene.target.consumer_commits("billing", COPY, 20)
    assert run(units, task, 20) == 20
    units.more(10)
    assert run(units, task, 30) == 20
    assert run(units, units.make_task("billing"), 30) == 20


def lose_records(units: Units, copies_again: int) -> None:
    """Truncate the copy to ten records, and copy new ones."""
    scene = units.scene
    scene.change_spec(onDataLoss="Continue")
    scene.target.logs[COPY].truncate(10)
    scene.source.append("orders", b"y", b"y")
    scene.recover()
    scene.observe()
    scene.recover()
    units.more(copies_again)


def first_unread(units: Units) -> bytes | None:
    """Return the value of the first record that the group would read on the target."""
    found = held(units)
    assert found is not None
    return units.scene.target.logs[COPY].values[found.offset]


@pytest.mark.parametrize("refused", [False, True])
@pytest.mark.parametrize("readable", [True, False])
def test_a_group_is_moved_back_after_its_target_has_lost_records(
    units: Units, refused: bool, readable: bool
) -> None:
    task = units.make_task("billing")
    assert run(units, task, 20) == 20
    lose_records(units, 15)
    if not readable:
        units.scene.target.forbidden.add("billing")
        assert run(units, task) == 20
        units.scene.target.forbidden.clear()
    if refused:
        units.scene.target.not_committable["billing"] = Retriable("no broker answered")
        assert run(units, task) == 20
        units.scene.target.not_committable.clear()
    run(units, task)
    assert first_unread(units) == b"y"


def run_without_source(units: Units) -> int:
    """Set the group as a fail-over without the source does. Return its offset on the target."""
    groups = GroupCheckpoints(units.scene.context)
    groups.apply_written()
    groups.close()
    found = held(units)
    assert found is not None
    return found.offset


def test_checkpoint_from_before_a_loss_skips_no_record_at_a_fail_over(units: Units) -> None:
    run(units, units.make_task("billing"), 20)
    lose_records(units, 15)
    assert run_without_source(units) <= 10


def test_offset_after_the_end_of_the_copy_is_not_a_consumers(units: Units) -> None:
    task = units.make_task("billing")
    task.run_once()
    units.scene.target.consumer_commits("billing", COPY, 2**38 + 4)
    assert run(units, task) == 4
    units.scene.target.consumer_commits("billing", COPY, 20)
    assert run(units, task, 7) == 20, "a consumer of the target can be at the end"


def test_offset_or_end_of_one_answer_alone_is_not_believed(
    units: Units, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = units.scene.target
    task = units.make_task("billing")
    task.run_once()
    target.consumer_commits("billing", COPY, 12)
    ends, committed = target.known_ends, target.committed

    def damaged_end(ats: Any, position: Position = Position.LATEST) -> dict[TopicPartition, int]:
        found = ends(ats, position)
        if position is Position.LATEST and ats:
            monkeypatch.setattr(target, "known_ends", ends)
            return dict.fromkeys(found, 4)
        return found

    def damaged_offset(groups: Any) -> Any:
        monkeypatch.setattr(target, "committed", committed)
        return {one: {COPY: Committed(2**38, "")} for one in groups}, {}

    monkeypatch.setattr(target, "known_ends", damaged_end)
    assert run(units, task, 7) == 12
    monkeypatch.setattr(target, "committed", damaged_offset)
    assert run(units, task, 8) == 12


@pytest.mark.parametrize("answer", [1, 2])
def test_source_offset_of_one_answer_alone_is_not_believed(
    units: Units, monkeypatch: pytest.MonkeyPatch, answer: int
) -> None:
    source, task = units.scene.source, units.make_task("billing")
    task.run_once()
    committed, answers = source.committed, iter(range(1, 9))

    def damaged(groups: Any) -> Any:
        found, refused = committed(groups)
        if next(answers) == answer:
            found["billing"] = {P0: Committed(4 + 8, "note")}
        return found, refused

    monkeypatch.setattr(source, "committed", damaged)
    assert run(units, task) == 4


def test_a_group_is_not_moved_back(units: Units) -> None:
    task = units.make_task("billing")
    run(units, task, 12)
    assert run(units, task, 3) == 12
    assert message(task).endswith("1 not, as the group is behind them already")
    assert run(units, task, 15) == 15


def test_a_group_with_members_is_set_when_they_have_left(units: Units) -> None:
    task = units.make_task("billing")
    task.run_once()
    units.scene.target.not_committable["billing"] = GroupActive("it has members")
    assert [run(units, task, offset) for offset in (7, 12)] == [4, 4]
    assert message(task).endswith("1 not, as the group has members there")
    assert task.problem is None
    units.scene.target.not_committable.clear()
    assert run(units, task) == 12


def test_a_task_that_ended_between_checkpoint_and_commit_is_followed_by_one_that_goes_on(
    units: Units,
) -> None:
    run(units, units.make_task("billing"), 7)
    units.scene.target.not_committable["billing"] = Retriable("no broker answered")
    run(units, units.make_task("billing"), 9)
    run(units, units.make_task("billing"), 11)
    units.scene.target.not_committable.clear()
    assert run(units, units.make_task("billing"), 13) == 13


def test_offsets_that_expired_on_the_target_are_set_again(units: Units) -> None:
    task = units.make_task("billing")
    task.run_once()
    del units.scene.target.committed_by["billing"]
    assert run(units, task) == 4
    assert len(headers(units)) == 1


def test_what_the_target_refuses_is_named_and_checkpoints_are_written(units: Units) -> None:
    units.scene.target.not_committable["billing"] = Fatal("may not set billing")
    task = units.make_task("billing")
    task.run_once()
    assert str(task.problem) == "may not set billing"
    assert message(task).endswith("1 not, as the target refuses it")
    units.scene.target.not_committable.clear()
    assert run(units, task, 7) == 7
    assert task.problem is None


def test_a_group_that_may_not_be_read_for_a_while_stays_ours(units: Units) -> None:
    task = units.make_task("billing")
    run(units, task, 6)
    units.scene.target.forbidden.add("billing")
    for offset in (7, 8, 9):
        assert run(units, task, offset) == 6
        assert str(task.problem) == "may not read billing"
    units.scene.target.forbidden.clear()
    assert run(units, task, 12) == 12
    assert len(units.checkpoints()) == 5


def test_what_is_not_asked_for_any_more_is_not_reported(units: Units) -> None:
    task = units.make_task("billing")
    task.run_once()
    units.scene.change_spec(checkpoints={"applyToGroups": False})
    assert run(units, task, 7) == 4
    assert message(task) == "offsets of 1 groups: 1 exact"


def test_checkpoint_of_an_unreadable_group_moves_back_with_the_source(units: Units) -> None:
    """A fail-over without the source uses the stored checkpoint if the group has no offset."""
    task = units.make_task("billing")
    run(units, task, 12)
    units.scene.target.forbidden.add("billing")
    run(units, task, 3)
    assert [one.target_offset for one in units.checkpoints()] == [12, 3]
    units.scene.target.forbidden.clear()
    del units.scene.target.committed_by["billing"]
    assert run_without_source(units) == 3


def test_unreadable_group_that_moves_back_on_the_source_keeps_its_later_offset(
    units: Units,
) -> None:
    task = units.make_task("billing")
    run(units, task, 12)
    units.scene.target.forbidden.add("billing")
    for offset in (3, 5):
        run(units, task, offset)
    units.scene.target.forbidden.clear()
    assert [run(units, task, offset) for offset in (6, 14)] == [12, 14]


@pytest.mark.parametrize("offset_before", [20, 15])
@pytest.mark.parametrize("refused", [False, True])
def test_group_that_moved_back_on_the_source_skips_no_record_after_a_loss(
    units: Units, offset_before: int, refused: bool
) -> None:
    """Let the group move back before or after the target has lost records."""
    task = units.make_task("billing")
    assert [run(units, task, offset) for offset in (20, offset_before)] == [20, 20]
    lose_records(units, 15)
    if refused:
        units.scene.target.not_committable["billing"] = Retriable("no broker answered")
        assert run(units, task, 15) == 20
        units.scene.target.not_committable.clear()
    run(units, task, 15)
    run(units, task, 20)
    assert first_unread(units) == b"y"
    written = len(units.checkpoints())
    run(units, task)
    assert len(units.checkpoints()) == written


def test_group_that_moved_back_before_a_loss_skips_no_record_at_a_fail_over(units: Units) -> None:
    task = units.make_task("billing")
    assert [run(units, task, offset) for offset in (20, 5)] == [20, 20]
    lose_records(units, 15)
    assert run_without_source(units) == 5


@pytest.mark.parametrize("applied", [[4], [4, 7]])
def test_group_is_set_again_after_groups_were_not_set_for_a_while(
    units: Units, applied: list[int]
) -> None:
    """Its first checkpoint has no header, and later ones name the offset before."""
    task = units.make_task("billing")
    assert [run(units, task, offset) for offset in applied] == applied
    units.scene.change_spec(checkpoints={"applyToGroups": False})
    assert [run(units, task, offset) for offset in (9, 9, 11)] == [applied[-1]] * 3
    assert len(headers(units)) == len(applied) + 2
    assert headers(units)[-1] == headers(units)[-2], "only offsets that headrace has set"
    units.scene.change_spec(checkpoints={"applyToGroups": True})
    assert run(units, units.make_task("billing"), 12) == 12


def test_checkpoints_without_groups_that_are_set_have_no_headers(units: Units) -> None:
    units.scene.change_spec(checkpoints={"applyToGroups": False})
    task = units.make_task("billing")
    for offset in (4, 7, 3):
        run(units, task, offset)
    assert headers(units) == [{}, {}, {}]


def test_loss_while_groups_are_not_set_moves_the_group_back_at_a_fail_over(units: Units) -> None:
    task = units.make_task("billing")
    assert run(units, task, 20) == 20
    units.scene.change_spec(checkpoints={"applyToGroups": False})
    lose_records(units, 15)
    run(units, task)
    run(units, task, 21)
    run_without_source(units)
    assert first_unread(units) == b"y"


def test_offset_of_a_member_that_equals_a_rejected_one_is_left_alone(units: Units) -> None:
    """Let a member commit at the end of the copy, where the source's group also is."""
    target, task = units.scene.target, units.make_task("billing")
    task.run_once()
    target.not_committable["billing"] = GroupActive("it has members")
    target.active.add("billing")
    assert run(units, task, 20) == 4
    target.consumer_commits("billing", COPY, 20)
    assert run(units, task) == 20
    units.more(10)
    assert run(units, task, 30) == 20
    target.not_committable.clear()
    target.active.clear()
    assert run(units, task) == 20
    assert run(units, units.make_task("billing"), 30) == 20


def test_checkpoint_of_a_group_with_members_is_not_written_in_each_interval(units: Units) -> None:
    target, task = units.scene.target, units.make_task("billing")
    task.run_once()
    target.not_committable["billing"] = GroupActive("it has members")
    target.active.add("billing")
    run(units, task, 7)
    written = len(units.checkpoints())
    for _ in range(3):
        run(units, task)
    assert len(units.checkpoints()) == written
    run(units, task, 12)
    assert len(units.checkpoints()) == written + 1
    target.not_committable.clear()
    target.active.clear()
    assert run(units, task) == 12


def test_group_with_members_is_moved_back_after_a_loss_when_they_have_left(units: Units) -> None:
    target, task = units.scene.target, units.make_task("billing")
    assert run(units, task, 20) == 20
    target.not_committable["billing"] = GroupActive("it has members")
    target.active.add("billing")
    lose_records(units, 15)
    assert [run(units, task) for _ in range(3)] == [20, 20, 20]
    target.not_committable.clear()
    target.active.clear()
    run(units, task)
    assert first_unread(units) == b"y"


def test_checkpoints_are_written_if_members_cannot_be_listed(
    units: Units, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unanswered() -> dict[str, str]:
        raise Retriable("a broker does not respond")

    target, task = units.scene.target, units.make_task("billing")
    task.run_once()
    target.not_committable["billing"] = GroupActive("it has members")
    run(units, task, 7)
    monkeypatch.setattr(target, "groups_with_members", unanswered)
    assert run(units, task, 12) == 4
    assert units.checkpoints()[-1].target_offset == 12
    assert message(task).endswith("1 not, as the group has members there")
    target.not_committable.clear()
    assert run(units, task) == 12


def test_offset_that_a_group_left_at_a_fail_over_stays_ours(units: Units) -> None:
    scene = units.scene
    scene.change_spec(checkpoints={"applyToGroups": False})
    written = CheckpointLog(scene.context)
    written.prepare()
    left = Checkpoint("billing", *COPY, 4, 4)
    written.write([StoredCheckpoint(left, (4,), is_set=False)])
    written.close()
    scene.target.consumer_commits("billing", COPY, 4)
    task = units.make_task("billing")
    assert [run(units, task, offset) for offset in (4, 7, 9)] == [4, 4, 4]
    groups = GroupCheckpoints(scene.context)
    groups.apply_written()
    groups.close()
    assert held(units) == Committed(9, "")
