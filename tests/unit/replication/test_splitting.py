"""Which partition goes to which task, in words."""

import math
from collections.abc import Mapping

import pytest

from headrace.api.partitions import TopicPartition
from headrace.replication.growth import Growth, observe
from headrace.replication.splitting import Move, SplitConfig, SplitState, TaskReport, resplit, split

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
    assert state.tasks == {0: p(0, 3, 5), 1: p(1, 2, 4)}
    assert not state.moving


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
    assert leaving.moving == {TopicPartition("orders", 0): Move(0, 1, 5)}
    assert leaving.last_balance_ms == 5

    # Of the generation before, and one that still holds it.
    for report in TaskReport(False, p(1, 2)), TaskReport(True, p(0, 1, 2)):
        waits = resplit(all_weights, leaving, {0: report}, 1_000, config)
        assert (waits.tasks, waits.moving) == (leaving.tasks, leaving.moving)

    arrived = resplit(all_weights, leaving, {0: TaskReport(True, p(1, 2))}, 1_000, config)
    assert arrived.tasks == {0: p(1, 2), 1: p(0, 3)}
    assert not arrived.moving
    assert not arrived.taken


@pytest.mark.parametrize("reports", [{}, {0: TaskReport(False, p(0, 1, 2))}])
def test_what_is_not_let_go_is_taken_after_a_deadline(reports: dict[int, TaskReport]) -> None:
    config = SplitConfig(2, movement_budget=0.5)
    state = SplitState(
        {0: p(1, 2), 1: p(3)}, {TopicPartition("orders", 0): Move(0, 1, 5)}, last_balance_ms=5
    )
    waits = resplit(weights(1, 1, 1, 1), state, reports, 10_004, config)
    assert waits.moving
    taken = resplit(weights(1, 1, 1, 1), waits, reports, 10_005, config)
    assert taken.tasks == {0: p(1, 2), 1: p(0, 3)}
    assert taken.taken == {TopicPartition("orders", 0): 0}
    assert not resplit(weights(1, 1, 1, 1), taken, reports, 10_006, config).taken


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
    assert after.tasks == state.tasks
    assert not after.moving


def test_what_is_gone_leaves_and_an_empty_task_with_it() -> None:
    state = SplitState({0: p(0), 1: p(1)})
    assert resplit(weights(1), state, {}, 0, SplitConfig(2)).tasks == {0: p(0)}


def test_more_tasks_are_begun_one_budget_at_a_time() -> None:
    state = SplitState({0: p(*range(10))})
    after = resplit(weights(*[1.0] * 10), state, acknowledged(state.tasks), 0, SplitConfig(4, 0.2))
    assert {move.target for move in after.moving.values()} == {1, 2}


def test_tasks_beyond_the_maximum_are_emptied_and_go_when_they_have_let_go() -> None:
    state = SplitState({0: p(0), 1: p(1)})
    dissolving = resplit(weights(1, 1), state, acknowledged(state.tasks), 0, SplitConfig(1))
    assert dissolving.tasks == {0: p(0), 1: frozenset()}
    assert dissolving.moving == {TopicPartition("orders", 1): Move(1, None, 0)}
    reports = {0: TaskReport(True, p(0)), 1: TaskReport(True)}
    assert resplit(weights(1, 1), dissolving, reports, 1, SplitConfig(1)).tasks == {0: p(0, 1)}


def test_after_a_restart_what_is_still_held_goes_back_to_its_holder() -> None:
    # The specs that were read back lack partition 0; its move was in the lost memory.
    state = SplitState({0: p(1, 2), 1: p(3)}, last_balance_ms=0)
    reports = {0: TaskReport(False, p(0, 1, 2)), 1: TaskReport(True, p(3))}
    after = resplit(weights(1, 1, 1, 1), state, reports, 1, SplitConfig(2))
    assert after.tasks == {0: p(0, 1, 2), 1: p(3)}


@pytest.mark.parametrize("weight", [-1.0, math.nan, math.inf])
def test_a_weight_that_is_none(weight: float) -> None:
    with pytest.raises(ValueError, match="weight of partition orders-1 must be 0 or more, got"):
        resplit(weights(1, weight), SplitState(), {}, 0, SplitConfig())


@pytest.mark.parametrize("max_tasks", [0, -1])
def test_less_than_one_task(max_tasks: int) -> None:
    with pytest.raises(ValueError, match=f"max_tasks must be at least 1, got {max_tasks}"):
        split(p(0), {}, max_tasks)
    with pytest.raises(ValueError, match="budget must be from 0 to 1, got 2"):
        SplitConfig(1, movement_budget=2)


def test_growth_is_known_after_two_looks_and_smoothed_from_then_on() -> None:
    first = observe(None, 100, 0.0)
    assert first == Growth(100, 0.0)
    second = observe(first, 200, 10.0)
    assert second.records_per_s == 10
    third = observe(second, 200, 70.0)
    assert third.records_per_s == 5
    assert observe(third, 200, 70.0) == third


def test_a_partition_that_was_made_anew_is_unknown() -> None:
    assert observe(Growth(200, 0.0, 7.0), 10, 5.0) == Growth(10, 5.0)
