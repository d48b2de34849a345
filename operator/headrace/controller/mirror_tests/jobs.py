"""The Jobs of a MirrorTest: probe, producer and verifier, and where it asks for them, chaos and a
rehearsed fail-over.

The one pod of a Spark job *is* the Spark driver (client mode). It makes its executors from a pod
template and owns them, so that they go when it goes. Nothing is tried twice: a load that is sent
again is another load, and a verdict on half a load is none.
"""

import json

from headrace.api import MIRROR_TEST_LABEL, ClusterSpec
from headrace.controller.mirror_tests.access import build_access
from headrace.controller.mirror_tests.chaos import build_chaos_pod
from headrace.controller.mirror_tests.rehearsal import (
    RETRIES,
    build_rehearsal_pod,
    rehearsal_plan,
)
from headrace.controller.mirror_tests.run import (
    PLAN_FILE,
    REHEARSAL_FILE,
    RUN_FOLDER,
    STAGE_LABEL,
    TEST_FILE,
    WRITABLE,
    TestRun,
    build_limits,
    labels,
    metadata,
    ready_by,
    report_name,
)
from headrace.controller.mirror_tests.spark import (
    BLOCK_MANAGER_PORT,
    DRIVER_PORT,
    driver_cpu,
    driver_memory_mib,
    submit_arguments,
)
from headrace.controller.resources.deployment import HTTP_PORT
from headrace.controller.resources.pods import (
    CONTAINER_SECURITY,
    as_wished,
    from_field,
)
from headrace.controller.resources.secrets import (
    SECRETS_FOLDER,
    build_mounts,
    build_volumes,
    secrets_of,
)
from headrace.k8s import Object
from headrace.mirror_test import Stage, build_plan, deadline_s, documents

_OUT_FOLDER = f"{WRITABLE}/run"
_TEMPLATE = f"{RUN_FOLDER}/executor.json"
_SCRIPTS = "/opt/headrace/spark-jobs"
_GRACE_PERIOD_S = 30
_READY_FILE = f"{_OUT_FOLDER}/{documents.READY}"


def build_run(run: TestRun) -> list[Object]:
    """What all Jobs of a run need, in the order in which it is applied."""
    return [
        *build_access(run),
        *([_network_policy(run)] if run.network_policy else []),
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata(run, run.part("run")),
            "data": {
                documents.TEST: run.test.model_dump_json(
                    by_alias=True, exclude_none=True, exclude={"status"}, indent=1
                ),
                "executor.json": json.dumps(_executor_template(run), indent=1),
                **({documents.FAULTS: _plan(run)} if run.steps else {}),
                **({documents.REHEARSAL: rehearsal_plan(run)} if run.rehearsal else {}),
            },
        },
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata(run, report_name(run.test)),
        },
    ]


def build_job(run: TestRun, stage: Stage) -> Object:
    """One stage."""
    of_stage = labels(run) | {STAGE_LABEL: stage.value}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(run, run.part(stage)) | {"labels": of_stage},
        "spec": {
            "backoffLimit": 0,
            **(RETRIES if stage is Stage.REHEARSAL else {}),
            "completions": 1,
            "parallelism": 1,
            "activeDeadlineSeconds": deadline_s(run.test, stage),
            "template": as_wished(run.test.spec.pod_template, of_stage, _build_pod(run, stage)),
        },
    }


def _build_pod(run: TestRun, stage: Stage) -> Object:
    if stage is Stage.CHAOS:
        return build_chaos_pod(run)
    return build_rehearsal_pod(run) if stage is Stage.REHEARSAL else _build_spark_pod(run, stage)


def _network_policy(run: TestRun) -> Object:
    """In: the test's own pods of Spark, on Spark's ports; anybody on that of the metrics. Out:
    anything. As for drivers."""
    own = {"matchLabels": {MIRROR_TEST_LABEL: labels(run)[MIRROR_TEST_LABEL]}}
    ports = [{"port": port, "protocol": "TCP"} for port in (DRIVER_PORT, BLOCK_MANAGER_PORT)]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(run, run.part("spark")),
        "spec": {
            "podSelector": own,
            "policyTypes": ["Ingress"],
            "ingress": [
                {"from": [{"podSelector": own}], "ports": ports},
                {"ports": [{"port": HTTP_PORT, "protocol": "TCP"}]},
            ],
        },
    }


def _plan(run: TestRun) -> str:
    unreported = f"Job {run.part(Stage.CHAOS)} ended before it was done"
    return build_plan(run.steps, unreported)


def _build_spark_pod(run: TestRun, stage: Stage) -> Object:
    return {
        "restartPolicy": "Never",
        "serviceAccountName": run.part("spark"),
        # To make executors, and to write the report.
        "automountServiceAccountToken": run.has_executors or stage is Stage.VERIFY,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": _GRACE_PERIOD_S,
        "containers": [_container(run, stage)],
        "volumes": [
            {"name": "run", "configMap": {"name": run.part("run")}},
            *_volumes(run),
        ],
    }


def _container(run: TestRun, stage: Stage) -> Object:
    memory = f"{driver_memory_mib(run.test, stage)}Mi"
    container: Object = {
        "name": "spark-driver",
        "image": run.image,
        "imagePullPolicy": run.pull_policy,
        "workingDir": WRITABLE,
        "command": ["spark-submit"],
        "args": [
            *submit_arguments(
                run.test, stage, run.part(stage), (run.image, run.pull_policy), _TEMPLATE
            ),
            f"{_SCRIPTS}/{stage}.py",
            f"--test={TEST_FILE}",
            f"--run={run.name}",
            f"--out={_OUT_FOLDER}",
            f"--secrets={SECRETS_FOLDER}",
            *(_of_the_verifier(run) if stage is Stage.VERIFY else (f"--metrics-port={HTTP_PORT}",)),
        ],
        "env": [
            from_field("POD_NAME", "metadata.name"),
            from_field("POD_NAMESPACE", "metadata.namespace"),
            from_field("POD_IP", "status.podIP"),
            {"name": "HOME", "value": WRITABLE},
        ],
        "resources": {
            "requests": {"cpu": driver_cpu(run.test), "memory": memory},
            "limits": build_limits(memory, run.test.spec.spark.driver.resources.limits.cpu),
        },
        # Its last sentence, for the operator to read when there is no report.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": CONTAINER_SECURITY,
        "volumeMounts": [
            {"name": "run", "mountPath": RUN_FOLDER, "readOnly": True},
            *_mounts(run),
        ],
    }
    if stage is not Stage.VERIFY:
        container["ports"] = [{"name": "http", "containerPort": HTTP_PORT, "protocol": "TCP"}]
    if stage is Stage.PROBE:
        # The load starts when the probe watches, so that no message arrives unseen.
        container["readinessProbe"] = ready_by(_READY_FILE)
    return container


def _of_the_verifier(run: TestRun) -> list[str]:
    found = [f"--config-map=$(POD_NAMESPACE)/{report_name(run.test)}"]
    if run.steps:
        found.append(f"--chaos={PLAN_FILE}")
    if run.rehearsal:
        found.append(f"--rehearsal={REHEARSAL_FILE}")
    return found


def _executor_template(run: TestRun) -> Object:
    """Spark fills in image, command, ports and resources."""
    spec: Object = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [
            {
                "name": "executor",
                "workingDir": WRITABLE,
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "securityContext": CONTAINER_SECURITY,
                "volumeMounts": _mounts(run),
            }
        ],
        "volumes": _volumes(run),
    }
    pod = as_wished(run.test.spec.pod_template, labels(run), spec)
    return {"apiVersion": "v1", "kind": "Pod", **pod}


def _volumes(run: TestRun) -> list[Object]:
    return [{"name": "tmp", "emptyDir": {}}, *build_volumes(_secrets(run))]


def _mounts(run: TestRun) -> list[Object]:
    return [{"name": "tmp", "mountPath": WRITABLE}, *build_mounts(_secrets(run))]


def _secrets(run: TestRun) -> list[str]:
    spec = run.test.spec
    clusters: list[ClusterSpec] = [c for c in (spec.source, spec.target) if c is not None]
    return secrets_of(*clusters)
