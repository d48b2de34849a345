"""Spark on Kubernetes in client mode: the settings of a Spark driver, and what its executors are.

The driver's address is its pod's, so no Service is needed. The executors are pods that it makes
and owns: they go when it goes. (Names of the settings: Spark 4.0, running-on-kubernetes.)
"""

from math import ceil

from headrace.api import MirrorTest
from headrace.controller.mirror_tests.run import STAGE_LABEL
from headrace.mirror_test import HEAP_MIB, JAVA_OPTIONS, Stage, local_slots

EXECUTOR_LABELS = {"spark-role": "executor"}
"""Spark's own, on each executor's pod."""

_DRIVER_CPU, _EXECUTOR_CPU = "500m", "200m"
_EXECUTOR_MIB = 1536
_PYTHON_MIB = 512
"""Python and its Kafka clients beside a JVM."""
_PRODUCER_MIB = 256
"""A task's Python worker, with 64 MiB in librdkafka's queue, where it has no executor's pod."""
DRIVER_PORT, BLOCK_MANAGER_PORT = 7078, 7079
"""Where pods of Spark are reached by the others of their test: a NetworkPolicy names them."""
_EXECUTORS_WITHIN_S = 300
"""After that a stage begins with those that are there, and says that they are too few."""

_APART = {
    # Nobody else in the cluster's network takes part in a job or reads along: a secret of its own
    # for each, made by its Spark driver.
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.authEngineVersion": "2",
    # AES/GCM would be authenticated, too: Spark 4.0.0 loses every message but the first with it
    # (SPARK-56227).
    "spark.network.crypto.cipher": "AES/CTR/NoPadding",
    "spark.network.crypto.saslFallback": "false",
}
_NOT_NEEDED = {
    # Each would take rights to ConfigMaps, Services or PersistentVolumeClaims of others.
    "spark.kubernetes.executor.disableConfigMap": "true",
    "spark.kubernetes.driver.service.deleteOnTermination": "false",
    "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
    "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
}


def driver_memory_mib(test: MirrorTest, stage: Stage) -> int:
    """Of the Job's pod."""
    spark = test.spec.spark
    tasks_mib = 0 if spark.executors else _PRODUCER_MIB * test.spec.load.producers
    return spark.driver.resources.memory_mib or HEAP_MIB[stage] + _PYTHON_MIB + tasks_mib


def driver_cpu(test: MirrorTest) -> str:
    """Processors set aside for the Job's pod."""
    return test.spec.spark.driver.resources.requests.cpu or _DRIVER_CPU


def submit_arguments(
    test: MirrorTest, stage: Stage, name: str, images: "tuple[str, str]", template: str
) -> list[str]:
    """Of spark-submit, before the script.

    ``name`` is the Job's, and begins the executors' names. ``images``: of the executors, and its
    pull policy. ``template`` is the file with their pod.
    """
    executors = test.spec.spark.executors
    heap_mib = driver_memory_mib(test, stage) - _PYTHON_MIB
    if not executors:
        heap_mib = min(heap_mib, HEAP_MIB[stage])
    settings = _driver_settings()
    if executors:
        master = "k8s://https://kubernetes.default.svc:443"
        settings |= _executor_settings(test, stage, name, images, template)
    else:
        master = f"local[{local_slots(stage, test.spec.load.producers)}]"
    return [
        f"--master={master}",
        "--deploy-mode=client",
        f"--name={name}",
        f"--driver-memory={heap_mib}m",
        f"--driver-java-options={JAVA_OPTIONS[stage]}",
        *(f"--conf={setting}={value}" for setting, value in settings.items()),
    ]


def _driver_settings() -> dict[str, str]:
    return {
        "spark.driver.host": "$(POD_IP)",
        "spark.driver.bindAddress": "$(POD_IP)",
        "spark.driver.port": str(DRIVER_PORT),
        # Executors', too; Spark's own is any.
        "spark.blockManager.port": str(BLOCK_MANAGER_PORT),
        "spark.driver.blockManager.port": str(BLOCK_MANAGER_PORT),
        **_APART,
        **_NOT_NEEDED,
        "spark.ui.enabled": "false",
        "spark.log.level": "WARN",  # a job's last sentence stands at its log's end
    }


def _executor_settings(
    test: MirrorTest, stage: Stage, name: str, images: "tuple[str, str]", template: str
) -> dict[str, str]:
    executor, count = test.spec.spark.executor.resources, test.spec.spark.executors
    memory_mib = executor.memory_mib or _EXECUTOR_MIB
    image, pull_policy = images
    return {
        "spark.kubernetes.namespace": "$(POD_NAMESPACE)",
        "spark.kubernetes.driver.pod.name": "$(POD_NAME)",
        "spark.kubernetes.container.image": image,
        "spark.kubernetes.container.image.pullPolicy": pull_policy,
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
        "spark.executor.instances": str(count),
        # Producers and probes of a run work at the same time, each in a slot of its own.
        "spark.executor.cores": str(ceil(test.spec.load.producers / count)),
        "spark.executor.memory": f"{memory_mib - _PYTHON_MIB}m",
        "spark.executor.memoryOverhead": f"{_PYTHON_MIB}m",
        "spark.executor.extraJavaOptions": JAVA_OPTIONS[stage],
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{_EXECUTORS_WITHIN_S}s",
    }
