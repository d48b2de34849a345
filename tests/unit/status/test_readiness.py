"""A flow's status on Kubernetes: the operator's own checks come first, in order."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headrace.api import (
    PAUSE_ANNOTATION,
    Condition,
    ConditionStatus,
    ConditionType,
    Reason,
    ReplicationFlow,
    ReplicationFlowStatus,
    ReplicationTask,
)
from headrace.api.conditions import Readiness, find_condition
from headrace.controller.drivers import DriverPod
from headrace.controller.events import Occurrence, occurrences
from headrace.status import (
    FlowFacts,
    TakenTarget,
    flow_status,
    is_significant,
    status_without_units,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PAGE = Path(__file__).parents[3] / "docs" / "runbook.md"


def flow(**spec: Any) -> ReplicationFlow:
    return ReplicationFlow.model_validate(
        {
            "metadata": {"name": "orders", "generation": 3},
            "spec": {
                "source": {"alias": "east", "bootstrapServers": "e:9092"},
                "target": {"alias": "west", "bootstrapServers": "w:9092"},
                "topics": {"include": ["orders"]},
                **spec,
            },
        }
    )


def facts(*pods: DriverPod, alive: bool = False, **spec: Any) -> FlowFacts:
    return FlowFacts(NOW, flow(**spec), (), alive=len(pods) if alive else 0, pods=pods)


def outcome(of: FlowFacts) -> tuple[ConditionStatus, Reason, str, bool]:
    conditions = flow_status(of).conditions
    ready = find_condition(conditions, ConditionType.READY)
    assert ready is not None
    stalled = find_condition(conditions, ConditionType.STALLED) is not None
    return ready.status, ready.reason, ready.message, stalled


NO, YES = ConditionStatus.FALSE, ConditionStatus.TRUE
POD = DriverPod("a", "t")


def running(seconds: int) -> DriverPod:
    return replace(POD, running_since=NOW - timedelta(seconds=seconds))


BLOCKED = Readiness.stalled(Reason.FORBIDDEN, "the operator may not create deployments")


@pytest.mark.parametrize(
    ("of", "status", "reason", "words", "stalled"),
    [
        (facts(), NO, Reason.NO_DRIVERS, "there is no driver pod yet", False),
        (
            replace(facts(), refused_pods="exceeded quota"),
            NO,
            Reason.REFUSED,
            "the API server takes no driver pod: exceeded quota; change spec.drivers",
            False,
        ),
        (facts(POD), NO, Reason.NO_DRIVERS, "drivers are starting", False),
        (facts(running(59)), NO, Reason.NO_DRIVERS, "drivers are starting", False),
        (
            facts(running(61), replace(running(61), name="b"), replace(POD, name="c")),
            NO,
            Reason.NO_DRIVERS,
            "2 driver pods started, and none renews its Lease: check that they can reach the API "
            "server",
            False,
        ),
        (
            facts(replace(running(61), terminating=True)),
            NO,
            Reason.NO_DRIVERS,
            "drivers are starting",
            False,
        ),
        (
            facts(running(61), alive=True),
            NO,
            Reason.STARTING,
            "connector waits for a driver",
            False,
        ),
        (
            facts(replace(POD, problem="ImagePullBackOff: no such image")),
            NO,
            Reason.NO_DRIVERS,
            "no driver is alive; pod a: ImagePullBackOff: no such image",
            False,
        ),
        (
            facts(drivers={"replicas": 0}),
            NO,
            Reason.NO_DRIVERS,
            "spec.drivers.replicas is 0: nothing is copied until it is scaled up",
            True,
        ),
        (facts(POD, alive=True), NO, Reason.STARTING, "connector waits for a driver", False),
        (facts(state="Stopped"), YES, Reason.STOPPED, "stopped, as spec.state requires", False),
        (facts(POD, state="Stopped"), NO, Reason.STOPPING, "hand over 0 units and end", False),
        (
            replace(facts(POD), blocked=BLOCKED),
            NO,
            Reason.FORBIDDEN,
            "may not create deployments",
            True,
        ),
        (
            replace(facts(POD, alive=True), taken=TakenTarget(flow(), "east.orders")),
            NO,
            Reason.TARGET_TOPIC_TAKEN,
            "flow orders of namespace default is older and writes topic east.orders",
            True,
        ),
        (
            replace(facts(POD, alive=True), loop="records of orders would go round"),
            NO,
            Reason.REPLICATION_LOOP,
            "records of orders would go round",
            True,
        ),
    ],
)
def test_first_hit_wins(
    *, of: FlowFacts, status: ConditionStatus, reason: Reason, words: str, stalled: bool
) -> None:
    found = outcome(of)
    assert (found[0], found[1], found[3]) == (status, reason, stalled)
    assert words in found[2]


def test_replicas_are_the_pods_that_did_not_end() -> None:
    status = flow_status(facts(POD, replace(POD, name="b", ended=True), alive=True))
    assert (status.ready_replicas, status.replicas) == (2, 1)


def test_an_unobserved_flow_keeps_its_time_and_figures() -> None:
    before = flow_status(facts(POD, alive=True))
    once = status_without_units(BLOCKED, before, 3, NOW + timedelta(1))
    assert {(one.status, one.reason) for one in once.conditions} == {
        (NO, Reason.FORBIDDEN),
        (YES, Reason.FORBIDDEN),
    }
    assert once.ready_replicas == before.ready_replicas
    again = status_without_units(BLOCKED, once, 3, NOW + timedelta(2))
    assert not is_significant(once, again)


def test_figures_are_significant_when_they_leave_their_band() -> None:
    def figures(records: int) -> ReplicationFlowStatus:
        return ReplicationFlowStatus.model_validate({"lag": {"records": records}})

    assert not is_significant(figures(1000), figures(1023))
    assert is_significant(figures(1000), figures(1024))
    assert is_significant(None, figures(0))


def test_an_event_tells_a_change_and_not_a_state() -> None:
    starting = flow_status(facts(POD, alive=True)).conditions
    forbidden = flow_status(replace(facts(POD), blocked=BLOCKED)).conditions
    assert [one.reason for one in occurrences((), starting)] == ["Starting"]
    assert list(occurrences(starting, starting)) == []
    assert list(occurrences(starting, forbidden)) == [
        Occurrence("Forbidden", BLOCKED.message, warning=True)
    ]


def test_the_runbook_has_one_row_for_each_condition_and_reason() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    assert sorted(name for name, _ in rows) == sorted([*ConditionType, *Reason])
    assert all(cell.strip() for _, cells in rows for cell in cells.split(" | "))


def test_a_flow_that_is_stopped_wants_no_drivers() -> None:
    """Otherwise an alert would fire because none of two drivers is alive."""
    status = flow_status(facts(state="Stopped"))
    assert (status.ready_replicas, status.desired_replicas) == (0, 0)
    available = find_condition(status.conditions, ConditionType.DRIVERS_AVAILABLE)
    assert available is not None
    assert available.status is YES
    assert flow_status(facts()).desired_replicas == 2


def watched(*pods: DriverPod, driver: str = "a", **status: Any) -> FlowFacts:
    """Return the facts of a stopped flow whose source is watched by a unit with this status."""
    unit = ReplicationTask.model_validate(
        {
            "metadata": {"name": "orders-source-watch-0"},
            "spec": {"flowName": "orders", "type": "SourceWatch"},
            "status": {"driverName": driver, "phase": "Running", **status},
        }
    )
    made = facts(*pods, alive=True, state="Stopped", sourceWatch={"enabled": True})
    return replace(made, tasks=(unit,))


def about(type: str, status: str, reason: str, message: str) -> dict[str, str]:
    return {"type": type, "status": status, "reason": reason, "message": message}


READS = about("Ready", "True", "Running", "2 partitions are watched")
SILENT = about("Ready", "False", "SourceUnreachable", "no answer")
ENDED = about("SourceStillWritten", "False", "ReverseFlowRuns", "a flow copies back")


@pytest.mark.parametrize(
    ("of", "status", "reason", "words"),
    [
        (watched(POD, conditions=[READS]), YES, Reason.STOPPED, "; 2 partitions are watched"),
        (watched(POD, conditions=[SILENT]), NO, Reason.SOURCE_UNREACHABLE, "no answer"),
        (watched(POD), NO, Reason.STARTING, "the source is not watched yet"),
        (replace(watched(POD), tasks=()), NO, Reason.STARTING, "the source is not watched yet"),
        (watched(), NO, Reason.NO_DRIVERS, "there is no driver pod yet"),
        (watched(POD, conditions=[ENDED]), NO, Reason.STOPPING, "hand over 1 units and end"),
        (watched(driver="", conditions=[ENDED]), YES, Reason.STOPPED, "watch of the source has"),
    ],
)
def test_a_stopped_flow_says_whether_its_source_is_watched(
    of: FlowFacts, status: ConditionStatus, reason: Reason, words: str
) -> None:
    found = outcome(of)
    assert found[:2] == (status, reason)
    assert words in found[2]


def test_a_stopped_flow_has_no_lag_and_shows_writes_to_its_source() -> None:
    write = {"topic": "orders", "partition": 1, "offsets": 12, "since": "2026-01-01T00:00:00Z"}
    still = about("SourceStillWritten", "True", "WrittenAfterFailOver", "orders-1 has 12")
    status = flow_status(watched(POD, conditions=[READS, still], sourceWrites=[write]))
    assert (status.lag, status.desired_replicas) == (None, 1)
    assert [(one.topic, one.offsets) for one in status.source_writes] == [("orders", 12)]
    shown = find_condition(status.conditions, ConditionType.SOURCE_STILL_WRITTEN)
    assert shown is not None
    assert shown.message == "orders-1 has 12"
    ended = flow_status(watched(POD, conditions=[ENDED]))
    assert find_condition(ended.conditions, ConditionType.SOURCE_STILL_WRITTEN) is None


def test_every_condition_says_which_generation_it_describes() -> None:
    status = flow_status(facts(POD, drivers={"replicas": 3}))
    assert {one.type for one in status.conditions} >= {"Ready", "Reconciling", "DriversAvailable"}
    assert {one.observed_generation for one in status.conditions} == {3}
    stalled = status_without_units(BLOCKED, status, 4, NOW)
    assert {one.observed_generation for one in stalled.conditions} == {4}


@pytest.mark.parametrize(
    ("alive", "spec", "status", "message"),
    [
        (10, {"drivers": {"replicas": 10}}, YES, "10 of 10 drivers are alive"),
        (
            1,
            {"drivers": {"replicas": 10}},
            NO,
            "1 of 10 drivers are alive; their pods do not exist yet",
        ),
        (
            0,
            {"drivers": {"replicas": 10}},
            NO,
            "0 of 10 drivers are alive; their pods do not exist yet",
        ),
        (
            2,
            {"drivers": {"replicas": 1}},
            YES,
            "2 drivers are alive, more than the desired 1: the others end",
        ),
        (0, {"drivers": {"replicas": 10}, "state": "Stopped"}, YES, "no driver is desired"),
    ],
)
def test_one_driver_of_ten_is_not_the_same_as_ten(
    alive: int, spec: dict[str, Any], status: ConditionStatus, message: str
) -> None:
    after = flow_status(replace(facts(**spec), alive=alive)).conditions
    available = find_condition(after, ConditionType.DRIVERS_AVAILABLE)
    assert available is not None
    assert (available.status, available.message) == (status, message)
    assert ConditionType.DRIVERS_AVAILABLE not in {one.reason for one in occurrences((), after)}


@pytest.mark.parametrize(
    ("of", "why"),
    [
        (replace(facts(POD), refused_pods="exceeded quota"), "takes no more pods: exceeded quota"),
        (facts(replace(POD, problem="cannot be scheduled: no node")), "pod a: cannot be scheduled"),
        (facts(POD), "1 is starting"),
    ],
)
def test_missing_drivers_have_a_reason(of: FlowFacts, why: str) -> None:
    available = find_condition(flow_status(of).conditions, ConditionType.DRIVERS_AVAILABLE)
    assert available is not None
    assert (available.status, available.reason) == (NO, Reason.DRIVERS_MISSING)
    assert why in available.message


@pytest.mark.parametrize(
    ("value", "named"), [("True", False), ("true", False), ("false", False), ("yes", True)]
)
def test_value_of_the_pause_annotation_that_is_ignored_is_named(value: str, named: bool) -> None:
    flow = facts(POD).flow
    annotations = {"annotations": {PAUSE_ANNOTATION: value}}
    flow = flow.model_copy(update={"metadata": flow.metadata.model_copy(update=annotations)})
    status = flow_status(replace(facts(POD), flow=flow))
    found = find_condition(status.conditions, ConditionType.RECONCILIATION_PAUSED)
    assert (found is not None) is named
    if found is not None:
        assert (found.status, found.reason) == (NO, Reason.INVALID_ANNOTATION)
        assert [one.warning for one in occurrences((), [found])] == [True]


def test_flow_without_pods_whose_reconciliation_is_paused_names_the_annotation() -> None:
    ready = find_condition(
        flow_status(replace(facts(), paused=True)).conditions, ConditionType.READY
    )
    assert ready is not None
    assert PAUSE_ANNOTATION in ready.message


def test_flow_has_no_event_before_its_drivers_can_exist() -> None:
    first = flow_status(facts()).conditions
    assert list(occurrences((), first)) == []
    stopped = flow_status(facts(state="Stopped")).conditions
    assert list(occurrences(stopped, first)) == []
    refused = flow_status(replace(facts(), refused_pods="exceeded quota")).conditions
    assert [(one.reason, one.warning) for one in occurrences(first, refused)] == [
        (Reason.REFUSED, True)
    ]


@pytest.mark.parametrize(
    ("before", "reason", "warning"),
    [
        (YES, Reason.TASK_FAILED, True),
        (NO, Reason.NOT_APPLIED, True),
        (YES, Reason.NO_DRIVERS, True),
        (NO, Reason.NO_DRIVERS, None),  # they start
        (NO, Reason.STARTING, None),
        (YES, Reason.STOPPING, False),
    ],
)
def test_an_event_of_a_failure_is_a_warning_and_a_step_towards_ready_is_none(
    before: ConditionStatus, reason: Reason, warning: bool | None
) -> None:
    old = Condition(type=ConditionType.READY, status=before, reason=Reason.RUNNING)
    new = Condition(type=ConditionType.READY, status=NO, reason=reason)
    expected = [] if warning is None else [warning]
    assert [one.warning for one in occurrences([old], [new])] == expected
