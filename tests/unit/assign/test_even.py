"""Who gets what by count alone, in words."""

from headrace.assign import ApplicationState, DriverState, EvenAssignor, TaskId, weigh


def tasks(count: int, type: str = "SourceTask") -> list[TaskId]:
    return [TaskId("orders", type, index) for index in range(count)]


def assign(
    *, of: list[TaskId], to: set[str], previous: dict[TaskId, str] | None = None
) -> dict[TaskId, str]:
    before = previous or {}
    drivers = [
        DriverState(name, active=frozenset(t for t, owner in before.items() if owner == name))
        for name in sorted(to)
    ]
    state = ApplicationState.of(weigh(dict.fromkeys(of)).values(), drivers)
    return EvenAssignor().assign(state).owners


def test_a_first_assignment_deals_in_order() -> None:
    t = tasks(5)
    assert assign(of=t, to={"a", "b"}) == {t[0]: "a", t[1]: "b", t[2]: "a", t[3]: "b", t[4]: "a"}


def test_without_drivers_nothing_is_assigned() -> None:
    assert assign(of=tasks(3), to=set()) == {}


def test_a_lost_driver_s_tasks_move_and_no_others() -> None:
    t = tasks(6)
    before = assign(of=t, to={"a", "b", "c"})
    after = assign(of=t, to={"a", "c"}, previous=before)
    assert [task for task in t if after[task] != before[task]] == [t[1], t[4]]


def test_a_driver_that_joins_takes_its_share_and_nothing_else_moves() -> None:
    t = tasks(6)
    before = assign(of=t, to={"a", "b"})
    after = assign(of=t, to={"a", "b", "c"}, previous=before)
    moved = [task for task in t if after[task] != before[task]]
    assert len(moved) == 2
    assert {after[task] for task in moved} == {"c"}


def test_types_are_balanced_apart() -> None:
    units = [*tasks(1, "SourceConnector"), *tasks(1, "HeartbeatConnector"), *tasks(2)]
    assigned = assign(of=units, to={"a", "b"})
    assert len({assigned[task] for task in tasks(2)}) == 2
    assert sorted(list(assigned.values()).count(d) for d in ("a", "b")) == [2, 2]
