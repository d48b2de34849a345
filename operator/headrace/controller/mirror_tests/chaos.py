"""The Job that carries out ``spec.chaos``, and what it may do.

It is a Job, so that it outlives the operator, which it may have to kill. Its rights are a role that
the chart ships: the operator may bind that role, and does not have those rights itself.
"""

from headrace.api import ChaosAction
from headrace.controller.mirror_tests.run import (
    PLAN_FILE,
    RUN_FOLDER,
    TEST_FILE,
    WRITABLE,
    TestRun,
    build_limits,
    metadata,
    ready_by,
)
from headrace.controller.resources.access import account, binding
from headrace.controller.resources.pods import CONTAINER_SECURITY
from headrace.controller.resources.secrets import (
    SECRETS_FOLDER,
    build_mounts,
    build_volumes,
    secrets_of,
)
from headrace.k8s import Object
from headrace.mirror_test import Stage

_READY_FILE = f"{WRITABLE}/ready"
_MEMORY = "512Mi"
"""It reads all units of the flow, of which there may be 10,000."""


def build_chaos_access(run: TestRun) -> list[Object]:
    """Account of the Job's pod, and its binding to the role; nothing where there is no such Job."""
    if not run.steps or run.role is None:
        return []
    about = metadata(run, run.part(Stage.CHAOS))
    return [account(about), binding(about, kind=run.role.kind, role=run.role.name)]


def build_chaos_pod(run: TestRun) -> Object:
    """What its pod is. It reads the load's progress in the journal, on the source; what arrives on
    the target only for steps whose recovery is seen there."""
    spec = run.test.spec
    on_target = any(
        step.action.is_of_load or step.action.is_of_others or step.action is ChaosAction.PAUSE_FLOW
        for step in run.steps
    )
    clusters = (spec.source, spec.target if on_target else None)
    secrets = secrets_of(*(cluster for cluster in clusters if cluster))
    return {
        "restartPolicy": "Never",
        "serviceAccountName": run.part(Stage.CHAOS),
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        "containers": [
            {
                "name": "chaos",
                "image": run.images.chaos,
                "imagePullPolicy": run.images.chaos_pull_policy,
                "command": ["headrace", "chaos"],
                "args": [
                    f"--test={TEST_FILE}",
                    f"--plan={PLAN_FILE}",
                    f"--run={run.name}",
                    f"--ready={_READY_FILE}",
                    f"--secrets={SECRETS_FOLDER}",
                ],
                "resources": {
                    "requests": {"cpu": "50m", "memory": _MEMORY},
                    "limits": build_limits(_MEMORY, spec.spark.driver.resources.limits.cpu),
                },
                # The load starts when it follows the journal, so that no step comes late.
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
