"""What the Spark drivers of a MirrorTest may do: make their executors, and write the report."""

from headrace.controller.mirror_tests.run import TestRun, metadata, report_name
from headrace.controller.resources.access import RBAC, account, binding
from headrace.k8s import Object

_MAKE_EXECUTORS: Object = {
    "apiGroups": [""],
    "resources": ["pods"],
    "verbs": ["create", "get", "list", "watch", "delete", "deletecollection"],
}


def build_access(run: TestRun) -> list[Object]:
    """Account, role and binding of the Spark drivers; the executors' account, which may do nothing.

    The right to make executors is that of a role which the operator may bind, and so need not have
    itself; without such a role it passes on its own.
    """
    name = run.part("spark")
    about = metadata(run, name)
    rules: list[Object] = [
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": [report_name(run.test)],
            "verbs": ["patch"],
        }
    ]
    if run.has_executors and run.executor_role is None:
        rules.append(_MAKE_EXECUTORS)
    return [
        account(about),
        account(metadata(run, run.part("executor"))),
        {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": about, "rules": rules},
        binding(about, kind="Role", role=name),
        *_executors_binding(run, name),
    ]


def _executors_binding(run: TestRun, account: str) -> list[Object]:
    if not run.has_executors or (fixed := run.executor_role) is None:
        return []
    about = metadata(run, run.part("executors"))
    return [binding(about, kind=fixed.kind, role=fixed.name, account=account)]
