"""What the drivers of a flow may do on the API server: as little as they can work with."""

from headrace.api import ReplicationFlow
from headrace.controller.resources.metadata import build_metadata, driver_name
from headrace.k8s import Object

RBAC = "rbac.authorization.k8s.io"


def build_service_account(flow: ReplicationFlow) -> Object:
    """Who the drivers are. The token is mounted by the pods, which ask for it."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": build_metadata(flow, driver_name(flow)),
        "automountServiceAccountToken": False,
    }


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
                "verbs": ["get", "create", "update", "patch", "delete"],
            },
        ],
    }


def build_role_binding(flow: ReplicationFlow) -> Object:
    """Gives the role to the account."""
    name = driver_name(flow)
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": build_metadata(flow, name),
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": name},
        "subjects": [
            {"kind": "ServiceAccount", "name": name, "namespace": flow.metadata.namespace}
        ],
    }
