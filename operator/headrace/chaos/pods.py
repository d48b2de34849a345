"""A flow in pods, broken through the API server."""

import time
from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime
from typing import Any

from headrace.api import ChaosAction, ChaosStep, ReplicationFlow, ReplicationTask
from headrace.api.labels import (
    COMPONENT_LABEL,
    DRIVER_COMPONENT,
    FLOW_LABEL,
    KILL_ANNOTATION,
    LED_NEXT,
    label_value,
)
from headrace.chaos import patience
from headrace.chaos.port import Hit
from headrace.chaos.seen import Seen, freeze_s
from headrace.chaos.signals import freeze_driver, kill_driver
from headrace.errors import GaveUp, InvalidSpec, Retriable
from headrace.k8s import Client, Object, parse
from headrace.k8s.kinds import FLOW, MIRROR_TEST, POD, TASK

_ROLLED = "kubectl.kubernetes.io/restartedAt"
"""Annotation of pods, as of ``kubectl rollout restart``."""

Run = Callable[[Coroutine[Any, Any, Any]], Any]
"""Runs a coroutine to its end on the loop of the client."""


class FlowInPods:
    """One flow, and the operator that looks after it. Rights: the chart's chaos-rules.yaml."""

    def __init__(self, client: Client, run: Run, namespace: str, *, flow: str, test: str) -> None:
        """``test``: the MirrorTest on whose behalf; the operator hears of its end by it."""
        self._client, self._run, self._namespace = client, run, namespace
        self._flow, self._test = flow, test

    def do(self, step: ChaosStep) -> Hit:
        """See ``Breakable``. It takes until nothing moves, a minute at most, and as long as the
        kubelet needs to start a container."""
        hit: Hit = self._run(_STEPS[step.action](self, step))
        return hit

    async def _kill_driver(self, _: ChaosStep) -> Hit:
        seen, asked_s = await self._look_when_whole(), time.time()
        pod = seen.victim()
        return self._lost(seen, pod, asked_s, await kill_driver(self._client, pod))

    async def _freeze_driver(self, _: ChaosStep) -> Hit:
        seen, asked_s = await self._look_when_whole(), time.time()
        pod = seen.victim()
        if len(seen.staying) < 2:
            raise InvalidSpec(
                f"nobody takes the units of driver {pod['metadata']['name']} while it stands "
                "still: the flow has no other; set spec.drivers.replicas to 2 or more"
            )
        lasts_s = freeze_s(seen.flow.spec.drivers.lease_seconds, pod)
        frozen_at_s = await freeze_driver(self._client, pod, lasts_s)
        return self._lost(seen, pod, asked_s, frozen_at_s, lasts_s)

    async def _delete_driver_pod(self, _: ChaosStep) -> Hit:
        seen, asked_s = await self._look_when_whole(), time.time()
        pod = seen.victim()
        await patience.answered(
            lambda: self._client.delete(POD, self._namespace, pod["metadata"]["name"])
        )
        return self._lost(seen, pod, asked_s, asked_s)

    async def _scale_drivers(self, step: ChaosStep) -> Hit:
        return await self._change({"replicas": step.drivers})

    async def _roll_drivers(self, _: ChaosStep) -> Hit:
        old = frozenset((await self._look()).pods)
        annotations = {_ROLLED: datetime.now(UTC).isoformat(timespec="seconds")}
        return await self._change({"podTemplate": {"metadata": {"annotations": annotations}}}, old)

    async def _kill_operator(self, _: ChaosStep) -> Hit:
        now_ms = _now_ms()
        patch = {"metadata": {"annotations": {KILL_ANNOTATION: ""}}}
        await patience.answered(
            lambda: self._client.patch(MIRROR_TEST, self._namespace, self._test, patch)
        )
        return Hit(now_ms, lambda: LED_NEXT in self._run(self._who_led()))

    def _lost(
        self, seen: Seen, pod: Object, asked_s: float, hit_s: float, lasts_s: float = 0.0
    ) -> Hit:
        # Its node's clock may be another than ours.
        driver, hit_s = pod["metadata"]["name"], min(max(hit_s, asked_s), time.time())
        lost = seen.epochs(driver)
        return Hit(
            at_ms=int(hit_s * 1000),
            recovered=lambda: self._run(self._look()).claimed_again(lost),
            driver=driver,
            units=tuple(sorted(lost)),
            lasts_s=lasts_s,
        )

    async def _change(
        self, drivers: Mapping[str, object], old: frozenset[str] = frozenset()
    ) -> Hit:
        """Change the flow's spec.drivers; ``old`` are the pods that are to go."""
        now_ms, patch = _now_ms(), {"spec": {"drivers": drivers}}
        changed = await patience.answered(
            lambda: self._client.patch(FLOW, self._namespace, self._flow, patch)
        )
        generation = int(changed["metadata"]["generation"])

        def recovered() -> bool:
            seen: Seen = self._run(self._look())
            return seen.settled(generation) and old.isdisjoint(seen.pods)

        return Hit(now_ms, recovered)

    async def _who_led(self) -> str:
        """Empty, then the operator that has ended, then with the one that leads now."""
        found = await self._client.get(MIRROR_TEST, self._namespace, self._test)
        if found is None:
            raise InvalidSpec(f"MirrorTest {self._test} is gone")
        names: str | None = (found["metadata"].get("annotations") or {}).get(KILL_ANNOTATION)
        if names is None:
            raise InvalidSpec("the operator took the request off and did not end")
        return names

    async def _look_when_whole(self) -> Seen:
        """Once nothing moves: else nobody could tell what a fault moved. Raises ``GaveUp``."""

        async def whole() -> Seen:
            if not (seen := await self._look()).is_whole:
                raise Retriable("units do not run, or move")
            return seen

        try:
            return await patience.answered(whole)
        except Retriable as error:
            why = f"flow {self._flow} was not whole for {patience.WITHIN_S:.0f} s: {error}"
            raise GaveUp(why) from error

    async def _look(self) -> Seen:
        found = await self._client.get(FLOW, self._namespace, self._flow)
        if found is None:
            raise InvalidSpec(f"ReplicationFlow {self._flow} is gone")
        of_flow = f"{FLOW_LABEL}={label_value(self._flow)}"
        units = await self._client.list(TASK, self._namespace, labels=of_flow)
        of_drivers = f"{of_flow},{COMPONENT_LABEL}={DRIVER_COMPONENT}"
        pods = await self._client.list(POD, self._namespace, labels=of_drivers)
        return Seen(
            flow=parse(ReplicationFlow, found),
            units=[parse(ReplicationTask, one) for one in units],
            pods={pod["metadata"]["name"]: pod for pod in pods if not _has_ended(pod)},
        )


_Step = Callable[[FlowInPods, ChaosStep], Coroutine[Any, Any, Hit]]
_STEPS: dict[ChaosAction, _Step] = {
    ChaosAction.KILL_DRIVER: FlowInPods._kill_driver,
    ChaosAction.DELETE_DRIVER_POD: FlowInPods._delete_driver_pod,
    ChaosAction.FREEZE_DRIVER: FlowInPods._freeze_driver,
    ChaosAction.SCALE_DRIVERS: FlowInPods._scale_drivers,
    ChaosAction.KILL_OPERATOR: FlowInPods._kill_operator,
    ChaosAction.ROLL_DRIVERS: FlowInPods._roll_drivers,
}


def _has_ended(pod: Object) -> bool:
    """Evicted, say: its Deployment made another, and lets it lie."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
