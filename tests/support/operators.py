"""Operators as processes of a test, each with exactly the permissions that the chart grants."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import urllib3
import yaml
from cluster.api_server import ApiServer
from prometheus_client.parser import text_string_to_metric_families
from support.patience import WITHIN_S

ROOT = Path(__file__).parents[2]
RULES = ROOT / "charts" / "headrace" / "files" / "operator-rules.yaml"
RULES_OF_TESTS = RULES.with_name("mirror-test-rules.yaml")
RULES_OF_CHAOS = RULES.with_name("chaos-rules.yaml")
RULES_OF_REHEARSALS = RULES.with_name("rehearsal-rules.yaml")
RULES_OF_EXECUTORS = RULES.with_name("executor-rules.yaml")
RULES_OF_DRIVERS = RULES.with_name("driver-rules.yaml")
ACCOUNT = "headrace-operator"
CHAOS_ROLE = "headrace-operator-chaos"
REHEARSAL_ROLE = "headrace-operator-rehearsal"
EXECUTOR_ROLE = "headrace-operator-executors"
DRIVER_ROLE = "headrace-operator-drivers"
END_WITHIN_S = WITHIN_S
READING = {"get", "list", "watch"}


class Operator:
    """A replica that runs."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.process, self._log = process, log

    @property
    def log(self) -> str:
        """Log of the operator."""
        return self._log.read_text()

    @property
    def address(self) -> str:
        """Address of the operator's port, once it is logged."""
        port = re.search(r"\bport=(\d+)", self.log)
        assert port, f"it does not say yet on which port it is: {self.log}"
        return f"127.0.0.1:{port[1]}"

    def get(self, path: str) -> str:
        """Return the answer of the operator's port."""
        url = f"http://{self.address}{path}"
        return urllib3.request("GET", url, timeout=60, retries=False).data.decode()

    def writes(self) -> float:
        """Return the number of changes requested from the Kubernetes API, except to its Lease."""
        return sum(
            sample.value
            for family in text_string_to_metric_families(self.get("/metrics"))
            for sample in family.samples
            if sample.name == "headrace_api_requests_total"
            and sample.labels["verb"] not in READING
            and sample.labels["kind"] != "Lease"
        )

    def end(self) -> int:
        """End the operator with TERM, as a kubelet does, and return its exit code."""
        self.process.terminate()
        return self.process.wait(END_WITHIN_S)


def give_rights(
    api_server: ApiServer,
    namespace: str,
    without: str = "",
    *,
    everywhere: bool = False,
    lease: str = ACCOUNT,
    account_of: str = "",
    chaos: bool = False,
    rehearsal: bool = False,
    mirror_tests: bool = True,
) -> None:
    """Create the operator's account in ``namespace``.

    ``without`` removes a permission, such as ``watch pods``. The permissions are for that
    namespace, or ``everywhere``, and to write ``lease``. With ``account_of`` they are for the
    account of that other namespace. ``chaos``, ``rehearsal`` and
    ``mirror_tests`` have the effect of the chart's ``chaos.enabled``, ``rehearsal.enabled`` and
    ``mirrorTests.enabled``.
    """
    rules: list[dict[str, Any]] = [
        *yaml.safe_load(RULES.read_text()),
        *(yaml.safe_load(RULES_OF_TESTS.read_text()) if mirror_tests else []),
    ]
    kind = "ClusterRole" if everywhere else "Role"
    rules.append(_fix(api_server, namespace, kind, DRIVER_ROLE, RULES_OF_DRIVERS))
    if mirror_tests:
        rules.append(_fix(api_server, namespace, kind, EXECUTOR_ROLE, RULES_OF_EXECUTORS))
    if chaos:
        rules.append(_fix(api_server, namespace, kind, CHAOS_ROLE, RULES_OF_CHAOS))
        patch = {"resources": ["mirrortests"], "verbs": ["patch"]}
        rules.append({"apiGroups": ["headrace.dev"], **patch})
    if rehearsal:
        rules.append(_fix(api_server, namespace, kind, REHEARSAL_ROLE, RULES_OF_REHEARSALS))
    of_lease = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    leading: list[dict[str, Any]] = [
        of_lease | {"resourceNames": [lease], "verbs": ["get", "update"]},
        of_lease | {"verbs": ["create"]},
    ]
    missing_verb, _, resource = without.partition(" ")
    for rule in (*rules, *leading):
        if resource in rule["resources"] and missing_verb in rule["verbs"]:
            rule["verbs"].remove(missing_verb)
    api_server.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT}},
        *_bound_role(kind, ACCOUNT, rules, account_of or namespace),
        *_bound_role("Role", f"{lease}-lease", leading, account_of or namespace),
        namespace=namespace,
    )


def _bound_role(
    kind: str, name: str, rules: list[dict[str, Any]], namespace: str
) -> list[dict[str, Any]]:
    """Return a role and its binding to the operator's account in ``namespace``."""
    rbac = "rbac.authorization.k8s.io"
    named = {"apiVersion": f"{rbac}/v1", "metadata": {"name": name}}
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}
    bound = {"roleRef": {"apiGroup": rbac, "kind": kind, "name": name}, "subjects": [subject]}
    return [
        named | {"kind": kind, "rules": rules},
        named | {"kind": f"{kind}Binding"} | bound,
    ]


def _fix(api_server: ApiServer, namespace: str, kind: str, name: str, file: Path) -> dict[str, Any]:
    """Create a role of the chart, and return the rule that allows the operator to bind it."""
    rbac = "rbac.authorization.k8s.io"
    role = {"apiVersion": f"{rbac}/v1", "kind": kind, "metadata": {"name": name}}
    api_server.apply(role | {"rules": yaml.safe_load(file.read_text())}, namespace=namespace)
    bound = {"resources": [f"{kind.lower()}s"], "resourceNames": [name], "verbs": ["bind"]}
    return {"apiGroups": [rbac], **bound}


@contextmanager
def running_operator(
    api_server: ApiServer,
    namespace: str,
    folder: Path,
    identity: str = "operator-1",
    *,
    lease: str = ACCOUNT,
    everywhere: bool = False,
    port: int = 0,
    chaos: bool = False,
    network_policy: bool = False,
    arguments: Sequence[str] = (),
) -> Iterator[Operator]:
    """Run an operator for one namespace, or ``everywhere``, until the block ends.

    Replicas compete for one ``lease``. ``port`` is the port of the health endpoint; 0 chooses any.
    ``chaos`` allows tests to inject faults. ``arguments`` are added to the command.
    """
    log = folder / f"{identity}.log"
    command = [sys.executable, "-m", "headrace", "operator", f"--lease-namespace={namespace}"]
    command += ["--all-namespaces"] if everywhere else [f"--namespace={namespace}"]
    command += [f"--driver-role={DRIVER_ROLE}", f"--executor-role={EXECUTOR_ROLE}"]
    command += [f"--chaos-role={CHAOS_ROLE}"] if chaos else []
    command += ["--network-policy"] if network_policy else []
    command += arguments
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*command, f"--identity={identity}", f"--lease={lease}", f"--port={port}"],
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, "KUBECONFIG": str(api_server.kubeconfig_of(namespace, ACCOUNT))},
        )
        operator = Operator(process, log)
        try:
            yield operator
        finally:
            process.kill()
            process.wait()


class Resources:
    """A namespace as a user of kubectl sees it."""

    def __init__(self, api_server: ApiServer, namespace: str) -> None:
        self.api_server, self.namespace = api_server, namespace

    def kubectl(self, *arguments: str) -> str:
        """Run kubectl in the namespace, and return its output."""
        return self.api_server.kubectl("-n", self.namespace, *arguments)

    def apply(self, *manifests: dict[str, Any]) -> None:
        """Apply manifests as ``kubectl apply`` does."""
        self.api_server.apply(*manifests, namespace=self.namespace)

    def get(self, *what: str) -> Any:
        """Return an object, or a list."""
        return self.api_server.get("-n", self.namespace, *what)

    def flow(self, name: str) -> Any:
        """Return a ReplicationFlow."""
        return self.get("rflow", name)

    def tasks(self, flow: str) -> dict[str, Any]:
        """Return the units of a flow, by name."""
        found = self.get("rtask", "-l", f"headrace.dev/flow={flow}")["items"]
        return {task["metadata"]["name"]: task for task in found}

    def condition(self, flow: str, type: str) -> dict[str, str]:
        """Return a condition of a flow, or an empty one."""
        conditions = self.flow(flow).get("status", {}).get("conditions", [])
        return next((one for one in conditions if one["type"] == type), {})

    def events(self, kind: str) -> list[dict[str, Any]]:
        """Return the events of objects of a kind."""
        found: list[dict[str, Any]] = self.get("events", "--sort-by=.metadata.creationTimestamp")[
            "items"
        ]
        return [event for event in found if event["involvedObject"]["kind"] == kind]

    def owner(self, flow: str) -> dict[str, Any]:
        """Return the ownerReference of the objects that belong to a flow."""
        uid = self.flow(flow)["metadata"]["uid"]
        return {
            "apiVersion": "headrace.dev/v1beta1",
            "kind": "ReplicationFlow",
            "name": flow,
            "uid": uid,
            "controller": True,
        }

    def owners(self, kinds: str) -> set[str]:
        """Return the uids of all owners of headrace's objects."""
        found = self.get(kinds, "-l", "headrace.dev/flow")["items"]
        return {owner["uid"] for one in found for owner in one["metadata"]["ownerReferences"]}

    def uids(self, kinds: str) -> set[str]:
        """Return the uids of headrace's objects."""
        found = self.get(kinds, "-l", "headrace.dev/flow")["items"]
        return {one["metadata"]["uid"] for one in found}

    def versions(self, kinds: str) -> dict[str, str]:
        """Return the resourceVersion of each object and flow, by uid."""
        found = self.get(f"{kinds},replicationflows")["items"]
        return {one["metadata"]["uid"]: one["metadata"]["resourceVersion"] for one in found}

    def leader(self) -> str:
        """Return the name of the operator's leading replica."""
        leases = self.get("leases")["items"]
        ours = [one["spec"] for one in leases if one["metadata"]["name"] == ACCOUNT]
        return str(ours[0].get("holderIdentity", "")) if ours else ""
