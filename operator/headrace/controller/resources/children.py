"""All children of a flow, in the order in which they are applied."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from headrace.api import API_VERSION, TYPE_LABEL, ReplicationFlow, ReplicationTask, TaskType
from headrace.assign import TaskId
from headrace.controller.resources.deployment import (
    HTTP_PORT,
    build_deployment,
    build_metadata,
    driver_name,
    driver_selector,
)
from headrace.k8s import Object

RBAC = "rbac.authorization.k8s.io"


@dataclass(frozen=True)
class FixedRole:
    """Role that the chart creates. The operator may bind it without having its permissions."""

    kind: str
    """ClusterRole, or a Role in the namespace of the binding."""
    name: str


def account(metadata: Object) -> Object:
    """Return a service account. Its token is mounted only in pods that request it."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata,
        "automountServiceAccountToken": False,
    }


def binding(metadata: Object, *, kind: str, role: str, account: str = "") -> Object:
    """Return a binding of a role to an account.

    The default account has the name in ``metadata``.
    """
    subject = {"name": account or metadata["name"], "namespace": metadata["namespace"]}
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", **subject}],
    }


def build_service_account(flow: ReplicationFlow) -> Object:
    """Return the drivers' ServiceAccount, with the flow's annotations."""
    metadata = build_metadata(flow, driver_name(flow))
    if annotations := flow.spec.drivers.service_account.annotations:
        metadata["annotations"] = dict(annotations)
    return account(metadata)


DRIVER_RULES: tuple[Object, ...] = (
    {
        "apiGroups": ["headrace.dev"],
        "resources": ["replicationtasks"],
        "verbs": ["get", "list", "watch", "create", "patch", "delete"],
    },
    {
        "apiGroups": ["headrace.dev"],
        "resources": ["replicationtasks/status"],
        "verbs": ["update"],
    },
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "verbs": ["create", "patch", "delete"],
    },
)
"""Permissions of all drivers, as in ``driver-rules.yaml`` of the chart.

They include all units and Leases of the namespace, because RBAC cannot select by label or field,
and the name of a Lease is the name of a future pod. The chart's admission policy reduces them. They
include no Secrets, because Secrets are mounted.
"""


def build_role(flow: ReplicationFlow, driver_role: FixedRole | None = None) -> Object:
    """Return the drivers' role, which contains ``DRIVER_RULES`` if no ``driver_role`` does."""
    own_flow: Object = {
        "apiGroups": ["headrace.dev"],
        "resources": ["replicationflows"],
        "resourceNames": [flow.metadata.name],
        "verbs": ["list", "watch"],
    }
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "Role",
        "metadata": build_metadata(flow, driver_name(flow)),
        "rules": [own_flow, *(DRIVER_RULES if driver_role is None else ())],
    }


def build_role_bindings(
    flow: ReplicationFlow, driver_role: FixedRole | None = None
) -> list[Object]:
    """Return the bindings of the drivers' roles to their account.

    A binding cannot be changed to another role. The name of the binding therefore depends on
    ``driver_role``.
    """
    name = driver_name(flow)
    own = binding(build_metadata(flow, name), kind="Role", role=name)
    if driver_role is None:
        return [own]
    kind, role = driver_role.kind, driver_role.name
    digest = hashlib.sha256(f"{kind}/{role}".encode()).hexdigest()[:8]
    metadata = build_metadata(flow, f"{name}-{digest}")
    return [own, binding(metadata, kind=kind, role=role, account=name)]


def build_pod_disruption_budget(flow: ReplicationFlow) -> Object:
    """Return the PodDisruptionBudget: one driver at a time, unless the flow sets another budget.

    A driver that is not ready never blocks the drain of a node.
    """
    asked = flow.spec.drivers.pod_disruption_budget.model_dump(by_alias=True, exclude_none=True)
    budget = {field: int(count) if count.isdecimal() else count for field, count in asked.items()}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": build_metadata(flow, driver_name(flow)),
        "spec": {
            **(budget or {"maxUnavailable": 1}),
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": driver_selector(flow.metadata.name)},
        },
    }


def build_network_policy(flow: ReplicationFlow) -> Object:
    """Return the network policy of drivers.

    Incoming connections are allowed only for probes and metrics. Outgoing connections are not
    restricted, because brokers may have and advertise any address.
    """
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": build_metadata(flow, driver_name(flow)),
        "spec": {
            "podSelector": {"matchLabels": driver_selector(flow.metadata.name)},
            "policyTypes": ["Ingress"],
            "ingress": [{"ports": [{"port": HTTP_PORT, "protocol": "TCP"}]}],
        },
    }


def build_children(
    flow: ReplicationFlow,
    image: str,
    *,
    network_policy: bool,
    chaos: bool = False,
    driver_role: FixedRole | None = None,
    tasks: Iterable[ReplicationTask] = (),
) -> list[Object]:
    """Return the children of a flow except units. Permissions come before the drivers."""
    return [
        build_service_account(flow),
        build_role(flow, driver_role),
        *build_role_bindings(flow, driver_role),
        build_pod_disruption_budget(flow),
        *([build_network_policy(flow)] if network_policy else []),
        build_deployment(flow, image, chaos=chaos, tasks=tasks),
    ]


CONNECTORS = (
    TaskType.SOURCE_CONNECTOR,
    TaskType.CHECKPOINT_CONNECTOR,
    TaskType.HEARTBEAT_CONNECTOR,
)
"""Connectors of a flow. ``standalone/herder.py`` creates the same ones."""


def build_unit(flow: ReplicationFlow, type: TaskType) -> Object:
    """Return a connector or the watch without its driver, which another field manager writes."""
    metadata = build_metadata(flow, TaskId(flow.metadata.name, type, 0).name)
    metadata["labels"][TYPE_LABEL] = type.value
    return {
        "apiVersion": API_VERSION,
        "kind": "ReplicationTask",
        "metadata": metadata,
        "spec": {"flowName": flow.metadata.name, "type": type.value, "index": 0},
    }
