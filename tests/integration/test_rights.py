"""The table of docs/security-kubernetes.md about the consequences of permissions.

Each line is checked as ``kubectl auth can-i`` does, and attempted. The docstring of its test is its
first cell, with a period.
"""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Protocol, cast

import pytest
from cluster.api_server import ApiServer
from cluster.kubectl import KubectlError
from support.helm import ROOT, render
from support.manifests import EAST, Document, flow, mirror_test_of_another
from support.operators import ACCOUNT, Operator, Resources, running_operator
from support.records import unique

pytestmark = pytest.mark.in_one_worker

KINDS_OF_RIGHTS = {"ServiceAccount", "Role", "RoleBinding"}
LOCKED: Document = EAST | {
    "authentication": {
        "type": "ScramSha256",
        "username": "me",
        "password": {"secretName": "password", "key": "password"},
    }
}
"""A cluster with a Secret."""
SECRET = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "password"}}
USERS = {
    "flows": ["create replicationflows.headrace.dev"],
    "tests": ["create mirrortests.headrace.dev"],
    "tasks": ["get replicationtasks.headrace.dev", "patch replicationtasks.headrace.dev"],
}
"""Users and all their permissions on headrace's kinds."""


class Wait(Protocol):
    """The fixture ``wait_until``."""

    def __call__(self, poll: Any, *, until: Any = bool) -> Any: ...


class Installed:
    """The chart in a namespace of its own; ``flows`` is the users' namespace."""

    def __init__(self, api_server: ApiServer, folder: Path, wait: Wait) -> None:
        self.api_server, self._folder, self._wait = api_server, folder, wait
        self.flows = Resources(api_server, unique("rights"))
        self.name = f"{self.flows.namespace}-operator"
        self.own = Resources(api_server, self.name)
        self._running, self._operator = ExitStack(), cast("Operator | None", None)
        for one in (self.flows, self.own):
            one.kubectl("create", "namespace", one.namespace)
            one.kubectl("wait", "--for=create", "--timeout=300s", "serviceaccount/default")

    def render(self, *arguments: str) -> list[Document]:
        """Return the objects that Helm renders for both namespaces."""
        watched = f"--set=watchNamespaces={{{self.flows.namespace},{self.name}}}"
        scope = ("--set=scope=Namespace", watched, "--set=chaos.enabled=true")
        return render(*scope, *arguments, namespace=self.name)

    def give(self, *arguments: str) -> None:
        """Create its accounts and permissions."""
        items = [one for one in self.render(*arguments) if one["kind"] in KINDS_OF_RIGHTS]
        everything = {"apiVersion": "v1", "kind": "List", "items": items}
        self.api_server.kubectl("apply", "-f", "-", input=everything)  # each in its namespace

    def operate(self, identity: str, *arguments: str) -> None:
        """Start one operator of the chart with these values, by its Deployment's command."""
        if self._operator:
            self._operator.end()  # it releases its Lease
        (deployment,) = (o for o in self.render(*arguments) if o["kind"] == "Deployment")
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        ours = ("--identity", "--pod-ip", "--port", "--lease=")
        args = [arg for arg in container["args"] if not arg.startswith(ours)]
        run = running_operator(self.api_server, self.name, self._folder, identity, arguments=args)
        self._operator = self._running.enter_context(run)

    def close(self) -> None:
        """End it, and delete all its objects."""
        self._running.close()
        for one in (self.flows, self.own):
            one.kubectl("delete", "namespace", one.namespace, "--wait=false")

    def account(self, name: str, namespace: str = "") -> str:
        """Return a ServiceAccount's user name; the default namespace is the one of ``flows``."""
        return f"system:serviceaccount:{namespace or self.flows.namespace}:{name}"

    @property
    def operator_account(self) -> str:
        """The operator's user name."""
        return self.account(ACCOUNT, self.name)

    def may(self, user: str, right: str, namespace: str = "", name: str = "") -> bool:
        """Return the answer of ``kubectl auth can-i``.

        A permission has a form like ``patch pods/ephemeralcontainers``.
        """
        verb, _, what = right.partition(" ")
        resource, _, sub = what.partition("/")
        attributes = {
            "namespace": namespace or self.flows.namespace,
            "verb": verb,
            "group": GROUPS[resource],
            "resource": resource,
            "subresource": sub,
            "name": name,
        }
        answer = self.api_server.rest.post(
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            {"spec": {"user": user, "resourceAttributes": attributes}},
        )
        allowed: bool = answer["status"]["allowed"]
        return allowed

    def may_not(self, user: str, *rights: str, **where: str) -> None:
        """Assert that the user has none of these permissions."""
        assert [right for right in rights if self.may(user, right, **where)] == []

    def as_user(self, user: str, *arguments: str, input: Document | None = None) -> str:
        """Run kubectl as that user in ``flows``."""
        who = ("-n", self.flows.namespace, f"--as={user}")
        return self.api_server.kubectl(*who, *arguments, input=input)

    def create(self, user: str, manifest: Document, namespace: str = "") -> str:
        """Run ``kubectl create`` as that user."""
        where = ("-n", namespace or self.flows.namespace, f"--as={user}")
        return self.api_server.kubectl(*where, "create", "-f", "-", input=manifest)

    def is_refused(self, user: str, *arguments: str, input: Document | None = None) -> None:
        """Assert that the API server refuses a command for a missing permission."""
        with pytest.raises(KubectlError, match=r"Forbidden|forbidden"):
            self.as_user(user, *arguments, input=input)

    def pod_of(self, label: str) -> Document:
        """Return the pod that a user's object led to."""
        pods = self._wait(lambda: self.flows.get("pods", "-l", label)["items"])
        pod: Document = pods[0]
        return pod

    def message(self, test: str, namespace: str = "") -> str:
        """Why the operator refuses a test, once it does."""
        where = Resources(self.api_server, namespace or self.flows.namespace)

        def ready() -> Any:
            conditions = where.get("mtest", test).get("status", {}).get("conditions", [])
            return next((one for one in conditions if one["type"] == "Ready"), {})

        refused = self._wait(ready, until=lambda one: one.get("reason") == "Forbidden")
        message: str = refused["message"]
        return message


GROUPS = {
    **dict.fromkeys(("replicationflows", "replicationtasks", "mirrortests"), "headrace.dev"),
    **dict.fromkeys(("pods", "secrets", "configmaps", "serviceaccounts"), ""),
    **dict.fromkeys(("roles", "clusterroles"), "rbac.authorization.k8s.io"),
    "deployments": "apps",
    "jobs": "batch",
    "leases": "coordination.k8s.io",
}
KILL = {"action": "KillPod", "atSeconds": 1, "selector": {"app": "mirror"}}
INJECT = "patch pods/ephemeralcontainers"
RUN = ("run", "mine", "--image=mine", "--dry-run=server")
READ = ("get", "secret", "password")


@pytest.fixture(scope="module")
def chart(
    shared_api_server: ApiServer, wait_until: Wait, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installed]:
    """Yield the chart with chaos, and its running operator.

    Users with few permissions have created a flow with drivers, one without, and a test of each
    sort.
    """
    chart = Installed(shared_api_server, tmp_path_factory.mktemp("operator"), wait_until)
    try:
        chart.give()
        chart.flows.apply(SECRET)
        for user, rights in USERS.items():
            for right in rights:
                grant(chart.flows, user, right)
                wait_until(partial(chart.may, user, right.partition(".")[0]))
        drivers = {"replicas": 1, "image": "of-my-own"}
        spark = {"image": "of-my-own", "executors": 2}
        chart.create("flows", flow("orders", source=LOCKED, drivers=drivers))
        chart.create("flows", flow("still", state="Stopped"))
        chart.create("tests", mirror_test_of_another("any", source=LOCKED, spark=spark))
        chart.create("tests", mirror_test_of_another("break", chaos=[KILL]))
        chart.operate("first")
        yield chart
    finally:
        chart.close()


def grant(where: Resources, user: str, right: str) -> None:
    """Give a user a right."""
    verb, kind = right.split()
    name = f"{user}-{verb}"
    where.kubectl("create", "role", name, f"--verb={verb}", f"--resource={kind}")
    where.kubectl("create", "rolebinding", name, f"--role={name}", f"--user={user}")


def mounted(pod: Document) -> set[str]:
    """Return the Secrets that a pod mounts."""
    return {v["secret"]["secretName"] for v in pod["spec"]["volumes"] if "secret" in v}


def test_flows(chart: Installed) -> None:
    """Write flows."""
    pod = chart.pod_of("headrace.dev/flow=orders")
    assert mounted(pod) == {"password"}
    assert [c["image"] for c in pod["spec"]["containers"]] == ["of-my-own"]
    assert pod["spec"]["serviceAccountName"] == "orders-driver"
    chart.may_not(
        "flows", "get secrets", "create pods", "create deployments", "create mirrortests",
        "create replicationtasks", "patch replicationflows/status",
    )  # fmt: skip
    assert chart.may("flows", "create replicationflows")
    chart.may_not("flows", "create replicationflows", namespace=chart.name)
    chart.is_refused("flows", *READ)
    chart.is_refused("flows", *RUN)
    with pytest.raises(KubectlError, match="cannot create resource"):
        chart.create("flows", flow("elsewhere"), chart.name)


def test_tests(chart: Installed, wait_until: Wait) -> None:
    """Write mirror tests."""
    pod = chart.pod_of("headrace.dev/mirror-test=any")
    assert mounted(pod) == {"password"}
    assert [c["image"] for c in pod["spec"]["containers"]] == ["of-my-own"]
    chart.may_not("tests", "get secrets", "create pods", "create jobs", "create replicationflows")
    chart.is_refused("tests", *READ)
    chart.is_refused("tests", *RUN)
    spark = chart.account("any-spark")
    wait_until(partial(chart.may, spark, "create pods"))
    assert "created" in chart.as_user(spark, *RUN)


def test_chaos(chart: Installed, wait_until: Wait) -> None:
    """Write mirror tests, with `chaos.enabled`."""
    account = chart.account("break-chaos")
    wait_until(partial(chart.may, account, INJECT))
    chart.may_not(account, INJECT, namespace=chart.name)
    chart.may_not(account, "get secrets", "create pods")
    pod = chart.pod_of("headrace.dev/mirror-test=break")["metadata"]["name"]
    inject = ("debug", pod, "--image=mine", "--container=mine")
    chart.as_user(account, *inject)
    (mine,) = chart.flows.get("pod", pod)["spec"]["ephemeralContainers"]
    assert mine["image"] == "mine"
    chart.is_refused("tests", *inject)
    chart.is_refused(account, *READ)


def test_own_namespace(chart: Installed) -> None:
    """Write mirror tests in the operator's namespace."""
    chart.own.apply(mirror_test_of_another("inside"))
    assert "which is the operator's own" in chart.message("inside", chart.name)
    assert chart.own.get("jobs")["items"] == []


def test_tasks(chart: Installed, wait_until: Wait) -> None:
    """Patch tasks."""
    task = "rtask/orders-source-connector-0"
    wait_until(lambda: chart.flows.kubectl("get", task))
    chart.as_user("tasks", "annotate", task, "headrace.dev/move-to=nowhere")
    wait_until(
        lambda: {one["reason"] for one in chart.flows.events("ReplicationTask")},
        until=lambda reasons: "MoveRefused" in reasons,
    )
    taken = ("--type=merge", "-p", '{"spec":{"driverName":"nobody"}}', "--dry-run=server")
    assert "patched" in chart.as_user("tasks", "patch", task, *taken)
    chart.may_not(
        "tasks", "create replicationtasks", "delete replicationtasks", "get secrets",
        "update replicationtasks/status", "patch replicationflows",
    )  # fmt: skip
    chart.is_refused("tasks", "delete", task)
    of_flow = ("patch", "rflow/orders", "--type=merge", "-p", '{"spec":{"state":"Stopped"}}')
    chart.is_refused("tasks", *of_flow)


def test_driver(chart: Installed, wait_until: Wait) -> None:
    """A driver's token."""
    driver = chart.account("orders-driver")
    wait_until(partial(chart.may, driver, "watch replicationflows", name="orders"))
    chart.may_not(driver, "watch replicationflows", "patch replicationflows", name="still")
    for right in ("create replicationtasks", "update replicationtasks/status", "patch leases"):
        wait_until(partial(chart.may, driver, right))
        chart.may_not(driver, right, namespace=chart.name)
    chart.may_not(
        driver, "get secrets", "create pods", "get pods", "get configmaps",
        "get leases", "update leases", "deletecollection leases",
    )  # fmt: skip
    own = ("get", "rflow", "--field-selector=metadata.name=orders")
    assert "orders" in chart.as_user(driver, *own)
    chart.is_refused(driver, "get", "rflow/still")
    chart.is_refused(driver, *READ)
    chart.is_refused(driver, *RUN)


def test_spark(chart: Installed, wait_until: Wait) -> None:
    """The token of a test's Spark driver."""
    spark = chart.account("any-spark")
    wait_until(partial(chart.may, spark, "create pods"))
    write = ("patch", "--type=merge", "-p", '{"data":{"report.json":"{}"}}', "--dry-run=server")
    chart.may_not(spark, "get secrets", "create jobs", "get replicationflows", "create configmaps")
    chart.may_not(spark, "patch configmaps", name="any-run")
    assert chart.may(spark, "patch configmaps", name="any-report")
    chart.may_not(chart.account("any-executor"), "get pods", "patch configmaps", "get secrets")
    wait_until(lambda: chart.flows.get("configmap", "any-report"))
    chart.is_refused(spark, *write, "configmap/any-run")
    chart.is_refused(spark, *READ)
    chart.is_refused(chart.account("any-executor"), "get", "pods")


def test_operator(chart: Installed) -> None:
    """The operator's token."""
    operator = chart.operator_account
    deploy = ("create", "deployment", "mine", "--image=mine", "--dry-run=server")
    assert chart.may(operator, "create deployments")
    assert "created" in chart.as_user(operator, *deploy)
    chart.may_not(operator, "create deployments", namespace="default")
    chart.may_not(operator, "get secrets", "create pods", "escalate roles", "bind clusterroles")
    changes = ("update leases", "patch leases", "delete leases")
    chart.may_not(operator, *changes)
    chart.may_not(operator, *changes, "create leases", namespace=chart.name, name=ACCOUNT)
    assert chart.may(operator, "update leases", name=ACCOUNT)
    chart.may_not(operator, "update replicationtasks/status")
    chart.is_refused(operator, *READ)
    chart.is_refused(operator, *RUN)
    role = ("create", "role", "mine", "--verb=get", "--resource=secrets")
    with pytest.raises(KubectlError, match="attempting to grant RBAC permissions"):
        chart.as_user(operator, *role)


def test_pods_beside_the_operator(chart: Installed, wait_until: Wait) -> None:
    """Create pods in the operator's namespace."""
    grant(chart.own, "pods", "create pods")
    wait_until(partial(chart.may, "pods", "create pods", chart.name))
    chart.may_not("pods", "create deployments", "get secrets")
    spec: Document = {"serviceAccountName": ACCOUNT, "automountServiceAccountToken": True}
    spec["containers"] = [{"name": "mine", "image": "mine"}]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "thief"}, "spec": spec}
    assert "created" in chart.create("pods", pod, chart.name)
    volumes = chart.own.get("pod", "thief")["spec"]["volumes"]
    sources = [source for volume in volumes for source in volume["projected"]["sources"]]
    assert any("serviceAccountToken" in source for source in sources), "the operator's"


def test_switched_off(chart: Installed, wait_until: Wait) -> None:
    """The operator's token, with `mirrorTests.enabled: false`."""
    off = ("--set=mirrorTests.enabled=false", "--set=chaos.enabled=false")
    chart.give(*off, "--set=fullnameOverride=plain")
    plain = chart.account("plain-operator", chart.name)
    wait_until(partial(chart.may, plain, "create deployments"))
    chart.may_not(
        plain, "create jobs", "create configmaps", "delete pods", "bind roles",
        "get mirrortests", "patch replicationflows",
    )  # fmt: skip
    job = ("create", "job", "mine", "--image=mine", "--dry-run=server")
    assert "created" in chart.as_user(chart.operator_account, *job)
    chart.is_refused(plain, *job)


def test_custom_images(chart: Installed) -> None:
    """Write mirror tests, with `spark.allowCustomImage: false`."""
    chart.operate("second", "--set=spark.allowCustomImage=false")
    chart.create("tests", mirror_test_of_another("own", spark={"image": "of-my-own"}))
    chart.create("tests", mirror_test_of_another("ours"))
    assert "this operator allows no image but its own" in chart.message("own")
    pod = chart.pod_of("headrace.dev/mirror-test=ours")
    assert "of-my-own" not in [c["image"] for c in pod["spec"]["containers"]]
    assert chart.flows.get("jobs", "-l", "headrace.dev/mirror-test=own")["items"] == []


def test_each_line_is_here() -> None:
    """The page and this file name the same lines."""
    page = (ROOT / "docs" / "security-kubernetes.md").read_text()
    table = page.split("| who may | gets |")[1].split("\n\n")[0]
    lines = {re.sub(r" \(.*\)", "", row.split("|")[1].strip()) for row in table.splitlines()[2:]}
    tests = [one for name, one in globals().items() if name.startswith("test_")]
    named = {
        str(one.__doc__).removesuffix(".") for one in tests if one is not test_each_line_is_here
    }
    assert lines == named
