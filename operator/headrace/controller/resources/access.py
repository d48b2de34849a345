"""What pods may do on the API server, drivers of a flow first: as little as they can work with."""

from headrace.api import ReplicationFlow
from headrace.controller.resources.metadata import build_metadata, driver_name
from headrace.k8s import Object

RBAC = "rbac.authorization.k8s.io"


def account(metadata: Object) -> Object:
    """Who somebody is. The token is mounted by the pods that ask for it."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata,
        "automountServiceAccountToken": False,
    }


def binding(metadata: Object, *, kind: str, role: str, account: str = "") -> Object:
    """Gives a role to an account: the one that ``metadata`` names, or another of its namespace."""
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
    """Their own flow to read; units to read, publish, and report on; Leases to renew.

    RBAC can name an object, but it cannot select by label or field: units and Leases are those of
    the namespace. Nothing about Secrets: those are mounted.
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
    """Gives the role to the account."""
    name = driver_name(flow)
    return binding(build_metadata(flow, name), kind="Role", role=name)
