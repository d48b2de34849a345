"""A Pod as the API has it -> a ``DriverPod``. Pure."""

from collections.abc import Iterator
from datetime import datetime

from headrace.controller.drivers import DriverPod
from headrace.controller.names import POD_TEMPLATE_HASH, TEMPLATE, ZONE
from headrace.k8s import Object

_STARTING = ("ContainerCreating", "PodInitializing")
"""Reasons to wait that pass by themselves."""


def driver_pod(pod: Object) -> DriverPod:
    """A driver pod."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    labels = metadata.get("labels") or {}
    return DriverPod(
        name=metadata["name"],
        template=labels.get(TEMPLATE, ""),
        replica_set=labels.get(POD_TEMPLATE_HASH, ""),
        terminating="deletionTimestamp" in metadata,
        ended=status.get("phase") in ("Succeeded", "Failed"),
        rack=labels.get(ZONE),
        problem=next(_problems(status), ""),
        running_since=max(_starts(status), default=None),
    )


def _starts(status: Object) -> Iterator[datetime]:
    """Of the containers that run; Kubernetes writes a time that it does not know as null."""
    for container in status.get("containerStatuses") or ():
        running = (container.get("state") or {}).get("running") or {}
        if started := running.get("startedAt"):
            yield datetime.fromisoformat(started)


def _problems(status: Object) -> Iterator[str]:
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            yield f"cannot be scheduled: {condition.get('message', condition.get('reason', ''))}"
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        reason = waiting.get("reason", "")
        if reason and reason not in _STARTING:
            ended = (container.get("lastState") or {}).get("terminated") or {}
            code = f"; it ended with exit code {ended['exitCode']}" if "exitCode" in ended else ""
            yield f"{reason}: {waiting.get('message', 'see its log')}{code}"
