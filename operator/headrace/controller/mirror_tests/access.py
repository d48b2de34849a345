"""What the Spark drivers of a MirrorTest may do: make their executors, and write the report."""

from headrace.k8s import Object

_RBAC = "rbac.authorization.k8s.io"


def build_access(metadata: Object, report: str) -> list[Object]:
    """Account, role and binding of the Spark drivers, all named as ``metadata`` says; the
    executors' account, which may do nothing."""
    name, namespace = metadata["name"], metadata["namespace"]
    return [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": metadata,
            "automountServiceAccountToken": False,
        },
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": metadata | {"name": f"{name.removesuffix('spark')}executor"},
            "automountServiceAccountToken": False,
        },
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "Role",
            "metadata": metadata,
            "rules": [
                {
                    "apiGroups": [""],
                    "resources": ["pods"],
                    "verbs": ["create", "get", "list", "watch", "delete", "deletecollection"],
                },
                {  # Spark hands the executors their settings in one.
                    "apiGroups": [""],
                    "resources": ["configmaps"],
                    "verbs": ["create", "get", "list", "delete", "deletecollection"],
                },
                {
                    "apiGroups": [""],
                    "resources": ["configmaps"],
                    "resourceNames": [report],
                    "verbs": ["update", "patch"],
                },
            ],
        },
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        },
    ]
