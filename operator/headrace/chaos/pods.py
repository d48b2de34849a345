"""Fault injectors for pods, through the API server."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from headrace.api import (
    COMPONENT_LABEL,
    DRIVER_COMPONENT,
    FLOW_LABEL,
    KILL_ANNOTATION,
    LED_NEXT,
    PAUSED_BY_ANNOTATION,
    ChaosAction,
    ChaosStep,
    FlowState,
    ReplicationFlow,
    ReplicationTask,
    TaskPhase,
    label_value,
)
from headrace.chaos.chaos import Injection, Since
from headrace.control.flow_actions import target_driver
from headrace.errors import GaveUp, InvalidSpec, Retriable
from headrace.k8s import (
    DEPLOYMENT,
    FLOW,
    MIRROR_TEST,
    POD,
    TASK,
    Client,
    Object,
    parse_task,
    read_in_force,
    retried,
)

_DRIVER_CONTAINER = "driver"
_MARGIN_S = 3.0
"""Minimum time in seconds by which a freeze is longer than the Lease.

It is also the minimum time by which a freeze is shorter than the patience of the liveness probe.
Signals and polls take a moment.
"""


@dataclass(frozen=True)
class FlowSnapshot:
    """Flow with its units and the pods of its drivers."""

    flow: ReplicationFlow
    units: Collection[ReplicationTask]
    pods: Mapping[str, Object]
    """Pods of the drivers by name, including pods that are being deleted."""

    def victim(self) -> Object:
        """Return the pod of the driver with most source tasks.

        Raise ``InvalidSpec`` if no driver runs a source task.
        """
        return self.pods[target_driver(self.units, self.remaining, self.flow.metadata.name)]

    @property
    def remaining(self) -> set[str]:
        """Names of pods that are not being deleted."""
        return {n for n, pod in self.pods.items() if "deletionTimestamp" not in pod["metadata"]}

    def epochs(self, driver: str) -> dict[str, int]:
        """Return the epoch of each unit that a driver owns."""
        return {
            unit.metadata.name: unit.status.epoch
            for unit in self.units
            if unit.status.driver_name == driver
        }

    def claimed_again(self, lost: Mapping[str, int]) -> bool:
        """Return True if each of these units that still exists was claimed again and runs.

        ``lost`` are the epochs that the units had before.
        """
        return all(
            unit.status.phase is TaskPhase.RUNNING and unit.status.epoch > lost[unit.metadata.name]
            for unit in self.units
            if unit.metadata.name in lost
        )

    @property
    def is_stable(self) -> bool:
        """True if every unit runs on its assigned driver, and the driver's pod exists."""
        return all(
            unit.status.phase is TaskPhase.RUNNING
            and unit.status.driver_name == unit.spec.driver_name
            and unit.status.driver_name in self.pods
            for unit in self.units
        )

    def settled(self, generation: int) -> bool:
        """Return True if the flow has reached that generation of the spec.

        This means that it has the specified number of drivers, all ready, and that every unit runs
        on its assigned driver.
        """
        wanted, status = self.flow.spec.drivers.replicas, self.flow.status
        return (
            status is not None
            and (status.observed_generation or 0) >= generation
            and status.ready_replicas == wanted
            and self.pods.keys() == self.remaining
            and len(self.pods) == wanted
            and all(map(_is_ready, self.pods.values()))
            and self.is_stable
        )


def freeze_s(lease_s: int, pod: Object) -> float:
    """Return the time, in s, for which to freeze a driver.

    It is halfway between the duration of the driver's Lease and the patience of its liveness probe.
    A freeze within the Lease has no effect. After the probe's patience, the kubelet kills the
    driver. Raise ``InvalidSpec`` if there is too little time between the two.
    """
    probe = driver_container(pod)["livenessProbe"]
    patience_s = float(probe["periodSeconds"] * probe["failureThreshold"])
    if patience_s - lease_s < 2 * _MARGIN_S:
        raise InvalidSpec(
            f"a driver has to be frozen for longer than its Lease of {lease_s} s, and shorter than "
            f"its kubelet waits, {patience_s:.0f} s: lower spec.drivers.leaseSeconds of the flow "
            f"to {patience_s - 2 * _MARGIN_S:.0f} or less"
        )
    return (lease_s + patience_s) / 2


def driver_container(pod: Object) -> Object:
    containers: list[Object] = pod["spec"]["containers"]
    return next(one for one in containers if one["name"] == _DRIVER_CONTAINER)


def _is_ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any((one["type"], one["status"]) == ("Ready", "True") for one in conditions)


# Sends a signal to a driver from an ephemeral container, which shares the processes of the pod.
#
# The container has the driver's user, so it needs no capability, and Pod Security's ``restricted``
# admits it. The caller needs the permission to patch ``pods/ephemeralcontainers``. Such a container
# never restarts, and remains in the pod's spec until the pod is deleted.

_TIMEOUT_S = 60.0
"""Time limit of a request or of a container's start, in seconds.

The image is already on the node. If the limit is exceeded, the error contains the kubelet's reason.
"""
_POLL_S = 0.2
_SURE_S = 2.0
"""Time in seconds to wait for an error of the program in the container.

If the program finds no process, it ends with an error within this time. Otherwise it has sent its
signal.
"""

_Condition = Callable[[Object], bool]


async def kill_driver(client: Client, pod: Object) -> float:
    """Kill the driver in ``pod`` with -9.

    Return the start of the killing container in seconds since 1970, rounded down.

    Raises:
        InvalidSpec: The driver cannot be killed.
        Retriable: The API server did not respond for a minute.
        GaveUp: The kubelet did not start the container within a minute.
    """
    name = await _add(client, pod, [])
    return _started(await _wait(client, pod, name, lambda state: "terminated" in state))


async def freeze_driver(client: Client, pod: Object, for_s: float) -> float:
    """Suspend the driver in ``pod`` for ``for_s`` seconds.

    The driver resumes even if this process ends. Return and raise as ``kill_driver``.
    """
    name = await _add(client, pod, [f"--freeze={for_s:g}"])
    started = _started(await _wait(client, pod, name, bool))
    await asyncio.sleep(_SURE_S)
    await _wait(client, pod, name, bool)
    return started


def build_container(pod: Object, arguments: Sequence[str]) -> Object:
    """Return an ephemeral container with the driver's image, user and restrictions."""
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
            f"pod {name} does not share its processes, so its driver cannot be signalled: an older "
            "operator created the pod; let the operator of this version roll out the drivers"
        )
    added = build_container(pod, arguments)
    there = pod["spec"].get("ephemeralContainers") or []
    patch = {"spec": {"ephemeralContainers": [*there, added]}}
    await retried(
        lambda: client.patch(POD, namespace, name, patch, subresource="ephemeralcontainers"),
        _TIMEOUT_S,
    )
    return str(added["name"])


async def _wait(client: Client, pod: Object, container: str, holds: _Condition) -> Object:
    """Wait until ``holds`` accepts the state of a started container, and return that state."""
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    deadline, waits = time.monotonic() + _TIMEOUT_S, ""
    while time.monotonic() < deadline:
        try:
            found = await client.get(POD, namespace, name)
        except Retriable:
            await asyncio.sleep(_POLL_S)
            continue
        if found is None:
            raise InvalidSpec(f"pod {name} was deleted before its driver received a signal")
        state = _state(found, container)
        ended = state.get("terminated") or {}
        if ended.get("exitCode"):
            raise InvalidSpec(f"container {container} in pod {name}: {ended.get('message', '')}")
        waits = (state.get("waiting") or {}).get("reason", "")
        if ("running" in state or ended) and holds(state):
            return state
        await asyncio.sleep(_POLL_S)
    raise GaveUp(
        f"container {container} in pod {name} did not start in {_TIMEOUT_S:.0f} s: {waits}"
    )


def _state(pod: Object, container: str) -> Object:
    statuses = pod.get("status", {}).get("ephemeralContainerStatuses") or ()
    return next((one.get("state") or {} for one in statuses if one["name"] == container), {})


def _started(state: Object) -> float:
    (what,) = state.values()
    return datetime.fromisoformat(what["startedAt"]).timestamp()


_T = TypeVar("_T")

_ROLLED = "kubectl.kubernetes.io/restartedAt"
"""Pod annotation that ``kubectl rollout restart`` sets."""


Run = Callable[[Coroutine[Any, Any, Any]], Any]
"""Function that runs a coroutine on the client's event loop and returns its result."""


class PodInjector:
    """Injector for one flow and its operator.

    The chart's chaos-rules.yaml contains its permissions.
    """

    def __init__(
        self,
        client: Client,
        run: Run,
        namespace: str,
        *,
        flow: str,
        test: str,
        stable_timeout_s: float = _TIMEOUT_S,
    ) -> None:
        """Create an injector.

        Args:
            client: Client of the API server.
            run: Runs the client's coroutines.
            namespace: Namespace of the flow and of the test.
            flow: Name of the flow.
            test: Name of the test. An annotation of it tells the operator to end itself.
            stable_timeout_s: Time limit for the units to stop moving before a fault, in seconds.
        """
        self._client, self._run, self._namespace = client, run, namespace
        self._flow, self._test = flow, test
        self._stable_timeout_s = stable_timeout_s

    def inject(self, step: ChaosStep) -> Injection:
        """Inject the fault of a step.

        Before a fault of a single driver, wait until no unit moves. To kill or freeze a driver,
        wait until the kubelet has started the container that sends the signal. Each of these waits,
        and each wait for the API server, is limited to a minute.
        """
        injection: Injection = self._run(_STEPS[step.action](self, step))
        return injection

    def set_state(self, state: FlowState) -> bool:
        """Set the flow's ``spec.state``. Return True if that changed it.

        An annotation names the test that paused the flow. If this Job is killed, the operator
        resumes the flow (``controller.mirror_tests.paused``).
        """

        async def change() -> bool:
            if (await self._read()).flow.spec.state is state:
                return False
            owner = self._test if state is FlowState.PAUSED else None
            patch = {
                "metadata": {"annotations": {PAUSED_BY_ANNOTATION: owner}},
                "spec": {"state": str(state)},
            }
            await self._client.patch(FLOW, self._namespace, self._flow, patch)
            return True

        return bool(self._run(retried(change, _TIMEOUT_S)))

    async def _kill_driver(self, _: ChaosStep) -> Injection:
        snapshot, asked_s = await self._read_when_stable(), time.time()
        pod = snapshot.victim()
        return self._lost(snapshot, pod, asked_s, await kill_driver(self._client, pod))

    async def _freeze_driver(self, _: ChaosStep) -> Injection:
        snapshot, asked_s = await self._read_when_stable(), time.time()
        pod = snapshot.victim()
        if len(snapshot.remaining) < 2:
            raise InvalidSpec(
                f"no driver can take over the units of driver {pod['metadata']['name']} while it "
                "is frozen: the flow has no other; set spec.drivers.replicas to 2 or more"
            )
        lasts_s = freeze_s(snapshot.flow.spec.drivers.lease_seconds, pod)
        frozen_at_s = await freeze_driver(self._client, pod, lasts_s)
        return self._lost(snapshot, pod, asked_s, frozen_at_s, lasts_s)

    async def _delete_driver_pod(self, _: ChaosStep) -> Injection:
        pod = (snapshot := await self._read_when_stable()).victim()
        name = pod["metadata"]["name"]
        at_ms = (await _timed(lambda: self._client.delete(POD, self._namespace, name)))[0]
        return self._lost(snapshot, pod, at_ms / 1000, at_ms / 1000)

    async def _scale_drivers(self, step: ChaosStep) -> Injection:
        return await self._change({"replicas": step.drivers})

    async def _roll_drivers(self, _: ChaosStep) -> Injection:
        old = frozenset((await retried(self._read, _TIMEOUT_S)).pods)
        annotations = {_ROLLED: datetime.now(UTC).isoformat(timespec="seconds")}
        return await self._change({"podTemplate": {"metadata": {"annotations": annotations}}}, old)

    async def _kill_operator(self, _: ChaosStep) -> Injection:
        before = await retried(self._who_led, _TIMEOUT_S)
        patch = {"metadata": {"annotations": {KILL_ANNOTATION: ""}}}

        async def ask() -> None:
            if await self._who_led() == before:  # else a response was lost
                await self._client.patch(MIRROR_TEST, self._namespace, self._test, patch)

        at_ms = (await _timed(ask))[0]

        def another_leads() -> bool:
            if (names := self._run(self._who_led())) is None:
                raise InvalidSpec("the operator removed the request and did not end")
            return LED_NEXT in names

        return Injection(at_ms, another_leads)

    def _lost(
        self,
        snapshot: FlowSnapshot,
        pod: Object,
        asked_s: float,
        at_s: float,
        lasts_s: float = 0.0,
    ) -> Injection:
        # The clock of the node may differ.
        driver, at_s = pod["metadata"]["name"], min(max(at_s, asked_s), time.time())
        lost = snapshot.epochs(driver)
        return Injection(
            at_ms=int(at_s * 1000),
            recovered=lambda: self._run(self._read()).claimed_again(lost),
            driver=driver,
            units=tuple(sorted(lost)),
            lasts_s=lasts_s,
        )

    async def _change(
        self, drivers: Mapping[str, object], old: frozenset[str] = frozenset()
    ) -> Injection:
        """Change the flow's ``spec.drivers``. ``old`` are the pods to be replaced."""
        patch = {"spec": {"drivers": drivers}}
        at_ms, changed = await _timed(
            lambda: self._client.patch(FLOW, self._namespace, self._flow, patch)
        )
        generation = int(changed["metadata"]["generation"])

        def recovered() -> bool:
            snapshot: FlowSnapshot = self._run(self._read())
            return snapshot.settled(generation) and old.isdisjoint(snapshot.pods)

        return Injection(at_ms, recovered)

    async def _who_led(self) -> str | None:
        """Return the value of the annotation that requests the leading operator to end itself.

        - None: there is no request.
        - Empty: no operator has answered the request.
        - One name: the operator that ended.
        - Two names: the operator that ended, and the next leader.
        """
        found = await self._client.get(MIRROR_TEST, self._namespace, self._test)
        if found is None:
            raise InvalidSpec(f"MirrorTest {self._test} does not exist any more")
        names: str | None = (found["metadata"].get("annotations") or {}).get(KILL_ANNOTATION)
        return names

    async def _read_when_stable(self) -> FlowSnapshot:
        """Wait until no unit moves, and return the flow's state.

        While units move, it is unknown which units the fault will move. Raise ``GaveUp`` after
        ``stable_timeout_s``.
        """

        async def stable() -> FlowSnapshot:
            if not (snapshot := await self._read()).is_stable:
                raise Retriable("units do not run, or move")
            return snapshot

        try:
            return await retried(stable, self._stable_timeout_s)
        except Retriable as error:
            why = f"flow {self._flow} was not stable for {self._stable_timeout_s:.0f} s: {error}"
            raise GaveUp(why) from error

    async def _read(self) -> FlowSnapshot:
        found = await self._client.get(FLOW, self._namespace, self._flow)
        if found is None:
            raise InvalidSpec(f"ReplicationFlow {self._flow} does not exist any more")
        of_flow = f"{FLOW_LABEL}={label_value(self._flow)}"
        units = await self._client.list(TASK, self._namespace, labels=of_flow)
        of_drivers = f"{of_flow},{COMPONENT_LABEL}={DRIVER_COMPONENT}"
        pods = await self._client.list(POD, self._namespace, labels=of_drivers)
        return FlowSnapshot(
            flow=read_in_force(found, None).flow,
            units=[parse_task(one) for one in units],
            pods={pod["metadata"]["name"]: pod for pod in pods if not _has_ended(pod)},
        )


_Inject = Callable[[PodInjector, ChaosStep], Coroutine[Any, Any, Injection]]
_STEPS: dict[ChaosAction, _Inject] = {
    ChaosAction.KILL_DRIVER: PodInjector._kill_driver,
    ChaosAction.DELETE_DRIVER_POD: PodInjector._delete_driver_pod,
    ChaosAction.FREEZE_DRIVER: PodInjector._freeze_driver,
    ChaosAction.SCALE_DRIVERS: PodInjector._scale_drivers,
    ChaosAction.KILL_OPERATOR: PodInjector._kill_operator,
    ChaosAction.ROLL_DRIVERS: PodInjector._roll_drivers,
}
POD_ACTIONS = frozenset(_STEPS)
"""Actions that ``PodInjector`` supports."""


def _has_ended(pod: Object) -> bool:
    """Return True if a pod has ended, for example by eviction.

    Its Deployment has replaced it, but does not delete it.
    """
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


async def _timed(ask: Callable[[], Awaitable[_T]]) -> tuple[int, _T]:
    """Send a request, and retry it if necessary.

    Return the start of the successful attempt, in ms since 1970, and the response.
    """

    async def attempt() -> tuple[int, _T]:
        return time.time_ns() // 1_000_000, await ask()

    return await retried(attempt, _TIMEOUT_S)


class OtherPods:
    """Injector for pods and Deployments of other mirrors in the test's namespace.

    The chart's chaos-rules.yaml contains its permissions. Such a mirror has recovered when each
    partition of the target has a message that was sent after the fault.
    """

    def __init__(self, client: Client, run: Run, namespace: str, since: Since) -> None:
        self._client, self._run, self._namespace = client, run, namespace
        self._since = since

    def inject(self, step: ChaosStep) -> Injection:
        """Inject the fault of a step, and wait at most a minute for the API server."""
        broken: str = self._run(_OTHER_POD_STEPS[step.action](self, step))
        at_ms = time.time_ns() // 1_000_000
        return Injection(at_ms, self._since(at_ms), driver=broken)

    async def _delete_pod(self, step: ChaosStep) -> str:
        return await self._delete(step, grace_s=None)

    async def _kill_pod(self, step: ChaosStep) -> str:
        return await self._delete(step, grace_s=0)

    async def _delete(self, step: ChaosStep, grace_s: int | None) -> str:
        labels = ",".join(f"{key}={value}" for key, value in sorted((step.selector or {}).items()))
        found = await retried(
            lambda: self._client.list(POD, self._namespace, labels=labels), _TIMEOUT_S
        )
        running = [
            pod["metadata"]["name"]
            for pod in found
            if "deletionTimestamp" not in pod["metadata"]
            and pod.get("status", {}).get("phase") == "Running"
        ]
        if not running:
            raise InvalidSpec(f"no pod with the labels {labels} runs in {self._namespace}")
        name = min(running)
        await retried(
            lambda: self._client.delete(POD, self._namespace, name, grace_s=grace_s), _TIMEOUT_S
        )
        return f"pod {name}"

    async def _scale_deployment(self, step: ChaosStep) -> str:
        name, patch = step.deployment or "", {"spec": {"replicas": step.replicas}}
        await retried(
            lambda: self._client.patch(
                DEPLOYMENT, self._namespace, name, patch, subresource="scale"
            ),
            _TIMEOUT_S,
        )
        return f"Deployment {name}"


_OTHER_POD_STEPS: dict[ChaosAction, Callable[[OtherPods, ChaosStep], Coroutine[Any, Any, str]]] = {
    ChaosAction.DELETE_POD: OtherPods._delete_pod,
    ChaosAction.KILL_POD: OtherPods._kill_pod,
    ChaosAction.SCALE_DEPLOYMENT: OtherPods._scale_deployment,
}
OTHER_POD_ACTIONS = frozenset(_OTHER_POD_STEPS)
"""Actions that ``OtherPods`` supports."""
