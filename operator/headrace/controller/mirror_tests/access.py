"""What the Spark drivers of a MirrorTest may do: make their executors, and write the report."""

from headrace.k8s import Object

_RBAC = "rbac.authorization.k8s.io"
_MAKE_EXECUTORS: Object = {
    "apiGroups": [""],
    "resources": ["pods"],
    "verbs": ["create", "get", "list", "watch", "delete", "deletecollection"],
}


def build_access(metadata: Object, report: str, *, executors: bool) -> list[Object]:
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
                    "resources": ["configmaps"],
                    "resourceNames": [report],
                    "verbs": ["patch"],
                },
                *([_MAKE_EXECUTORS] if executors else []),
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
