"""``headrace tasks``, ``restart`` ... about the flows of a cluster. No operator runs here."""

from collections.abc import Callable
from typing import Any

import pytest
import yaml
from cluster.api_server import ApiServer
from support.operators import Resources

from headrace.cli.main import main

FLOW = {
    "apiVersion": "headrace.dev/v1alpha1",
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
    """A flow with one task, which ``driver-1`` runs; commands are typed by an administrator."""
    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig))
    resources = Resources(api_server, namespace)
    task = {
        "apiVersion": "headrace.dev/v1alpha1",
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
        ' "phase": "Running", "lagRecords": 12}}',
    )  # fmt: skip
    return resources


@pytest.fixture
def say(resources: Resources, capsys: pytest.CaptureFixture[str]) -> Say:
    """``say("tasks", code=0)``: what a command about the namespace prints."""

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
    rows = say("tasks").splitlines()
    assert rows[0].split()[:3] == ["TASK", "STATE", "DRIVER"]
    assert rows[1].split()[:4] == [TASK, "Running", "driver-1", "12"]
    shown = yaml.safe_load(say("status", "orders", "-o", "yaml"))
    assert shown["status"]["units"][0]["name"] == TASK
    assert say("status").splitlines()[0].split()[:3] == ["FLOW", "READY", "REASON"]
    assert yaml.safe_load(say("describe", TASK))["spec"]["driverName"] == "driver-1"
    assert TASK in say("tasks", name="kubectl headrace")


def test_a_wish_about_a_task_is_an_annotation(say: Say, resources: Resources) -> None:
    before = task(resources)["spec"]
    assert say("move", TASK, "nonsense", code=3).endswith(
        "flow orders has no driver nonsense; it has none\n"
    )
    assert "headrace.dev/move-to" not in task(resources)["metadata"]["annotations"]
    make_driver(resources, "driver-2")
    said = say("move", TASK, "nonsense", code=3)
    assert said.endswith("flow orders has no driver nonsense; it has driver-2\n")
    assert say("move", TASK, "driver-2") == f"{TASK} moves from driver-1 to driver-2.\n"
    assert task(resources)["metadata"]["annotations"]["headrace.dev/move-to"] == "driver-2"
    assert say("restart", TASK) == f"{TASK} is restarted on driver-1.\n"
    assert "headrace.dev/restart" in task(resources)["metadata"]["annotations"]
    assert task(resources)["spec"] == before


def test_a_wish_about_a_flow_is_its_spec(say: Say, resources: Resources) -> None:
    assert say("pause", "orders").startswith("orders is paused")
    assert resources.flow("orders")["spec"]["state"] == "Paused"
    assert "orders is paused already" in say("pause", "orders", code=3)
    say("resume", "orders")
    assert resources.flow("orders")["spec"]["state"] == "Running"
    say("pause", "--stop", "orders")
    assert resources.flow("orders")["spec"]["state"] == "Stopped"
    assert "orders/0-1 of orders is paused" in say("pause", "orders", "orders/0-1")
    say("pause", "orders", "payments")
    assert resources.flow("orders")["spec"]["pausedPartitions"] == [
        {"topic": "orders", "partitions": "0-1"},
        {"topic": "payments"},
    ]
    assert "is paused as a whole" in say("resume", "orders", "payments/1", code=3)
    output = say("resume", "orders", "payments")
    assert "Still paused, by spec.pausedPartitions: orders/0-1." in output
    assert "But spec.state is Stopped" in output
    say("resume", "orders", "orders")
    assert not resources.flow("orders")["spec"].get("pausedPartitions")
    say("resume", "orders")
    assert say("scale", "4") == "2 -> 4 drivers.\n"
    assert "there are 4 drivers already" in say("scale", "4", code=3)
    assert resources.flow("orders")["spec"]["drivers"] == {"replicas": 4}


def test_a_reset_is_an_annotation_of_the_flow(say: Say, resources: Resources) -> None:
    before = resources.flow("orders")
    assert say("reset", "orders", "orders/1-2").startswith("orders/1-2 of orders: reset.")
    say("reset", "orders", "orders/2")
    after = resources.flow("orders")
    (first, second) = after["metadata"]["annotations"]["headrace.dev/reset"].split()
    assert (first.split("@")[0], second.split("@")[0]) == ("orders/1", "orders/2")
    assert first.split("@")[1] < second.split("@")[1]
    assert after["spec"] == before["spec"]
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    assert "of orders it copies 0-3" in say("reset", "orders", "orders/4", code=3)
    assert "does not copy topic order; it copies orders" in say("reset", "orders", "order", code=3)
    assert "there is no ReplicationFlow nothing" in say("reset", "nothing", "orders", code=3)


def test_what_is_not_there_is_said(say: Say, resources: Resources) -> None:
    assert "no flow has a task nothing-0; there are: orders" in say("describe", "nothing-0", code=3)
    assert "flow orders has no task orders-nothing; it has orders-source-task-0" in say(
        "restart", "orders-nothing", code=3
    )
    assert "there is no ReplicationFlow payments in namespace" in say("pause", "payments", code=3)
    resources.kubectl("delete", "rflow/orders")
    assert f"there is no ReplicationFlow in namespace {resources.namespace}" in say("tasks", code=3)


def test_a_kubeconfig_that_is_none_is_named(
    say: Say, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = tmp_path_factory.mktemp("nowhere") / "config"
    monkeypatch.setenv("KUBECONFIG", str(nowhere))
    assert f"kubeconfig {nowhere} cannot be used" in say("tasks", code=3)


def test_groups_are_asked_for_at_the_brokers_of_the_flow(say: Say) -> None:
    assert "west (127.0.0.1:2)" in say("groups", "orders", code=1)
    assert "there is no ReplicationFlow nothing" in say("groups", "nothing", code=3)


def test_what_is_rebuilt_has_preserved_offsets(say: Say, resources: Resources) -> None:
    before = resources.flow("orders")
    assert "has offsets: Translated" in say("rebuild", "orders", "orders/1", "--yes", code=3)
    assert "of orders it copies 0-3" in say("rebuild", "orders", "orders/4", code=3)
    after = resources.flow("orders")
    assert (after["spec"], after["metadata"].get("annotations")) == (
        before["spec"],
        before["metadata"].get("annotations"),
    )
