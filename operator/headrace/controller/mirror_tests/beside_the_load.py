"""The Jobs that run a command of headrace beside the load: chaos, and a rehearsed fail-over.

They are Jobs, so that they outlive the operator, which chaos may have to kill.
"""

from collections.abc import Iterable, Sequence

from headrace.api import ClusterSpec
from headrace.controller.mirror_tests.run import (
    PLAN_FILE,
    REHEARSAL_FILE,
    RUN_FOLDER,
    TEST_FILE,
    WRITABLE,
    TestRun,
    build_limits,
    ready_by,
)
from headrace.controller.resources.pods import CONTAINER_SECURITY
from headrace.controller.resources.secrets import (
    SECRETS_FOLDER,
    build_mounts,
    build_volumes,
    secrets_of,
)
from headrace.k8s import Object
from headrace.mirror_test import Stage

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
    """What its pod is, with the Secrets of ``clusters``; ``of_pod``: more fields of it."""
    verb, plan = _COMMANDS[stage]
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
                **({"env": list(env)} if env else {}),
                "resources": {
                    "requests": {"cpu": "50m", "memory": memory},
                    "limits": build_limits(memory, run.test.spec.spark.driver.resources.limits.cpu),
                },
                # The load starts when it follows the journal, or its groups are in place.
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
