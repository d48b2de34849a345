"""The Job that carries out ``spec.rehearsal``, and what it may do.

It outlives the operator, as that of chaos does, and its rights are a role of the chart, too, which
the operator may bind and does not have. It is the only Job that gets a second pod: when the first
one was killed, that one undoes the fail-over, and rehearses nothing.
"""

from math import ceil

from headrace.api import Load
from headrace.controller.mirror_tests.run import (
    REHEARSAL_FILE,
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
from headrace.mirror_test import Stage, build_rehearsal

_CONTAINER = "rehearsal"
_READY_FILE = f"{WRITABLE}/ready"
_GRACE_PERIOD_S = 120
"""To undo the fail-over: a command that reads progress on the target, and writes it."""
_PROCESSES_MIB, _GROUP_MIB = 448, 8
"""Python twice, itself and `headrace failover`; a consumer with what it has fetched."""
_RECORD_BYTES, _DELIVERED_BYTES = 700, 8
"""A record of the load, in the logs and sets that it is counted by; one that a group was
delivered."""

RETRIES: Object = {
    "backoffLimit": 1,
    "podFailurePolicy": {
        "rules": [
            {
                # Ended with a sentence: there is nothing left to undo. A signal is above these.
                "action": "FailJob",
                "onExitCodes": {
                    "containerName": _CONTAINER,
                    "operator": "In",
                    "values": [1, 2, 3],
                },
            }
        ]
    },
}
"""Of its Job."""


def build_rehearsal_access(run: TestRun) -> list[Object]:
    """Account of the Job's pod, and its binding to the role; nothing where there is no such Job."""
    if run.rehearsal is None or run.rehearsal_role is None:
        return []
    about, role = metadata(run, run.part(Stage.REHEARSAL)), run.rehearsal_role
    return [account(about), binding(about, kind=role.kind, role=role.name)]


def rehearsal_plan(run: TestRun) -> str:
    """The document that Job and verifier get, of a run that has one."""
    assert run.rehearsal is not None
    unreported = f"Job {run.part(Stage.REHEARSAL)} ended before it was done"
    return build_rehearsal(run.name, run.rehearsal, unreported)


def build_rehearsal_pod(run: TestRun) -> Object:
    """What its pod is. Its consumers read both clusters, as the flow's own principals."""
    spec = run.test.spec
    secrets = secrets_of(*(one for one in (spec.source, spec.target) if one is not None))
    memory = f"{_memory_mib(run)}Mi"
    return {
        "restartPolicy": "Never",
        "serviceAccountName": run.part(Stage.REHEARSAL),
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": _GRACE_PERIOD_S,
        "containers": [
            {
                "name": _CONTAINER,
                "image": run.images.chaos,
                "imagePullPolicy": run.images.chaos_pull_policy,
                "command": ["headrace", "rehearse"],
                "args": [
                    f"--test={TEST_FILE}",
                    f"--plan={REHEARSAL_FILE}",
                    f"--run={run.name}",
                    f"--ready={_READY_FILE}",
                    f"--secrets={SECRETS_FOLDER}",
                    *(["--after-chaos"] if run.steps else []),
                ],
                "env": [{"name": "HOME", "value": WRITABLE}],
                "resources": {
                    "requests": {"cpu": "50m", "memory": memory},
                    "limits": build_limits(memory, spec.spark.driver.resources.limits.cpu),
                },
                # The load starts when the groups are where it will begin.
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


def _memory_mib(run: TestRun) -> int:
    groups = run.rehearsal.groups if run.rehearsal else 0
    record_bytes = _RECORD_BYTES + groups * _DELIVERED_BYTES
    counted_mib = ceil(_records(run.test.spec.load) * record_bytes / (1 << 20))
    return _PROCESSES_MIB + groups * _GROUP_MIB + counted_mib


def _records(load: Load) -> int:
    """As far as it is known beforehand: without messagesPerSecond, as for a stage's deadline."""
    if load.messages is not None:
        return load.messages
    topics = len(load.names or ()) or load.topics or 1
    return (load.duration_seconds or 0) * topics * (load.messages_per_second or 1_000)
