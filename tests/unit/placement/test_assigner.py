"""Times of assignments, and their writes, for drivers of both modes."""

from collections.abc import Iterator

import pytest
from support.manifests import flow

from headrace.api import (
    ObjectMeta,
    ReplicationFlow,
    ReplicationTask,
    ReplicationTaskSpec,
    ReplicationTaskStatus,
    TaskType,
)
from headrace.assign import DriverState
from headrace.placement import (
    Assigner,
    Assignment,
    DriverPool,
    Placement,
    PlacementDecision,
    assign_unit,
    pins_in_force,
    task_id,
)

FLOW = ReplicationFlow.model_validate(flow("orders"))


@pytest.fixture
def assigner() -> Iterator[Assigner]:
    opened = Assigner()
    yield opened
    opened.close()


def unit(index: int, driver: str = "", *, held: str = "", lost: str = "") -> ReplicationTask:
    """Return a unit. ``held`` is ``<driver>/<incarnation>``."""
    holder, _, incarnation = held.partition("/")
    return ReplicationTask(
        metadata=ObjectMeta(name=f"orders-source-task-{index}"),
        spec=ReplicationTaskSpec(
            flow_name="orders",
            type=TaskType.SOURCE_TASK,
            index=index,
            driver_name=driver,
            lost_incarnation=lost,
        ),
        status=ReplicationTaskStatus(driver_name=holder, driver_incarnation=incarnation),
    )


def pool(ready: str, *, expected: int = 2, lost: str = "", cordoned: str = "") -> DriverPool:
    return DriverPool(
        expected=expected,
        schedulable=tuple(map(DriverState, ready)),
        staying=frozenset(ready + cordoned),
        is_lost=lambda _, incarnation: incarnation == lost,
        cordoned=frozenset(cordoned),
    )


def decide(
    assigner: Assigner, tasks: list[ReplicationTask], there: DriverPool, now_s: float
) -> PlacementDecision:
    return assigner.decide([FLOW], tasks, there, now_s, pins={})


def drivers(decision: PlacementDecision) -> list[str]:
    return sorted(placement.driver for placement in decision.placements.values())


def test_first_assignments_wait_for_all_drivers(assigner: Assigner) -> None:
    tasks = [unit(0), unit(1)]
    waiting = decide(assigner, tasks, pool("a"), 100)
    assert waiting.placements == {}
    assert waiting.follow_up_ms is not None
    assert waiting.follow_up_ms <= 105_000
    assert drivers(decide(assigner, tasks, pool("ab"), 101)) == ["a", "b"]


def test_after_the_grace_one_driver_gets_all(assigner: Assigner) -> None:
    tasks = [unit(0), unit(1)]
    assert not decide(assigner, tasks, pool("a"), 100).placements
    assert drivers(decide(assigner, tasks, pool("a"), 106)) == ["a", "a"]


def test_a_lost_drivers_units_move_at_once_and_no_other_while_the_next_starts(
    assigner: Assigner,
) -> None:
    tasks = [*(unit(n, "a") for n in range(4)), unit(4, "x")]
    assigner.await_drivers(100)
    decision = decide(assigner, tasks, pool("ab", expected=3), 101)
    assert drivers(decision) == ["a", "a", "a", "a", "b"]
    all_there = decide(assigner, tasks, pool("ab", expected=2), 101)
    assert drivers(all_there) == ["a", "a", "a", "b", "b"]


def test_drivers_that_join_together_are_filled_together(assigner: Assigner) -> None:
    """Otherwise units of the first of them would move to the second: each unit moves once."""
    tasks = [unit(n, "a") for n in range(6)]
    first = decide(assigner, tasks, pool("ab", expected=3), 100)
    assert drivers(first) == ["a"] * 6
    assert first.follow_up_ms is not None
    assert first.follow_up_ms <= 105_000
    assert drivers(decide(assigner, tasks, pool("abc", expected=3), 101)) == [*"aabbcc"]


def test_a_driver_that_joins_does_not_wait_for_ever_for_another(assigner: Assigner) -> None:
    tasks = [unit(n, "a") for n in range(6)]
    assert drivers(decide(assigner, tasks, pool("ab", expected=3), 100)) == ["a"] * 6
    assert drivers(decide(assigner, tasks, pool("ab", expected=3), 106)) == [*"aaabbb"]


def test_units_of_a_cordoned_driver_stay(assigner: Assigner) -> None:
    there = pool("a", expected=1, cordoned="b")
    decision = decide(assigner, [unit(0), unit(1, "b")], there, 100)
    assert decision.placements == {task_id(unit(0)): Placement("a")}
    assert not assign_unit(unit(1, "b"), None, there).differs


def test_without_drivers_each_flow_has_a_problem(assigner: Assigner) -> None:
    decision = decide(assigner, [unit(0, "a")], pool("", expected=1), 100)
    assert decision.problems == {"orders": "there is no driver: units wait for one"}
    assert assign_unit(unit(0, "a"), None, pool("")).driver == ""


def test_a_lost_incarnation_is_written_only_for_another_driver() -> None:
    there = pool("ab", lost="1")
    moved = assign_unit(unit(0, "a", held="a/1"), Placement("b"), there)
    assert moved.lost_incarnation == "1"
    assert assign_unit(unit(0, "a", held="a/1"), Placement("a"), there).lost_incarnation == ""
    assert assign_unit(unit(0, "a", held="a/2"), Placement("b"), there).lost_incarnation == ""


def test_an_old_loss_is_no_reason_to_write_but_a_new_one_is() -> None:
    there = pool("ab", lost="2")
    assert not assign_unit(unit(0, "b", held="b/3", lost="1"), Placement("b"), there).differs
    news = assign_unit(unit(0, "b", held="a/2", lost="1"), Placement("b"), there)
    assert news.differs
    assert news.lost_incarnation == "2"


def test_a_placement_on_a_driver_that_left_meanwhile_is_not_written() -> None:
    task = unit(0, "a", held="a/1")
    assert assign_unit(task, Placement("x"), pool("ab")) == Assignment(task, "a", (), "")


def test_pins_hold_while_their_driver_is_there() -> None:
    pins = {task_id(unit(0)): "a", task_id(unit(1)): "b", task_id(unit(2)): "x"}
    there = pool("a", cordoned="b")
    assert pins_in_force(pins, there) == {task_id(unit(0)): "a", task_id(unit(1)): "b"}
