"""Assignments written to units, by a pure function of pods, Leases and units."""

from typing import Any

import pytest
from support import manifests

from headrace.api import (
    ObjectMeta,
    ReplicationFlow,
    ReplicationTask,
    ReplicationTaskSpec,
    ReplicationTaskStatus,
    TaskType,
)
from headrace.api.labels import MOVE_ANNOTATION as MOVE_TO
from headrace.controller.assignment import AssignmentChanges, assignment_changes, build_assignment
from headrace.controller.drivers import DriverLease, DriverPod, FlowDrivers, drivers_of
from headrace.controller.resources.deployment import PINNED_TO
from headrace.placement import Assigner, task_id

FLOW = ReplicationFlow.model_validate(manifests.flow("orders", drivers={"replicas": 1}))


def unit(index: int, driver: str = "", held: str | None = None, **notes: str) -> ReplicationTask:
    """Return a unit. ``held`` is ``<driver>/<incarnation>``, by default the first of ``driver``."""
    holder, _, life = (f"{driver}/1" if held is None and driver else held or "").partition("/")
    return ReplicationTask(
        metadata=ObjectMeta(
            name=f"orders-source-task-{index}", resource_version="7", annotations=notes
        ),
        spec=ReplicationTaskSpec(
            flow_name="orders", type=TaskType.SOURCE_TASK, index=index, driver_name=driver
        ),
        status=ReplicationTaskStatus(driver_name=holder, driver_incarnation=life),
    )


def drivers(*names: str, newest: str = "t", **leases: DriverLease) -> FlowDrivers:
    """Return drivers: ``a`` is a driver, ``a:old`` has another template, ``a!`` is terminating."""
    pods = []
    for text in names:
        name, _, template = text.rstrip("!").partition(":")
        pods.append(DriverPod(name, template or "t", terminating=text.endswith("!")))
        leases.setdefault(name, DriverLease("1", renewed=True))
    return drivers_of(pods, newest, leases)


def decide(
    tasks: list[ReplicationTask], there: FlowDrivers, flow: ReplicationFlow = FLOW, **more: Any
) -> AssignmentChanges:
    assigner = Assigner()
    try:
        return assignment_changes(flow, tasks, there, assigner, 0, **more)
    finally:
        assigner.close()


def where(made: AssignmentChanges) -> dict[int, str]:
    return {one.task.spec.index: one.driver for one in made.assignments}


def test_units_without_a_driver_are_dealt_out() -> None:
    made = decide([unit(0), unit(1), unit(2), unit(3)], drivers("a", "b"))
    assert sorted(where(made).values()) == ["a", "a", "b", "b"]


def test_nothing_is_written_when_nothing_changed() -> None:
    made = decide([unit(0, "a"), unit(1, "b")], drivers("a", "b"))
    assert made.assignments == ()


def test_a_terminating_drivers_units_move_at_once_and_it_hands_them_over() -> None:
    made = decide([unit(0, "a"), unit(1, "b")], drivers("a", "b!"))
    assert where(made) == {1: "a"}
    assert made.assignments[0].lost_incarnation == ""


@pytest.mark.parametrize(
    "there",
    [
        drivers("a"),  # its pod was deleted
        drivers("a", "b", b=DriverLease("1", renewed=True, expired=True)),
    ],
)
def test_a_lost_drivers_units_move_and_name_the_incarnation_that_is_over(
    there: FlowDrivers,
) -> None:
    made = decide([unit(0, "a"), unit(1, "b")], there)
    assert [(one.driver, one.lost_incarnation) for one in made.assignments] == [("a", "1")]


def test_a_restarted_container_claims_its_units_again_without_a_write() -> None:
    there = drivers("a", "b", b=DriverLease("2", renewed=True))
    assert decide([unit(0, "a"), unit(1, "b")], there).assignments == ()


def test_a_holder_that_is_found_lost_later_is_told_to_the_next_one() -> None:
    moved = unit(1, "a", held="b/1")
    there = drivers("a", "b", b=DriverLease("1", renewed=True))
    assert decide([unit(0, "b", held=""), moved], there).assignments == ()
    there = drivers("a", "b", b=DriverLease("1", expired=True))
    made = decide([unit(0, "b", held=""), moved], there)
    assert [(one.driver, one.lost_incarnation) for one in made.assignments] == [
        ("a", ""),
        ("a", "1"),
    ]


def test_nothing_moves_when_nobody_can_take_it() -> None:
    lost = DriverLease("1", expired=True)
    there = drivers("a", "b", a=lost, b=lost)
    assert decide([unit(0, "a"), unit(1, "b")], there).assignments == ()


def test_the_last_driver_that_goes_takes_its_units_off() -> None:
    assert where(decide([unit(0, "a")], drivers("a!"))) == {0: ""}


def test_a_driver_that_was_not_heard_yet_keeps_its_units_and_gets_none() -> None:
    there = drivers("a", "b", b=DriverLease("1", renewed=False))
    made = decide([unit(0, "b"), unit(1), unit(2), unit(3)], there)
    assert where(made) == {1: "a", 2: "a", 3: "a"}


def test_in_a_roll_out_a_unit_moves_once_straight_to_the_newest_template() -> None:
    tasks = [unit(n, "ab"[n % 2]) for n in range(4)]
    assert decide(tasks, drivers("a:old", "b:old", "c")).assignments == ()
    made = decide(tasks, drivers("a:old!", "b:old", "c"))
    assert where(made) == {0: "c", 2: "c"}


def test_nothing_moves_for_balance_during_a_roll_out() -> None:
    tasks = [unit(n, "c") for n in range(4)] + [unit(4, "a")]
    assert decide(tasks, drivers("a:old", "c", "d")).assignments == ()
    assert decide(tasks, drivers("c", "d")).assignments != ()


def test_a_move_is_done_pinned_and_taken_off() -> None:
    task = unit(0, "a", **{MOVE_TO: "b"})
    made = decide([task, unit(1, "b")], drivers("a", "b"))
    assert [(move.task, move.driver, move.refusal) for move in made.moves] == [(task, "b", "")]
    moved = build_assignment(made.assignments[0])
    assert moved["metadata"]["annotations"] == {PINNED_TO: "b"}
    assert moved["metadata"]["resourceVersion"] == "7"
    assert moved["spec"]["driverName"] == "b"


def test_a_pin_outlives_the_operator_and_ends_with_its_driver() -> None:
    tasks = [unit(0, "b", **{PINNED_TO: "b"}), unit(1, "b", **{PINNED_TO: "b"})]
    assert decide(tasks, drivers("a", "b")).assignments == ()
    made = decide(tasks, drivers("a", "c"))
    assert all(one.driver in "ac" and one.pin == "" for one in made.assignments)
    assert len(made.assignments) == 2


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        ("x", "driver 'x' does not exist; units can move to: a"),
        ("", "driver '' does not exist; units can move to: a"),
        ("b", "driver 'b' is about to go; units can move to: a"),
    ],
)
def test_a_move_that_cannot_be_is_refused(wanted: str, sentence: str) -> None:
    made = decide([unit(0, "a", **{MOVE_TO: wanted})], drivers("a", "b!"))
    assert [move.refusal for move in made.moves] == [sentence]
    assert made.assignments == ()


def test_a_move_to_a_driver_that_still_starts_waits_for_it() -> None:
    there = drivers("a", "b", b=DriverLease())
    assert decide([unit(0, "a", **{MOVE_TO: "b"})], there).moves == ()


def test_what_is_barred_runs_nowhere() -> None:
    tasks = [unit(0, "a"), unit(1, "b")]
    made = decide(tasks, drivers("a", "b"), barred=frozenset({task_id(tasks[0])}))
    assert where(made) == {0: ""}


def test_a_standbys_label_that_somebody_took_off_is_put_back() -> None:
    tasks = FLOW.spec.tasks.model_copy(update={"standbys": 1})
    spec = FLOW.spec.model_copy(update={"tasks": tasks})
    flow, there = FLOW.model_copy(update={"spec": spec}), drivers("a", "b")
    bare, labels = unit(0, "a"), {"standby.headrace.dev/b": ""}
    stood_by = {"spec": bare.spec.model_copy(update={"standby_driver_names": ("b",)})}
    (made,) = decide([bare.model_copy(update=stood_by)], there, flow).assignments
    assert build_assignment(made)["metadata"]["labels"] == labels
    labelled = {"metadata": bare.metadata.model_copy(update={"labels": labels | {"team": "a"}})}
    assert decide([bare.model_copy(update=stood_by | labelled)], there, flow).assignments == ()


def test_an_unknown_assignor_is_a_problem_and_moves_nothing() -> None:
    spec = FLOW.spec.model_copy(
        update={"tasks": FLOW.spec.tasks.model_copy(update={"assignor": "nobody"})}
    )
    assigner = Assigner()
    flow = FLOW.model_copy(update={"spec": spec})
    made = assignment_changes(flow, [unit(0, "a")], drivers("a"), assigner, 0)
    assert "nobody" in made.problem
    assert made.assignments == ()
