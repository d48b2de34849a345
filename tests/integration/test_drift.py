"""Changes of a flow's objects by others, on a real API server. No driver runs."""

import json
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from operator import eq
from pathlib import Path
from typing import Any

import pytest
from cluster.kubectl import KubectlError
from support.operators import Operator, Resources
from support.patience import Unchanged
from support.webhooks import injecting_webhook

Wait = Callable[..., Any]

FLOW: dict[str, Any] = {
    "apiVersion": "headrace.dev/v1beta1",
    "kind": "ReplicationFlow",
    "metadata": {"name": "orders"},
    "spec": {
        "source": {"alias": "east", "bootstrapServers": "127.0.0.1:1"},
        "target": {"alias": "west", "bootstrapServers": "127.0.0.1:2"},
        "topics": {"include": ["orders"]},
    },
}
KINDS = "serviceaccounts,roles,rolebindings,poddisruptionbudgets,deployments,replicationtasks"
DEPLOYMENT = "deployment/orders-driver"
SIDECAR = {"name": "sidecar", "image": "any"}
RESTARTED_AT = "kubectl.kubernetes.io/restartedAt"


NODE_SELECTOR = {"nodeSelector": {"disk": "ssd"}}
POD = NODE_SELECTOR | {
    "containers": [
        SIDECAR,
        {
            "name": "driver",
            "image": "another",
            "args": ["--help"],
            "env": [{"name": "MORE", "value": "1"}],
            "resources": {"limits": {"cpu": "1m"}},
            "volumeMounts": [{"name": "more", "mountPath": "/more"}],
            "lifecycle": {"preStop": {"sleep": {"seconds": 9}}},
        },
    ],
    "initContainers": [{"name": "first", "image": "any"}],
    "volumes": [{"name": "more", "emptyDir": {}}],
    "tolerations": [{"key": "spot", "operator": "Exists"}],
    "hostNetwork": True,
}
CHANGES = {
    "replicas": 7,
    "paused": True,
    "progressDeadlineSeconds": 5,
    "minReadySeconds": 3,
    "template": {
        "metadata": {"labels": {"team": "a"}, "annotations": {"look": "new"}},
        "spec": POD,
    },
}
"""Changes of the spec of the Deployment."""


@pytest.fixture
def made(operator: Operator, resources: Resources, wait_until: Wait) -> Operator:
    """Return the operator after it has created the flow's objects."""
    resources.apply(FLOW)
    wait_until(lambda: spec(resources))
    wait_until(
        lambda: resources.condition("orders", "Ready").get("reason"), until=partial(eq, "NoDrivers")
    )
    return operator


def patch_pods(resources: Resources, manager: str, **fields: Any) -> None:
    body = json.dumps({"spec": {"template": {"spec": fields}}})
    resources.kubectl("patch", DEPLOYMENT, "-p", body, f"--field-manager={manager}")


def spec(resources: Resources, kind: str = "deployment") -> Any:
    return resources.get(kind, "orders-driver")["spec"]


def containers(resources: Resources) -> set[str]:
    return {one["name"] for one in spec(resources)["template"]["spec"]["containers"]}


def annotations(resources: Resources) -> dict[str, str]:
    found: dict[str, str] = spec(resources)["template"]["metadata"].get("annotations", {})
    return found


def is_idle(operator: Operator, resources: Resources, wait_until: Wait) -> None:
    """Check that the operator writes nothing although it reconciles again."""
    wait_until(lambda: resources.versions(KINDS), until=Unchanged())
    writes = operator.writes()
    resources.kubectl("annotate", "--overwrite", "rflow/orders", f"somebody={writes}")
    wait_until(lambda: resources.versions(KINDS), until=Unchanged())
    assert operator.writes() == writes, operator.log


@pytest.mark.parametrize("by_apply", [False, True], ids=["patch", "server-side apply"])
def test_changes_of_the_deployment_are_reverted(
    made: Operator, resources: Resources, wait_until: Wait, by_apply: bool
) -> None:
    before = spec(resources)
    resources.kubectl("label", DEPLOYMENT, "team=a")
    metadata = {"name": "orders-driver", "namespace": resources.namespace}
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": CHANGES}
    if by_apply:
        apply = ("apply", "--server-side", "--force-conflicts", "--field-manager=somebody")
        resources.api_server.kubectl(*apply, "-f", "-", input=body)
    else:
        change = json.dumps({"spec": CHANGES})
        resources.kubectl("patch", DEPLOYMENT, "-p", change, "--field-manager=somebody")
    wait_until(lambda: spec(resources), until=partial(eq, before))
    assert resources.get("deployment", "orders-driver")["metadata"]["labels"]["team"] == "a"
    assert "managers=somebody" in made.log
    is_idle(made, resources, wait_until)


def test_restart_by_kubectl_stays(made: Operator, resources: Resources, wait_until: Wait) -> None:
    resources.kubectl("rollout", "restart", DEPLOYMENT)
    restarted = annotations(resources)[RESTARTED_AT]
    patch_pods(resources, "somebody", **NODE_SELECTOR)
    wait_until(lambda: "nodeSelector" in spec(resources)["template"]["spec"], until=lambda x: not x)
    assert annotations(resources) == {RESTARTED_AT: restarted}
    is_idle(made, resources, wait_until)


def test_changes_of_other_objects_are_reverted(
    made: Operator, resources: Resources, wait_until: Wait
) -> None:
    """Change the budget to one that contradicts the operator's, and widen permissions."""
    changes: dict[str, dict[str, Any]] = {
        "poddisruptionbudget": {"spec": {"maxUnavailable": None, "minAvailable": "50%"}},
        "role": {"rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]},
        "rolebinding": {"subjects": []},
        "serviceaccount": {"automountServiceAccountToken": True},
    }

    def changed() -> dict[str, Any]:
        return {
            kind: {field: resources.get(kind, "orders-driver").get(field) for field in change}
            for kind, change in changes.items()
        }

    before = changed()
    for kind, change in changes.items():
        body = json.dumps(change)
        resources.kubectl("patch", kind, "orders-driver", "--type=merge", "-p", body)
    wait_until(changed, until=partial(eq, before))
    is_idle(made, resources, wait_until)


def test_fields_that_a_webhook_sets_stay(
    made: Operator, resources: Resources, tmp_path: Path, wait_until: Wait
) -> None:
    """Inject a sidecar, another image and a new annotation on each write."""
    writes = 0

    def inject(deployment: dict[str, Any]) -> None:
        nonlocal writes
        writes += 1
        template = deployment["spec"]["template"]
        if deployment["metadata"]["name"] == "orders-driver":
            found = template["spec"]["containers"]
            found[0]["image"] = f"registry.example/{found[0]['image'].rpartition('/')[2]}"
            if all(one["name"] != "injected" for one in found):
                found.append(SIDECAR | {"name": "injected"})
            template["metadata"].setdefault("annotations", {})["injected-at"] = str(writes)

    folder = tmp_path / "webhook"
    folder.mkdir()
    api_server, namespace = resources.api_server, resources.namespace
    with injecting_webhook(api_server, namespace, folder, inject, wait_until):
        resources.kubectl("delete", DEPLOYMENT)
        wait_until(lambda: resources.kubectl("get", "deployments", "-o", "name"), until=bool)
        assert containers(resources) == {"driver", "injected"}

        patch_pods(resources, "somebody", containers=[SIDECAR])
        wait_until(lambda: containers(resources), until=partial(eq, {"driver", "injected"}))
        resources.kubectl("set", "image", DEPLOYMENT, "injected=changed")
        wait_until(
            lambda: [one["image"] for one in spec(resources)["template"]["spec"]["containers"]],
            until=lambda images: "changed" not in images and len(images) == 2,
        )
        resources.kubectl("rollout", "restart", DEPLOYMENT)
        is_idle(made, resources, wait_until)
        assert annotations(resources).keys() == {RESTARTED_AT, "injected-at"}
        image = spec(resources)["template"]["spec"]["containers"][0]["image"]
        assert image.startswith("registry.example/")


@contextmanager
def another_controller(resources: Resources) -> Iterator[Callable[[], int]]:
    """Set a node selector whenever it is absent; yield the number of changes."""
    ended, changes = threading.Event(), 0

    def work() -> None:
        nonlocal changes
        while not ended.wait(0.05):
            if "nodeSelector" not in spec(resources)["template"]["spec"]:
                try:
                    patch_pods(resources, "tug-of-war", **NODE_SELECTOR)
                except KubectlError:
                    continue
                changes += 1

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield lambda: changes
    finally:
        ended.set()
        thread.join()


def test_controller_that_repeats_its_change_is_named_and_reverted_ever_later(
    made: Operator, resources: Resources, wait_until: Wait
) -> None:
    def contested() -> dict[str, str]:
        return resources.condition("orders", "ObjectsContested")

    began_s = time.monotonic()
    with another_controller(resources) as changes:
        message = wait_until(contested, until=bool)["message"]
        assert "Deployment orders-driver (by tug-of-war)" in message
        assert contested()["reason"] == "ChangedAgain"
        # The reverts are due 0, 1, 3, 7 ... s after the first change.
        assert changes() <= 3 + math.log2(1 + time.monotonic() - began_s)
        # A change of the flow is applied at once.
        resources.apply(FLOW | {"spec": FLOW["spec"] | {"drivers": {"replicas": 3}}})
        wait_until(lambda: spec(resources)["replicas"], until=partial(eq, 3))
    wait_until(lambda: "nodeSelector" in spec(resources)["template"]["spec"], until=lambda x: not x)


def test_stuck_roll_out_names_the_pod_and_why(
    made: Operator, resources: Resources, wait_until: Wait
) -> None:
    def pods() -> set[str]:
        return {pod["metadata"]["name"] for pod in resources.get("pods")["items"]}

    def report(pod: str, **condition: str) -> None:
        body = {"status": {"conditions": [condition]}}
        resources.kubectl("patch", f"pod/{pod}", "--subresource=status", "-p", json.dumps(body))

    old = wait_until(pods, until=lambda found: len(found) == 2)
    for pod in old:
        report(pod, type="Ready", status="True")
    wait_until(lambda: resources.get("deployment", "orders-driver")["status"].get("readyReplicas"),
               until=partial(eq, 2))  # fmt: skip
    drivers = {"podTemplate": {"nodeSelector": {"disk": "none"}}}
    resources.apply(FLOW | {"spec": FLOW["spec"] | {"drivers": drivers}})
    (new,) = wait_until(lambda: pods() - old, until=lambda found: len(found) == 1)
    report(new, type="PodScheduled", status="False", message="0/3 nodes fit")
    late = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded",
            "message": "it has timed out progressing"}  # fmt: skip
    body = json.dumps({"status": {"conditions": [late]}})

    def stuck_deployment() -> dict[str, str]:
        """Let the deadline be over. The Deployment controller may still note earlier progress."""
        resources.kubectl("patch", DEPLOYMENT, "--subresource=status", "-p", body)
        return resources.condition("orders", "RolloutStuck")

    why = f"pod {new}: cannot be scheduled: 0/3 nodes fit"
    stuck = wait_until(stuck_deployment, until=lambda stuck: why in stuck.get("message", ""))
    assert stuck["reason"] == "PodsNotReady"
    resources.apply(FLOW)
    wait_until(lambda: resources.condition("orders", "RolloutStuck"), until=partial(eq, {}))
