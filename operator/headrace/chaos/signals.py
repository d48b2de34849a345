"""Gets a signal into a driver's pod: by an ephemeral container, which shares its processes.

Its process has the driver's user, so it needs no capability, and Pod Security's ``restricted``
admits it. The caller needs the right to patch ``pods/ephemeralcontainers``. Such a container never
restarts, and stays in the pod's list until the pod is deleted.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import datetime

from headrace.chaos.flow_snapshot import driver_container
from headrace.errors import GaveUp, InvalidSpec, Retriable
from headrace.k8s import POD, Client, Object, retried

_WITHIN_S = 60.0
"""Its image is on the node; the error has the kubelet's reason for a longer wait."""
_POLL_S = 0.2
_SURE_S = 2.0
"""A program that found nothing to signal has ended by then."""

_Condition = Callable[[Object], bool]


async def kill_driver(client: Client, pod: Object) -> float:
    """Kill -9 the driver in ``pod``; returns when it began, in seconds since 1970, rounded down.

    Raises ``InvalidSpec`` where that cannot be done, ``Retriable`` when the API server did not
    answer for a minute, ``GaveUp`` when the kubelet did nothing in one.
    """
    name = await _add(client, pod, [])
    return _started(await _wait(client, pod, name, lambda state: "terminated" in state))


async def freeze_driver(client: Client, pod: Object, for_s: float) -> float:
    """Stop the driver in ``pod``; it continues after ``for_s`` seconds, even if our process ends.

    Returns and raises as ``kill_driver``.
    """
    name = await _add(client, pod, [f"--freeze={for_s:g}"])
    started = _started(await _wait(client, pod, name, bool))
    await asyncio.sleep(_SURE_S)
    await _wait(client, pod, name, bool)
    return started


def build_container(pod: Object, arguments: Sequence[str]) -> Object:
    """An ephemeral container beside the driver's, of the same image, user and restrictions."""
    driver = driver_container(pod)
    return {
        "name": f"chaos-{len(pod['spec'].get('ephemeralContainers') or ())}",
        "image": driver["image"],
        "imagePullPolicy": driver.get("imagePullPolicy", "IfNotPresent"),
        "command": ["headrace", "test", "signal"],
        "args": [f"--driver={pod['metadata']['name']}", *arguments],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": driver.get("securityContext", {}),
    }


async def _add(client: Client, pod: Object, arguments: Sequence[str]) -> str:
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    if not pod["spec"].get("shareProcessNamespace"):
        raise InvalidSpec(
            f"pod {name} does not share its processes, so no signal gets to its driver: an older "
            "operator made it; let the operator of this version roll out the drivers"
        )
    added = build_container(pod, arguments)
    there = pod["spec"].get("ephemeralContainers") or []
    patch = {"spec": {"ephemeralContainers": [*there, added]}}
    await retried(
        lambda: client.patch(POD, namespace, name, patch, subresource="ephemeralcontainers"),
        _WITHIN_S,
    )
    return str(added["name"])


async def _wait(client: Client, pod: Object, container: str, holds: _Condition) -> Object:
    """The state of ``container``, running or terminated, once it is as ``holds`` says."""
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    deadline, waits = time.monotonic() + _WITHIN_S, ""
    while time.monotonic() < deadline:
        try:
            found = await client.get(POD, namespace, name)
        except Retriable:
            await asyncio.sleep(_POLL_S)
            continue
        if found is None:
            raise InvalidSpec(f"pod {name} was gone before its driver got a signal")
        state = _state(found, container)
        ended = state.get("terminated") or {}
        if ended.get("exitCode"):
            raise InvalidSpec(f"container {container} in pod {name}: {ended.get('message', '')}")
        waits = (state.get("waiting") or {}).get("reason", "")
        if ("running" in state or ended) and holds(state):
            return state
        await asyncio.sleep(_POLL_S)
    raise GaveUp(f"container {container} in pod {name} did nothing in {_WITHIN_S:.0f} s: {waits}")


def _state(pod: Object, container: str) -> Object:
    statuses = pod.get("status", {}).get("ephemeralContainerStatuses") or ()
    return next((one.get("state") or {} for one in statuses if one["name"] == container), {})


def _started(state: Object) -> float:
    (what,) = state.values()
    return datetime.fromisoformat(what["startedAt"]).timestamp()
