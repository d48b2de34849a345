"""What holds for every assignment."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from headrace.assign import ApplicationState, RoundRobinAssignor, TaskId

TASKS = st.frozensets(
    st.builds(
        TaskId,
        st.sampled_from(["orders", "users"]),
        st.sampled_from(["SourceTask", "SourceConnector", "HeartbeatTask"]),
        st.integers(0, 30),
    ),
    max_size=60,
)
DRIVERS = st.frozensets(st.sampled_from([f"driver-{n}" for n in range(9)]), min_size=1)


@st.composite
def states(draw: st.DrawFn) -> ApplicationState:
    tasks = draw(TASKS)
    holders = st.sampled_from([f"driver-{n}" for n in range(12)])
    previous = {task: draw(holders) for task in sorted(tasks) if draw(st.booleans())}
    return ApplicationState(tasks, draw(DRIVERS), previous)


@given(states())
def test_complete_balanced_and_repeatable(state: ApplicationState) -> None:
    assigned = RoundRobinAssignor().assign(state).drivers
    assert assigned.keys() == state.tasks
    assert set(assigned.values()) <= state.drivers
    assert dict(RoundRobinAssignor().assign(state).drivers) == dict(assigned)
    for type in {task.type for task in state.tasks}:
        counts = Counter(d for task, d in assigned.items() if task.type == type)
        spread = [counts[driver] for driver in state.drivers]
        assert max(spread) - min(spread) <= 1


@given(states())
def test_an_assignment_in_force_stays(state: ApplicationState) -> None:
    assigned = RoundRobinAssignor().assign(state).drivers
    again = ApplicationState(state.tasks, state.drivers, assigned)
    assert dict(RoundRobinAssignor().assign(again).drivers) == dict(assigned)


@given(states())
def test_no_task_moves_that_its_driver_has_room_for(state: ApplicationState) -> None:
    assigned = RoundRobinAssignor().assign(state).drivers
    for type in {task.type for task in state.tasks}:
        tasks = [task for task in state.tasks if task.type == type]
        counts = Counter(assigned[task] for task in tasks)
        moved = [t for t in tasks if state.previous.get(t) in state.drivers - {assigned[t]}]
        for task in moved:
            # Whoever gave one up is as full as any.
            assert counts[state.previous[task]] >= len(tasks) // len(state.drivers)
