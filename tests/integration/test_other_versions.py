"""The operator and objects that a newer version, an older one, or another client wrote."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from operator import eq
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster.api_server import ApiServer, OwnApiServer
from cluster.kubectl import KubectlError
from support.manifests import Document, flow, mirror_test_of_another, task
from support.operators import Operator, Resources
from support.patience import Unchanged

Wait = Callable[..., Any]
CRDS = Path(__file__).parents[2] / "crds"
MOMENT = "2026-11-21T12:00:00Z"


@pytest.fixture
def operator(operator: Operator) -> Iterator[Operator]:
    """Run an operator in whose log no error may appear."""
    yield operator
    assert "internal error" not in operator.log
    assert "Traceback" not in operator.log


@pytest.fixture
def change_crds(own_api_server: OwnApiServer) -> Iterator[Callable[..., None]]:
    """Yield ``change_crds(change)``, which passes each kind's name and schema to ``change``.

    The definitions are restored at the end.
    """

    def change(how: Callable[[str, Document], None]) -> None:
        for file in CRDS.glob("*.yaml"):
            definition = yaml.safe_load(file.read_text())
            (version,) = definition["spec"]["versions"]
            schema = version["schema"]["openAPIV3Schema"]
            how(definition["spec"]["names"]["kind"], schema["properties"])
            own_api_server.kubectl("apply", "-f", "-", input=definition)

    yield change
    own_api_server.kubectl("apply", "-f", str(CRDS))


def ready(resources: Resources, name: str = "orders") -> tuple[str, str]:
    """Return status and reason of Ready."""
    condition = resources.condition(name, "Ready")
    return condition.get("status", ""), condition.get("reason", "")


def waits_for_drivers(resources: Resources, name: str, wait_until: Wait) -> None:
    """Wait until a flow has all its objects; no kubelet runs its pods."""
    wait_until(lambda: ready(resources, name), until=partial(eq, ("False", "NoDrivers")))
    wait_until(
        lambda: resources.get("deployment", f"{name}-driver")["spec"]["replicas"],
        until=partial(eq, 2),
    )


def remove_rules(schema: Document, path: str) -> None:
    """Remove the rules about a field at ``path`` of the spec: rules may only name known fields."""
    rules = schema["spec"]["x-kubernetes-validations"]
    rules[:] = [rule for rule in rules if rule.get("fieldPath") != path]


def write_status(resources: Resources, what: str, **status: Any) -> None:
    """Write a status like ``kubectl edit --subresource=status``."""
    resources.kubectl(
        *("patch", what, "--subresource=status", "--type=merge", "--field-manager=kubectl-edit"),
        *("-p", json.dumps({"status": status})),
    )


def accepted(apply: Callable[[], object]) -> Callable[[], bool]:
    """Return a condition for ``apply``: a changed definition takes effect after a moment."""

    def attempt() -> bool:
        try:
            apply()
        except KubectlError as error:
            if "unknown field" not in str(error):
                raise
            return False
        return True

    return attempt


def test_a_spec_of_a_newer_version_is_named_and_other_flows_go_on(
    operator: Operator,
    resources: Resources,
    change_crds: Callable[..., None],
    wait_until: Wait,
) -> None:
    def newer(kind: str, schema: Document) -> None:
        schema["spec"]["properties"]["colour"] = {"type": "string"}
        if kind == "ReplicationFlow":
            modes = schema["spec"]["properties"]["delivery"]["properties"]["mode"]["enum"]
            modes.append("AtMostOnce")
            remove_rules(schema, ".delivery.mode")

    change_crds(newer)
    coloured = flow("coloured", colour="red")
    wait_until(accepted(lambda: resources.apply(coloured)))
    resources.apply(flow("other", delivery={"mode": "AtMostOnce"}), flow("orders"))
    for name, field in (("coloured", "spec.colour"), ("other", "spec.delivery.mode")):
        wait_until(
            lambda name=name: ready(resources, name), until=partial(eq, ("False", "InvalidSpec"))
        )
        stalled = resources.condition(name, "Stalled")
        assert f"ReplicationFlow {name} in namespace {resources.namespace}" in stalled["message"]
        assert field in stalled["message"]
        assert "apply the definitions that belong to it" in stalled["message"]
        assert resources.flow(name)["status"]["observedGeneration"] == 1
    waits_for_drivers(resources, "orders", wait_until)
    resources.kubectl("patch", "rflow/coloured", "--type=json", "-p",
                      '[{"op": "remove", "path": "/spec/colour"}]')  # fmt: skip
    waits_for_drivers(resources, "coloured", wait_until)
    assert resources.condition("coloured", "Stalled") == {}


def test_a_status_of_a_newer_version_is_no_obstacle(
    operator: Operator,
    resources: Resources,
    change_crds: Callable[..., None],
    wait_until: Wait,
) -> None:
    def newer(kind: str, schema: Document) -> None:
        schema["status"]["properties"]["mood"] = {"type": "string"}

    change_crds(newer)
    resources.apply(flow("orders"))
    waits_for_drivers(resources, "orders", wait_until)
    unit = "rtask/orders-source-connector-0"
    sunny = {"status": "True", "reason": "Sunny", "lastTransitionTime": MOMENT}
    weather = sunny | {"type": "WeatherWatched"}
    sunny |= {"type": "Ready", "message": "of a newer version"}

    def write() -> bool:
        write_status(resources, "rflow/orders", mood="good", conditions=[sunny, weather])
        return "mood" in resources.flow("orders")["status"]

    def write_of_unit() -> bool:
        write_status(resources, unit, mood="good", phase="Pondering", conditions=[sunny])
        return "mood" in resources.get(*unit.split("/"))["status"]

    wait_until(write)
    wait_until(write_of_unit)
    waits_for_drivers(resources, "orders", wait_until)
    assert resources.condition("orders", "WeatherWatched") == weather
    resources.kubectl("scale", "rflow/orders", "--replicas=3")
    wait_until(
        lambda: resources.get("deployment", "orders-driver")["spec"]["replicas"],
        until=partial(eq, 3),
    )
    assert "not understood" not in operator.log


def test_nonsense_in_a_status_is_put_right(
    operator: Operator, resources: Resources, wait_until: Wait
) -> None:
    resources.apply(flow("orders"))
    waits_for_drivers(resources, "orders", wait_until)
    wait_until(lambda: resources.flow("orders")["status"].get("replicas") == 2)
    before = wait_until(lambda: resources.flow("orders")["status"], until=Unchanged())
    condition = {"status": "True", "reason": "Because", "message": "nonsense"}
    condition |= {"lastTransitionTime": MOMENT}
    conditions = [condition | {"type": type} for type in ("Ready", "Stalled", "DataLossDetected")]
    nonsense = {"topics": 9999, "readyReplicas": 77, "selector": "a=b", "observedGeneration": 55}
    write_status(resources, "rflow/orders", **nonsense, tasks={"failed": 3}, conditions=conditions)

    def timeless(status: Document) -> Document:
        conditions = [
            {field: value for field, value in one.items() if field != "lastTransitionTime"}
            for one in status["conditions"]
        ]
        return status | {"conditions": sorted(conditions, key=lambda one: str(one["type"]))}

    wait_until(
        lambda: timeless(resources.flow("orders")["status"]), until=partial(eq, timeless(before))
    )


def test_a_status_that_somebody_took_away_is_there_again(
    operator: Operator, resources: Resources, wait_until: Wait
) -> None:
    resources.apply(flow("orders"))
    waits_for_drivers(resources, "orders", wait_until)
    resources.kubectl("patch", "rflow/orders", "--subresource=status", "--type=json", "-p",
                      '[{"op": "remove", "path": "/status"}]')  # fmt: skip
    waits_for_drivers(resources, "orders", wait_until)


def test_a_unit_that_makes_no_sense_is_named_until_it_is_mended(
    operator: Operator, resources: Resources, wait_until: Wait
) -> None:
    resources.apply(flow("orders"), flow("calm"))
    waits_for_drivers(resources, "orders", wait_until)
    unit = task(partitions=[{"topic": "orders", "partitions": "0-3"}])
    unit["metadata"] |= {
        "labels": {"headrace.dev/flow": "orders", "headrace.dev/type": "SourceTask"},
        "ownerReferences": [resources.owner("orders")],
    }
    resources.apply(unit)

    def edit(partitions: str) -> None:
        patch = {"spec": {"partitions": [{"topic": "orders", "partitions": partitions}]}}
        resources.kubectl(
            "patch", "rtask/orders-source-task-0", "--type=merge", "-p", json.dumps(patch)
        )

    with pytest.raises(KubectlError, match=r"spec\.partitions"):
        edit("all")
    edit("9-3")  # which a definition cannot check
    wait_until(lambda: ready(resources), until=partial(eq, ("False", "InvalidSpec")))
    message = resources.condition("orders", "Stalled")["message"]
    assert "ReplicationTask orders-source-task-0" in message
    assert "spec.partitions.0.partitions: must be partition numbers" in message
    waits_for_drivers(resources, "calm", wait_until)
    edit("0-2")
    waits_for_drivers(resources, "orders", wait_until)
    assert resources.condition("orders", "Stalled") == {}


def test_a_mirror_test_of_a_newer_version_is_named(
    operator: Operator,
    resources: Resources,
    change_crds: Callable[..., None],
    wait_until: Wait,
) -> None:
    def newer(kind: str, schema: Document) -> None:
        schema["spec"]["properties"]["colour"] = {"type": "string"}

    change_crds(newer)
    newer_test = mirror_test_of_another("coloured", colour="red")
    wait_until(accepted(lambda: resources.apply(newer_test)))
    resources.apply(mirror_test_of_another("other"))

    def conditions(name: str) -> dict[str, Document]:
        status = resources.get("mtest", name).get("status", {})
        return {one["type"]: one for one in status.get("conditions", [])}

    wait_until(lambda: "Reconciling" in conditions("other"))
    stalled = wait_until(lambda: conditions("coloured").get("Stalled"))
    assert stalled["reason"] == "InvalidSpec"
    assert "spec.colour" in stalled["message"]


def test_definitions_that_are_older_than_the_operator(
    api_server: ApiServer,
    operator: Operator,
    resources: Resources,
    change_crds: Callable[..., None],
    wait_until: Wait,
) -> None:
    """Report fields that the definitions lack; the flow nevertheless gets its drivers."""

    def older(kind: str, schema: Document) -> None:
        if kind == "ReplicationFlow":
            del schema["status"]["properties"]["bytesPerSecond"]
            del schema["status"]["properties"]["lag"]
            del schema["spec"]["properties"]["batchVerification"]
            remove_rules(schema, ".batchVerification")

    unknown = flow("unknown", batchVerification="Disabled")
    tried = ("-n", resources.namespace, "apply", "--dry-run=server", "-f", "-")
    known = accepted(lambda: api_server.kubectl(*tried, input=unknown))
    change_crds(older)
    wait_until(known, until=lambda known: not known)
    resources.apply(flow("orders"))
    wait_until(lambda: ready(resources), until=partial(eq, ("False", "Refused")))
    message = resources.condition("orders", "Stalled")["message"]
    assert "field not declared in schema" in message
    assert "apply the definitions that belong to it" in message
    wait_until(lambda: resources.get("deployment", "orders-driver")["spec"]["replicas"] == 2)
    change_crds(lambda kind, schema: None)
    wait_until(lambda: ready(resources), until=partial(eq, ("False", "NoDrivers")))
