"""Spark Jobs of a MirrorTest: probe, producer and verifier.

The only pod of such a Job is the Spark driver (client mode). It creates its executors from a pod
template and owns them, so that they are deleted with it. Nothing is retried, because a load that is
sent again is another load, and half a load permits no verdict.
"""

import json
from math import ceil

from headrace.api import MIRROR_TEST_LABEL, MirrorTest
from headrace.controller.mirror_tests.fault_jobs import (
    RETRIES,
    build_access,
    build_chaos_pod,
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
from headrace.controller.resources.deployment import (
    CONTAINER_SECURITY,
    HTTP_PORT,
    SECRETS_FOLDER,
    build_mounts,
    build_volumes,
    from_field,
    secrets_of,
    with_pod_template,
)
from headrace.k8s import Object
from headrace.mirror_test import (
    HEAP_MIB,
    Stage,
    build_plan,
    deadline_s,
    documents,
    java_options,
    local_slots,
)

# Spark on Kubernetes in client mode: settings of Spark drivers and executors. The driver's address
# is its pod's, so no Service is needed. The names of the settings are documented in Spark 4.2,
# running-on-kubernetes.

EXECUTOR_LABELS = {"spark-role": "executor"}
"""Labels that Spark sets on each executor's pod."""

_DRIVER_CPU, _EXECUTOR_CPU = "500m", "200m"
_EXECUTOR_MIB = 1536
_PYTHON_MIB = 512
"""Memory in MiB that Python and its Kafka clients need in addition to the JVM."""
_PRODUCER_MIB = 256
"""Memory of a task's Python worker, including 64 MiB in librdkafka's queue.

It applies if the task runs in the Spark driver's pod.
"""
DRIVER_PORT, BLOCK_MANAGER_PORT = 7078, 7079
"""Ports on which a test's Spark pods connect to each other. A NetworkPolicy allows them."""
_EXECUTORS_TIMEOUT_S = 300
"""Time after which a stage starts with the executors that exist, in seconds.

The job then reports that they are too few.
"""

_APART = {
    # Encryption with a secret for each job, which its Spark driver creates. No other pod can join a
    # job or read its traffic.
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.authEngineVersion": "2",
    # AES/GCM would also authenticate, but with it Spark 4.0.0 loses every message except the first
    # (SPARK-56227).
    "spark.network.crypto.cipher": "AES/CTR/NoPadding",
    "spark.network.crypto.saslFallback": "false",
}
_NOT_NEEDED = {
    # Without these settings, Spark would need permissions on ConfigMaps, Services or
    # PersistentVolumeClaims.
    "spark.kubernetes.executor.disableConfigMap": "true",
    "spark.kubernetes.driver.service.deleteOnTermination": "false",
    "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
    "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
}


def driver_memory_mib(test: MirrorTest, stage: Stage) -> int:
    """Return the memory of the Job's pod in MiB."""
    spark = test.spec.spark
    tasks_mib = 0 if spark.executors else _PRODUCER_MIB * test.spec.load.producers
    return spark.driver.resources.memory_mib or HEAP_MIB[stage] + _PYTHON_MIB + tasks_mib


def driver_cpu(test: MirrorTest) -> str:
    """Return the CPU request of the Job's pod."""
    return test.spec.spark.driver.resources.requests.cpu or _DRIVER_CPU


def submit_arguments(run: TestRun, stage: Stage, template: str) -> list[str]:
    """Return the arguments of spark-submit before the script.

    Args:
        run: Run of the mirror test.
        stage: Stage of the Job.
        template: File with the executors' pod template.
    """
    test, name, executors = run.test, run.part(stage), run.test.spec.spark.executors
    heap_mib = driver_memory_mib(test, stage) - _PYTHON_MIB
    if not executors:
        heap_mib = min(heap_mib, HEAP_MIB[stage])
    settings = _driver_settings()
    if run.log_variables:
        settings["spark.log.structuredLogging.enabled"] = "true"
    if executors:
        master = "k8s://https://kubernetes.default.svc:443"
        settings |= _executor_settings(run, stage, template)
    else:
        master = f"local[{local_slots(stage, test.spec.load.producers)}]"
    return [
        f"--master={master}",
        "--deploy-mode=client",
        f"--name={name}",
        f"--driver-memory={heap_mib}m",
        f"--driver-java-options={java_options(test, stage)}",
        *(f"--conf={setting}={value}" for setting, value in settings.items()),
    ]


def _driver_settings() -> dict[str, str]:
    return {
        "spark.driver.host": "$(POD_IP)",
        "spark.driver.bindAddress": "$(POD_IP)",
        "spark.driver.port": str(DRIVER_PORT),
        # Executors use the same port. Spark's default is a random port.
        "spark.blockManager.port": str(BLOCK_MANAGER_PORT),
        "spark.driver.blockManager.port": str(BLOCK_MANAGER_PORT),
        **_APART,
        **_NOT_NEEDED,
        "spark.ui.enabled": "false",
        "spark.log.level": "WARN",  # so that the job's last message is at the end of the log
    }


def _executor_settings(run: TestRun, stage: Stage, template: str) -> dict[str, str]:
    test, name = run.test, run.part(stage)
    executor, count = test.spec.spark.executor.resources, test.spec.spark.executors
    memory_mib = executor.memory_mib or _EXECUTOR_MIB
    return {
        "spark.kubernetes.namespace": "$(POD_NAMESPACE)",
        "spark.kubernetes.driver.pod.name": "$(POD_NAME)",
        "spark.kubernetes.container.image": run.image,
        "spark.kubernetes.container.image.pullPolicy": run.pull_policy,
        "spark.kubernetes.executor.podNamePrefix": name,
        "spark.kubernetes.executor.podTemplateFile": template,
        f"spark.kubernetes.executor.label.{STAGE_LABEL}": stage.value,
        "spark.kubernetes.executor.deleteOnTermination": "true",
        "spark.kubernetes.authenticate.executor.serviceAccountName": (
            f"{test.metadata.name}-executor"
        ),
        "spark.kubernetes.executor.request.cores": executor.requests.cpu or _EXECUTOR_CPU,
        **(
            {"spark.kubernetes.executor.limit.cores": executor.limits.cpu}
            if executor.limits.cpu
            else {}
        ),
        **{f"spark.executorEnv.{one['name']}": one["value"] for one in run.log_variables},
        "spark.executor.instances": str(count),
        # Producers and probes of a run work at the same time, each in its own slot.
        "spark.executor.cores": str(ceil(test.spec.load.producers / count)),
        "spark.executor.memory": f"{memory_mib - _PYTHON_MIB}m",
        "spark.executor.memoryOverhead": f"{_PYTHON_MIB}m",
        "spark.executor.extraJavaOptions": java_options(test, stage),
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{_EXECUTORS_TIMEOUT_S}s",
    }


_OUT_FOLDER = f"{WRITABLE}/run"
_TEMPLATE = f"{RUN_FOLDER}/executor.json"
_SCRIPTS = "/opt/headrace/spark-jobs"
_GRACE_PERIOD_S = 30
_READY_FILE = f"{_OUT_FOLDER}/{documents.READY}"


def build_run(run: TestRun) -> list[Object]:
    """Return the objects that all Jobs of a run need, in the order in which they are applied."""
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
    """Return the Job of a stage."""
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
            "template": with_pod_template(
                run.test.spec.pod_template, of_stage, _build_pod(run, stage)
            ),
        },
    }


def _build_pod(run: TestRun, stage: Stage) -> Object:
    if stage is Stage.CHAOS:
        return build_chaos_pod(run)
    return build_rehearsal_pod(run) if stage is Stage.REHEARSAL else _build_spark_pod(run, stage)


def _network_policy(run: TestRun) -> Object:
    """Return the network policy of a test's Spark pods.

    Spark pods of the same test may connect to Spark's ports, and any client to the port of the
    metrics. Outgoing connections are not restricted, as for drivers.
    """
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
        # The token is needed to create executors, and to write the report.
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
            *submit_arguments(run, stage, _TEMPLATE),
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
            *run.log_variables,
        ],
        "resources": {
            "requests": {"cpu": driver_cpu(run.test), "memory": memory},
            "limits": build_limits(memory, run.test.spec.spark.driver.resources.limits.cpu),
        },
        # The operator reads the container's last message if there is no report.
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
        # The load starts when the probe is ready, so that no message is missed.
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
    """Return the executors' pod template. Spark adds image, command, ports and resources."""
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
    pod = with_pod_template(run.test.spec.pod_template, labels(run), spec)
    return {"apiVersion": "v1", "kind": "Pod", **pod}


def _volumes(run: TestRun) -> list[Object]:
    return [{"name": "tmp", "emptyDir": {}}, *build_volumes(_secrets(run))]


def _mounts(run: TestRun) -> list[Object]:
    return [{"name": "tmp", "mountPath": WRITABLE}, *build_mounts(_secrets(run))]


def _secrets(run: TestRun) -> list[str]:
    spec = run.test.spec
    schemas = spec.audit.schemas if spec.audit else None
    return secrets_of(*(user for user in (spec.source, spec.target, schemas) if user is not None))
