"""Commands about the flows of a cluster. No operator runs here."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from cluster.api_server import ApiServer
from support.operators import Resources

from headrace.cli.main import main

FLOW = {
    "apiVersion": "headrace.dev/v1beta1",
    "kind": "ReplicationFlow",
    "metadata": {"name": "orders"},
    "spec": {
        "source": {"alias": "east", "bootstrapServers": "127.0.0.1:1"},
        "target": {"alias": "west", "bootstrapServers": "127.0.0.1:2"},
        "topics": {"include": ["orders"]},
    },
}
TASK = "orders-source-task-0"
Say = Callable[..., str]


@pytest.fixture
def resources(api_server: ApiServer, namespace: str, monkeypatch: pytest.MonkeyPatch) -> Resources:
    """Create a flow with one task, which ``driver-1`` runs; an administrator runs commands."""
    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig))
    resources = Resources(api_server, namespace)
    task = {
        "apiVersion": "headrace.dev/v1beta1",
        "kind": "ReplicationTask",
        "metadata": {"name": TASK, "labels": {"headrace.dev/flow": "orders"}},
        "spec": {
            "flowName": "orders",
            "type": "SourceTask",
            "index": 0,
            "partitions": [{"topic": "orders", "partitions": "0-3"}],
            "driverName": "driver-1",
        },
    }
    resources.apply(FLOW, task)
    resources.kubectl(
        "patch", f"rtask/{TASK}", "--subresource=status", "--type=merge",
        "-p", '{"status": {"driverName": "driver-1", "driverIncarnation": "a", "epoch": 1,'
        ' "phase": "Running", "lag": {"records": 12}}}',
    )  # fmt: skip
    return resources


@pytest.fixture
def say(resources: Resources, capsys: pytest.CaptureFixture[str]) -> Say:
    """Return ``say("task", "list", code=0)``, which returns a command's output in the namespace."""

    def run(*command: str, code: int = 0, name: str = "headrace") -> str:
        assert main([*command, "-n", resources.namespace], name) == code
        printed = capsys.readouterr()
        return printed.out + printed.err

    return run


def task(resources: Resources) -> dict[str, Any]:
    found: dict[str, Any] = resources.get("rtask", TASK)
    return found


def make_driver(resources: Resources, name: str) -> None:
    labels = {"app.kubernetes.io/component": "driver", "headrace.dev/flow": "orders"}
    resources.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": labels},
            "spec": {"containers": [{"name": "driver", "image": "headrace"}]},
        }
    )


def test_what_there_is(say: Say) -> None:
    rows = say("task", "list").splitlines()
    assert rows[0].split()[:3] == ["TASK", "STATE", "DRIVER"]
    assert rows[1].split()[:4] == [TASK, "Running", "driver-1", "12"]
    shown = yaml.safe_load(say("status", "orders", "-o", "yaml"))
    assert shown["status"]["units"][0]["name"] == TASK
    assert say("status").splitlines()[0].split()[:3] == ["FLOW", "READY", "REASON"]
    assert yaml.safe_load(say("task", "describe", TASK))["spec"]["driverName"] == "driver-1"
    assert TASK in say("task", "list", name="kubectl headrace")
    assert say("status", "-o", "name") == "replicationflow/orders\n"
    assert say("task", "list", "-o", "name") == f"replicationtask/{TASK}\n"


def test_all_namespaces_are_listed_with_theirs(
    say: Say, resources: Resources, capsys: pytest.CaptureFixture[str]
) -> None:
    other = f"{resources.namespace}-2"
    resources.kubectl("create", "namespace", other)
    resources.api_server.apply(FLOW, namespace=other)
    try:
        assert main(["status", "orders", "-A", "-o", "wide"]) == 0
        header, *rows = capsys.readouterr().out.splitlines()
        assert header.split()[:2] == ["NAMESPACE", "FLOW"]
        listed = {tuple(row.split()[:2]) for row in rows}
        assert {(resources.namespace, "orders"), (other, "orders")} <= listed
        assert main(["task", "list", "orders", "-A", "-o", "json"]) == 0
        units = json.loads(capsys.readouterr().out)
        assert (resources.namespace, TASK) in {(one["namespace"], one["name"]) for one in units}
        assert main(["status", "-A", "-n", other]) == 3
    finally:
        resources.kubectl("delete", "namespace", other, "--wait=false")


def test_a_wish_about_a_task_is_an_annotation(say: Say, resources: Resources) -> None:
    before = task(resources)["spec"]
    assert say("task", "move", TASK, "nonsense", code=3).endswith(
        "flow orders has no driver nonsense; it has none\n"
    )
    assert "headrace.dev/move-to" not in task(resources)["metadata"]["annotations"]
    make_driver(resources, "driver-2")
    said = say("task", "move", TASK, "nonsense", code=3)
    assert said.endswith("flow orders has no driver nonsense; it has driver-2\n")
    assert say("task", "move", TASK, "driver-2") == f"{TASK} moves from driver-1 to driver-2.\n"
    assert task(resources)["metadata"]["annotations"]["headrace.dev/move-to"] == "driver-2"
    assert say("task", "restart", TASK) == f"{TASK} is restarted on driver-1.\n"
    assert "headrace.dev/restart" in task(resources)["metadata"]["annotations"]
    assert task(resources)["spec"] == before


def test_a_wish_about_a_flow_is_its_spec(say: Say, resources: Resources) -> None:
    assert say("flow", "pause", "orders").startswith("orders is paused")
    assert resources.flow("orders")["spec"]["state"] == "Paused"
    assert "orders is paused already" in say("flow", "pause", "orders")
    say("flow", "resume", "orders")
    assert resources.flow("orders")["spec"]["state"] == "Running"
    say("flow", "pause", "--stop", "orders")
    assert resources.flow("orders")["spec"]["state"] == "Stopped"
    assert "orders/0-1 of orders is paused" in say("flow", "pause", "orders", "orders/0-1")
    say("flow", "pause", "orders", "payments")
    assert resources.flow("orders")["spec"]["pausedPartitions"] == [
        {"topic": "orders", "partitions": "0-1"},
        {"topic": "payments"},
    ]
    assert "is paused as a whole" in say("flow", "resume", "orders", "payments/1", code=3)
    output = say("flow", "resume", "orders", "payments")
    assert "Still paused, by spec.pausedPartitions: orders/0-1." in output
    assert "But spec.state is Stopped" in output
    say("flow", "resume", "orders", "orders")
    assert not resources.flow("orders")["spec"].get("pausedPartitions")
    say("flow", "resume", "orders")
    assert say("flow", "scale", "4") == "2 -> 4 drivers.\n"
    assert "There are 4 drivers already" in say("flow", "scale", "4")
    assert resources.flow("orders")["spec"]["drivers"] == {"replicas": 4}


def test_change_of_a_flow_whose_spec_is_invalid_is_reported_as_without_effect(
    say: Say, resources: Resources
) -> None:
    valid = resources.flow("orders")["spec"]
    backwards = {"pausedPartitions": [{"topic": "orders", "partitions": "3-0"}]}
    resources.apply(FLOW | {"spec": valid | backwards})
    assert say("status").splitlines()[1].split()[0] == "orders"
    assert "3-0 runs backwards" in say("flow", "scale", "1", "orders", code=3)
    last_valid = json.dumps({"status": {"lastValid": {"generation": 1, "spec": valid}}})
    resources.kubectl(
        "patch", "rflow/orders", "--subresource=status", "--type=merge", "-p", last_valid
    )
    assert "has no effect until the spec of orders is corrected" in say(
        "flow", "scale", "1", "orders", code=3
    )


def test_a_reset_is_an_annotation_of_the_flow(say: Say, resources: Resources) -> None:
    before = resources.flow("orders")
    assert say("flow", "reset", "orders", "orders/1-2").startswith("orders/1-2 of orders: reset.")
    say("flow", "reset", "orders", "orders/2")
    after = resources.flow("orders")
    (first, second) = after["metadata"]["annotations"]["headrace.dev/reset"].split()
    assert (first.split("@")[0], second.split("@")[0]) == ("orders/1", "orders/2")
    assert first.split("@")[1] < second.split("@")[1]
    assert after["spec"] == before["spec"]
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    assert "of orders it copies 0-3" in say("flow", "reset", "orders", "orders/4", code=3)
    assert "does not copy topic order; it copies orders" in say(
        "flow", "reset", "orders", "order", code=3
    )
    assert "there is no ReplicationFlow nothing" in say(
        "flow", "reset", "nothing", "orders", code=3
    )


def test_what_is_not_there_is_said(say: Say, resources: Resources) -> None:
    assert "no flow has a task nothing-0; there are: orders" in say(
        "task", "describe", "nothing-0", code=3
    )
    assert "flow orders has no task orders-nothing; it has orders-source-task-0" in say(
        "task", "restart", "orders-nothing", code=3
    )
    assert "there is no ReplicationFlow payments in namespace" in say(
        "flow", "pause", "payments", code=3
    )
    resources.kubectl("delete", "rflow/orders")
    assert f"there is no ReplicationFlow in namespace {resources.namespace}" in say(
        "task", "list", code=4
    )


def test_a_kubeconfig_that_is_none_is_named(
    say: Say, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = tmp_path_factory.mktemp("nowhere") / "config"
    monkeypatch.setenv("KUBECONFIG", str(nowhere))
    assert f"there is no kubeconfig {nowhere}" in say("task", "list", code=3)


def test_groups_are_asked_for_at_the_brokers_of_the_flow(say: Say) -> None:
    assert "west (127.0.0.1:2)" in say("flow", "groups", "orders", code=4)
    assert "there is no ReplicationFlow nothing" in say("flow", "groups", "nothing", code=3)


def test_what_is_rebuilt_has_preserved_offsets(say: Say, resources: Resources) -> None:
    before = resources.flow("orders")
    assert "has offsets.mode: Translated" in say(
        "flow", "rebuild", "orders", "orders/1", "--yes", code=3
    )
    assert "of orders it copies 0-3" in say("flow", "rebuild", "orders", "orders/4", code=3)
    after = resources.flow("orders")
    assert (after["spec"], after["metadata"].get("annotations")) == (
        before["spec"],
        before["metadata"].get("annotations"),
    )
