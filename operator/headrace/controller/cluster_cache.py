"""Local copies of flows, units, driver pods and Leases.

Whatever changes here puts the flow that it belongs to into the queue.
"""

import asyncio
from collections.abc import Callable

from headrace.api import ReplicationFlow, ReplicationTask
from headrace.assign import DriverName
from headrace.controller.driver_cache import DriverCache
from headrace.controller.drivers import DriverLease, DriverPod
from headrace.controller.flow_cache import FlowCache, name_of
from headrace.controller.queue import LATER_S, SOON_S
from headrace.controller.targets import (
    FlowName,
    Target,
    copied_topics,
    flow_name,
    written_targets,
)
from headrace.controller.unit_cache import UnitCache, flow_of
from headrace.errors import HeadraceError
from headrace.k8s import (
    FLOW,
    TASK,
    Change,
    ChangeType,
    Client,
    InForce,
    Object,
    Reflector,
    is_older,
)
from headrace.replication import Copied

_CHECK_EVERY_S = 1.0


class ClusterCache:
    """For one event loop. All that it returns are values: they do not change under a reader."""

    def __init__(
        self,
        client: Client,
        namespace: str | None,
        enqueue: Callable[[FlowName, float], None],
        selector: str = "",
    ) -> None:
        """``namespace`` None: all. ``enqueue`` gets a flow, and within how many seconds to
        reconcile it. ``selector``: labels of the flows; others are not there."""
        self._client, self._enqueue = client, enqueue
        self._flows, self._units = FlowCache(), UnitCache()
        self._written: dict[FlowName, frozenset[Target]] = {}
        self._copied: dict[FlowName, Copied] = {}
        self._written_before: dict[FlowName, frozenset[Target]] = {}
        """What each flow wrote at its last reconcile."""
        self._drivers = DriverCache(
            client, namespace, self._lease_s, lambda name: enqueue(name, SOON_S)
        )
        self._flow_copy = Reflector(
            client, FLOW, namespace, labels=selector, on_change=self._flow_changed
        )
        self._task_copy = Reflector(client, TASK, namespace, on_change=self._task_changed)
        self._copies = (self._flow_copy, self._task_copy, *self._drivers.copies)

    async def run(self) -> None:
        """Watch; never returns."""
        async with asyncio.TaskGroup() as tasks:
            for copy in self._copies:
                tasks.create_task(copy.run())
            for copy in self._copies:
                await copy.synced.wait()
            await self._report_watch_error()

    async def _report_watch_error(self) -> None:
        """Queue all flows now, and whenever a watch breaks or recovers."""
        last: str | None = None
        while True:
            if (now := str(self.watch_error or "")) != last:
                last = now
                for name in self._flows:
                    self._enqueue(name, SOON_S)
            await asyncio.sleep(_CHECK_EVERY_S)

    @property
    def is_complete(self) -> bool:
        """Whether every watch had its first list; nothing is decided before."""
        return all(copy.synced.is_set() for copy in self._copies)

    @property
    def watch_error(self) -> HeadraceError | None:
        """Why a watch is not open."""
        return next((copy.error for copy in self._copies if copy.error is not None), None)

    # Flows.

    def _flow_changed(self, change: Change) -> None:
        deleted = change.type is ChangeType.DELETED
        (self.drop_flow if deleted else self.put_flow)(change.object)
        self._enqueue(name_of(change.object), SOON_S)

    def put_flow(self, object: Object) -> None:
        """A flow is there, or changed."""
        before = self._lease_s(name := name_of(object))
        if self._flows.put(object):
            self._forget_written(name)  # which units are its own depends on its uid
            if self._lease_s(name) != before:
                self._drivers.expect_leases()

    def put_flow_written(self, object: Object) -> None:
        """A flow as the API server answered a write, a moment before its watch reports the same."""
        if self._flows.object(name_of(object)) is not None:  # else it is deleted meanwhile
            self.put_flow(object)

    def drop_flow(self, object: Object) -> None:
        """A flow is gone."""
        self._flows.drop(object)
        self._forget_written(name_of(object))

    def flow_object(self, name: FlowName) -> Object | None:
        """A flow as the API has it."""
        return self._flows.object(name)

    def flow_objects(self) -> list[Object]:
        """All flows as the API has them, also those that are not understood."""
        return self._flows.objects()

    def flow_names(self) -> list[FlowName]:
        """All flows, but those that are being deleted."""
        there = self._flows.objects()
        return [name_of(one) for one in there if "deletionTimestamp" not in one["metadata"]]

    def in_force(self, name: FlowName) -> InForce:
        """Return what is in force of a flow; raise ``InvalidSpec`` if nothing is understood."""
        return self._flows.get(name)

    def understood(self, name: FlowName) -> ReplicationFlow | None:
        """A flow, unless it is not there or not understood."""
        return self._flows.understood(name)

    def flows(self) -> list[ReplicationFlow]:
        """All that are understood."""
        return self._flows.all()

    # Units.

    def tasks(self, flow: ReplicationFlow) -> list[ReplicationTask]:
        """The units of a flow, in order; not those of an earlier flow of that name."""
        return self._units.of(flow)

    def invalid_unit(self, name: FlowName) -> str:
        """What is wrong with a unit that is not understood; empty when all are."""
        return self._units.invalid_unit(name)

    def written(self, name: FlowName) -> frozenset[Target]:
        """The target topics that a flow writes; none of one that is gone or not understood."""
        if name not in self._written:
            flow = self._flows.understood(name)
            self._written[name] = written_targets(self.tasks(flow) if flow else ())
        return self._written[name]

    def copied(self, name: FlowName) -> Copied:
        """What a flow copies; nothing for one that is gone or not understood."""
        if name not in self._copied:
            flow = self._flows.understood(name)
            self._copied[name] = copied_topics(self.tasks(flow) if flow else ())
        return self._copied[name]

    def requeue_rivals(self, name: FlowName) -> None:
        """Queue the flows that write a target topic which ``name`` took or freed since its last
        reconcile: one of them may wait for it."""
        now, before = self.written(name), self._written_before.get(name, frozenset())
        self._written_before[name] = now
        if not now:
            del self._written_before[name]
        if now is before or not (changed := now ^ before):
            return
        for flow in self._flows.all():
            if (rival := flow_name(flow)) != name and changed & self.written(rival):
                self._enqueue(rival, SOON_S)

    def put_task(self, object: Object) -> None:
        """A unit as the API server answered a write, a moment before its watch reports the same."""
        namespace, name = name_of(object)
        watched = self._task_copy.get(name, namespace)
        if watched is None or is_older(object, watched):
            return  # it is deleted meanwhile, or changed once more
        if self._units.put(object).of_targets:
            self._forget_written(flow_of(object))

    async def refresh_task(self, namespace: str, name: str) -> None:
        """Read a unit again: its watch is behind."""
        if (object := await self._client.get(TASK, namespace, name)) is not None:
            self.put_task(object)

    def _task_changed(self, change: Change) -> None:
        deleted = change.type is ChangeType.DELETED
        changed = (self._units.drop if deleted else self._units.put)(change.object)
        if changed.of_targets:
            self._forget_written(flow_of(change.object))
        self._enqueue(flow_of(change.object), LATER_S if changed.of_figures_only else SOON_S)

    def _forget_written(self, name: FlowName) -> None:
        self._written.pop(name, None)
        self._copied.pop(name, None)

    # Drivers.

    def pods(self, flow: ReplicationFlow) -> list[DriverPod]:
        """The driver pods of a flow."""
        return self._drivers.pods(flow_name(flow))

    def leases(self, name: FlowName) -> dict[DriverName, DriverLease]:
        """What is known of the Lease of each driver of a flow."""
        return self._drivers.leases(name)

    def _lease_s(self, name: FlowName) -> int | None:
        flow = self._flows.understood(name)
        return flow.spec.drivers.lease_seconds if flow else None
