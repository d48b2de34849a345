"""Permissions that the chart and the operator grant, and those that an audit log shows in use."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from support.manifests import Document, flow, mirror_test_of_another

from headrace.api import MirrorTest, ReplicationFlow
from headrace.controller import FixedRole, Images
from headrace.controller.mirror_tests import TestRun
from headrace.controller.mirror_tests.fault_jobs import build_access
from headrace.controller.resources import build_role

OPERATOR, DRIVERS, SPARK = "operator", "drivers", "Spark drivers"
CHAOS, REHEARSAL = "chaos Jobs", "rehearsal Jobs"
_ACCOUNTS = {
    r"headrace-operator": OPERATOR,
    r".*-driver": DRIVERS,
    r".*-spark": SPARK,
    r".*-chaos": CHAOS,
    r".*-rehearsal": REHEARSAL,
}
"""Components by the names of their ServiceAccounts."""
_ROLE_OPTIONS = {
    "--driver-role": DRIVERS,
    "--executor-role": SPARK,
    "--chaos-role": CHAOS,
    "--rehearsal-role": REHEARSAL,
}
"""Components by the options of the operator that name their roles."""
_OWNERS = "namespace of its owner"
_REFUSED = {401, 403}
_CREATED = 201


@dataclass(frozen=True, order=True)
class Right:
    """Permission of a component."""

    component: str
    resource: str
    """Resource in kubectl's notation, such as ``replicationtasks.headrace.dev/status``."""
    verb: str


UNUSED: dict[Right, str] = {
    Right(OPERATOR, "clusterroles.rbac.authorization.k8s.io", "bind"): (
        "checked when the operator creates a RoleBinding, and logged as that request"
    ),
    Right(OPERATOR, "jobs.batch", "delete"): (
        "ends the Jobs of a test that has a verdict, such as after a killed Spark driver (LONG=1)"
    ),
    Right(OPERATOR, "mirrortests.headrace.dev", "create"): "runs of a schedule",
    Right(OPERATOR, "mirrortests.headrace.dev", "delete"): "runs that leave the history",
    Right(OPERATOR, "networkpolicies.networking.k8s.io", "delete"): (
        "driver.networkPolicy was switched off"
    ),
    Right(OPERATOR, "pods", "delete"): "executors that a killed Spark driver left (LONG=1)",
    Right(OPERATOR, "replicasets.apps", "list"): (
        "finds the newest drivers after `kubectl rollout restart` of a driver Deployment"
    ),
    Right(OPERATOR, "replicationflows.headrace.dev", "patch"): (
        "resumes a flow that a killed chaos Job left paused"
    ),
    Right(OPERATOR, "replicationtasks.headrace.dev", "delete"): "the watch of a source has ended",
    Right(DRIVERS, "replicationtasks.headrace.dev", "delete"): "a flow that has fewer tasks",
    Right(SPARK, "pods", "delete"): "Spark deletes executors that failed",
    Right(CHAOS, "deployments.apps/scale", "patch"): "step ScaleDeployment",
    Right(REHEARSAL, "replicationflows.headrace.dev", "get"): "rehearsals (LONG=1)",
    Right(REHEARSAL, "replicationflows.headrace.dev", "patch"): "rehearsals (LONG=1)",
    Right(REHEARSAL, "replicationtasks.headrace.dev", "list"): "rehearsals (LONG=1)",
}
"""Reasons for permissions that no test uses in every session."""


def granted(chart: Iterable[Document]) -> dict[Right, str]:
    """Return all permissions with their scopes, for the rendered objects of a chart."""
    rights: dict[Right, str] = {}

    def add(component: str, scope: str, rules: Iterable[Document]) -> None:
        for rule in rules:
            named = ", by name" if "resourceNames" in rule else ""
            rights.update(dict.fromkeys(_rights(component, rule), scope + named))

    objects = list(chart)
    (operator,) = (one for one in objects if one["kind"] == "Deployment")
    options = [arg.partition("=") for arg in _args(operator)]
    fixed = {role: _ROLE_OPTIONS[name] for name, _, role in options if name in _ROLE_OPTIONS}
    bound = {one["roleRef"]["name"] for one in objects if one["kind"].endswith("RoleBinding")}
    for role in (one for one in objects if one["kind"] in ("Role", "ClusterRole")):
        name, namespace = role["metadata"]["name"], role["metadata"].get("namespace")
        if name in bound:
            add(OPERATOR, f"namespace {namespace}" if namespace else "cluster", role["rules"])
        elif name in fixed:
            add(fixed[name], _OWNERS, role["rules"])
    of_chart = FixedRole("ClusterRole", "of the chart")
    add(DRIVERS, _OWNERS, build_role(ReplicationFlow.model_validate(flow()), of_chart)["rules"])
    test = MirrorTest.model_validate(mirror_test_of_another())
    for object in build_access(TestRun(test, Images("spark"), executor_role=of_chart)):
        if object["kind"] == "Role":
            add(SPARK, _OWNERS, object["rules"])
    return rights


def _args(deployment: Document) -> list[str]:
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    args: list[str] = container["args"]
    return args


def _rights(component: str, rule: Document) -> Iterator[Right]:
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            for verb in rule["verbs"]:
                yield Right(component, _resource(group, *resource.split("/")), verb)


def _resource(group: str, resource: str, subresource: str = "") -> str:
    return (f"{resource}.{group}" if group else resource) + (f"/{subresource}" * bool(subresource))


def used(events: Iterable[Mapping[str, Any]]) -> Counter[Right]:
    """Return how often each permission was used.

    A request of server-side apply that creates an object uses ``create`` and ``patch``.
    """
    seen, counts = set[str](), Counter[Right]()
    for event in events:
        component, about = _component(event["user"]["username"]), event.get("objectRef")
        if component is None or about is None or event["auditID"] in seen:
            continue
        code = event.get("responseStatus", {}).get("code")
        if code in _REFUSED:
            continue
        seen.add(event["auditID"])
        group, resource = about.get("apiGroup", ""), about["resource"]
        name = _resource(group, resource, about.get("subresource", ""))
        applied = event["verb"] == "patch" and code == _CREATED
        for verb in {event["verb"], *(["create"] if applied else [])}:
            counts[Right(component, name, verb)] += 1
    return counts


def _component(user: str) -> str | None:
    if not user.startswith("system:serviceaccount:"):
        return None
    account = user.rpartition(":")[2]
    return next((one for name, one in _ACCOUNTS.items() if re.fullmatch(name, account)), None)


def table(rights: Mapping[Right, str], uses: Mapping[Right, int]) -> str:
    """Return a table in Markdown of all granted permissions."""
    rows = ["| component | resource | verb | scope | requests |", "| --- | --- | --- | --- | --- |"]
    for right, scope in sorted(rights.items()):
        shown = uses.get(right) or f"none: {UNUSED.get(right, 'NO REASON')}"
        rows.append(f"| {right.component} | {right.resource} | {right.verb} | {scope} | {shown} |")
    return "\n".join(rows)
