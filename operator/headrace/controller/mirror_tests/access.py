"""What the Spark drivers of a MirrorTest may do: make their executors, and write the report."""

from headrace.controller.resources.access import RBAC, account, binding
from headrace.k8s import Object

_MAKE_EXECUTORS: Object = {
    "apiGroups": [""],
    "resources": ["pods"],
    "verbs": ["create", "get", "list", "watch", "delete", "deletecollection"],
}


def build_access(metadata: Object, report: str, *, executors: bool) -> list[Object]:
    """Account, role and binding of the Spark drivers, all named as ``metadata`` says; the
    executors' account, which may do nothing."""
    name = metadata["name"]
    return [
        account(metadata),
        account(metadata | {"name": f"{name.removesuffix('spark')}executor"}),
        {
            "apiVersion": f"{RBAC}/v1",
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
        binding(metadata, kind="Role", role=name),
    ]
