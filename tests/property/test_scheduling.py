"""Invariants of every schedule, for any flows, units, drivers and pins."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.api import (
    ObjectMeta,
    ReplicationFlow,
    ReplicationTask,
    ReplicationTaskSpec,
    ReplicationTaskStatus,
    TaskType,
)
from headrace.assign import SHIPPED, DriverState, TaskId
from headrace.placement import Placer, task_id

DRIVERS = ["a", "b", "c", "d"]
PLACES = [*DRIVERS, "gone", ""]


@st.composite
def flows_with_units(draw: st.DrawFn, name: str) -> tuple[ReplicationFlow, list[ReplicationTask]]:
    """Draw a flow and its units, some of them unassigned or on a driver that has ended."""
    flow = ReplicationFlow.model_validate(
        {
            "metadata": {"name": name},
            "spec": {
                "source": {"alias": "east", "bootstrapServers": "east:9092"},
                "target": {"alias": "west", "bootstrapServers": "west:9092"},
                "topics": {"include": ["orders"]},
                "tasks": {
                    "assignor": draw(st.sampled_from(sorted(SHIPPED))),
                    "standbys": draw(st.integers(0, 2)),
                    "movementBudget": draw(st.floats(0, 1)),
                },
            },
        }
    )
    types = [TaskType.SOURCE_CONNECTOR, *[TaskType.SOURCE_TASK] * draw(st.integers(0, 6))]
    units = []
    for index, type in enumerate(types):
        driver = draw(st.sampled_from(PLACES))
        standbys = draw(st.sets(st.sampled_from(PLACES[:-1]), max_size=2)) - {driver}
        units.append(
            ReplicationTask(
                metadata=ObjectMeta(name=TaskId(name, type, index).name),
                spec=ReplicationTaskSpec(
                    flow_name=name,
                    type=type,
                    index=index,
                    driver_name=driver,
                    standby_driver_names=tuple(sorted(standbys)),
                ),
                status=ReplicationTaskStatus(
                    bytes_per_second=draw(st.none() | st.integers(0, 10**9))
                ),
            )
        )
    return flow, units


@given(st.data())
def test_every_schedule(data: st.DataObject) -> None:
    both = [data.draw(flows_with_units(name)) for name in ("orders", "users")]
    flows = [flow for flow, _ in both]
    units = [unit for _, theirs in both for unit in theirs]
    there = data.draw(st.sets(st.sampled_from(DRIVERS)))
    pins = data.draw(
        st.dictionaries(st.sampled_from([task_id(u) for u in units]), st.sampled_from(PLACES[:-1]))
    )
    balance = data.draw(st.booleans())

    def decide() -> object:
        drivers = [DriverState(name) for name in sorted(there)]
        return Placer().decide(flows, units, drivers, 0, pins=pins, balance=balance)

    schedule = Placer().decide(
        flows, units, [DriverState(name) for name in there], 0, pins=pins, balance=balance
    )
    assert schedule == decide()  # the decision is deterministic
    wanted = {flow.metadata.name: flow.spec.tasks for flow in flows}
    assert schedule.placements.keys() == {task_id(unit) for unit in units}
    for unit in units:
        id, before = task_id(unit), unit.spec.driver_name
        to = schedule.placements[id]
        # All units are assigned, except those that a cooperative assignor moves in a follow-up.
        if there and (not to.driver or to.driver not in there):
            assert (to.driver, wanted[id.flow].assignor) == ("", "cooperative")
            assert schedule.follow_up_ms in (0, 1_000)
        if not there:
            assert to.driver == ""
        # Standbys differ from the owner, and exist.
        assert set(to.standbys) <= there - {to.driver}
        if wanted[id.flow].assignor == "sticky":
            most = max(0, min(wanted[id.flow].standbys, len(there) - 1)) if id.is_stateful else 0
            assert len(to.standbys) == most
        # Pins hold, and without balance no other unit moves.
        if pins.get(id) in there:
            assert to.driver == pins[id]
        elif not balance and before in there:
            assert to.driver == before
