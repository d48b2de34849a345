"""The chart on a real API server: it takes what Helm renders, and a release does its work."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster.api_server import ApiServer
from cluster.kubectl import KubectlError
from support.helm import CHART, REQUIRED, HelmError, helm, render
from support.manifests import flow
from support.operators import Resources

pytestmark = pytest.mark.usefixtures("helm_program")

Wait = Callable[..., Any]
GOLDEN = Path(__file__).parents[1] / "chart" / "golden"
OF_OTHERS = {"PodMonitor", "PrometheusRule"}
"""Kinds that only the Prometheus operator brings."""
DEPLOYMENT = "deployment/headrace-operator"


@pytest.mark.parametrize("case", ["cluster", "namespace", "everything"])
def test_the_api_server_takes_all_that_is_rendered(
    api_server: ApiServer, namespace: str, case: str
) -> None:
    arguments = [f"--values={GOLDEN / case}.values.yaml"]
    if case == "namespace":
        arguments.append(f"--set=watchNamespaces[0]={namespace}")
    objects = [
        one for one in render(*arguments, namespace=namespace) if one["kind"] not in OF_OTHERS
    ]
    # A dry run makes none, and without it the pod of helm test would be refused.
    accounts = [one for one in objects if one["kind"] == "ServiceAccount"]
    api_server.apply(*accounts, namespace=namespace)
    text = yaml.safe_dump_all(objects)
    dry_run = ("apply", "--dry-run=server", "--validate=strict", "-f", "-")
    assert len(api_server.kubectl(*dry_run, input=text).splitlines()) == len(objects)


@pytest.fixture
def other_namespace(api_server: ApiServer, namespace: str) -> Iterator[str]:
    """Yield a namespace without a release."""
    name = f"{namespace}-flows"
    api_server.kubectl("create", "namespace", name)
    yield name
    api_server.kubectl("delete", "namespace", name, "--wait=false")


@pytest.mark.parametrize(
    "whose", ["all", *(pytest.param(one, marks=pytest.mark.long) for one in ("own", "other"))]
)
@pytest.mark.usefixtures("kubelet", "own_api_server")
def test_a_release_reconciles_the_flows_of_its_scope(
    api_server: ApiServer, namespace: str, other_namespace: str, wait_until: Wait, whose: str
) -> None:
    restricted = "pod-security.kubernetes.io/enforce=restricted"
    api_server.kubectl("label", "namespace", namespace, restricted)
    scope = {
        "all": ["--set=scope=Cluster"],
        "own": ["--set=scope=Namespace"],
        "other": ["--set=scope=Namespace", f"--set=watchNamespaces[0]={other_namespace}"],
    }[whose]
    about = ("headrace", f"--namespace={namespace}", "--wait", "--timeout=3m")
    # The definitions were created by kubectl: the release adopts them.
    helm(
        "install", *about, str(CHART), REQUIRED, "--take-ownership",
        "--set=flowSchema.enabled=true", "--set=driver.image=drivers:of-the-chart", *scope,
        kubeconfig=api_server.kubeconfig,
    )  # fmt: skip

    flows = Resources(api_server, namespace if whose == "own" else other_namespace)
    flows.apply(flow("first", drivers={"replicas": 0}))
    wait_until(lambda: flows.condition("first", "Ready"))
    deployment = wait_until(lambda: flows.get("deployment", "first-driver"))
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "drivers:of-the-chart"

    if whose == "all":
        check_rights_of_users(api_server, flows, wait_until)
    release = Resources(api_server, namespace)
    leases = flows if whose == "other" else release
    helm("test", *about[:2], "--timeout=3m", kubeconfig=api_server.kubeconfig)
    leader = leases.leader()
    release.kubectl("delete", "pod", leader, "--wait=false")
    wait_until(leases.leader, until=lambda now: now not in ("", leader))
    flows.apply(flow("second", drivers={"replicas": 0}))
    wait_until(lambda: flows.condition("second", "Ready"))
    release.kubectl("rollout", "status", DEPLOYMENT, "--timeout=300s")

    counted = f'flow_schema="headrace-operator.{namespace}",priority_level="leader-election"'
    dispatched = f"apiserver_flowcontrol_dispatched_requests_total{{{counted}}}"
    metrics = ("get", "--raw", "/metrics")
    wait_until(lambda: dispatched in api_server.kubectl(*metrics))

    helm("uninstall", *about, kubeconfig=api_server.kubeconfig)
    with pytest.raises(KubectlError, match="not found"):
        release.get(DEPLOYMENT)
    assert {one["metadata"]["name"] for one in flows.get("rflow")["items"]} == {"first", "second"}


def check_rights_of_users(api_server: ApiServer, flows: Resources, wait_until: Wait) -> None:
    """Check the lines of docs/security-kubernetes.md about the roles view, edit and admin."""
    for role in ("view", "edit", "admin"):
        flows.kubectl("create", "rolebinding", role, f"--clusterrole={role}", f"--user={role}")

    def may(user: str, verb: str, kind: str, *more: str) -> bool:
        question = ("auth", "can-i", verb, kind, f"--as={user}", *more)
        try:
            return flows.kubectl(*question).strip() == "yes"
        except KubectlError:  # it exits with 1
            return False

    kinds = ("replicationflows", "mirrortests")
    # A controller adds the permissions to the three roles, one after another.
    for user, verb in (("view", "list"), ("edit", "create"), ("admin", "create")):
        wait_until(lambda user=user, verb=verb: may(user, verb, "mirrortests"))
    for kind in (*kinds, "replicationtasks"):
        assert all(may(user, "list", kind) for user in ("view", "edit", "admin"))
    for user in ("edit", "admin"):
        assert all(
            may(user, verb, kind) for verb in ("create", "patch", "delete") for kind in kinds
        )
        assert may(user, "patch", "replicationtasks")
        assert not may(user, "create", "replicationtasks")
        assert not may(user, "patch", "replicationflows", "--subresource=status")
    assert not any(may("view", verb, kind) for verb in ("create", "patch") for kind in kinds)
    assert "first" in flows.kubectl("get", "rflow", "--as=view")
    scale = ("scale", "rflow/first", "--replicas=0")
    with pytest.raises(KubectlError, match='"view" cannot patch'):
        flows.kubectl(*scale, "--as=view")
    flows.kubectl(*scale, "--as=edit")
    with pytest.raises(KubectlError, match='"anybody" cannot list'):
        flows.kubectl("get", "rflow", "--as=anybody")


def test_a_second_release_may_not_take_the_definitions_by_accident(
    api_server: ApiServer, namespace: str
) -> None:
    release = ("second", str(CHART), f"--namespace={namespace}")
    about = ("install", *release, REQUIRED, "--dry-run=server")
    with pytest.raises(HelmError, match="cannot be imported into the current release"):
        helm(*about, kubeconfig=api_server.kubeconfig)
    notes = helm(*about, "--set=crds.enabled=false", kubeconfig=api_server.kubeconfig)
    assert "kubectl -n NAMESPACE apply -f flow.yaml" in notes
