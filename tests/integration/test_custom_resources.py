"""Custom resources in the API server: immutable fields, writers of fields, kubectl's columns."""

from collections.abc import Callable

import pytest
import yaml
from cluster.api_server import ApiServer
from cluster.kubectl import KubectlError
from cluster.rest import ApiError
from support.manifests import Document, flow, mirror_test, path_of, task

Change = Callable[..., Document]

MOMENT = "2026-11-21T12:00:00Z"
RUNNING = {"phase": "Running", "driverName": "a", "driverIncarnation": "a1", "epoch": 3}


@pytest.fixture
def create(api_server: ApiServer, namespace: str) -> Change:
    """Put an object into this test's namespace, with a status where one is given."""

    def create(document: Document, status: Document | None = None) -> Document:
        here = path_of(document["kind"], namespace)
        made = api_server.rest.post(here, document)
        if status:
            where = f"{here}/{document['metadata']['name']}/status"
            made = api_server.rest.merge(where, {"status": status})
        return made

    return create


@pytest.fixture
def change(api_server: ApiServer, namespace: str) -> Change:
    """Merge a patch into an existing object; ``part`` is ``/status`` for its status."""

    def change(document: Document, patch: Document, part: str = "") -> Document:
        where = path_of(document["kind"], namespace, document["metadata"]["name"])
        return api_server.rest.merge(where + part, patch)

    return change


@pytest.mark.parametrize("cluster", ["source", "target"])
def test_an_alias_stays(create: Change, change: Change, cluster: str) -> None:
    made = create(flow())
    with pytest.raises(ApiError) as refused:
        change(made, {"spec": {cluster: {"alias": "other"}}})
    assert str(refused.value).endswith(
        f"spec.{cluster}.alias: Invalid value: is immutable: topics and MirrorMaker 2's "
        "records contain it; create another flow"
    )
    change(made, {"spec": {cluster: {"bootstrapServers": "elsewhere:9092"}}})


def test_the_kind_of_offsets_stays(create: Change, change: Change) -> None:
    made = create(flow())
    change(made, {"spec": {"offsets": {"mode": "Translated"}}})  # the default
    with pytest.raises(ApiError, match="is immutable: what is on the target has offsets of the"):
        change(made, {"spec": {"offsets": {"mode": "Preserved"}}})
    preserved = create(flow("billing", offsets={"mode": "Preserved"}))
    change(preserved, {"spec": {"tasks": {"max": 2}}})
    for other in ("Translated", None):
        with pytest.raises(ApiError, match="is immutable: what is on the target has offsets of"):
            change(preserved, {"spec": {"offsets": {"mode": other}}})


@pytest.mark.parametrize("phase", ["Pending", "Running", "Verifying", "Finished"])
def test_a_test_that_has_begun_stays_as_it_was(create: Change, change: Change, phase: str) -> None:
    made = create(mirror_test())
    change(made, {"spec": {"settleSeconds": 60}})
    change(made, {"status": {"phase": "Pending"}}, "/status")
    change(made, {"spec": {"settleSeconds": 90}})
    begun = {"phase": phase, "startTime": MOMENT}
    change(made, {"status": begun}, "/status")
    for patch in ({"settleSeconds": 120}, {"schedule": "@daily"}, {"settleSeconds": None}):
        with pytest.raises(ApiError, match="is immutable once the test has begun: make another"):
            change(made, {"spec": patch})
    change(made, {"metadata": {"labels": {"team": "a"}}})
    for seconds in (60, None):
        change(made, {"spec": {"ttlSecondsAfterFinished": seconds}})


def test_a_schedule_can_be_changed_while_tests_run(create: Change, change: Change) -> None:
    made = create(mirror_test(schedule="@daily"), {"phase": "Running"})
    assert change(made, {"spec": {"suspend": True}})["spec"]["suspend"] is True


@pytest.mark.parametrize(
    ("field", "other"), [("flowName", "b"), ("type", "SourceConnector"), ("index", 1)]
)
def test_a_unit_stays_which_it_is(
    create: Change, change: Change, field: str, other: object
) -> None:
    made = create(task())
    with pytest.raises(ApiError, match="is immutable: it says which unit this is") as refused:
        change(made, {"spec": {field: other}})
    assert f"spec.{field}: " in str(refused.value)


@pytest.mark.parametrize("epoch", [3, 0, None])
def test_a_stale_connectors_split_is_refused(
    create: Change, change: Change, epoch: int | None
) -> None:
    made = create(task(connectorEpoch=4))
    with pytest.raises(ApiError) as refused:
        change(made, {"spec": {"connectorEpoch": epoch, "partitions": []}})
    assert str(refused.value).endswith(
        "spec.connectorEpoch: Invalid value: must not fall or go: a connector with a "
        "higher epoch wrote this split"
    )
    change(made, {"spec": {"connectorEpoch": 4, "partitions": []}})
    change(made, {"spec": {"connectorEpoch": 5}})


FELL = "epoch must not fall or go: it says which of two holders came later"
NAME_CHANGED = "driverName must not appear or change without a higher epoch: claim the unit first"
LIFE_CHANGED = NAME_CHANGED.replace("driverName", "driverIncarnation")


@pytest.mark.parametrize(
    ("status", "sentences"),
    [
        ({"epoch": 2}, [FELL]),
        ({"epoch": None}, [FELL]),
        (None, [FELL]),
        ({"driverName": "b"}, [NAME_CHANGED]),
        ({"driverIncarnation": "a2"}, [LIFE_CHANGED]),
        ({"driverName": "b", "driverIncarnation": "b1"}, [NAME_CHANGED, LIFE_CHANGED]),
        ({"driverName": "b", "driverIncarnation": "b1", "epoch": 2}, [FELL, NAME_CHANGED]),
    ],
)
def test_a_status_that_is_no_claim_is_refused(
    create: Change, change: Change, status: Document | None, sentences: list[str]
) -> None:
    made = create(task(), RUNNING)
    with pytest.raises(ApiError) as refused:
        change(made, {"status": status}, "/status")
    for sentence in sentences:
        assert f"status: Invalid value: {sentence}" in str(refused.value)


def test_a_unit_is_held_released_and_claimed_again(create: Change, change: Change) -> None:
    made = create(task(), RUNNING)
    change(made, {"status": {"lag": {"records": 7}}}, "/status")
    change(made, {"status": {"epoch": 4, "driverIncarnation": "a2"}}, "/status")
    released = {"driverName": None, "driverIncarnation": None, "phase": None}
    assert change(made, {"status": released}, "/status")["status"] == {
        "epoch": 4,
        "lag": {"records": 7},
    }
    claim = {"driverName": "a", "driverIncarnation": "a2"}
    with pytest.raises(ApiError, match=NAME_CHANGED):
        change(made, {"status": claim}, "/status")
    change(made, {"status": claim | {"epoch": 5}}, "/status")
    change(made, {"status": {"driverName": "", "driverIncarnation": ""}}, "/status")


def test_a_status_may_say_more_than_the_definitions_know(create: Change) -> None:
    """Store statuses of a newer operator, and conditions of other tools."""
    condition = {"type": "example.com/Approved", "status": "True", "reason": "Sunny"}
    with pytest.raises(ApiError, match=r"conditions\[0\].lastTransitionTime: Required value"):
        create(flow(), {"conditions": [condition]})
    condition |= {"lastTransitionTime": MOMENT}
    made = create(flow(name="weather"), {"conditions": [condition]})
    assert made["status"]["conditions"] == [condition]
    assert create(task(), RUNNING | {"phase": "Pondering"})["status"]["phase"] == "Pondering"


def test_each_writer_applies_its_own_part(api_server: ApiServer, namespace: str) -> None:
    def apply(manager: str, document: Document, *more: str) -> None:
        text = yaml.safe_dump(document)
        api_server.kubectl(
            *("apply", "-n", namespace, "--server-side", f"--field-manager={manager}"),
            *(*more, "-f", "-"),
            input=text,
        )

    def condition(type: str, **more: str) -> Document:
        now = {"lastTransitionTime": MOMENT}
        return {"type": type, "status": "True", "reason": "Running", **now, **more}

    partitions = [{"topic": "orders", "partitions": "0-3"}]
    split = task(index=0, partitions=partitions, connectorEpoch=1)
    apply("headrace-connector", split)
    placed = task()
    placed["spec"] = {"driverName": "a", "lostIncarnation": ""}
    apply("headrace-operator", placed)
    del partitions[:]
    apply("headrace-connector", split)
    spec = api_server.get("-n", namespace, "rtask", split["metadata"]["name"])["spec"]
    assert (spec["driverName"], spec["partitions"], spec["connectorEpoch"]) == ("a", [], 1)

    apply("user", flow())
    for manager, written in (
        ("headrace-operator", [condition("Ready"), condition("Reconciling")]),
        ("somebody", [condition("Theirs")]),
        ("headrace-operator", [condition("Ready", message="yes")]),
    ):
        stated = flow()
        del stated["spec"]
        apply(manager, stated | {"status": {"conditions": written}}, "--subresource=status")
    found = api_server.get("-n", namespace, "rflow", "orders")["status"]["conditions"]
    assert found == [condition("Ready", message="yes"), condition("Theirs")]


def table(api_server: ApiServer, *what: str) -> list[str]:
    """Return the output of ``kubectl get`` without the ages at the end."""
    lines = api_server.kubectl("get", *what).splitlines()
    return [" ".join(line.split()[:-1]) for line in lines]


def test_what_kubectl_get_shows(api_server: ApiServer, namespace: str, create: Change) -> None:
    ready = {"type": "Ready", "status": "False", "reason": "TaskFailed", "message": "look"}
    ready |= {"lastTransitionTime": MOMENT}
    tasks = {"total": 3, "running": 2, "restoring": 0, "paused": 0, "failed": 1}
    create(
        flow(),
        {
            "conditions": [ready],
            "tasks": tasks,
            "lag": {"records": 40, "seconds": 5},
            "readyReplicas": 2,
            "desiredReplicas": 2,
            "topics": 6,
            "partitions": 60,
            "bytesPerSecond": 7000,
        },
    )
    counts = dict.fromkeys(("missing", "reordered", "corrupted", "alien"), 0)
    create(
        mirror_test(),
        {
            "phase": "Finished",
            "verdict": "Passed",
            "counts": {"acknowledged": 900, "duplicated": 8, **counts},
            "latencyMs": {"p50": 1, "p99": 12, "p999": 13, "max": 14},
        },
    )
    error = {"reason": "RecordTooLarge", "message": "m", "time": "2026-01-31T12:00:00Z"}
    create(
        task(driverName="b"),
        RUNNING | {"lag": {"records": 40, "seconds": 5}, "restarts": 1, "lastError": error},
    )
    here = ("-n", namespace)
    assert table(api_server, *here, "rflow") == [
        "NAME READY REASON TASKS RUNNING FAILED LAG LAG-SECONDS DRIVERS DESIRED",
        "orders False TaskFailed 3 2 1 40 5 2 2",
    ]
    assert table(api_server, *here, "mtest") == [
        "NAME FLOW PHASE VERDICT READY REASON ACKNOWLEDGED MISSING DUPLICATED P99-MS",
        "orders orders Finished Passed 900 0 8 12",
    ]
    assert table(api_server, *here, "rtask") == [
        "NAME FLOW TYPE PHASE DRIVER LAG LAG-SECONDS RESTARTS ERROR",
        "orders-source-task-0 orders SourceTask Running a 40 5 1 RecordTooLarge",
    ]
    wide = api_server.kubectl("get", *here, "rflow", "-o", "wide")
    assert all(word in wide for word in ("MESSAGE", "look", "east", "west", "BYTES/S", "7000"))
    everything = api_server.kubectl("get", *here, "headrace", "-o", "name").split()
    assert sorted(everything) == [
        "mirrortest.headrace.dev/orders",
        "replicationflow.headrace.dev/orders",
        "replicationtask.headrace.dev/orders-source-task-0",
    ]
    api_server.kubectl("wait", *here, "--for=condition=Ready=False", "rflow/orders")


def test_a_flow_is_scaled_like_a_deployment(
    api_server: ApiServer, namespace: str, create: Change, change: Change
) -> None:
    made = create(flow(), {"replicas": 2, "selector": "headrace.dev/flow=orders"})
    scale = f"{path_of('ReplicationFlow', namespace, 'orders')}/scale"
    before = api_server.rest.get(scale)
    assert before["spec"] == {"replicas": 2}  # a default
    assert before["status"] == {"replicas": 2, "selector": "headrace.dev/flow=orders"}
    api_server.kubectl("scale", "-n", namespace, "--replicas=5", "rflow/orders")
    drivers = api_server.get("-n", namespace, "rflow", "orders")["spec"]["drivers"]
    assert drivers == {"replicas": 5}
    assert change(made, {"spec": {"drivers": {"leaseSeconds": 9}}})["spec"]["drivers"] == {
        "replicas": 5,
        "leaseSeconds": 9,
    }
    with pytest.raises(KubectlError, match="should be less than or equal to 1000"):
        api_server.kubectl("scale", "-n", namespace, "--replicas=2000", "rflow/orders")


def test_fields_select_objects(api_server: ApiServer, namespace: str, create: Change) -> None:
    create(task(driverName="b"), RUNNING)
    create(task(index=1, driverName="a"))
    create(task("other"), {"phase": "Failed"})
    create(mirror_test(), {"phase": "Finished", "verdict": "Failed"})
    create(mirror_test("later"))

    def found(kind: str, selector: str) -> list[str]:
        command = ("get", "-n", namespace, kind, "--field-selector", selector, "-o", "name")
        return [name.partition("/")[2] for name in api_server.kubectl(*command).split()]

    assert found("rtask", "status.driverName=a") == ["orders-source-task-0"]
    assert found("rtask", "spec.driverName=a") == ["orders-source-task-1"]
    assert found("rtask", "spec.flowName=orders") == [
        "orders-source-task-0",
        "orders-source-task-1",
    ]
    assert found("rtask", "spec.driverName=,spec.type=SourceTask") == ["other-source-task-0"]
    assert found("rtask", "status.phase=Failed") == ["other-source-task-0"]
    assert found("mtest", "spec.flowName=orders,status.verdict=Failed") == ["orders"]
    assert found("mtest", "status.phase=Finished") == ["orders"]
