"""Injects faults into a flow in pods, through the API server."""

import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
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
    label_value,
)
from headrace.chaos.flow_snapshot import FlowSnapshot, freeze_s
from headrace.chaos.port import Injection
from headrace.chaos.signals import freeze_driver, kill_driver
from headrace.errors import GaveUp, InvalidSpec, Retriable
from headrace.k8s import FLOW, MIRROR_TEST, POD, TASK, Client, Object, parse, retried

_T = TypeVar("_T")

_ROLLED = "kubectl.kubernetes.io/restartedAt"
"""Annotation of pods, as of ``kubectl rollout restart``."""

_WITHIN_S = 60.0
"""How long a request without an answer is repeated, and how long units may take to be stable."""

Run = Callable[[Coroutine[Any, Any, Any]], Any]
"""Runs a coroutine to its end on the loop of the client."""


class PodInjector:
    """For one flow, and the operator that reconciles it. Rights: the chart's chaos-rules.yaml."""

    def __init__(self, client: Client, run: Run, namespace: str, *, flow: str, test: str) -> None:
        """``test``: the MirrorTest that asks for the faults; the operator is killed through it."""
        self._client, self._run, self._namespace = client, run, namespace
        self._flow, self._test = flow, test

    def inject(self, step: ChaosStep) -> Injection:
        """See ``FaultInjector``. It waits until no unit moves, for an answer of the API server, and
        for the kubelet to start a container: a minute at most each."""
        injection: Injection = self._run(_STEPS[step.action](self, step))
        return injection

    def set_state(self, state: FlowState) -> bool:
        """Set the flow's ``spec.state``; whether that changed it. An annotation says who paused it:
        when this Job is killed, the operator resumes it (``controller.mirror_tests.paused``)."""

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

        return bool(self._run(retried(change, _WITHIN_S)))

    async def _kill_driver(self, _: ChaosStep) -> Injection:
        snapshot, asked_s = await self._read_when_stable(), time.time()
        pod = snapshot.victim()
        return self._lost(snapshot, pod, asked_s, await kill_driver(self._client, pod))

    async def _freeze_driver(self, _: ChaosStep) -> Injection:
        snapshot, asked_s = await self._read_when_stable(), time.time()
        pod = snapshot.victim()
        if len(snapshot.remaining) < 2:
            raise InvalidSpec(
                f"no driver can take the units of driver {pod['metadata']['name']} while it is "
                "frozen: the flow has no other; set spec.drivers.replicas to 2 or more"
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
        old = frozenset((await retried(self._read, _WITHIN_S)).pods)
        annotations = {_ROLLED: datetime.now(UTC).isoformat(timespec="seconds")}
        return await self._change({"podTemplate": {"metadata": {"annotations": annotations}}}, old)

    async def _kill_operator(self, _: ChaosStep) -> Injection:
        before = await retried(self._who_led, _WITHIN_S)
        patch = {"metadata": {"annotations": {KILL_ANNOTATION: ""}}}

        async def ask() -> None:
            if await self._who_led() == before:  # else an answer was lost: no second one may die
                await self._client.patch(MIRROR_TEST, self._namespace, self._test, patch)

        at_ms = (await _timed(ask))[0]

        def another_leads() -> bool:
            if (names := self._run(self._who_led())) is None:
                raise InvalidSpec("the operator took the request off and did not end")
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
        # Its node's clock may be another than ours.
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
        """Change the flow's spec.drivers; ``old`` are the pods that it must replace."""
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
        """The annotation: absent before the request; then empty; then the name of the operator that
        ended; then with the name of the next leader."""
        found = await self._client.get(MIRROR_TEST, self._namespace, self._test)
        if found is None:
            raise InvalidSpec(f"MirrorTest {self._test} is gone")
        names: str | None = (found["metadata"].get("annotations") or {}).get(KILL_ANNOTATION)
        return names

    async def _read_when_stable(self) -> FlowSnapshot:
        """Read when no unit moves: else what a fault moved is unknown. Raises ``GaveUp``."""

        async def stable() -> FlowSnapshot:
            if not (snapshot := await self._read()).is_stable:
                raise Retriable("units do not run, or move")
            return snapshot

        try:
            return await retried(stable, _WITHIN_S)
        except Retriable as error:
            why = f"flow {self._flow} was not stable for {_WITHIN_S:.0f} s: {error}"
            raise GaveUp(why) from error

    async def _read(self) -> FlowSnapshot:
        found = await self._client.get(FLOW, self._namespace, self._flow)
        if found is None:
            raise InvalidSpec(f"ReplicationFlow {self._flow} is gone")
        of_flow = f"{FLOW_LABEL}={label_value(self._flow)}"
        units = await self._client.list(TASK, self._namespace, labels=of_flow)
        of_drivers = f"{of_flow},{COMPONENT_LABEL}={DRIVER_COMPONENT}"
        pods = await self._client.list(POD, self._namespace, labels=of_drivers)
        return FlowSnapshot(
            flow=parse(ReplicationFlow, found),
            units=[parse(ReplicationTask, one) for one in units],
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
ACTIONS = frozenset(_STEPS)
"""Of ``PodInjector``."""


def _has_ended(pod: Object) -> bool:
    """Evicted, say: its Deployment has replaced it and does not delete it."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


async def _timed(ask: Callable[[], Awaitable[_T]]) -> tuple[int, _T]:
    """The start of the request that was answered, in ms since 1970, and the answer."""

    async def attempt() -> tuple[int, _T]:
        return time.time_ns() // 1_000_000, await ask()

    return await retried(attempt, _WITHIN_S)
