"""The reconcile of a ReplicationFlow: a chain that is read from top to bottom."""

import asyncio
import time
from dataclasses import dataclass
from datetime import UTC, datetime

from headrace.api import (
    FlowState,
    Reason,
    ReplicationFlow,
    ReplicationFlowStatus,
    TaskType,
    Unbuilt,
    unbuilt,
)
from headrace.api.labels import CONNECTOR_MANAGER, PAUSE_ANNOTATION
from headrace.controller.assignment import Plan, plan
from headrace.controller.children import Children
from headrace.controller.cluster_cache import ClusterCache
from headrace.controller.drivers import Drivers, drivers_of
from headrace.controller.events import Occurrence
from headrace.controller.queue import SOON_S
from headrace.controller.resources import (
    CONNECTORS,
    build_children,
    build_connector,
    build_deployment,
    template_hash,
)
from headrace.controller.startup_grace import Gathering
from headrace.controller.status import (
    Facts,
    paused_status,
    status_of,
    status_without_units,
)
from headrace.controller.targets import FlowName, Taken, flow_name, taken_target
from headrace.controller.trouble import trouble
from headrace.controller.writes import FlowWrites
from headrace.errors import HeadraceError, InvalidSpec
from headrace.k8s.kinds import NETWORK_POLICY
from headrace.placement import Placer, task_id
from headrace.status.flow_status import Readiness

_SEE_AGAIN_S = 1.0
"""While the operator does not see everything yet."""
_TRY_AGAIN_S = 15.0
"""When somebody has to change something that the operator does not watch, such as its rights."""
_RESYNC_S = 600.0


@dataclass(frozen=True)
class Settings:
    """What the operator was started with, as far as flows are concerned."""

    driver_image: str
    network_policy: bool = False


class FlowReconciler:
    """Brings flows to where their specs want them. For one event loop."""

    def __init__(
        self, cache: ClusterCache, children: Children, writes: FlowWrites, settings: Settings
    ) -> None:
        self._cache, self._children = cache, children
        self._writes, self._settings = writes, settings
        self._schedulers: dict[FlowName, Placer] = {}
        self._read_s: dict[FlowName, float] = {}
        self._gathering = Gathering()

    async def reconcile(self, name: FlowName) -> float | None:
        """One look at one flow; in how many seconds to look again, None when it is gone."""
        await self._read_anew_sometimes(name)
        self._cache.wake_rivals(name)
        object = self._cache.flow_object(name)
        if object is None or "deletionTimestamp" in object["metadata"]:
            self._forget(name)
            return None
        try:
            flow = self._cache.flow(name)
        except InvalidSpec as error:
            await self._writes.refusal(object, str(error))
            return _RESYNC_S
        if flow.metadata.annotations.get(PAUSE_ANNOTATION) == "true":
            await self._writes.status(flow, paused_status(flow, datetime.now(UTC)))
            return _RESYNC_S

        try:
            self._check_sight()
            return await self._bring_about(flow) if self._cache.is_complete else _SEE_AGAIN_S
        except HeadraceError as error:
            if (verdict := trouble(error)) is None:
                raise
            return await self._say(flow, verdict)

    async def _bring_about(self, flow: ReplicationFlow) -> float:
        missing, hindrance = self._not_built(flow), None
        if not missing.refused:
            hindrance = await self._make_children(flow) or self._strange_unit(flow)
        drivers = self._drivers(flow)
        taken = taken_target(flow, self._cache.flows(), self._cache.written)
        decided = await self._plan(flow, drivers, taken)
        settled = await self._writes.assign(decided.assignments)
        await self._writes.answer(self._cache.tasks(flow), decided.moves)
        tasks = self._cache.tasks(flow)
        refused = self._children.refused_pods(flow)
        now, why = datetime.now(UTC), decided.problem
        facts = Facts(now, flow, tasks, drivers, missing, taken, hindrance, why, refused)
        if flow.status is None and missing.warning:
            await self._writes.tell(flow, Occurrence("LeftOut", missing.warning))
        # Of 10,000 units it takes a tenth of a second, which no Lease should wait for.
        status = await asyncio.to_thread(status_of, facts)
        known = await self._writes.status(flow, status)
        wait = drivers.wait_to_take and any(not task.spec.driver_name for task in tasks)
        if wait or not settled:
            return _SEE_AGAIN_S  # at the latest: what changed meanwhile is about to be seen
        hindered = hindrance is not None or not known or drivers.silent
        return _look_again_s(decided, hindered=hindered)

    def close(self) -> None:
        """End what plug-ins run."""
        for scheduler in self._schedulers.values():
            scheduler.close()

    async def _read_anew_sometimes(self, name: FlowName) -> None:
        now_s = time.monotonic()
        if now_s - self._read_s.setdefault(name, now_s) > _RESYNC_S / 2:
            self._read_s[name] = now_s
            await self._cache.refresh_flow(name)
            await self._children.verify(*name)

    def _forget(self, name: FlowName) -> None:
        self._read_s.pop(name, None)
        self._gathering.forget(name)
        self._children.forget(*name)
        if (scheduler := self._schedulers.pop(name, None)) is not None:
            scheduler.close()

    async def _say(self, flow: ReplicationFlow, verdict: Readiness) -> float:
        """Of a flow for which nothing can be done before somebody changes something."""
        before = flow.status or ReplicationFlowStatus()
        now = datetime.now(UTC)
        status = status_without_units(verdict, before, flow.metadata.generation, now)
        await self._writes.status(flow, status)
        return _TRY_AGAIN_S

    def _check_sight(self) -> None:
        """Raises what a person has to change before the operator sees all that it has to."""
        error = self._cache.trouble
        if error is not None and trouble(error):
            raise error

    def _not_built(self, flow: ReplicationFlow) -> Unbuilt:
        # Stopped is for standalone to learn: here it is a Deployment without pods.
        if flow.spec.state is FlowState.STOPPED:
            spec = flow.spec.model_copy(update={"state": FlowState.RUNNING})
            flow = flow.model_copy(update={"spec": spec})
        return unbuilt(flow)

    async def _make_children(self, flow: ReplicationFlow) -> Readiness | None:
        """Why a person has to change something first; units are looked after all the same."""
        try:
            for manifest in build_children(
                flow, self._settings.driver_image, network_policy=self._settings.network_policy
            ):
                await self._children.apply(flow, manifest)
            there = {task.metadata.name for task in self._cache.tasks(flow)}
            for type in CONNECTORS:
                connector = build_connector(flow, type)
                if connector["metadata"]["name"] not in there:
                    made = await self._children.create(flow, connector, CONNECTOR_MANAGER)
                    self._cache.put_task(made)
            if not self._settings.network_policy:
                await self._children.remove(flow, NETWORK_POLICY)
        except HeadraceError as error:
            if (verdict := trouble(error)) is None:
                raise
            return verdict
        return None

    def _strange_unit(self, flow: ReplicationFlow) -> Readiness | None:
        why = self._cache.invalid_unit(flow_name(flow))
        return Readiness(False, True, Reason.INVALID_SPEC, why) if why else None

    def _drivers(self, flow: ReplicationFlow) -> Drivers:
        deployment = build_deployment(flow, self._settings.driver_image)
        leases = self._cache.leases(flow_name(flow))
        return drivers_of(self._cache.pods(flow), template_hash(deployment), leases)

    async def _plan(self, flow: ReplicationFlow, drivers: Drivers, taken: Taken | None) -> Plan:
        tasks = self._cache.tasks(flow)
        now_s = time.monotonic()
        now_ms = int(now_s * 1000)
        if self._gathering.is_under_way(flow, tasks, drivers, now_s):
            return Plan((), (), "", now_ms + 500)
        barred = frozenset(
            task_id(task) for task in tasks if taken and task.spec.type is TaskType.SOURCE_TASK
        )
        scheduler = self._schedulers.setdefault(flow_name(flow), Placer())
        return await asyncio.to_thread(plan, flow, tasks, drivers, scheduler, now_ms, barred=barred)


def _look_again_s(decided: Plan, *, hindered: bool) -> float:
    if hindered:
        return _TRY_AGAIN_S
    if decided.follow_up_ms is not None:
        return max(SOON_S, decided.follow_up_ms / 1000 - time.monotonic())
    return _RESYNC_S
