"""Breaks pods of a mirror that is not a flow, through the API server."""

import time
from collections.abc import Callable, Coroutine
from typing import Any

from headrace.api import ChaosAction, ChaosStep
from headrace.chaos.pause import Since
from headrace.chaos.pods import Run
from headrace.chaos.port import Injection
from headrace.errors import InvalidSpec
from headrace.k8s import DEPLOYMENT, POD, Client, retried

_WITHIN_S = 60.0
"""How long a request without an answer is repeated."""


class OtherPods:
    """For pods and Deployments of the test's namespace. Rights: the chart's chaos-rules.yaml.

    Nobody knows how such a mirror works: it has recovered when each partition of the target has a
    message that was sent after the fault.
    """

    def __init__(self, client: Client, run: Run, namespace: str, since: Since) -> None:
        self._client, self._run, self._namespace = client, run, namespace
        self._since = since

    def inject(self, step: ChaosStep) -> Injection:
        """See ``FaultInjector``. It waits for an answer of the API server, a minute at most."""
        broken: str = self._run(_STEPS[step.action](self, step))
        at_ms = time.time_ns() // 1_000_000
        return Injection(at_ms, self._since(at_ms), driver=broken)

    async def _delete_pod(self, step: ChaosStep) -> str:
        return await self._delete(step, grace_s=None)

    async def _kill_pod(self, step: ChaosStep) -> str:
        return await self._delete(step, grace_s=0)

    async def _delete(self, step: ChaosStep, grace_s: int | None) -> str:
        labels = ",".join(f"{key}={value}" for key, value in sorted((step.selector or {}).items()))
        found = await retried(
            lambda: self._client.list(POD, self._namespace, labels=labels), _WITHIN_S
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
            lambda: self._client.delete(POD, self._namespace, name, grace_s=grace_s), _WITHIN_S
        )
        return f"pod {name}"

    async def _scale_deployment(self, step: ChaosStep) -> str:
        name, patch = step.deployment or "", {"spec": {"replicas": step.replicas}}
        await retried(
            lambda: self._client.patch(
                DEPLOYMENT, self._namespace, name, patch, subresource="scale"
            ),
            _WITHIN_S,
        )
        return f"Deployment {name}"


_STEPS: dict[ChaosAction, Callable[[OtherPods, ChaosStep], Coroutine[Any, Any, str]]] = {
    ChaosAction.DELETE_POD: OtherPods._delete_pod,
    ChaosAction.KILL_POD: OtherPods._kill_pod,
    ChaosAction.SCALE_DEPLOYMENT: OtherPods._scale_deployment,
}
ACTIONS = frozenset(_STEPS)
"""Of ``OtherPods``."""
