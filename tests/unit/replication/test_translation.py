"""Committed source offsets on the target, and the cost of each possible mistake."""

import pytest

from headrace.replication.translation import NEVER, Precision, Translated, Translation


def exact(offset: int) -> Translated:
    return Translated(offset, Precision.EXACT)


def of(*pairs: tuple[int, int, int], begins: int = 0) -> Translation:
    made = Translation(begins, complete_from=begins)
    for pair in pairs:
        made.copied(*pair)
    return made


def test_a_partition_without_holes_is_one_range() -> None:
    copied = of((0, 0, 500), (500, 500, 1_000_000), (1_000_500, 1_000_500, 1))
    assert len(copied) == 1
    assert copied.translate(0) == exact(0)
    assert copied.translate(700_000) == exact(700_000)


def test_in_a_hole_of_the_source_the_very_next_record_is_meant() -> None:
    copied = of((0, 0, 5), (100, 5, 5))
    assert [copied.translate(offset) for offset in (4, 5, 50, 100, 101)] == [
        exact(4),
        exact(5),
        exact(5),
        exact(5),
        exact(6),
    ]


def test_a_marker_on_the_target_is_taken_in() -> None:
    copied = of((0, 0, 5), (5, 6, 5))
    assert copied.translate(5) == exact(6)


def test_at_the_end_the_group_has_no_lag_behind_trailing_markers() -> None:
    copied = of((0, 0, 5))
    copied.passed(8)
    copied.target_ends(7)
    assert copied.translate(5) == copied.translate(8) == exact(7)


def test_ahead_of_the_copy_the_end_of_the_copy_is_meant_until_more_is_copied() -> None:
    copied = of((0, 0, 5))
    assert copied.translate(9) == Translated(5, Precision.AHEAD)
    copied.copied(5, 6, 10)
    assert copied.translate(9) == exact(10)


def test_what_was_copied_before_there_was_a_store_is_not_known() -> None:
    copied = of((100, 40, 5), begins=100)
    assert copied.translate(99) is None
    assert copied.translate(100) == exact(40)


def test_of_offset_syncs_mirrormaker_2s_rule_goes() -> None:
    # From a test of MirrorMaker 2: upstream 606 is downstream 606, upstream 630 is 607.
    syncs = Translation(0, complete_from=NEVER)
    syncs.copied(606, 606)
    assert syncs.translate(605) is None
    assert syncs.translate(606) == exact(606)
    assert syncs.translate(630) == Translated(607, Precision.CONSERVATIVE)


def test_repeated_records_are_not_read_again_by_a_group_that_has_read_them() -> None:
    copied = of((0, 0, 100))
    copied.copied(50, 200, 10)
    assert copied.translate(55) == exact(55), "100 and more would skip what is not repeated yet"
    copied.copied(60, 210, 60)
    assert copied.translate(49) == exact(49)
    assert copied.translate(55) == exact(205)
    assert copied.translate(110) == exact(260)


def test_what_the_target_has_lost_is_forgotten() -> None:
    copied = of((0, 0, 100))
    copied.target_lost(80)
    copied.copied(100, 80, 5)
    assert copied.translate(90) == exact(80)
    assert copied.translate(102) == exact(82)


def test_a_target_offset_that_was_given_before_is_refused() -> None:
    with pytest.raises(ValueError, match="target offset 7 was given, 10 was next"):
        of((0, 0, 10), (10, 7, 1))


def test_a_heavily_compacted_partition_keeps_its_bound_and_is_exact_where_it_is_new() -> None:
    copied = Translation(0, complete_from=0, max_ranges=64)
    for record in range(100_000):
        copied.copied(2 * record, record)
    assert len(copied) <= 64
    assert copied.translate(2 * 99_990 + 1) == exact(99_991)
    old = copied.translate(2 * 90_000 + 1)
    assert old is not None
    assert old.precision is Precision.CONSERVATIVE
    assert old.offset <= 90_001
