"""Behaviour of the default assignor."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from headrace.assign import (
    ApplicationState,
    DriverAssignment,
    DriverState,
    FlowConfig,
    StickyAssignor,
    TaskAssignment,
    TaskId,
    TaskInfo,
)

MINUTE_MS = 60_000
ANY_BUDGET = {"orders": FlowConfig(movement_budget=1.0)}


def tasks(count: int, type: str = "SourceTask", flow: str = "orders") -> list[TaskId]:
    return [TaskId(flow, type, index) for index in range(count)]


def weighing(*weights: float) -> list[TaskInfo]:
    return [
        TaskInfo(id, True, weight) for id, weight in zip(tasks(len(weights)), weights, strict=True)
    ]


def plain(ids: Iterable[TaskId]) -> list[TaskInfo]:
    return [TaskInfo(id, id.is_stateful) for id in ids]


def drivers(names: str, after: TaskAssignment | None = None) -> list[DriverState]:
    """Return drivers named by single letters, with the tasks of an answer."""
    given = after.drivers if after else {}
    return [
        DriverState(
            name,
            active=given.get(name, DriverAssignment()).active,
            standby=given.get(name, DriverAssignment()).standby,
        )
        for name in names
    ]


def assign(state: ApplicationState) -> TaskAssignment:
    return StickyAssignor().assign(state)


def moved(before: TaskAssignment, after: TaskAssignment) -> set[TaskId]:
    old, new = before.owners, after.owners
    return {task for task in old if new.get(task) != old[task]}


def loads(of: Iterable[TaskInfo], answer: TaskAssignment) -> dict[str, float]:
    weights = {info.id: info.weight for info in of}
    return {name: sum(weights[t] for t in d.active) for name, d in answer.drivers.items()}


# Completeness and balance.


def test_a_first_assignment_deals_in_turn() -> None:
    t = tasks(5)
    owners = assign(ApplicationState.of(plain(t), drivers("ab"))).owners
    assert [owners[task] for task in t] == list("ababa")


def test_without_drivers_all_tasks_wait() -> None:
    answer = assign(ApplicationState.of(plain(tasks(3)), []))
    assert answer.drivers == {}
    assert answer.waiting == set(tasks(3))
    assert answer.follow_up_ms is None


def test_kinds_are_spread_apart() -> None:
    units = [*tasks(1, "SourceConnector"), *tasks(1, "HeartbeatConnector"), *tasks(2)]
    answer = assign(ApplicationState.of(plain(units), drivers("ab")))
    assert {answer.owners[task] for task in tasks(2)} == {"a", "b"}
    assert [len(driver.active) for driver in answer.drivers.values()] == [2, 2]


def test_the_heaviest_go_to_the_lightest() -> None:
    of = weighing(50, 40, 30, 20, 10, 5)
    answer = assign(ApplicationState.of(of, drivers("ab")))
    assert sorted(loads(of, answer).values()) == [75, 80]
    assert [len(driver.active) for driver in answer.drivers.values()] == [3, 3]


def test_flows_are_spread_over_drivers() -> None:
    of = plain(task for flow in ("f1", "f2", "f3") for task in tasks(4, flow=flow))
    answer = assign(ApplicationState.of(of, drivers("abcd")))
    for driver in answer.drivers.values():
        assert Counter(task.flow for task in driver.active) == {"f1": 1, "f2": 1, "f3": 1}


def test_flows_stay_spread_over_drivers_that_join_and_leave() -> None:
    """KAFKA-17049: tasks of one connector are revoked together, and assigned to one worker."""
    flows = {flow: FlowConfig(movement_budget=1.0) for flow in ("f1", "f2", "f3")}
    of = plain(task for flow in flows for task in tasks(4, flow=flow))
    answer = None
    for names, most in (("a", 4), ("ab", 2), ("abc", 2), ("abcd", 1), ("bd", 2)):
        answer = assign(ApplicationState.of(of, drivers(names, answer), flows=flows))
        for driver in answer.drivers.values():
            assert max(Counter(task.flow for task in driver.active).values()) == most, names


def test_a_flow_is_spread_over_racks() -> None:
    racked = [
        DriverState(n, rack=r) for n, r in zip("abcdef", ["r1"] * 3 + ["r2"] * 3, strict=True)
    ]
    of = plain(task for flow in ("f1", "f2", "f3") for task in tasks(2, flow=flow))
    answer = assign(ApplicationState.of(of, racked))
    racks = {driver.name: driver.rack for driver in racked}
    for flow in ("f1", "f2", "f3"):
        assert {racks[answer.owners[task]] for task in tasks(2, flow=flow)} == {"r1", "r2"}


def test_a_flow_that_crowds_a_rack_is_spread_by_swaps_within_its_budget() -> None:
    f1, f2 = tasks(2, flow="f1"), tasks(2, flow="f2")
    state = ApplicationState.of(
        plain([*f1, *f2]),
        [
            DriverState("a", active=frozenset(f1[:1]), rack="r1"),
            DriverState("b", active=frozenset(f1[1:]), rack="r1"),
            DriverState("c", active=frozenset(f2[:1]), rack="r2"),
            DriverState("d", active=frozenset(f2[1:]), rack="r2"),
        ],
    )
    answer = assign(state)
    assert answer.balanced
    assert len({answer.owners[task] in "ab" for task in f1}) == 2
    assert len({answer.owners[task] in "ab" for task in f2}) == 2
    assert sum(answer.owners[t] != d.name for d in state.drivers.values() for t in d.active) == 2


# Stickiness.


def test_a_lost_driver_s_tasks_move_and_no_others() -> None:
    before = assign(ApplicationState.of(plain(tasks(6)), drivers("abc")))
    after = assign(ApplicationState.of(plain(tasks(6)), drivers("ac", before)))
    assert moved(before, after) == before.drivers["b"].active
    assert not after.balanced


def test_without_an_owner_no_budget_counts() -> None:
    frugal = {"orders": FlowConfig(movement_budget=0.0)}
    before = assign(ApplicationState.of(plain(tasks(60)), drivers("abc"), flows=frugal))
    state = ApplicationState.of(
        plain(tasks(60)), drivers("ac", before), flows=frugal, last_balance_ms=0
    )
    assert moved(before, assign(state)) == before.drivers["b"].active


def test_a_driver_that_joins_takes_its_share_and_nothing_else_moves() -> None:
    before = assign(ApplicationState.of(plain(tasks(6)), drivers("ab")))
    after = assign(ApplicationState.of(plain(tasks(6)), drivers("abc", before), flows=ANY_BUDGET))
    assert len(moved(before, after)) == 2
    assert after.drivers["c"].active == moved(before, after)


def test_a_tenth_moves_at_a_time_and_not_more_than_once_a_minute() -> None:
    answer = assign(ApplicationState.of(plain(tasks(40)), drivers("ab")))
    now_ms, last_ms, counts = 5, None, []
    for _ in range(8):
        state = ApplicationState.of(
            plain(tasks(40)), drivers("abc", answer), now_ms=now_ms, last_balance_ms=last_ms
        )
        answer = assign(state)
        counts.append(len(answer.drivers["c"].active))
        if answer.balanced:
            last_ms = now_ms
        assert answer.follow_up_ms in (None, 5 + MINUTE_MS * (len(set(counts))))
        now_ms += MINUTE_MS // 2
    assert counts == [4, 4, 8, 8, 12, 12, 13, 13]
    assert answer.follow_up_ms is None


def test_within_ten_percent_nothing_moves() -> None:
    of = weighing(11, 9)
    state = ApplicationState.of(
        of,
        [
            DriverState("a", active=frozenset({of[0].id})),
            DriverState("b", active=frozenset({of[1].id})),
        ],
    )
    answer = assign(state)
    assert not answer.balanced
    assert answer.owners == {of[0].id: "a", of[1].id: "b"}


def test_beyond_ten_percent_two_tasks_are_swapped() -> None:
    of = weighing(10, 10, 4, 4)
    held = [frozenset(i.id for i in of[:2]), frozenset(i.id for i in of[2:])]
    state = ApplicationState.of(
        of, [DriverState("a", active=held[0]), DriverState("b", active=held[1])], flows=ANY_BUDGET
    )
    answer = assign(state)
    assert set(loads(of, answer).values()) == {14}
    assert sum(answer.owners[task] != "a" for task in held[0]) == 1


def test_a_driver_that_runs_connectors_only_gets_a_task_for_one() -> None:
    connectors = [*tasks(1, "SourceConnector"), *tasks(1, "HeartbeatConnector")]
    copying = weighing(100, 100, 100, 100)
    first, second = tasks(4)[:2], tasks(4)[2:]
    there = [
        DriverState(name, active=frozenset(active))
        for name, active in zip("abc", (connectors, first, second), strict=True)
    ]
    answer = assign(ApplicationState.of([*plain(connectors), *copying], there))
    assert all(driver.active & {*first, *second} for driver in answer.drivers.values())
    assert [len(driver.active) for driver in answer.drivers.values()] == [2, 2, 2]


def test_one_task_that_outweighs_all_others_makes_nobody_move() -> None:
    of = weighing(1000, *[1.0] * 11)
    answer = assign(ApplicationState.of(of, drivers("abc")))
    again = assign(ApplicationState.of(of, drivers("abc", answer), flows=ANY_BUDGET))
    assert moved(answer, again) == set()
    assert again.follow_up_ms is None


def test_a_new_task_disturbs_nobody() -> None:
    before = assign(ApplicationState.of(plain(tasks(9)), drivers("abc")))
    after = assign(ApplicationState.of(plain(tasks(10)), drivers("abc", before)))
    assert moved(before, after) == set()


def test_of_two_that_claim_a_task_the_first_keeps_it() -> None:
    t = tasks(2)
    state = ApplicationState.of(
        plain(t),
        [DriverState("a", active=frozenset(t[:1])), DriverState("b", active=frozenset(t))],
    )
    assert assign(state).owners == {t[0]: "a", t[1]: "b"}


# Standbys and warm-ups.


def with_standbys(count: int) -> Mapping[str, FlowConfig]:
    return {"orders": FlowConfig(standbys=count, movement_budget=1.0)}


def test_a_standby_is_never_beside_its_task_and_only_stateful_tasks_have_one() -> None:
    units = plain([*tasks(6), *tasks(1, "SourceConnector"), *tasks(1, "HeartbeatTask")])
    answer = assign(ApplicationState.of(units, drivers("abc"), flows=with_standbys(1)))
    copies = Counter(task for driver in answer.drivers.values() for task in driver.standby)
    assert copies == Counter(tasks(6))
    assert [len(driver.standby) for driver in answer.drivers.values()] == [2, 2, 2]
    assert not any(driver.active & driver.standby for driver in answer.drivers.values())


def test_more_standbys_than_other_drivers_is_as_many_as_there_are() -> None:
    answer = assign(ApplicationState.of(plain(tasks(1)), drivers("abc"), flows=with_standbys(9)))
    assert sum(len(driver.standby) for driver in answer.drivers.values()) == 2


def test_a_standby_takes_over() -> None:
    before = assign(ApplicationState.of(plain(tasks(6)), drivers("abc"), flows=with_standbys(1)))
    after = assign(
        ApplicationState.of(plain(tasks(6)), drivers("ac", before), flows=with_standbys(1))
    )
    for task in before.drivers["b"].active:
        assert task in before.drivers[after.owners[task]].standby


def test_standbys_lie_in_other_racks() -> None:
    racked = [DriverState(n, rack=r) for n, r in zip("abcd", ["r1", "r1", "r2", "r2"], strict=True)]
    answer = assign(ApplicationState.of(plain(tasks(8)), racked, flows=with_standbys(1)))
    for driver in racked:
        for task in answer.drivers[driver.name].standby:
            owner = next(d for d in racked if task in answer.drivers[d.name].active)
            assert owner.rack != driver.rack


# Determinism.


def test_no_answer_depends_on_the_hash_seed() -> None:
    script = (
        "from headrace.assign import *\n"
        "ids = [TaskId(f'f{n % 3}', 'SourceTask', n) for n in range(60)]\n"
        "T = [TaskInfo(id, True, 1 / (id.index + 1)) for id in ids]\n"
        "held = [frozenset(i.id for i in T[n::7]) for n in range(5)]\n"
        "D = [DriverState(f'd{n}', active=a, rack=f'r{n % 2}') for n, a in enumerate(held)]\n"
        "flows = {f'f{n}': FlowConfig(1, 1.0) for n in range(3)}\n"
        "answer = StickyAssignor().assign(ApplicationState.of(T, D, flows=flows))\n"
        "print(sorted(answer.owners.items()))\n"
        "print([sorted(d.standby) for d in answer.drivers.values()])\n"
    )
    answers = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(answers) == 1


def test_what_it_is_told_stays_as_it_was() -> None:
    state = ApplicationState.of(plain(tasks(6)), drivers("abc"))
    copy = replace(state)
    assign(state)
    assert state == copy


def test_when_a_driver_is_lost_nothing_but_its_tasks_moves() -> None:
    # Without c, b is far too heavy. This can wait until all unassigned tasks are placed.
    state = ApplicationState.of(weighing(1, 1, 9, 9, 1, 1), drivers("abc"), flows=ANY_BUDGET)
    a, b, c = (frozenset(tasks(6)[n : n + 2]) for n in (0, 2, 4))
    before = TaskAssignment({n: DriverAssignment(t) for n, t in zip("abc", (a, b, c), strict=True)})
    lost = replace(state, drivers={d.name: d for d in drivers("ab", before)})
    answer = assign(lost)
    assert moved(before, answer) == c
    assert not answer.balanced
    assert answer.follow_up_ms == MINUTE_MS
    later = replace(
        lost, drivers={d.name: d for d in drivers("ab", answer)}, now_ms=answer.follow_up_ms
    )
    assert assign(later).balanced


def test_a_giant_s_driver_gets_the_lightest_of_the_rest() -> None:
    weights = [9000.0, *(float(n) for n in range(100, 0, -1)), 0.5]
    answer = assign(ApplicationState.of(weighing(*weights), drivers("abc")))
    beside = {name: sorted(t.index for t in d.active) for name, d in answer.drivers.items()}
    (giant,) = (name for name, held in beside.items() if 0 in held)
    assert beside[giant] == [0, *range(69, 102)]
