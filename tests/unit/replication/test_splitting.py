"""Assignment of partitions to tasks."""

import math
from collections.abc import Mapping

import pytest

from headrace.api import (
    ObjectMeta,
    ReplicationTask,
    ReplicationTaskSpec,
    ReplicationTaskStatus,
    TaskType,
    TopicPartitions,
)
from headrace.api.partitions import TopicPartition
from headrace.replication.splitting import (
    Growth,
    Leaving,
    SplitConfig,
    SplitState,
    TaskReport,
    observe,
    resplit,
)

MINUTE_MS = 60_000


def p(*numbers: int, topic: str = "orders") -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, number) for number in numbers)


def weights(*of: float | None) -> dict[TopicPartition, float | None]:
    return {TopicPartition("orders", number): weight for number, weight in enumerate(of)}


def acknowledged(tasks: Mapping[int, frozenset[TopicPartition]]) -> dict[int, TaskReport]:
    return {index: TaskReport(True, held) for index, held in tasks.items()}


def test_a_first_split_opens_all_tasks_and_is_even_by_weight() -> None:
    state = resplit(weights(8, 7, 6, 5, 4, None), SplitState(), {}, 0, SplitConfig(2))
    # The unknown one counts as the median, 6.
    assert state.tasks == {0: p(0, 4, 5), 1: p(1, 2, 3)}
    assert state.settled


def test_a_new_partition_goes_to_the_lightest_task_and_touches_no_other() -> None:
    before = SplitState({0: p(0), 1: p(1, 2), 2: p(3)}, last_balance_ms=0)
    state = resplit(
        {**weights(50, 1, 1, 20), TopicPartition("new", 0): None},
        before,
        acknowledged(before.tasks),
        1,
        SplitConfig(3),
    )
    assert state.tasks == {0: p(0), 1: p(1, 2) | p(0, topic="new"), 2: p(3)}


def test_a_move_has_two_phases() -> None:
    config = SplitConfig(2, movement_budget=0.5)
    before = SplitState({0: p(0, 1, 2), 1: p(3)})
    all_weights = weights(10, 10, 10, 10)
    leaving = resplit(all_weights, before, acknowledged(before.tasks), 5, config)
    assert leaving.tasks == {0: p(1, 2), 1: p(3)}
    assert leaving.leaving == {TopicPartition("orders", 0): Leaving(0, 5, for_balance=True)}
    assert leaving.last_balance_ms == 5

    # One report has the previous generation, the other one still has the partition.
    for report in TaskReport(False, p(1, 2)), TaskReport(True, p(0, 1, 2)):
        waits = resplit(all_weights, leaving, {0: report}, 1_000, config)
        assert (waits.tasks, waits.leaving) == (leaving.tasks, leaving.leaving)

    arrived = resplit(all_weights, leaving, {0: TaskReport(True, p(1, 2))}, 1_000, config)
    assert arrived.tasks == {0: p(1, 2), 1: p(0, 3)}
    assert arrived.settled
    assert not arrived.taken


@pytest.mark.parametrize("reports", [{}, {0: TaskReport(False, p(0, 1, 2))}])
def test_what_is_not_let_go_is_taken_after_a_deadline(reports: dict[int, TaskReport]) -> None:
    config = SplitConfig(2, movement_budget=0.5)
    at = TopicPartition("orders", 0)
    state = SplitState({0: p(1, 2), 1: p(3)}, {at: Leaving(0, 5)}, last_balance_ms=5)
    waits = resplit(weights(1, 1, 1, 1), state, reports, 10_004, config)
    assert waits.leaving
    taken = resplit(weights(1, 1, 1, 1), waits, reports, 10_005, config)
    assert taken.tasks == {0: p(1, 2), 1: p(0, 3)}
    assert taken.taken == {at: 0}
    assert not resplit(weights(1, 1, 1, 1), taken, reports, 10_006, config).taken


def test_what_is_not_released_for_balance_stays_where_it_is() -> None:
    """Its owner may wait for the target's answer. Records would be copied again after a move."""
    config = SplitConfig(2, movement_budget=0.5)
    late, all_weights = {0: TaskReport(False, p(0, 1, 2))}, weights(10, 10, 10, 10)
    before = SplitState({0: p(0, 1, 2), 1: p(3)})
    leaving = resplit(all_weights, before, acknowledged(before.tasks), 5, config)
    assert resplit(all_weights, leaving, late, 10_004, config).tasks == {0: p(1, 2), 1: p(3)}
    stays = resplit(all_weights, leaving, late, 10_005, config)
    assert stays.tasks == before.tasks
    assert stays.settled
    assert (stays.taken, stays.returned) == ({}, {TopicPartition("orders", 0): 0})
    again = resplit(all_weights, stays, acknowledged(stays.tasks), 5 + MINUTE_MS, config)
    assert again.leaving, "a minute later it is tried again"


def test_what_is_not_released_is_taken_from_a_task_that_is_to_end() -> None:
    leaving = {TopicPartition("orders", 0): Leaving(1, 5, for_balance=True)}
    state = SplitState({0: p(1), 1: frozenset()}, leaving)
    late = {1: TaskReport(False, p(0))}
    taken = resplit(weights(1, 1), state, late, 10_005, SplitConfig(1))
    assert taken.tasks == {0: p(0, 1)}
    assert taken.taken == {TopicPartition("orders", 0): 1}


def test_moves_stay_within_the_budget_and_a_minute_apart() -> None:
    config = SplitConfig(2)
    state = SplitState({0: p(*range(20)), 1: p(20)})
    all_weights = weights(*[10.0] * 21)
    sizes = []
    for seconds in range(0, 360, 20):
        state = resplit(all_weights, state, acknowledged(state.tasks), seconds * 1000, config)
        sizes.append(len(state.tasks[0]))
    assert sizes == [18] * 3 + [16] * 3 + [14] * 3 + [12] * 3 + [11] * 6


def test_within_the_tolerance_nothing_moves() -> None:
    state = SplitState({0: p(0, 1), 1: p(2, 3)})
    config = SplitConfig(2, movement_budget=1.0)
    after = resplit(weights(55, 55, 45, 46), state, acknowledged(state.tasks), 0, config)
    assert after == SplitState(state.tasks)


def test_an_imbalance_that_no_move_mends_moves_nothing() -> None:
    state = SplitState({0: p(0), 1: p(1, 2)})
    config = SplitConfig(2, movement_budget=1.0)
    after = resplit(weights(1_000_000, 5, 5), state, acknowledged(state.tasks), 0, config)
    assert after == SplitState(state.tasks)


def test_what_is_gone_leaves_and_an_empty_task_goes_when_it_has_let_go() -> None:
    state = SplitState({0: p(0), 1: p(1)})
    gone = resplit(weights(1), state, acknowledged(state.tasks), 0, SplitConfig(2))
    assert gone.tasks == {0: p(0), 1: frozenset()}
    # It returned before that was noticed, and waits like any other.
    back = resplit(weights(1, 1), gone, {1: TaskReport(False, p(1))}, 1, SplitConfig(2))
    assert (back.tasks, back.leaving) == (gone.tasks, gone.leaving)
    ended = resplit(weights(1), back, {1: TaskReport(True)}, 2, SplitConfig(2))
    assert ended == SplitState({0: p(0)})


def test_weights_that_nobody_knows_yet_move_nothing() -> None:
    # The earlier split considered this even by weight.
    state = SplitState({0: p(0), 1: p(*range(1, 10))})
    config = SplitConfig(2, movement_budget=1.0)
    unknown = weights(*[None] * 10)
    assert resplit(unknown, state, acknowledged(state.tasks), 0, config) == state


def test_more_tasks_are_begun_one_budget_at_a_time() -> None:
    state = SplitState({0: p(*range(10))})
    config = SplitConfig(4, movement_budget=0.2)
    after = resplit(weights(*[1.0] * 10), state, acknowledged(state.tasks), 0, config)
    assert len(after.leaving) == 2
    arrived = resplit(weights(*[1.0] * 10), after, acknowledged(after.tasks), 1, config)
    assert sorted(map(len, arrived.tasks.values())) == [1, 1, 8]


def test_tasks_with_high_numbers_do_not_keep_others_from_beginning() -> None:
    # The partitions of tasks 0 to 4 no longer exist.
    state = SplitState({5: p(0, 1), 6: p(2, 3)})
    config = SplitConfig(8, movement_budget=0.5)
    after = resplit(weights(1, 1, 1, 1), state, acknowledged(state.tasks), 0, config)
    assert len(after.leaving) == 2


def test_tasks_beyond_the_maximum_are_emptied_and_go_when_they_have_let_go() -> None:
    state = SplitState({0: p(0), 1: p(1)})
    dissolving = resplit(weights(1, 1), state, acknowledged(state.tasks), 0, SplitConfig(1))
    assert dissolving.tasks == {0: p(0), 1: frozenset()}
    assert dissolving.leaving == {TopicPartition("orders", 1): Leaving(1, 0)}
    reports = {0: TaskReport(True, p(0)), 1: TaskReport(True)}
    assert resplit(weights(1, 1), dissolving, reports, 1, SplitConfig(1)).tasks == {0: p(0, 1)}


def test_after_a_restart_what_is_still_held_goes_back_to_its_holder() -> None:
    # The specs that were read lack partition 0. Its release is forgotten.
    state = SplitState({0: p(1, 2), 1: p(3)}, resumed_ms=0)
    reports = {0: TaskReport(False, p(0, 1, 2)), 1: TaskReport(True, p(3))}
    after = resplit(weights(1, 1, 1, 1), state, reports, 1, SplitConfig(2))
    assert after.tasks == {0: p(0, 1, 2), 1: p(3)}


def test_after_a_restart_what_nobody_says_to_hold_waits_until_all_have_acknowledged() -> None:
    # Task 0 changed its driver: the new one may have read that it should also copy partition 0.
    state = SplitState({0: p(1, 2), 1: p(3)}, resumed_ms=0)
    all_weights = weights(1, 1, 1, 1)
    reports = {0: TaskReport(False), 1: TaskReport(True, p(3))}
    waits = resplit(all_weights, state, reports, 9_999, SplitConfig(2))
    assert waits == state
    assert not waits.settled
    for now_ms, all_reports in (9_999, acknowledged(state.tasks)), (10_000, reports):
        after = resplit(all_weights, waits, all_reports, now_ms, SplitConfig(2))
        assert after == SplitState({0: p(1, 2), 1: p(0, 3)})


def test_what_a_task_reports() -> None:
    held = TopicPartitions.pack(p(1))
    task = ReplicationTask(
        metadata=ObjectMeta(name="a", generation=3),
        spec=ReplicationTaskSpec(flow_name="f", type=TaskType.SOURCE_TASK, partitions=held),
        status=ReplicationTaskStatus(driver_name="d", observed_generation=2, partitions=held),
    )
    assert TaskReport.of(task, p(1)) == TaskReport(False, p(1))
    status = task.status.model_copy(update={"observed_generation": 3})
    observed = task.model_copy(update={"status": status})
    assert TaskReport.of(observed, p(1)) == TaskReport(True, p(1))
    # The object is older than the last publication.
    assert TaskReport.of(observed, p()) == TaskReport(False, p(1))
    # No driver holds it: its next owner reads the newest generation.
    released = task.model_copy(update={"status": ReplicationTaskStatus(epoch=4)})
    assert TaskReport.of(released, p(1)) == TaskReport(True)


@pytest.mark.parametrize("weight", [-1.0, math.nan, math.inf])
def test_a_weight_that_is_none(weight: float) -> None:
    with pytest.raises(ValueError, match="weight of partition orders-1 must be 0 or more, got"):
        resplit(weights(1, weight), SplitState(), {}, 0, SplitConfig())


@pytest.mark.parametrize("max_tasks", [0, -1])
def test_a_config_that_makes_no_sense(max_tasks: int) -> None:
    with pytest.raises(ValueError, match=f"max_tasks must be at least 1, got {max_tasks}"):
        SplitConfig(max_tasks)
    with pytest.raises(ValueError, match="budget must be from 0 to 1, got 2"):
        SplitConfig(1, movement_budget=2)


def test_growth_is_the_mean_of_what_was_seen_and_then_follows_slowly() -> None:
    growth = observe(None, 100, 0.0)
    assert growth.records_per_s is None
    growth = observe(growth, 140, 1.0)
    assert growth.records_per_s is None  # known for too short a time
    growth = observe(growth, 200, 10.0)
    assert growth.records_per_s == pytest.approx(10)
    assert observe(growth, 200, 10.0) == growth
    growth = observe(growth, 200 + 30 * 10, 40.0)
    assert growth.records_per_s == pytest.approx(10)
    for second in range(41, 1041):
        growth = observe(growth, growth.end_offset + 10, float(second))
    growth = observe(growth, growth.end_offset, 1100.0)  # no growth for a minute
    assert growth.records_per_s == pytest.approx(5)


def test_a_partition_that_was_made_anew_is_unknown() -> None:
    assert observe(Growth(200, 0.0, 50.0, 7.0), 10, 55.0) == Growth(10, 55.0, 55.0)
