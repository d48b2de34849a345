"""What the Jobs of a MirrorTest may do: the Spark drivers make their executors, and write the
report; those beside the load have a role that the chart ships, which the operator may bind, and
does not have itself.
"""

from headrace.controller.mirror_tests.run import FixedRole, TestRun, metadata, report_name
from headrace.controller.resources.access import RBAC, account, binding
from headrace.k8s import Object
from headrace.mirror_test import Stage

_MAKE_EXECUTORS: Object = {
    "apiGroups": [""],
    "resources": ["pods"],
    "verbs": ["create", "get", "list", "watch", "delete", "deletecollection"],
}


def build_access(run: TestRun) -> list[Object]:
    """Account, role and binding of the Spark drivers; the executors' account, which may do nothing;
    accounts and bindings of chaos and rehearsal.

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
        *_beside_the_load(run, Stage.CHAOS, run.role),
        *_beside_the_load(run, Stage.REHEARSAL, run.rehearsal_role),
    ]


def _beside_the_load(run: TestRun, stage: Stage, role: FixedRole | None) -> list[Object]:
    """Account of the Job's pod, and its binding to the role; nothing where there is no such Job."""
    if stage not in run.stages or role is None:
        return []
    about = metadata(run, run.part(stage))
    return [account(about), binding(about, kind=role.kind, role=role.name)]


def _executors_binding(run: TestRun, account: str) -> list[Object]:
    if not run.has_executors or (fixed := run.executor_role) is None:
        return []
    about = metadata(run, run.part("executors"))
    return [binding(about, kind=fixed.kind, role=fixed.name, account=account)]
