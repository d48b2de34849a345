"""Translation of committed offsets from offset syncs alone."""

import pytest

from headrace.api import LossAction, LossCause, TopicPartition
from headrace.replication import (
    Checkpoint,
    CopiedTo,
    Loss,
    OffsetSync,
    Precision,
    StoredCheckpoint,
    SyncedOffsets,
    Translated,
    translated_after_losses,
)

AT = TopicPartition("orders", 0)


def of(*syncs: tuple[int, int, bytes | None]) -> SyncedOffsets:
    made = SyncedOffsets()
    for source, target, contiguity_id in syncs:
        made.take(OffsetSync(*AT, source, target), contiguity_id)
    return made


def exact(offset: int) -> Translated:
    return Translated(offset, Precision.EXACT)


def conservative(offset: int) -> Translated:
    return Translated(offset, Precision.CONSERVATIVE)


def test_between_two_syncs_of_a_stretch_with_the_same_distance_every_record_is_known() -> None:
    known = of((100, 40, b"a"), (200, 140, b"a"))
    assert known.translate(AT, 100, None) == exact(40)
    assert known.translate(AT, 163, None) == exact(103)
    assert known.translate(AT, 200, None) == exact(140)


def test_before_the_first_sync_nothing_is_known() -> None:
    assert of((100, 40, b"a")).translate(AT, 99, None) is None
    assert SyncedOffsets().translate(AT, 99, None) is None


def test_of_other_stretches_and_of_mirror_maker_2_its_own_rule_holds() -> None:
    for stretches in ((b"a", b"b"), (None, None), (None, b"a")):
        known = of((100, 40, stretches[0]), (200, 140, stretches[1]))
        assert known.translate(AT, 163, None) == conservative(41)


def test_in_a_hole_the_very_next_record_is_meant() -> None:
    known = of((0, 0, b"a"), (4, 4, b"a"), (100, 5, b"a"))
    assert known.translate(AT, 50, None) == exact(5)


def test_where_pairs_are_left_out_the_last_known_one_counts() -> None:
    known = of((0, 0, b"a"), (100, 50, b"a"))
    assert known.translate(AT, 60, None) == conservative(1)


def test_behind_the_last_sync_progress_tells_the_end_of_the_copy() -> None:
    known = of((0, 0, b"a"), (9, 9, b"a"))
    assert known.translate(AT, 12, None) == conservative(10)
    assert known.translate(AT, 12, CopiedTo(12, 10)) == exact(10)
    assert known.translate(AT, 13, CopiedTo(12, 10)) == Translated(10, Precision.AHEAD)
    assert known.translate(AT, 12, CopiedTo(30, 25)) == conservative(10)
    assert known.translate(AT, 11, CopiedTo(12, 10)) == exact(10)


def test_a_copy_that_resumed_earlier_does_not_move_groups_past_records() -> None:
    known = of((0, 0, b"a"), (999, 999, b"a"), (0, 1000, b"b"), (299, 1299, b"b"))
    assert known.translate(AT, 800, CopiedTo(300, 1300)) == exact(800)
    assert known.translate(AT, 300, CopiedTo(300, 1300)) == exact(300)


def test_at_the_end_of_the_copy_markers_of_the_target_are_taken_in() -> None:
    known = of((0, 0, b"a"), (9, 9, b"a"))
    assert known.translate(AT, 12, CopiedTo(12, 11)) == exact(11)
    assert known.translate(AT, 11, CopiedTo(12, 11)) == conservative(10)


def test_the_end_of_the_copy_is_known_without_a_sync() -> None:
    known = SyncedOffsets()
    assert known.translate(AT, 12, CopiedTo(12, 10)) == exact(10)
    assert known.translate(AT, 15, CopiedTo(12, 10)) == Translated(10, Precision.AHEAD)
    assert known.translate(AT, 11, CopiedTo(12, 10)) is None


def test_a_copy_that_began_again_leads_to_the_later_records_once_it_has_passed() -> None:
    known = of((0, 0, b"a"), (99, 99, b"a"), (50, 100, b"b"))
    assert known.translate(AT, 60, None) == exact(60)  # its records are repeated in order
    known.take(OffsetSync(*AT, 149, 199), b"b")
    assert known.translate(AT, 60, None) == exact(110)


def test_a_target_that_lost_records_takes_their_pairs_along() -> None:
    known = of((0, 0, b"a"), (99, 99, b"a"), (60, 50, b"b"), (160, 150, b"b"))
    assert known.translate(AT, 40, None) == exact(40)
    assert known.translate(AT, 70, None) == exact(60)


def test_the_same_sync_twice_changes_nothing() -> None:
    known = of((5, 5, b"a"), (5, 5, b"a"), (9, 9, b"a"))
    assert known.translate(AT, 7, None) == exact(7)


def test_the_way_back_skips_no_record() -> None:
    known = of((100, 40, b"a"), (200, 140, b"a"), (300, 150, b"b"))
    copied = CopiedTo(320, 160)
    assert known.translate_back(AT, 39, copied) is None
    assert known.translate_back(AT, 103, copied) == 163
    assert known.translate_back(AT, 140, copied) == 200
    assert known.translate_back(AT, 145, copied) == 201, "behind the last known pair"
    assert known.translate_back(AT, 150, copied) == 300
    assert known.translate_back(AT, 155, copied) == 301
    assert known.translate_back(AT, 160, copied) == 320
    assert known.translate_back(AT, 999, copied) == 320, "what followed is not of the source"
    assert SyncedOffsets().translate_back(AT, 5, copied) is None
    assert SyncedOffsets().translate_back(AT, 160, copied) == 320


def test_the_way_back_of_what_was_copied_again_is_the_earlier_one() -> None:
    known = of((0, 0, b"a"), (9, 9, b"a"), (5, 10, b"b"), (7, 12, b"b"))
    assert known.translate_back(AT, 4, None) == 4
    assert known.translate_back(AT, 11, None) == 6


def lost(cause: LossCause, first: int, time_ms: int) -> Loss:
    return Loss(cause, first, first + 10, time_ms, action=LossAction.CONTINUED)


@pytest.mark.parametrize(
    ("cause", "time_ms", "offset"),
    [
        (LossCause.TARGET_TRUNCATED, 1_000, 10),
        (LossCause.TARGET_RECREATED, 2_000, 10),
        (LossCause.TARGET_TRUNCATED, 999, 15),
        (LossCause.SOURCE_TRUNCATED, 2_000, 15),
    ],
)
def test_pair_from_before_a_loss_of_the_target_is_not_used(
    cause: LossCause, time_ms: int, offset: int
) -> None:
    losses = (lost(LossCause.TARGET_TRUNCATED, 3, 5), lost(cause, 10, time_ms))
    assert translated_after_losses(exact(15), 1_000, losses).offset == offset
    assert translated_after_losses(exact(7), 1_000, losses) == exact(7)
    stored = StoredCheckpoint(Checkpoint("g", "t", 0, 15, 15))
    found = stored.after_losses(1_000, losses)
    assert found.checkpoint.target_offset == offset
    assert 15 in found.ours
