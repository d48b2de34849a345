"""Pairs of offsets of acknowledged records, as runs."""

from headrace.replication.progress import MAX_RUNS, ContiguousRange, CopiedRuns


def test_what_follows_on_both_sides_is_one_run() -> None:
    runs = CopiedRuns()
    runs.add(5, 0)
    runs.add(6, 1, records=9)
    assert runs.take() == [ContiguousRange(5, 0, 10, 0)]
    assert runs.take() == []


def test_a_hole_of_the_source_begins_a_new_run_of_the_same_stretch() -> None:
    runs = CopiedRuns()
    runs.add(0, 0, records=3)
    runs.add(7, 3)
    assert runs.take() == [ContiguousRange(0, 0, 3, 0), ContiguousRange(7, 3, 1, 0)]


def test_a_gap_on_the_target_begins_a_new_stretch_also_when_the_source_has_a_hole() -> None:
    runs = CopiedRuns()
    runs.add(0, 0)
    runs.add(1, 2)
    runs.add(3, 4)
    assert [run.contiguity_id for run in runs.take()] == [0, 1, 2]


def test_a_run_that_goes_on_comes_in_pieces_that_continue_each_other() -> None:
    runs = CopiedRuns()
    runs.add(0, 4, records=2)
    (first,) = runs.take()
    runs.add(2, 6)
    (second,) = runs.take()
    assert second == ContiguousRange(2, 6, 1, first.contiguity_id)
    assert second.continues(first.last)


def test_a_gap_on_the_target_is_noticed_after_all_was_taken() -> None:
    runs = CopiedRuns()
    runs.add(0, 0)
    (first,) = runs.take()
    runs.add(1, 5)
    (second,) = runs.take()
    assert second.contiguity_id != first.contiguity_id
    assert not second.continues(first.last)


def test_of_too_many_the_first_and_the_last_are_kept() -> None:
    runs = CopiedRuns()
    for number in range(1000):
        runs.add(number * 2, number)
    taken = runs.take()
    assert len(taken) <= MAX_RUNS
    assert (taken[0], taken[-1]) == (ContiguousRange(0, 0, 1, 0), ContiguousRange(1998, 999, 1, 0))
    assert [run.source for run in taken] == sorted(run.source for run in taken)
