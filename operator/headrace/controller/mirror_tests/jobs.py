"""The Jobs of a MirrorTest: producer, probe and verifier.

The one pod of a Job *is* the Spark driver (client mode). It makes its executors from a pod template
and owns them, so that they go when it goes. Nothing is tried twice: a load that is sent again is
another load, and a verdict on half a load is none.
"""

import json
from dataclasses import dataclass
from math import ceil

from headrace.api import ClusterSpec, MirrorTest
from headrace.api.labels import MIRROR_TEST_LABEL, label_value
from headrace.controller.mirror_tests.access import build_access
from headrace.controller.mirror_tests.spark import (
    STAGE_LABEL,
    driver_memory_mib,
    submit_arguments,
)
from headrace.controller.resources.secrets import (
    SECRETS_FOLDER,
    build_mounts,
    build_volumes,
    secrets_of,
)
from headrace.k8s import Object, owner_reference
from headrace.replication.stages import Stage

_RUN_FOLDER = "/etc/headrace/run"
_WRITABLE = "/tmp"
_OUT_FOLDER = f"{_WRITABLE}/run"
_TEMPLATE = f"{_RUN_FOLDER}/executor.json"
_SCRIPTS = "/opt/headrace/spark-jobs"
_GRACE_PERIOD_S = 30
_READY_FILE = f"{_OUT_FOLDER}/ready"

_DEADLINE_S = 3_600
"""Beyond what the load and the settling take by themselves: what takes an hour more is stuck."""


@dataclass(frozen=True)
class Images:
    """What the pods run."""

    spark: str
    pull_policy: str = "IfNotPresent"


@dataclass(frozen=True)
class TestRun:
    """A test that was resolved (it names its clusters), and where it runs."""

    __test__ = False  # pytest: no test of ours

    test: MirrorTest
    images: Images

    @property
    def name(self) -> str:
        """Of the run: at most 20 characters, the same whoever looks."""
        metadata = self.test.metadata
        made = metadata.creation_timestamp
        return f"{made:%y%m%d-%H%M%S}-{(metadata.uid or '')[:4]}" if made else metadata.name[:20]

    @property
    def image(self) -> str:
        """Of the Jobs' pods and of the executors."""
        return self.test.spec.spark.image or self.images.spark

    @property
    def has_executors(self) -> bool:
        """Whether the Jobs' pods make others."""
        return self.test.spec.spark.executors > 0

    def part(self, name: str) -> str:
        """The name of an object that belongs to the test."""
        return f"{self.test.metadata.name}-{name}"


def report_name(test: MirrorTest) -> str:
    """The ConfigMap that the verifier writes ``report.json`` into."""
    return f"{test.metadata.name}-report"


def build_run(run: TestRun) -> list[Object]:
    """What all Jobs of a run need, in the order in which it is applied."""
    account = run.part("spark")
    metadata = _metadata(run, account)
    return [
        *build_access(metadata, report_name(run.test), executors=run.has_executors),
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": _metadata(run, run.part("run")),
            "data": {
                "test.json": run.test.model_dump_json(
                    by_alias=True, exclude_none=True, exclude={"status"}, indent=1
                ),
                "executor.json": json.dumps(_executor_template(run), indent=1),
            },
        },
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": _metadata(run, report_name(run.test)),
        },
    ]


def build_job(run: TestRun, stage: Stage) -> Object:
    """One stage."""
    labels = _labels(run) | {STAGE_LABEL: stage.value}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(run, run.part(stage)) | {"labels": labels},
        "spec": {
            "backoffLimit": 0,
            "completions": 1,
            "parallelism": 1,
            "activeDeadlineSeconds": _deadline_s(run.test, stage),
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "restartPolicy": "Never",
                    "serviceAccountName": run.part("spark"),
                    # To make executors, and to write the report.
                    "automountServiceAccountToken": run.has_executors or stage is Stage.VERIFY,
                    "enableServiceLinks": False,
                    "terminationGracePeriodSeconds": _GRACE_PERIOD_S,
                    "securityContext": _POD_SECURITY,
                    "containers": [_container(run, stage)],
                    "volumes": [
                        {"name": "run", "configMap": {"name": run.part("run")}},
                        *_volumes(run),
                    ],
                },
            },
        },
    }


def _container(run: TestRun, stage: Stage) -> Object:
    memory = f"{driver_memory_mib(run.test, stage)}Mi"
    container: Object = {
        "name": "spark-driver",
        "image": run.image,
        "imagePullPolicy": run.images.pull_policy,
        "workingDir": _WRITABLE,
        "command": ["spark-submit"],
        "args": [
            *submit_arguments(
                run.test, stage, run.part(stage), (run.image, run.images.pull_policy), _TEMPLATE
            ),
            f"{_SCRIPTS}/{stage}.py",
            f"--test={_RUN_FOLDER}/test.json",
            f"--run={run.name}",
            f"--out={_OUT_FOLDER}",
            f"--secrets={SECRETS_FOLDER}",
            *(["--config-map=$(POD_NAMESPACE)/" + report_name(run.test)] * (stage is Stage.VERIFY)),
        ],
        "env": [
            _from_field("POD_NAME", "metadata.name"),
            _from_field("POD_NAMESPACE", "metadata.namespace"),
            _from_field("POD_IP", "status.podIP"),
            {"name": "HOME", "value": _WRITABLE},
        ],
        "resources": {
            "requests": {"cpu": run.test.spec.spark.driver.cpu, "memory": memory},
            "limits": {"memory": memory},
        },
        # Its last sentence, for the operator to read when there is no report.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": _CONTAINER_SECURITY,
        "volumeMounts": [
            {"name": "run", "mountPath": _RUN_FOLDER, "readOnly": True},
            *_mounts(run),
        ],
    }
    if stage is Stage.PROBE:
        # The load starts when the probe watches, so that no message arrives unseen.
        container["readinessProbe"] = {
            "exec": {"command": ["test", "-f", _READY_FILE]},
            "periodSeconds": 1,
        }
    return container


def _executor_template(run: TestRun) -> Object:
    """Spark fills in image, command, ports and resources."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": _labels(run)},
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": _POD_SECURITY,
            "containers": [
                {
                    "name": "executor",
                    "workingDir": _WRITABLE,
                    "securityContext": _CONTAINER_SECURITY,
                    "volumeMounts": _mounts(run),
                }
            ],
            "volumes": _volumes(run),
        },
    }


_POD_SECURITY: Object = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
_CONTAINER_SECURITY: Object = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}


def _volumes(run: TestRun) -> list[Object]:
    return [{"name": "tmp", "emptyDir": {}}, *build_volumes(_secrets(run))]


def _mounts(run: TestRun) -> list[Object]:
    return [{"name": "tmp", "mountPath": _WRITABLE}, *build_mounts(_secrets(run))]


def _secrets(run: TestRun) -> list[str]:
    spec = run.test.spec
    clusters: list[ClusterSpec] = [c for c in (spec.source, spec.target) if c is not None]
    return secrets_of(*clusters)


def _deadline_s(test: MirrorTest, stage: Stage) -> int:
    load, settle_s = test.spec.load, test.spec.settle_seconds
    if load.duration_seconds is not None:
        load_s = load.duration_seconds
    else:
        topics = len(load.names or ()) or load.topics or 1
        per_second = topics * (load.messages_per_second or 1_000)
        load_s = ceil((load.messages or 0) / per_second)
    return _DEADLINE_S + (settle_s if stage is Stage.VERIFY else load_s + settle_s)


def _from_field(name: str, path: str) -> Object:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _labels(run: TestRun) -> dict[str, str]:
    name = label_value(run.test.metadata.name)
    return {
        "app.kubernetes.io/name": "headrace",
        "app.kubernetes.io/instance": name,
        "app.kubernetes.io/managed-by": "headrace",
        "app.kubernetes.io/component": "mirror-test",
        MIRROR_TEST_LABEL: name,
    }


def _metadata(run: TestRun, name: str) -> Object:
    """The garbage collector deletes it with its test: deleting a test cancels it."""
    test = run.test
    return {
        "name": name,
        "namespace": test.metadata.namespace,
        "labels": _labels(run),
        "ownerReferences": [owner_reference(test)],
    }
