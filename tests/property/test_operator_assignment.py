"""For any pods, Leases and units, the operator's decision is safe and then stays unchanged."""

from hypothesis import given
from hypothesis import strategies as st
from support.manifests import flow

from headrace.api import (
    ObjectMeta,
    ReplicationFlow,
    ReplicationTask,
    ReplicationTaskSpec,
    ReplicationTaskStatus,
    TaskType,
)
from headrace.controller.assignment import AssignmentChanges, assignment_changes
from headrace.controller.drivers import DriverLease, DriverPod, FlowDrivers, drivers_of
from headrace.controller.resources.deployment import PINNED_TO
from headrace.placement import Assigner

FLOW = ReplicationFlow.model_validate(flow("orders", drivers={"replicas": 1}))
NAMES = st.sampled_from("abcdef")
LIVES = st.sampled_from(["", "1", "2"])


@st.composite
def fleets(draw: st.DrawFn) -> FlowDrivers:
    pods = [
        DriverPod(
            name,
            draw(st.sampled_from(["new", "new", "old"])),
            terminating=draw(st.booleans()),
            ended=draw(st.sampled_from([False, False, True])),
        )
        for name in draw(st.sets(NAMES))
    ]
    leases = {
        name: DriverLease(draw(LIVES), draw(st.booleans()), draw(st.booleans()))
        for name in draw(st.sets(NAMES))
    }
    return drivers_of(pods, "new", leases)


@st.composite
def units(draw: st.DrawFn) -> list[ReplicationTask]:
    return [
        ReplicationTask(
            metadata=ObjectMeta(
                name=f"orders-source-task-{index}",
                annotations={PINNED_TO: pin} if (pin := draw(st.sampled_from(["", "a"]))) else {},
            ),
            spec=ReplicationTaskSpec(
                flow_name="orders",
                type=TaskType.SOURCE_TASK,
                index=index,
                driver_name=draw(st.one_of(st.just(""), NAMES)),
            ),
            status=ReplicationTaskStatus(
                driver_name=(holder := draw(st.one_of(st.just(""), NAMES))),
                driver_incarnation=draw(LIVES) if holder else "",
            ),
        )
        for index in range(draw(st.integers(0, 6)))
    ]


def written(tasks: list[ReplicationTask], made: AssignmentChanges) -> list[ReplicationTask]:
    """Return the units after all writes."""
    news = {one.task.metadata.name: one for one in made.assignments}
    after = []
    for task in tasks:
        if (one := news.get(task.metadata.name)) is not None:
            placed = {
                "driver_name": one.driver,
                "standby_driver_names": one.standbys,
                "lost_incarnation": one.lost_incarnation,
            }
            notes = {PINNED_TO: one.pin} if one.pin else {}
            task = task.model_copy(  # noqa: PLW2901
                update={
                    "spec": task.spec.model_copy(update=placed),
                    "metadata": task.metadata.model_copy(update={"annotations": notes}),
                }
            )
        after.append(task)
    return after


@given(fleets(), units())
def test_what_is_decided_is_safe_and_then_rests(
    drivers: FlowDrivers, tasks: list[ReplicationTask]
) -> None:
    assigner = Assigner()
    made = assignment_changes(FLOW, tasks, drivers, assigner, 0)
    after = written(tasks, made)
    schedulable = {pod.name for pod in drivers.schedulable}
    for before, now in zip(tasks, after, strict=True):
        old, new = before.spec.driver_name, now.spec.driver_name
        if new != old:
            # Units are assigned only to schedulable drivers, and leave cordoned ones only for a
            # pin.
            assert new in schedulable | {""}
            assert old not in drivers.cordoned or before.metadata.annotations.get(PINNED_TO) == new
        if drivers.schedulable:
            assert new in schedulable | drivers.cordoned
        if drivers.rolling and old in schedulable:
            assert new == old or before.metadata.annotations.get(PINNED_TO) == new
        # An incarnation is declared lost only if it is, and only to another driver.
        lost = now.spec.lost_incarnation
        if lost and lost != before.spec.lost_incarnation:
            assert lost == now.status.driver_incarnation
            assert drivers.is_lost(now.status.driver_name, lost)
            assert now.status.driver_name != new
    # Nothing is written when nothing changed.
    assert assignment_changes(FLOW, after, drivers, assigner, 1).assignments == ()
