"""Records that the soak counts as lost, unordered or duplicated, and accepted explanations."""

from collections.abc import Iterable, Sequence

import pytest
from soak.accounts import (
    LOST,
    PARTITION_TAKEN,
    STOPPED,
    Account,
    Arrival,
    Logged,
    Stored,
    account,
)
from soak.faults import Fault, FaultKind
from soak.reading import ended_drivers, logged

A, B = "driver-1/aa", "driver-2/bb"


def arrivals(*runs: tuple[float, Iterable[int]]) -> list[Arrival]:
    """Return source offsets by their times of arrival."""
    flat = [(at_s, offset) for at_s, offsets in runs for offset in offsets]
    return [Arrival(n, offset, at_s) for n, (at_s, offset) in enumerate(flat)]


def stored(at_s: float, driver: str, epoch: int, source_offset: int) -> Stored:
    return Stored(at_s, "soak-source-task-0", driver, epoch, source_offset)


def lost(kind: FaultKind, driver: str, began_s: float, ended_s: float) -> Fault:
    return Fault(1, kind, driver, began_s, ended_s, driver)


def judged(
    target: Sequence[Arrival],
    progress: Sequence[Stored] = (),
    faults: Sequence[Fault] = (),
    log: Sequence[Logged] = (),
) -> Account:
    return account("t-0", range(10), target, progress=progress, faults=faults, log=log)


TAKEN_OVER = [stored(1, A, 1, 0), stored(2, A, 1, 3), stored(12, B, 2, 3), stored(13, B, 2, 10)]
"""A stores 3, and B resumes there."""
KILLED = lost(FaultKind.DRIVER_KILLED, A, 4, 6)
FROZEN = lost(FaultKind.DRIVER_FROZEN, A, 4, 20)


def test_all_is_there_once() -> None:
    found = judged(arrivals((1, range(10))))
    assert (found.records, found.missing_count) == (10, 0)
    assert not any((found.reordered, found.repeats, found.foreign))


def test_what_is_missing_is_named_with_the_time_of_its_neighbours() -> None:
    found = judged(arrivals((1, range(3)), (5, range(6, 9))))
    assert found.missing == [(3, 5), (9, 9)]
    assert found.missing_at == {3: (1, 5), 9: (5, 5)}
    assert found.missing_count == 4


def test_behind_the_last_copy_nothing_is_missing_from_a_flow_that_did_not_catch_up() -> None:
    target = arrivals((1, [0, 1, 3, 4]))
    found = account("t-0", range(10), target, progress=[], faults=[], log=[], caught_up=False)
    assert (found.missing, found.behind) == ([(2, 2)], 5)


def test_only_first_arrivals_have_an_order() -> None:
    assert not judged(arrivals((1, range(6)), (2, range(4, 10)))).reordered
    (late,) = judged(arrivals((1, [0, 1, 3, 2, *range(4, 10)]))).reordered
    assert late.source_offset == 2


def test_records_of_others_are_counted() -> None:
    assert judged(arrivals((1, range(10)), (2, [-1]))).foreign == 1


@pytest.mark.parametrize("fault", [KILLED, FROZEN])
def test_repeats_between_stored_and_acknowledged_are_of_the_fault(fault: Fault) -> None:
    target = arrivals((3, range(6)), (12.5, range(3, 10)))
    found = judged(target, TAKEN_OVER, [fault])
    assert [repeat.fault for repeat in found.repeats] == [fault] * 3
    assert "stored 3, acknowledged 6" in found.repeats[0].why
    assert not found.unexplained


@pytest.mark.parametrize(
    "faults",
    [
        [],
        [lost(FaultKind.DRIVER_KILLED, B, 4, 6)],
        [lost(FaultKind.DRIVER_KILLED, A, 30, 32)],
        [lost(FaultKind.BROKER_KILLED, "", 4, 6)],
    ],
)
def test_without_a_kill_or_thaw_of_the_owner_before_nothing_explains_them(
    faults: list[Fault],
) -> None:
    target = arrivals((3, range(6)), (12.5, range(3, 10)))
    assert len(judged(target, TAKEN_OVER, faults).unexplained) == 3


def test_what_was_stored_must_not_be_copied_again() -> None:
    target = arrivals((3, range(6)), (12.5, range(1, 10)))
    found = judged(target, TAKEN_OVER, [KILLED])
    assert [repeat.arrival.source_offset for repeat in found.unexplained] == [1, 2]


def test_an_owner_copies_a_record_once() -> None:
    target = arrivals((3, range(6)), (12.5, [3, 4, 5, 4, 5]), (13, range(6, 10)))
    found = judged(target, TAKEN_OVER, [KILLED])
    assert [repeat.arrival.source_offset for repeat in found.unexplained] == [4, 5]


def test_an_owner_in_between_that_copied_nothing_needs_no_fault() -> None:
    third = stored(14, "driver-3/cc", 3, 3)
    target = arrivals((3, range(6)), (14.5, range(3, 10)))
    assert not judged(target, [*TAKEN_OVER[:3], third], [KILLED]).unexplained


def test_a_fault_of_an_earlier_time_explains_nothing() -> None:
    earlier = lost(FaultKind.DRIVER_FROZEN, B, 1, 9)
    progress = [*TAKEN_OVER[:3], stored(20, A, 3, 3)]
    target = arrivals((3, range(3)), (13, range(3, 6)), (20.5, range(3, 10)))
    assert len(judged(target, progress, [earlier]).unexplained) == 3


def test_what_a_frozen_driver_had_queued_may_arrive_at_its_thaw() -> None:
    target = arrivals((3, range(6)), (12.5, range(3, 10)), (20.1, [6, 7]))
    assert not judged(target, TAKEN_OVER, [FROZEN]).unexplained
    late = arrivals((3, range(6)), (12.5, range(3, 10)), (90, [6, 7]))
    assert len(judged(late, TAKEN_OVER, [FROZEN]).unexplained) == 2


def test_what_a_thawed_driver_wrote_first_may_be_repeated_by_its_successor() -> None:
    target = arrivals((3, range(6)), (20.1, [6, 7]), (20.2, range(3, 10)))
    progress = [stored(2, A, 1, 3), stored(20, B, 2, 3)]
    assert not judged(target, progress, [FROZEN]).unexplained


def test_progress_of_a_thawed_driver_is_no_take_over() -> None:
    progress = [*TAKEN_OVER, stored(20, A, 1, 6), stored(21, B, 2, 10)]
    target = arrivals((3, range(6)), (12.5, range(3, 10)), (22, [8]))
    found = judged(target, progress, [KILLED])
    assert [repeat.arrival.source_offset for repeat in found.unexplained] == [8]


def test_a_lane_whose_outcome_the_task_did_not_know() -> None:
    target = arrivals((3, range(6)), (9, range(4, 10)))
    progress = [stored(2, A, 1, 3)]
    line = Logged(5, "retrying", "soak-source-task-0", why="west did not acknowledge 2 records")
    found = judged(target, progress, log=[line])
    assert "did not acknowledge 2 records" in found.repeats[0].why
    assert not found.unexplained
    once_more = [*target, Arrival(99, 4, 10)]
    assert len(judged(once_more, progress, log=[line]).unexplained) == 1
    for other in (
        Logged(5, "retrying", "soak-source-task-1"),
        Logged(11, "retrying", "soak-source-task-0"),
        Logged(5, "copying", "soak-source-task-0"),
    ):
        assert len(judged(target, progress, log=[other]).unexplained) == 2


def test_a_lane_that_was_renewed_while_brokers_were_away_for_long() -> None:
    target = arrivals((3, range(6)), (205, range(4, 10)))
    renewed, copying = (
        Logged(at_s, event, "soak-source-task-0")
        for at_s, event in ((5, "secrets changed: new clients"), (204, "copying"))
    )
    assert not judged(target, [stored(2, A, 1, 3)], log=[renewed, copying]).unexplained
    assert len(judged(target, [stored(2, A, 1, 3)], log=[renewed]).unexplained) == 2


def test_a_task_that_lost_one_partition_stops_with_all() -> None:
    target = arrivals((3, range(6)), (12.5, range(3, 10)))
    for task, unexplained in (("soak-source-task-0", 0), ("soak-source-task-1", 3)):
        line = Logged(5, STOPPED, task, why="soak-source-task-1 on driver-2/bb took t-1")
        assert len(judged(target, TAKEN_OVER, log=[line]).unexplained) == unexplained


def test_a_driver_that_the_herder_took_for_lost() -> None:
    target = arrivals((3, range(6)), (12.5, range(3, 10)))
    line = Logged(11.9, LOST, driver="driver-1")
    assert not judged(target, TAKEN_OVER, log=[line]).unexplained


def test_a_partition_that_its_connector_took_from_a_task() -> None:
    target = arrivals((3, range(6)), (12.5, range(3, 10)))
    line = Logged(11.9, PARTITION_TAKEN, driver="driver-3", partition="t-0")
    assert not judged(target, TAKEN_OVER, log=[line]).unexplained
    other = Logged(11.9, PARTITION_TAKEN, driver="driver-1", partition="t-1")
    assert len(judged(target, TAKEN_OVER, log=[other]).unexplained) == 3


def test_lines_of_the_log() -> None:
    lines = [
        "timestamp=2026-11-23T14:43:35.5Z level=info event=copying task=soak-source-task-0",
        "timestamp=2026-11-23T14:43:36.5Z level=warning event=retrying flow=soak "
        'task=soak-source-task-0 why="west did not acknowledge 3 records that were on their way"',
        'timestamp=2026-11-23T14:43:37.5Z level=warning event="driver lost" driver=driver-1 pid=7',
        "timestamp=2026-11-23T14:43:38.5Z level=info event=split task=soak-source-connector-0",
        "no line of ours",
    ]
    copying, retrying, gone = logged(lines)
    assert (copying.task, copying.event) == ("soak-source-task-0", "copying")
    assert (retrying.task, retrying.event) == ("soak-source-task-0", "retrying")
    assert retrying.why.startswith("west did not acknowledge 3")
    assert (gone.driver, gone.at_s - retrying.at_s) == ("driver-1", 1.0)


def test_drivers_that_ended_by_themselves() -> None:
    log = [Logged(n, "driver joined", driver=f"driver-{n}") for n in (1, 2, 3, 2, 4)]
    assert not ended_drivers(log, [KILLED])
    assert ended_drivers(log, [FROZEN]) == ["1 drivers ended that nobody had killed"]
