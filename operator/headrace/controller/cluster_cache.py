"""Local copies of flows, units, driver pods and Leases.

Each change puts the flow concerned into the queue.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from headrace.api import (
    COMPONENT_LABEL,
    DRIVER_COMPONENT,
    FLOW_LABEL,
    ReplicationFlow,
    ReplicationTask,
)
from headrace.assign import DriverName
from headrace.controller.drivers import DriverLease, DriverPod, driver_pod
from headrace.controller.kopf_copy import LIST_EVERY_S, KopfCopy
from headrace.controller.queue import LATER_S, SOON_S
from headrace.controller.target_topics import (
    FlowName,
    Target,
    copied_topics,
    flow_name,
    written_targets,
)
from headrace.errors import HeadraceError, InvalidSpec
from headrace.k8s import (
    FLOW,
    POD,
    TASK,
    ChangeType,
    Client,
    InForce,
    LeaseWatch,
    Object,
    Reflector,
    WatchEvent,
    is_older,
    is_owned,
    parse,
    read_in_force,
    salvage,
)
from headrace.logs import get_logger
from headrace.placement import task_id
from headrace.replication import CopiedTopics

log = get_logger(__name__)


class FlowCache:
    """Flows by name, each with its spec in force: the current spec, or the last valid one.

    If a flow was deleted and created again, the newer object is kept, in whatever order the
    watch and the responses to writes report both.
    """

    def __init__(self) -> None:
        self._objects: dict[FlowName, Object] = {}
        self._in_force: dict[FlowName, InForce] = {}

    def __iter__(self) -> Iterator[FlowName]:
        return iter(list(self._objects))

    def put(self, object: Object) -> bool:
        """Store a new or changed flow, and return True if it differs from the stored one."""
        before = self._objects.get(name := name_of(object))
        if before is not None and (before == object or is_older(object, before)):
            return False
        self._objects[name] = object
        known = self._in_force.pop(name, None)
        try:
            self._in_force[name] = found = read_in_force(object, known)
            why = found.error
        except InvalidSpec as error:
            why = str(error)
            with suppress(InvalidSpec):
                self._in_force[name] = salvage(object)
        if why and (known is None or known.error != why):
            log.warning("flow not understood", flow=name[1], namespace=name[0], why=why)
        return True

    def drop(self, object: Object) -> None:
        before = self._objects.get(name := name_of(object))
        if before is not None and before["metadata"]["uid"] == object["metadata"]["uid"]:
            del self._objects[name]
            self._in_force.pop(name, None)

    def object(self, name: FlowName) -> Object | None:
        """Return a flow's object, or None."""
        return self._objects.get(name)

    def objects(self) -> list[Object]:
        """Return all flows' objects."""
        return list(self._objects.values())

    def valid_flow(self, name: FlowName) -> ReplicationFlow | None:
        """Return a flow with the spec in force, or None if it is missing or invalid."""
        found = self._in_force.get(name)
        return found.flow if found is not None else None

    def get(self, name: FlowName) -> InForce:
        """Return the spec in force of an existing flow.

        Raises:
            InvalidSpec: No field of the spec is usable.
        """
        return self._in_force.get(name) or read_in_force(self._objects[name], None)

    def all(self) -> list[ReplicationFlow]:
        """Return all flows that are valid."""
        return [found.flow for found in self._in_force.values()]


def name_of(object: Object) -> FlowName:
    """Return the namespace and the name of an object."""
    return object["metadata"]["namespace"], object["metadata"]["name"]


T = TypeVar("T")


def _discard(by_flow: dict[FlowName, dict[str, T]], flow: FlowName, name: str) -> T | None:
    """Remove an object, and its flow if that was the last object. Return the object, or None."""
    objects = by_flow.get(flow, {})
    object = objects.pop(name, None)
    if not objects:
        by_flow.pop(flow, None)
    return object


_DRIVERS = f"{COMPONENT_LABEL}={DRIVER_COMPONENT},{FLOW_LABEL}"


class DriverCache:
    """Driver pods by flow. Pods of a missing or invalid flow are not its drivers."""

    def __init__(
        self,
        client: Client,
        namespace: str | None,
        lease_s: Callable[[FlowName], int | None],
        changed: Callable[[FlowName], None],
        make_lease_watch: Callable[..., LeaseWatch],
    ) -> None:
        """Create an empty cache.

        Args:
            client: Client of the API server.
            namespace: Namespace to watch, or None for all.
            lease_s: Returns the duration of a flow's Leases in seconds, or None for an unknown
                flow.
            changed: Receives each flow whose drivers changed.
            make_lease_watch: Creates the watch over the drivers' Leases.
        """
        self._lease_s, self._changed = lease_s, changed
        self._pods: dict[FlowName, dict[DriverName, DriverPod]] = {}
        self._reported: dict[FlowName, Mapping[DriverName, DriverLease]] = {}
        self._pod_copy = Reflector(
            client, POD, namespace, labels=_DRIVERS, on_change=self.pod_changed
        )
        self._leases = make_lease_watch(
            client, _DRIVERS, namespace=namespace, on_change=self._leases_changed
        )
        self.copies = (self._pod_copy, self._leases)

    def pods(self, name: FlowName) -> list[DriverPod]:
        """Return the driver pods of a flow."""
        return list(self._pods.get(name, {}).values())

    def leases(self, name: FlowName) -> dict[DriverName, DriverLease]:
        """Return the known state of each driver's Lease."""
        return {pod: self._lease((name[0], pod)) for pod in self._pods.get(name, {})}

    def expect_leases(self) -> None:
        """Watch the Leases of the current pods, after pods or the duration of Leases changed."""
        self._leases.expect(
            {
                (flow[0], pod): lease_s
                for flow, pods in self._pods.items()
                if (lease_s := self._lease_s(flow)) is not None
                for pod in pods
            }
        )

    def pod_changed(self, change: WatchEvent) -> None:
        """Record a change from the watch of pods."""
        namespace, name = name_of(change.object)
        flow = (namespace, change.object["metadata"]["labels"][FLOW_LABEL])
        pod = driver_pod(change.object)
        if change.type is ChangeType.DELETED:
            _discard(self._pods, flow, name)
            if flow not in self._pods:
                self._reported.pop(flow, None)
        elif self._pods.get(flow, {}).get(name) == pod:
            return
        else:
            self._pods.setdefault(flow, {})[name] = pod
        self.expect_leases()
        self._changed(flow)

    def _lease(self, name: tuple[str, DriverName]) -> DriverLease:
        _, _, incarnation = self._leases.holder(name).rpartition("/")
        return DriverLease(incarnation, self._leases.renewed(name), self._leases.is_expired(name))

    def _leases_changed(self) -> None:
        for name in self._pods:
            if self._reported.get(name) != (now := self.leases(name)):
                self._reported[name] = now
                self._changed(name)


@dataclass(frozen=True)
class UnitChange:
    """A unit before and after a change. Each is None if the unit does not exist."""

    before: ReplicationTask | None
    after: ReplicationTask | None

    @property
    def of_targets(self) -> bool:
        """True if the unit's source topics, its target topics or its owning flow changed."""
        return _targets(self.before) != _targets(self.after)

    @property
    def of_figures_only(self) -> bool:
        """True if only measurements or connector epochs changed.

        A new connector writes its epoch into all of its tasks.
        """
        before, after = self.before, self.after
        return before is not None and after is not None and _acted_on(before) == _acted_on(after)


class UnitCache:
    """Units by flow."""

    def __init__(self) -> None:
        self._units: dict[FlowName, dict[str, ReplicationTask]] = {}
        self._in_order: dict[FlowName, tuple[str | None, list[ReplicationTask]]] = {}
        """Sorted units by flow, with the flow's uid. Sorting 10,000 units takes 40 ms."""
        self._invalid: dict[FlowName, dict[str, str]] = {}
        """Problem of each invalid unit, by the unit's name."""

    def of(self, flow: ReplicationFlow) -> list[ReplicationTask]:
        """Return the units of a flow in order.

        Units of a deleted flow with the same name are excluded.
        """
        name, uid = flow_name(flow), flow.metadata.uid
        if name not in self._units:
            return []
        known = self._in_order.get(name)
        if known is None or known[0] != uid:
            there = self._units[name].values()
            mine = [task for task in there if is_owned(task.metadata.owner_references, flow)]
            mine.sort(key=lambda task: (task.spec.type, task.spec.index))
            known = self._in_order[name] = (uid, mine)
        return list(known[1])

    def invalid_unit(self, name: FlowName) -> str:
        """Return the problem of an invalid unit of a flow, or an empty string if all are valid."""
        return next(iter(self._invalid.get(name, {}).values()), "")

    def put(self, object: Object) -> UnitChange:
        """Record a new or changed unit."""
        return self._replace(object, self._understood(object))

    def drop(self, object: Object) -> UnitChange:
        """Remove a deleted unit."""
        _discard(self._invalid, flow_of(object), object["metadata"]["name"])
        return self._replace(object, None)

    def _replace(self, object: Object, task: ReplicationTask | None) -> UnitChange:
        flow, name = flow_of(object), object["metadata"]["name"]
        self._in_order.pop(flow, None)
        before = _discard(self._units, flow, name)
        if task is not None:
            self._units.setdefault(flow, {})[name] = task
        return UnitChange(before, task)

    def _understood(self, object: Object) -> ReplicationTask | None:
        """Return the parsed unit, or None if it is invalid, which ``invalid_unit`` reports.

        Return None also if the object's name does not fit its spec, because the unit would
        otherwise exist twice.
        """
        flow, name = flow_of(object), object["metadata"]["name"]
        _discard(self._invalid, flow, name)
        try:
            task = parse(ReplicationTask, object)
            if task_id(task).name == name:
                return task
            why = f"it says that it is {task_id(task).name}: delete it"
        except InvalidSpec as error:
            why = self._invalid.setdefault(flow, {})[name] = str(error)
        namespace = object["metadata"]["namespace"]
        log.warning("unit not understood", task=name, namespace=namespace, why=why)
        return None


def _acted_on(task: ReplicationTask) -> object:
    """Return the parts of a unit on which the operator acts."""
    figures = {"lag": None, "bytes_per_second": None}
    return (
        task.spec.model_copy(update={"connector_epoch": 0}),
        task.status.model_copy(update={**figures, "observed_generation": None}),
        task.metadata.labels,
        task.metadata.annotations,
    )


def flow_of(unit: Object) -> FlowName:
    """Return the name of the flow that a unit's spec contains."""
    return unit["metadata"]["namespace"], unit["spec"].get("flowName", "")


def _targets(task: ReplicationTask | None) -> object:
    """Return a unit's owners, its target topics and its source topics, or None without a unit."""
    return task and (
        task.metadata.owner_references,
        written_targets([task]),
        copied_topics([task]),
    )


_CHECK_EVERY_S = 1.0


class ClusterCache:
    """Local copies of all objects that reconciles of flows need.

    Use it from one event loop. Returned values never change, because a change replaces them.
    """

    def __init__(
        self,
        client: Client,
        namespace: str | None,
        enqueue: Callable[[FlowName, float], None],
        selector: str = "",
        list_every_s: float = LIST_EVERY_S,
        *,
        make_lease_watch: Callable[..., LeaseWatch] = LeaseWatch,
    ) -> None:
        """Create an empty cache.

        Args:
            client: Client of the API server.
            namespace: Namespace to watch, or None for all.
            enqueue: Receives a flow, and the seconds within which to reconcile it.
            selector: Label selector of the flows. Other flows are ignored.
            list_every_s: Interval of the lists of flows, in seconds.
            make_lease_watch: Creates the watch over the drivers' Leases.
        """
        self._client, self._enqueue = client, enqueue
        self._flows, self._units = FlowCache(), UnitCache()
        self._written: dict[FlowName, frozenset[Target]] = {}
        self._copied: dict[FlowName, CopiedTopics] = {}
        self._written_before: dict[FlowName, frozenset[Target]] = {}
        """Targets of each flow at its last reconcile."""
        self._drivers = DriverCache(
            client,
            namespace,
            self._lease_s,
            lambda name: enqueue(name, SOON_S),
            make_lease_watch,
        )
        self._flow_copy = KopfCopy(
            client,
            FLOW,
            namespace,
            labels=selector,
            on_change=self._flow_changed,
            list_every_s=list_every_s,
        )
        self._task_copy = Reflector(client, TASK, namespace, on_change=self._task_changed)
        self._copies = (self._flow_copy, self._task_copy, *self._drivers.copies)

    async def run(self) -> None:
        """Watch all kinds except flows, which kopf watches. Never returns."""
        async with asyncio.TaskGroup() as tasks:
            for copy in self._copies:
                tasks.create_task(copy.run())
            for copy in self._copies:
                await copy.synced.wait()
            await self._report_watch_error()

    async def _report_watch_error(self) -> None:
        """Queue all flows now, and whenever a watch fails or recovers."""
        last: str | None = None
        while True:
            if (now := str(self.watch_error or "")) != last:
                last = now
                for name in self._flows:
                    self._enqueue(name, SOON_S)
            await asyncio.sleep(_CHECK_EVERY_S)

    @property
    def is_complete(self) -> bool:
        """True when every watch has received its first list. Until then, nothing is decided."""
        return all(copy.synced.is_set() for copy in self._copies)

    @property
    def watch_error(self) -> HeadraceError | None:
        """Error of a watch that is not open, or None."""
        return next((copy.error for copy in self._copies if copy.error is not None), None)

    # Flows.

    def observe_flow(self, object: Object, *, deleted: bool) -> None:
        """Record a flow from an event of its watch, and queue it if it changed."""
        self._flow_copy.observe(object, deleted=deleted)

    def _flow_changed(self, change: WatchEvent) -> None:
        deleted = change.type is ChangeType.DELETED
        (self.drop_flow if deleted else self.put_flow)(change.object)
        self._enqueue(name_of(change.object), SOON_S)

    def put_flow(self, object: Object) -> None:
        """Record a new or changed flow."""
        before = self._lease_s(name := name_of(object))
        if self._flows.put(object):
            self._forget_written(name)  # the units that belong to the flow depend on its uid
            if self._lease_s(name) != before:
                self._drivers.expect_leases()

    def put_flow_written(self, object: Object) -> None:
        """Record a flow from the response to a write, before its watch reports it."""
        if self._flows.object(name_of(object)) is not None:  # otherwise the flow has been deleted
            self.put_flow(object)

    def drop_flow(self, object: Object) -> None:
        self._flows.drop(object)
        self._forget_written(name_of(object))

    def flow_object(self, name: FlowName) -> Object | None:
        """Return a flow's object, or None."""
        return self._flows.object(name)

    def flow_objects(self) -> list[Object]:
        """Return all flows' objects, including invalid flows."""
        return self._flows.objects()

    def flow_names(self) -> list[FlowName]:
        """Return the names of all flows, except those that are being deleted."""
        there = self._flows.objects()
        return [name_of(one) for one in there if "deletionTimestamp" not in one["metadata"]]

    def in_force(self, name: FlowName) -> InForce:
        """Return the spec in force of an existing flow. Raise ``InvalidSpec`` if there is none."""
        return self._flows.get(name)

    def valid_flow(self, name: FlowName) -> ReplicationFlow | None:
        """Return a flow with the spec in force, or None if it is missing or invalid."""
        return self._flows.valid_flow(name)

    def flows(self) -> list[ReplicationFlow]:
        """Return all flows that are valid."""
        return self._flows.all()

    # Units.

    def tasks(self, flow: ReplicationFlow) -> list[ReplicationTask]:
        return self._units.of(flow)

    def invalid_unit(self, name: FlowName) -> str:
        return self._units.invalid_unit(name)

    def written(self, name: FlowName) -> frozenset[Target]:
        """Return the target topics that a flow writes, or none for a missing or invalid flow."""
        if (flow := self._flows.valid_flow(name)) is None:
            return frozenset()
        if name not in self._written:
            self._written[name] = written_targets(self.tasks(flow))
        return self._written[name]

    def copied(self, name: FlowName) -> CopiedTopics:
        """Return the topics that a flow copies, or none for a missing or invalid flow."""
        if (flow := self._flows.valid_flow(name)) is None:
            return CopiedTopics()
        if name not in self._copied:
            self._copied[name] = copied_topics(self.tasks(flow))
        return self._copied[name]

    def requeue_rivals(self, name: FlowName) -> None:
        """Queue the flows that may wait for a target topic of ``name``.

        These flows write a topic that ``name`` took or freed since its last reconcile.
        """
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
        """Record a unit from the response to a write, before its watch reports it."""
        namespace, name = name_of(object)
        watched = self._task_copy.get(name, namespace)
        if watched is None or is_older(object, watched):
            return  # the unit was deleted, or has changed again
        if self._units.put(object).of_targets:
            self._forget_written(flow_of(object))

    async def refresh_task(self, namespace: str, name: str) -> None:
        """Read a unit again, because its watch is behind."""
        if (object := await self._client.get(TASK, namespace, name)) is not None:
            self.put_task(object)

    def _task_changed(self, change: WatchEvent) -> None:
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
        return self._drivers.pods(flow_name(flow))

    def leases(self, name: FlowName) -> dict[DriverName, DriverLease]:
        return self._drivers.leases(name)

    def _lease_s(self, name: FlowName) -> int | None:
        flow = self._flows.valid_flow(name)
        return flow.spec.drivers.lease_seconds if flow else None
