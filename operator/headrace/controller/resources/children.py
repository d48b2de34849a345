"""All children of a flow, in the order in which they are applied."""

from headrace.api import API_VERSION, TYPE_LABEL, ReplicationFlow, TaskType
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


def account(metadata: Object) -> Object:
    """Return a service account. Pods mount the token if they request it."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata,
        "automountServiceAccountToken": False,
    }


def binding(metadata: Object, *, kind: str, role: str, account: str = "") -> Object:
    """Return a binding of a role to an account, by default to the one that ``metadata`` names."""
    subject = {"name": account or metadata["name"], "namespace": metadata["namespace"]}
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", **subject}],
    }


def build_service_account(flow: ReplicationFlow) -> Object:
    """Return the drivers' ServiceAccount, with the annotations that the flow asks for."""
    metadata = build_metadata(flow, driver_name(flow))
    if annotations := flow.spec.drivers.service_account.annotations:
        metadata["annotations"] = dict(annotations)
    return account(metadata)


def build_role(flow: ReplicationFlow) -> Object:
    """Return the drivers' role.

    They may read their own flow, read, publish and report on units, and renew Leases. RBAC can name
    an object but cannot select by label or field, so units and Leases are those in the namespace.
    There is no rule for Secrets, which are mounted.
    """
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "Role",
        "metadata": build_metadata(flow, driver_name(flow)),
        "rules": [
            {
                "apiGroups": ["headrace.dev"],
                "resources": ["replicationflows"],
                "resourceNames": [flow.metadata.name],
                "verbs": ["get", "list", "watch"],
            },
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
        ],
    }


def build_role_binding(flow: ReplicationFlow) -> Object:
    """Return the binding of the role to the drivers' account."""
    name = driver_name(flow)
    return binding(build_metadata(flow, name), kind="Role", role=name)


def build_pod_disruption_budget(flow: ReplicationFlow) -> Object:
    """Return the budget of drains: one driver at a time, unless the flow says otherwise.

    A driver that is not ready never keeps a node from draining.
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

    Only probes and metrics may be received. Outgoing connections are not restricted, because
    brokers have any address and advertise others.
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
    flow: ReplicationFlow, image: str, *, network_policy: bool, chaos: bool = False
) -> list[Object]:
    """Return the children of a flow except units; permissions come before the drivers."""
    return [
        build_service_account(flow),
        build_role(flow),
        build_role_binding(flow),
        build_pod_disruption_budget(flow),
        *([build_network_policy(flow)] if network_policy else []),
        build_deployment(flow, image, chaos=chaos),
    ]


CONNECTORS = (
    TaskType.SOURCE_CONNECTOR,
    TaskType.CHECKPOINT_CONNECTOR,
    TaskType.HEARTBEAT_CONNECTOR,
)
"""``standalone/herder.py`` makes the same."""


def build_connector(flow: ReplicationFlow, type: TaskType) -> Object:
    """Return a connector without its owner, which another field manager writes."""
    metadata = build_metadata(flow, TaskId(flow.metadata.name, type, 0).name)
    metadata["labels"][TYPE_LABEL] = type.value
    return {
        "apiVersion": API_VERSION,
        "kind": "ReplicationTask",
        "metadata": metadata,
        "spec": {"flowName": flow.metadata.name, "type": type.value, "index": 0},
    }
