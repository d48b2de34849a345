"""Flows in a Kubernetes namespace, or in all namespaces.

Commands write only ``spec``, and three annotations that the operator and the drivers act on.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, TypeVar

from headrace.api import (
    COMPONENT_LABEL,
    DRIVER_COMPONENT,
    FLOW_LABEL,
    MOVE_ANNOTATION,
    RESET_ANNOTATION,
    RESTART_ANNOTATION,
    FlowState,
    ReplicationFlow,
    ReplicationTask,
    label_value,
)
from headrace.control.flow_actions import (
    answer_pauses,
    answer_resets,
    as_json,
    change_pauses,
    change_resets,
    find_task,
    held_task,
    task_row,
)
from headrace.errors import InvalidSpec, NotRunning
from headrace.k8s import (
    FLOW,
    POD,
    TASK,
    Client,
    Conflict,
    Forbidden,
    InForce,
    Object,
    connect_as_kubectl,
    parse_task,
    read_in_force,
    shown_flow,
)

Answer = dict[str, Any]
T = TypeVar("T")


@contextmanager
def open_cluster(
    namespace: str | None, context: str | None, *, everywhere: bool = False
) -> Iterator["ClusterFlows"]:
    """Open the flows of a namespace, or of all namespaces if ``everywhere``.

    The default of ``namespace`` is the namespace of the context. The cluster is found as kubectl
    does it: ``KUBECONFIG``, otherwise ``~/.kube/config``.
    """
    with asyncio.Runner() as runner:
        client = runner.run(connect_as_kubectl("you", context))
        try:
            where = None if everywhere else namespace or client.namespace
            yield ClusterFlows(client, where, runner.run)
        finally:
            runner.run(client.close())


class ClusterFlows:
    """Flows of a cluster, accessed through its API server.

    Implements ``cli.flow.flow_verbs.Flows``.
    """

    def __init__(
        self,
        client: Client,
        namespace: str | None,
        run: Callable[[Coroutine[Any, Any, Any]], Any],
    ) -> None:
        self._client, self._namespace, self._run = client, namespace, run

    def names(self) -> list[str]:
        """Return the names of all flows. Raise ``NotRunning`` if there is none."""
        found = self._run(self._client.list(FLOW, self._namespace, metadata_only=True))
        return sorted(flow["metadata"]["name"] for flow in self._some(found))

    def request(self, flow: str, verb: str, **arguments: Any) -> Answer:
        """Read or change objects of the cluster for the given ``verb``."""
        answer: Answer = self._run(_VERBS[verb](self, flow, **arguments))
        return answer

    def statuses(self, flow: str | None) -> list[Answer]:
        """Return name, namespace and status of one flow or of all flows.

        Statuses of all flows need two requests.
        """
        found: list[Answer] = self._run(self._statuses(flow))
        return found

    async def _statuses(self, flow: str | None) -> list[Answer]:
        if flow and self._namespace:
            found = await self._object(flow)
            flows, tasks = [shown_flow(found)], await self._tasks(flow)
        else:
            listed = await self._client.list(FLOW, self._namespace)
            flows = [shown_flow(one) for one in self._some(listed)]
            flows = [one for one in flows if flow in (None, one.metadata.name)]
            if not flows:
                raise InvalidSpec(f"there is no ReplicationFlow {flow} in any namespace")
            tasks = await self._tasks(flow)
        of_flow: dict[tuple[str, str], list[ReplicationTask]] = {}
        for task in tasks:
            of_flow.setdefault((task.metadata.namespace, task.spec.flow_name), []).append(task)
        return [
            {
                "metadata": {"name": name, "namespace": namespace},
                "status": _status_of(one, of_flow.get((namespace, name), ())),
            }
            for one in flows
            for namespace, name in [(one.metadata.namespace, one.metadata.name)]
        ]

    def _some(self, listed: list[Object]) -> list[Object]:
        """Return ``listed``. Raise ``NotRunning`` if it is empty."""
        if not listed:
            where = f"namespace {self._namespace}" if self._namespace else "any namespace"
            raise NotRunning(f"there is no ReplicationFlow in {where}")
        return listed

    async def _status(self, flow: str) -> Answer:
        return _status_of(await self._flow(flow), await self._tasks(flow))

    async def _access(self, flow: str) -> Answer:
        return {"flow": as_json(await self._flow(flow))}

    async def _describe(self, flow: str, task: str) -> Answer:
        return as_json(find_task(await self._tasks(flow), flow, task))

    async def _restart(self, flow: str, task: str) -> Answer:
        held = held_task(find_task(await self._tasks(flow), flow, task))
        await self._annotate(held, RESTART_ANNOTATION, datetime.now(UTC).isoformat())
        return {"driver": held.status.driver_name}

    async def _move(self, flow: str, task: str, driver: str) -> Answer:
        held = held_task(find_task(await self._tasks(flow), flow, task))
        await self._check_driver(flow, driver)
        await self._annotate(held, MOVE_ANNOTATION, driver)
        return {"from": held.status.driver_name}

    async def _check_driver(self, flow: str, driver: str) -> None:
        """Raise ``InvalidSpec`` if the flow has no driver pod with this name.

        Without permission to list pods, nothing is checked. The operator then reports a wrong name
        in an Event of the task.
        """
        with suppress(Forbidden):
            selected = f"{COMPONENT_LABEL}={DRIVER_COMPONENT},{FLOW_LABEL}={label_value(flow)}"
            pods = await self._client.list(
                POD, self._namespace, labels=selected, metadata_only=True
            )
            there = sorted(pod["metadata"]["name"] for pod in pods)
            if driver not in there:
                raise InvalidSpec(
                    f"flow {flow} has no driver {driver}; it has {', '.join(there) or 'none'}"
                )

    async def _set_state(self, flow: str, state: str) -> Answer:
        before = await self._flow(flow)
        watch = {"sourceWatch": {"enabled": False}}
        ends = state == FlowState.RUNNING and before.spec.source_watch.enabled
        await self._patch_spec(flow, {"state": state, **(watch if ends else {})})
        return await self._answer_pauses(before)

    async def _watch_source(self, flow: str, enabled: bool) -> Answer:
        before = (await self._flow(flow)).spec.source_watch.enabled
        await self._patch_spec(flow, {"sourceWatch": {"enabled": enabled}})
        return {"changed": before != enabled}

    async def _pause_partitions(self, flow: str, partitions: str, paused: bool) -> Answer:
        while True:
            known = await self._flow(flow)
            items = change_pauses(known, partitions, paused=paused)
            # A merge patch replaces the whole list. The resource version prevents it from
            # overwriting a concurrent change.
            version = {"resourceVersion": known.metadata.resource_version}
            spec = {"pausedPartitions": [as_json(item) for item in items]}
            with suppress(Conflict):
                await self._patch(flow, {"metadata": version, "spec": spec})
                return await self._answer_pauses(known, partitions)

    async def _answer_pauses(self, before: ReplicationFlow, partitions: str = "") -> Answer:
        after = await self._in_force(before.metadata.name)
        tasks = await self._tasks(before.metadata.name)
        return {
            **answer_pauses(before, after.flow, tasks, partitions),
            "notInForce": after.error,
        }

    async def _reset(self, flow: str, partitions: str, dry_run: bool) -> Answer:
        while True:
            known = await self._flow(flow)
            answered = answer_resets(known, await self._tasks(flow), partitions)
            resets = change_resets(known, partitions, int(time.time() * 1000))
            if dry_run:
                return answered
            metadata = {
                "resourceVersion": known.metadata.resource_version,
                "annotations": {RESET_ANNOTATION: str(resets)},
            }
            with suppress(Conflict):
                await self._patch(flow, {"metadata": metadata})
                return answered

    async def _scale(self, flow: str, drivers: int) -> Answer:
        before = (await self._flow(flow)).spec.drivers.replicas
        await self._patch_spec(flow, {"drivers": {"replicas": drivers}})
        return {"before": before, "notInForce": (await self._in_force(flow)).error}

    async def _flow(self, name: str) -> ReplicationFlow:
        """Return a flow with its last valid spec, so that an invalid edit prevents no fail-over."""
        return (await self._in_force(name)).flow

    async def _in_force(self, name: str) -> InForce:
        """Return the spec that the operator follows, with the error of a spec that it does not."""
        return read_in_force(await self._object(name), None)

    async def _object(self, name: str) -> Object:
        found = await self._client.get(FLOW, self._namespace, name)
        if found is None:
            raise InvalidSpec(f"there is no ReplicationFlow {name} in namespace {self._namespace}")
        return found

    async def _tasks(self, flow: str | None) -> list[ReplicationTask]:
        selected = f"{FLOW_LABEL}={label_value(flow)}" if flow else ""
        found = await self._client.list(TASK, self._namespace, labels=selected)
        tasks = [parse_task(one) for one in found]
        return sorted(tasks, key=lambda task: (task.spec.type, task.spec.index))

    async def _annotate(self, task: ReplicationTask, annotation: str, value: str) -> None:
        patch = {"metadata": {"annotations": {annotation: value}}}
        await self._client.patch(TASK, self._namespace, task.metadata.name, patch)

    async def _patch_spec(self, flow: str, spec: Answer) -> None:
        await self._patch(flow, {"spec": spec})

    async def _patch(self, flow: str, patch: Answer) -> None:
        await self._client.patch(FLOW, self._namespace, flow, patch)


def _status_of(flow: ReplicationFlow, tasks: Iterable[ReplicationTask]) -> Answer:
    lost = flow.status.lost_drivers if flow.status else ()
    return {
        **(as_json(flow.status) if flow.status else {}),
        "units": [task_row(task, lost) for task in tasks],
    }


_VERBS: dict[str, Callable[..., Coroutine[Any, Any, Answer]]] = {
    "status": ClusterFlows._status,
    "access": ClusterFlows._access,
    "describe": ClusterFlows._describe,
    "restart": ClusterFlows._restart,
    "move": ClusterFlows._move,
    "set-state": ClusterFlows._set_state,
    "watch-source": ClusterFlows._watch_source,
    "pause-partitions": ClusterFlows._pause_partitions,
    "reset": ClusterFlows._reset,
    "scale": ClusterFlows._scale,
}
