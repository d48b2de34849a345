"""Pods of a MirrorTest: the reasons why they do not start, and the pods to delete.

The kubelet and the scheduler define the reasons (k8s.io/api/core/v1, pkg/kubelet/images).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from headrace import logs
from headrace.api import Reason
from headrace.controller.mirror_tests.jobs import EXECUTOR_LABELS
from headrace.controller.mirror_tests.run import STAGE_LABEL
from headrace.k8s import JOB, POD, Client, Object
from headrace.mirror_test import Stage

_IMAGE = ("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName")
_STARTING = ("ContainerCreating", "PodInitializing")
"""Reasons for waiting that do not indicate a problem."""
_SIGNALS = 128
"""Exit codes above this number indicate a signal."""


@dataclass(frozen=True)
class PodProblem:
    """Reason and message of a pod that does not run, or that has failed."""

    reason: Reason
    message: str


@dataclass(frozen=True)
class TestPod:
    """Facts about a pod of a stage, which is a Spark driver or an executor."""

    __test__ = False  # not a pytest class

    name: str
    stage: str
    executor: bool
    created_at: datetime
    waits: bool
    """True if the pod waits to be scheduled, or for its containers to start."""
    runs: bool
    ended: bool
    killed: bool
    """True if a signal ended the pod, so that its work is incomplete."""
    problem: PodProblem | None


def read_pod(pod: Object) -> TestPod:
    """Return the facts about a pod."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    labels = metadata.get("labels") or {}
    executor = EXECUTOR_LABELS.items() <= labels.items()
    phase = status.get("phase", "Pending")
    ends = [(one.get("state") or {}).get("terminated") or {} for one in _containers(status)]
    return TestPod(
        name=metadata["name"],
        stage=labels.get(STAGE_LABEL, ""),
        executor=executor,
        created_at=datetime.fromisoformat(metadata["creationTimestamp"]),
        waits=phase == "Pending",
        runs=phase == "Running",
        ended=phase in ("Succeeded", "Failed"),
        killed=any(end.get("exitCode", 0) > _SIGNALS for end in ends),
        problem=next(_problems(pod, _advice(labels.get(STAGE_LABEL, ""), executor)), None),
    )


def of_stage(pods: Iterable[TestPod], stage: Stage) -> list[TestPod]:
    """Return the pods of one stage."""
    return [pod for pod in pods if pod.stage == stage]


@dataclass(frozen=True)
class _Advice:
    """Advice for the problems of a pod."""

    memory: str
    """Advice for a pod that exceeded its memory limit."""
    room: str
    """Advice for a pod that does not fit on any node."""
    image: str
    """Advice for a pod whose image does not exist."""


_OF_CHAOS = _Advice(
    memory="please report it",
    room="make room",
    image="the operator's --driver-image (chart: driver.image)",
)
_BESIDE_THE_LOAD: dict[str, _Advice] = {
    Stage.CHAOS: _OF_CHAOS,
    Stage.REHEARSAL: replace(
        _OF_CHAOS, memory="send fewer messages, or have fewer rehearsal.groups"
    ),
}


def _advice(stage: str, executor: bool) -> _Advice:
    if advice := _BESIDE_THE_LOAD.get(stage):
        return advice
    size = f"spec.spark.{'executor' if executor else 'driver'}"
    return _Advice(
        memory=f"raise {size}.resources.limits.memory",
        room=f"make room, or lower {size}" + (" or spec.spark.executors" if executor else ""),
        image="spec.spark.image, or for all tests the operator's --spark-image (chart: "
        "spark.image)",
    )


def _problems(pod: Object, advice: _Advice) -> Iterator[PodProblem]:
    name, status = pod["metadata"]["name"], pod.get("status") or {}
    if status.get("reason") == "Evicted":
        yield PodProblem(
            Reason.EVICTED,
            f"pod {name} was evicted: {_sentence(status)} Give its node more room; or, so that it "
            f"asks for what it takes: {advice.memory}",
        )
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            yield PodProblem(
                Reason.UNSCHEDULABLE,
                f"pod {name} fits on no node: {_sentence(condition)} It asks for "
                f"{_asks_for(pod)}: {advice.room}, or let it onto other nodes by spec.podTemplate",
            )
    for container in _containers(status):
        state = container.get("state") or {}
        if waiting := state.get("waiting"):
            yield from _waits(name, container["image"], waiting, advice)
        if (ended := state.get("terminated")) and ended.get("exitCode"):
            yield _ended(name, ended, advice.memory)


def _waits(name: str, image: str, waiting: Object, advice: _Advice) -> Iterator[PodProblem]:
    reason, message = waiting.get("reason", ""), waiting.get("message", "")
    if reason in _IMAGE:
        yield PodProblem(
            Reason.IMAGE_NOT_PULLED,
            f"pod {name} has no image: {image}: {message or reason}. Push it to where the nodes "
            f"pull from, or name another: {advice.image}; for a registry that wants a login, name "
            "its Secret in spec.podTemplate.imagePullSecrets",
        )
    elif reason and reason not in _STARTING:
        yield PodProblem(Reason.POD_FAILED, f"pod {name} does not start: {reason}: {message}")


def _ended(name: str, ended: Object, memory: str) -> PodProblem:
    if ended.get("reason") == "OOMKilled":
        return PodProblem(
            Reason.OUT_OF_MEMORY, f"pod {name} took more memory than it may: {memory}"
        )
    messages = logs.messages_in(str(ended.get("message", "")))
    why = messages[-1] if messages else f"see its log (kubectl logs {name})"
    code = ended["exitCode"]
    killed = f"signal {code - _SIGNALS}" if code > _SIGNALS else f"exit code {code}"
    return PodProblem(Reason.POD_FAILED, f"pod {name} ended with {killed}: {why}")


def _containers(status: Object) -> list[Object]:
    return status.get("containerStatuses") or []


def _sentence(status: Object) -> str:
    return str(status.get("message") or status.get("reason", "")).strip(" .") + "."


def _asks_for(pod: Object) -> str:
    requests = [
        f"{what} {amount}"
        for container in pod["spec"]["containers"]
        for what, amount in (container.get("resources", {}).get("requests") or {}).items()
    ]
    return " and ".join(requests) or "nothing"


def has_ended(job: Object) -> Object | None:
    """Return the condition that says how a Job ended, or None while it runs."""
    for condition in job.get("status", {}).get("conditions", []):
        if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
            found: Object = condition
            return found
    return None


def left_executors(jobs: Mapping[Stage, Object], pods: Iterable[TestPod]) -> list[str]:
    """Return the names of executors whose Spark driver has ended.

    They end by themselves, but their objects would remain as long as the Spark driver's pod, which
    is kept for its log.
    """
    under_way = {stage.value for stage, job in jobs.items() if not has_ended(job)}
    return [pod.name for pod in pods if pod.executor and pod.stage not in under_way]


def left_jobs(jobs: Mapping[Stage, Object], *, reported: bool) -> list[str]:
    """Return the names of running Jobs that are no longer needed.

    A verifier that has reported ends by itself, so its Job is not returned.
    """
    return [
        job["metadata"]["name"]
        for stage, job in jobs.items()
        if not has_ended(job) and not (reported and stage is Stage.VERIFY)
    ]


async def remove(
    client: Client, namespace: str, pods: Iterable[str], jobs: Iterable[str] = ()
) -> None:
    """Delete pods and Jobs. The pods of a Job are deleted with it."""
    for name in pods:
        await client.delete(POD, namespace, name)
    for name in jobs:
        await client.delete(JOB, namespace, name)
