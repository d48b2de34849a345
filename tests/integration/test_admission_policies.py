"""The chart's admission policies restrict what RBAC cannot: drivers, the operator, and users."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster.api_server import ApiServer
from cluster.kubectl import KubectlError
from support.helm import render
from support.manifests import Document
from support.operators import ACCOUNT, Resources

pytestmark = pytest.mark.usefixtures("helm_program")

Wait = Callable[..., Any]
DRY_RUN = "--dry-run=server"
RIGHTS = {"ServiceAccount", "Role", "RoleBinding"}
POLICIES = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
CONTAINER = {"name": "main", "image": "image"}
API = "headrace.dev/v1beta1"
EPOCH = ("--type=merge", "-p", '{"spec": {"connectorEpoch": 7}}')
LABEL = ("--type=merge", "-p", '{"metadata": {"labels": {"changed": "yes"}}}')
NOT_OF_ITS_FLOW = "a driver writes only the tasks of its flow"
NOT_ITS_LEASE = "a driver writes only the Lease of its pod"
NOT_OWNED = "the operator changes only objects that a ReplicationFlow or a MirrorTest owns"
NO_SPEC = "only the operator and drivers write the spec of a ReplicationTask"


class Guarded:
    """A namespace with the permissions and policies of a release."""

    def __init__(self, api_server: ApiServer, namespace: str, folder: Path, wait: Wait) -> None:
        self._api_server, self._folder, self._wait = api_server, folder, wait
        self.resources = Resources(api_server, namespace)

    def account(self, name: str, pod: str = "") -> str:
        """Return kubectl's option for an account, with a token that is bound to a pod if given."""
        namespace, path = self.resources.namespace, self._folder / f"{name}{pod}.conf"
        bound = self.resources.get("pod", pod) if pod else None
        user = {"token": self._api_server.token(namespace, name, bound)}
        return f"--kubeconfig={self._api_server.write_kubeconfig(path, user, namespace)}"

    def answer(self, who: str, *command: str, input: Document | None = None) -> str:
        """Return the output or the error of kubectl, which changes nothing."""
        namespace = ("-n", self.resources.namespace)
        try:
            return self._api_server.kubectl(*command, *namespace, who, DRY_RUN, input=input)
        except KubectlError as error:
            return str(error)

    def wait_for(self, message: str, who: str, *command: str) -> None:
        """Wait for an answer, because policies and permissions take effect late."""
        self._wait(lambda: self.answer(who, *command), until=lambda said: message in said)

    def grant(self, account: str, verb: str, resource: str) -> None:
        """Grant permissions to an account."""
        name = f"{account}-{resource.replace('/', '-')}"
        kubectl, namespace = self.resources.kubectl, self.resources.namespace
        kubectl("create", "role", name, f"--verb={verb}", f"--resource={resource}")
        to = f"--serviceaccount={namespace}:{account}"
        kubectl("create", "rolebinding", name, f"--role={name}", to)


@pytest.fixture
def guarded(
    api_server: ApiServer, namespace: str, tmp_path: Path, wait_until: Wait
) -> Iterator[Guarded]:
    scope = ("--set=scope=Namespace", "--set=admissionPolicies.enabled=true")
    objects = render(*scope, namespace=namespace)
    policies = [one for one in objects if one["kind"] in POLICIES]
    rights = [one for one in objects if one["kind"] in RIGHTS]
    try:
        api_server.apply(*rights, *policies, namespace=namespace)
        yield Guarded(api_server, namespace, tmp_path, wait_until)
    finally:
        for one in policies:
            api_server.kubectl("delete", one["kind"], one["metadata"]["name"])


def named(api_version: str, kind: str, name: str, **fields: Any) -> Document:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **fields}


def task(flow: str) -> Document:
    spec = {"flowName": flow, "type": "SourceTask"}
    return named(API, "ReplicationTask", f"{flow}-unit", spec=spec)


def lease(name: str) -> Document:
    return named("coordination.k8s.io/v1", "Lease", name)


def deployment(name: str) -> Document:
    pod = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [CONTAINER]}}
    spec = {"replicas": 0, "selector": {"matchLabels": {"app": name}}, "template": pod}
    return named("apps/v1", "Deployment", name, spec=spec)


def test_driver_writes_its_lease_and_the_tasks_of_its_flow(guarded: Guarded) -> None:
    account = "orders-driver"
    pod = {"serviceAccountName": account, "containers": [CONTAINER]}
    guarded.resources.apply(
        *(named("v1", "ServiceAccount", name) for name in (account, "csi-driver", "boss-driver")),
        *(task(flow) for flow in ("orders", "others")),
        *(lease(name) for name in ("pod-a", "pod-b")),
        named("v1", "Pod", "pod-a", spec=pod),
    )
    to = f"--serviceaccount={guarded.resources.namespace}:{account}"
    role = "--role=headrace-operator-drivers"
    guarded.resources.kubectl("create", "rolebinding", account, role, to)
    driver, unbound = guarded.account(account, "pod-a"), guarded.account(account)

    guarded.wait_for(NOT_ITS_LEASE, driver, "delete", "lease/pod-b")
    assert "deleted" in guarded.answer(driver, "delete", "lease/pod-a")
    assert NOT_ITS_LEASE in guarded.answer(unbound, "delete", "lease/pod-a")
    create = ("create", "-f", "-")
    assert NOT_ITS_LEASE in guarded.answer(driver, *create, input=lease("pod-c"))

    def replace_status(flow: str) -> str:
        now = guarded.resources.get("rtask", f"{flow}-unit") | {"status": {"phase": "Running"}}
        return guarded.answer(driver, "replace", "--subresource=status", "-f", "-", input=now)

    for flow, said in (("orders", ""), ("others", NOT_OF_ITS_FLOW)):
        assert (said or "deleted") in guarded.answer(driver, "delete", f"rtask/{flow}-unit")
        assert (said or "patched") in guarded.answer(driver, "patch", f"rtask/{flow}-unit", *EPOCH)
        assert (said or "replaced") in replace_status(flow)
    new = task("others") | {"metadata": {"name": "new"}}
    assert NOT_OF_ITS_FLOW in guarded.answer(driver, *create, input=new)

    # Accounts of other software with such a name.
    for name, verb in (("csi-driver", "get,delete"), ("boss-driver", "*")):
        guarded.grant(name, verb, "leases.coordination.k8s.io")
    guarded.grant("boss-driver", "*", "replicationtasks.headrace.dev/status")
    for name in ("csi-driver", "boss-driver"):
        guarded.wait_for("deleted", guarded.account(name), "delete", "lease/pod-b")


def test_operator_changes_only_objects_of_flows_and_tests(guarded: Guarded) -> None:
    owner = {"apiVersion": API, "kind": "ReplicationFlow", "name": "orders", "uid": "1"}
    owned = deployment("owned")
    owned["metadata"]["ownerReferences"] = [owner]
    executor = named("v1", "Pod", "executor", spec={"containers": [CONTAINER]})
    executor["metadata"]["labels"] = {"headrace.dev/mirror-test": "nightly"}
    bystander = named("v1", "Pod", "bystander", spec={"containers": [CONTAINER]})
    settings = named("v1", "ConfigMap", "settings")
    guarded.resources.apply(deployment("foreign"), executor, bystander, settings)
    operator = guarded.account(ACCOUNT)

    guarded.wait_for(NOT_OWNED, operator, "patch", "deployment/foreign", *LABEL)
    adopted = json.dumps({"metadata": {"ownerReferences": [owner]}})
    adopt = ("patch", "deployment/foreign", "--type=merge", "-p", adopted)
    assert NOT_OWNED in guarded.answer(operator, *adopt)
    assert NOT_OWNED in guarded.answer(operator, "patch", "configmap/settings", *LABEL)
    assert NOT_OWNED in guarded.answer(operator, "delete", "pod/bystander")
    assert "deleted" in guarded.answer(operator, "delete", "pod/executor")
    create = ("create", "-f", "-")
    assert NOT_OWNED in guarded.answer(operator, *create, input=deployment("new"))
    assert "created" in guarded.answer(operator, *create, input=owned)


def test_user_who_may_patch_tasks_changes_annotations_and_no_spec(guarded: Guarded) -> None:
    guarded.resources.apply(task("orders"), named("v1", "ServiceAccount", "user"))
    guarded.grant("user", "get,patch", "replicationtasks.headrace.dev")
    user = guarded.account("user")
    guarded.wait_for(NO_SPEC, user, "patch", "rtask/orders-unit", *EPOCH)
    annotate = ("annotate", "rtask/orders-unit", "headrace.dev/x=1")
    assert "annotated" in guarded.answer(user, *annotate)
    operator = guarded.account(ACCOUNT)
    assert "patched" in guarded.answer(operator, "patch", "rtask/orders-unit", *EPOCH)
