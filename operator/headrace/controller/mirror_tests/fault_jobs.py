"""Jobs for chaos and for a rehearsed fail-over, with their permissions.

Faults run in Jobs, which continue without the operator, because chaos may kill the operator.
"""

from collections.abc import Iterable, Sequence
from math import ceil

from headrace.api import ChaosAction, ClusterSpec
from headrace.controller.mirror_tests.run import (
    PLAN_FILE,
    REHEARSAL_FILE,
    RUN_FOLDER,
    TEST_FILE,
    WRITABLE,
    TestRun,
    build_limits,
    metadata,
    ready_by,
    report_name,
)
from headrace.controller.resources.children import RBAC, FixedRole, account, binding
from headrace.controller.resources.deployment import (
    CONTAINER_SECURITY,
    SECRETS_FOLDER,
    build_mounts,
    build_volumes,
    secrets_of,
)
from headrace.k8s import Object
from headrace.mirror_test import Stage, assumed_messages, build_rehearsal

_COMMANDS = {Stage.CHAOS: ("chaos", PLAN_FILE), Stage.REHEARSAL: ("rehearse", REHEARSAL_FILE)}
_READY_FILE = f"{WRITABLE}/ready"


def build_pod(
    run: TestRun,
    stage: Stage,
    clusters: Iterable[ClusterSpec | None],
    memory: str,
    *,
    options: Sequence[str] = (),
    env: Sequence[Object] = (),
    **of_pod: int,
) -> Object:
    """Return a pod's spec with the Secrets of ``clusters``.

    ``options`` and ``env`` are added to the container, and ``of_pod`` to the pod.
    """
    verb, plan = _COMMANDS[stage]
    variables = [*env, *run.log_variables]
    secrets = secrets_of(*(cluster for cluster in clusters if cluster))
    return {
        "restartPolicy": "Never",
        "serviceAccountName": run.part(stage),
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        **of_pod,
        "containers": [
            {
                "name": stage.value,
                "image": run.images.chaos,
                "imagePullPolicy": run.images.chaos_pull_policy,
                "command": ["headrace", "test", verb],
                "args": [
                    f"--test={TEST_FILE}",
                    f"--plan={plan}",
                    f"--run={run.name}",
                    f"--ready={_READY_FILE}",
                    f"--secrets={SECRETS_FOLDER}",
                    *options,
                ],
                **({"env": variables} if variables else {}),
                "resources": {
                    "requests": {"cpu": "50m", "memory": memory},
                    "limits": build_limits(memory, run.test.spec.spark.driver.resources.limits.cpu),
                },
                # The load starts when the Job follows the journal and its groups exist.
                "readinessProbe": ready_by(_READY_FILE),
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "securityContext": CONTAINER_SECURITY,
                "volumeMounts": [
                    {"name": "run", "mountPath": RUN_FOLDER, "readOnly": True},
                    {"name": "tmp", "mountPath": WRITABLE},
                    *build_mounts(secrets),
                ],
            }
        ],
        "volumes": [
            {"name": "run", "configMap": {"name": run.part("run")}},
            {"name": "tmp", "emptyDir": {}},
            *build_volumes(secrets),
        ],
    }


_MEMORY = "512Mi"
"""Memory of the chaos pod, which reads all units of the flow. A flow may have 10,000 units."""


def build_chaos_pod(run: TestRun) -> Object:
    """Return the spec of the chaos pod.

    It reads the load's progress from the journal on the source. It reads the target only for steps
    whose recovery is visible there.
    """
    spec = run.test.spec
    on_target = any(
        step.action.is_of_load or step.action.is_of_others or step.action is ChaosAction.PAUSE_FLOW
        for step in run.steps
    )
    clusters = (spec.source, spec.target if on_target else None)
    return build_pod(run, Stage.CHAOS, clusters, _MEMORY)


# The Job for ``spec.rehearsal``. It is the only Job that gets a second pod. If the first one was
# killed, the second one undoes the fail-over, and rehearses nothing.

_GRACE_PERIOD_S = 120
"""Time to undo the fail-over, which reads and writes progress on the target, in seconds."""
_PROCESSES_MIB, _GROUP_MIB = 448, 8
"""Memory in MiB: of the two Python processes together (the Job and `headrace failover`), and of the
consumer of one group."""
_RECORD_BYTES, _DELIVERED_BYTES = 700, 8
"""Memory in bytes for counting one record of the load, and for each group that receives the
record."""

RETRIES: Object = {
    "backoffLimit": 1,
    "podFailurePolicy": {
        "rules": [
            {
                # After these exit codes nothing is left to undo. Codes of signals are higher.
                "action": "FailJob",
                "onExitCodes": {
                    "containerName": Stage.REHEARSAL.value,
                    "operator": "In",
                    "values": [1, 2, 3],
                },
            }
        ]
    },
}
"""Settings of the rehearsal Job."""


def rehearsal_plan(run: TestRun) -> str:
    """Return the rehearsal document, which the Job and the verifier read."""
    assert run.rehearsal is not None
    unreported = f"Job {run.part(Stage.REHEARSAL)} ended before it was done"
    return build_rehearsal(run.name, run.rehearsal, unreported)


def build_rehearsal_pod(run: TestRun) -> Object:
    """Return the spec of the rehearsal pod.

    Its consumers read both clusters with the flow's own principals.
    """
    spec = run.test.spec
    return build_pod(
        run,
        Stage.REHEARSAL,
        (spec.source, spec.target),
        f"{_memory_mib(run)}Mi",
        options=["--after-chaos"] if run.steps else [],
        env=[{"name": "HOME", "value": WRITABLE}],
        terminationGracePeriodSeconds=_GRACE_PERIOD_S,
    )


def _memory_mib(run: TestRun) -> int:
    groups = run.rehearsal.groups if run.rehearsal else 0
    record_bytes = _RECORD_BYTES + groups * _DELIVERED_BYTES
    counted_mib = ceil(assumed_messages(run.test.spec.load) * record_bytes / (1 << 20))
    return _PROCESSES_MIB + groups * _GROUP_MIB + counted_mib


_MAKE_EXECUTORS: Object = {
    "apiGroups": [""],
    "resources": ["pods"],
    "verbs": ["create", "get", "list", "watch", "delete", "deletecollection"],
}


def build_access(run: TestRun) -> list[Object]:
    """Return the accounts, roles and bindings of a test's Jobs.

    - Spark drivers: an account, a role and a binding.
    - Spark executors: an account without permissions.
    - Chaos and rehearsal: an account and a binding each, if the test has the stage.

    A test with executors needs the permission to create pods. If ``executor_role`` is set, the
    drivers' account is bound to it, and the operator does not need this permission. Otherwise the
    drivers' role contains it, and the operator must have it.
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
    """Return a stage's account and binding. The result is empty without the stage or role."""
    if stage not in run.stages or role is None:
        return []
    about = metadata(run, run.part(stage))
    return [account(about), binding(about, kind=role.kind, role=role.name)]


def _executors_binding(run: TestRun, account: str) -> list[Object]:
    if not run.has_executors or (fixed := run.executor_role) is None:
        return []
    about = metadata(run, run.part("executors"))
    return [binding(about, kind=fixed.kind, role=fixed.name, account=account)]
