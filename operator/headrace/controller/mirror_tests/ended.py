"""Deletes what would outlive its stage: executors of a Spark driver that was killed, and Jobs of a
test that has its verdict."""

from collections.abc import Iterable, Mapping

from headrace.controller.mirror_tests.pods import TestPod
from headrace.k8s import JOB, POD, Client, Object
from headrace.mirror_test import Stage


def has_ended(job: Object) -> Object | None:
    """The condition that says how a Job ended; ``None`` while it has not."""
    for condition in job.get("status", {}).get("conditions", []):
        if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
            found: Object = condition
            return found
    return None


def left_executors(jobs: Mapping[Stage, Object], pods: Iterable[TestPod]) -> list[str]:
    """Executors without a Spark driver. They end by themselves, but their objects are deleted only
    with the Spark driver's pod, which stays for its log."""
    under_way = {stage.value for stage, job in jobs.items() if not has_ended(job)}
    return [pod.name for pod in pods if pod.executor and pod.stage not in under_way]


def left_jobs(jobs: Mapping[Stage, Object], *, reported: bool) -> list[str]:
    """Jobs whose results are not needed any more; a verifier that has reported ends by itself."""
    return [
        job["metadata"]["name"]
        for stage, job in jobs.items()
        if not has_ended(job) and not (reported and stage is Stage.VERIFY)
    ]


async def remove(
    client: Client, namespace: str, pods: Iterable[str], jobs: Iterable[str] = ()
) -> None:
    """Delete them; a Job's pods go with it."""
    for name in pods:
        await client.delete(POD, namespace, name)
    for name in jobs:
        await client.delete(JOB, namespace, name)
