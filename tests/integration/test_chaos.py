"""Fault injection in pods, on a real API server.

Tested are its permissions, its signals, and how a test kills the operator.
"""

import asyncio
import json
from collections.abc import Callable
from functools import partial
from operator import eq
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster.api_server import ApiServer
from cluster.kubectl import KubectlError
from support.manifests import flow, mirror_test
from support.operators import (
    CHAOS_ROLE,
    RULES_OF_CHAOS,
    Operator,
    Resources,
    give_rights,
    running_operator,
)
from support.patience import WITHIN_S

from headrace.api import ChaosAction, ChaosStep, ReplicationFlow
from headrace.chaos.pods import OtherPods, freeze_driver, kill_driver
from headrace.controller.mirror_tests.reconciler import EXIT_CODE
from headrace.controller.resources import build_deployment
from headrace.errors import InvalidSpec
from headrace.k8s import Object, connect_by_file
from headrace.k8s.kinds import POD

Wait = Callable[..., Any]
MOMENT = "2026-11-21T12:00:00Z"
RBAC = "rbac.authorization.k8s.io"
KILL = "headrace.dev/kill-operator"


@pytest.fixture
def driver_pod(resources: Resources) -> str:
    """Create a driver's pod as the operator does, under the restricted Pod Security Standard.

    No kubelet starts it.
    """
    enforced = "pod-security.kubernetes.io/enforce=restricted"
    resources.kubectl("label", "namespace", resources.namespace, enforced)
    deployment = build_deployment(ReplicationFlow.model_validate(flow()), "headrace:9", chaos=True)
    spec = deployment["spec"]["template"]["spec"] | {"serviceAccountName": "default"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "orders-1"}, "spec": spec}
    resources.apply(pod)
    return "orders-1"


@pytest.fixture
def account(api_server: ApiServer, resources: Resources, wait_until: Wait) -> Path:
    """Return the kubeconfig of an account with exactly the permissions in the chart's file."""
    named = {"name": "chaos"}
    subject = {"kind": "ServiceAccount", "name": "chaos", "namespace": resources.namespace}
    resources.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": named},
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "Role",
            "metadata": named,
            "rules": yaml.safe_load(RULES_OF_CHAOS.read_text()),
        },
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": named,
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": "chaos"},
            "subjects": [subject],
        },
    )
    me = f"--as=system:serviceaccount:{resources.namespace}:chaos"
    may_read = ("auth", "can-i", "get", "pods", me)
    wait_until(lambda: resources.kubectl(*may_read))  # permissions take effect late
    return api_server.kubeconfig_of(resources.namespace, "chaos")


def containers(resources: Resources, pod: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = resources.get("pod", pod)["spec"].get("ephemeralContainers", [])
    return found


async def signalled(
    resources: Resources, account: Path, name: str, states: list[dict[str, Any]], *, freeze: bool
) -> float:
    """Signal the driver of a pod by an ephemeral container, and return the time of the signal.

    The pod's kubelet reports ``states`` of that container one after the other.
    """
    client = await connect_by_file("the chaos Job", str(account))
    try:
        pod: Object = await client.get(POD, resources.namespace, name) or {}
        before = len(pod["spec"].get("ephemeralContainers") or ())
        sent = freeze_driver(client, pod, 18) if freeze else kill_driver(client, pod)
        sending = asyncio.create_task(sent)
        while len(there := await asyncio.to_thread(containers, resources, name)) == before:
            if sending.done():
                return sending.result()
            await asyncio.sleep(0.1)
        for state in states:
            status = {"name": there[-1]["name"], "image": "i", "imageID": "", "ready": False}
            statuses = [status | {"restartCount": 0, "state": state}]
            await asyncio.to_thread(
                resources.kubectl, "patch", f"pod/{name}", "--subresource=status", "--type=merge",
                "-p", json.dumps({"status": {"ephemeralContainerStatuses": statuses}}),
            )  # fmt: skip
            await asyncio.sleep(0.5)
        return await sending
    finally:
        await client.close()


def test_signals_get_into_restricted_pods_with_the_rights_of_the_chart(
    resources: Resources, driver_pod: str, account: Path
) -> None:
    running = {"running": {"startedAt": MOMENT}}
    ended = {"terminated": {"exitCode": 0, "startedAt": MOMENT}}
    at_s = asyncio.run(signalled(resources, account, driver_pod, [running], freeze=True))
    assert at_s == 1795262400
    asyncio.run(signalled(resources, account, driver_pod, [running, ended], freeze=False))
    freezes, kills = containers(resources, driver_pod)
    assert (freezes["name"], kills["name"]) == ("chaos-0", "chaos-1")
    assert freezes["args"] == ["--driver=orders-1", "--freeze=18"]
    assert kills["args"] == ["--driver=orders-1"]


def test_a_signal_that_fails_says_so(resources: Resources, driver_pod: str, account: Path) -> None:
    message = {"message": "headrace: no process here is driver orders-1"}
    ended = {"terminated": {"exitCode": 3, "startedAt": MOMENT} | message}
    with pytest.raises(InvalidSpec, match="no process here is driver orders-1"):
        asyncio.run(signalled(resources, account, driver_pod, [ended], freeze=False))


def test_pods_of_any_mirror_are_broken_with_the_rights_of_the_chart(
    resources: Resources, account: Path
) -> None:
    labels = {"app": "mirror"}
    spec = {"containers": [{"name": "mirror", "image": "mirror:1"}]}
    for name in ("mirror-0", "mirror-1"):
        about = {"name": name, "labels": labels}
        resources.apply({"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec})
        runs = json.dumps({"status": {"phase": "Running"}})
        resources.kubectl(
            "patch", f"pod/{name}", "--subresource=status", "--type=merge", "-p", runs
        )
    resources.apply(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "other"},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": {"app": "other"}},
                "template": {"metadata": {"labels": {"app": "other"}}, "spec": spec},
            },
        }
    )
    with asyncio.Runner() as runner:
        client = runner.run(connect_by_file("the chaos Job", str(account)))
        others = OtherPods(client, runner.run, resources.namespace, lambda _: lambda: True)
        try:
            for step in (
                ChaosStep(action=ChaosAction.DELETE_POD, at_seconds=1, selector=labels),
                ChaosStep(action=ChaosAction.KILL_POD, at_seconds=1, selector=labels),
                ChaosStep(
                    action=ChaosAction.SCALE_DEPLOYMENT,
                    at_seconds=1,
                    deployment="other",
                    replicas=0,
                ),
            ):
                others.inject(step)
        finally:
            runner.run(client.close())
    assert resources.kubectl("get", "pods", "-l", "app=mirror", "-o", "name").strip() == ""
    assert resources.get("deployment", "other")["spec"]["replicas"] == 0


def status(resources: Resources, name: str = "orders") -> dict[str, Any]:
    found: dict[str, Any] = resources.get("mtest", name).get("status", {})
    return found


CHAOS = [{"action": "KillOperator", "atSeconds": 1}]


def test_a_test_with_chaos_is_refused_where_it_is_not_enabled(
    operator: Operator, resources: Resources, wait_until: Wait
) -> None:
    resources.apply(mirror_test(chaos=CHAOS))
    (ready,) = wait_until(
        lambda: [one for one in status(resources).get("conditions", []) if one["type"] == "Ready"],
        until=lambda found: [one["reason"] for one in found] == ["Forbidden"],
    )
    assert "set chaos.enabled: true in the values of its chart" in ready["message"]


def test_the_operator_may_bind_the_role_of_chaos_and_no_other(
    api_server: ApiServer, resources: Resources, wait_until: Wait
) -> None:
    namespace = resources.namespace
    give_rights(api_server, namespace, chaos=True)
    me = f"--as=system:serviceaccount:{namespace}:headrace-operator"
    subject = f"--serviceaccount={namespace}:default"
    bind = ("create", "rolebinding", "a", f"--role={CHAOS_ROLE}", subject, me)
    wait_until(lambda: resources.kubectl(*bind))  # permissions take effect late
    another = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]
    role = {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": {"name": "another"}}
    resources.apply(role | {"rules": another})
    with pytest.raises(KubectlError, match="attempting to grant RBAC permissions"):
        resources.kubectl("create", "rolebinding", "b", "--role=another", subject, me)
    signals = ("patch", "pods", "--subresource=ephemeralcontainers")
    with pytest.raises(KubectlError):  # its answer is no
        resources.kubectl("auth", "can-i", *signals, me)


@pytest.mark.long
def test_the_operator_that_leads_dies_once_and_the_next_one_says_that_it_leads(
    *, api_server: ApiServer, resources: Resources, tmp_path: Path, wait_until: Wait
) -> None:
    resources.apply(mirror_test(chaos=CHAOS))
    resources.kubectl(
        "patch", "mtest/orders", "--subresource=status", "--type=merge",
        "-p", '{"status": {"phase": "Running"}}',
    )  # fmt: skip
    resources.kubectl("annotate", "mtest/orders", f"{KILL}=")

    def annotation() -> Any:
        return resources.get("mtest", "orders")["metadata"].get("annotations", {}).get(KILL)

    give_rights(api_server, resources.namespace, chaos=True)
    run = (api_server, resources.namespace, tmp_path)
    with running_operator(*run, "operator-1", chaos=True) as first:
        assert first.process.wait(WITHIN_S) == EXIT_CODE
    assert annotation() == "operator-1"
    assert resources.leader() == "operator-1", "the Lease is not released"
    with running_operator(*run, "operator-2", chaos=True) as second:
        wait_until(annotation, until=partial(eq, "operator-1, then operator-2"))
        assert second.process.poll() is None
