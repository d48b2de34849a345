"""What the operator sees: local copies of units, driver pods and Leases, and of flows.

Whatever changes here puts the flow that it belongs to into the queue.
"""

import asyncio
from collections.abc import Callable, Mapping

from headrace.api import ReplicationFlow, ReplicationTask
from headrace.api.labels import COMPONENT_LABEL, DRIVER_COMPONENT, FLOW_LABEL
from headrace.assign import DriverName
from headrace.controller.drivers import DriverLease, DriverPod
from headrace.controller.pods import driver_pod
from headrace.controller.queue import LATER_S, SOON_S
from headrace.controller.targets import FlowName, Target, flow_name, written_targets
from headrace.errors import HeadraceError, InvalidSpec
from headrace.k8s import Change, ChangeType, Client, LeaseWatch, Object, Reflector, parse
from headrace.k8s.kinds import FLOW, POD, TASK
from headrace.logs import get_logger

log = get_logger(__name__)

_TROUBLE_EVERY_S = 1.0
_DRIVERS = f"{COMPONENT_LABEL}={DRIVER_COMPONENT},{FLOW_LABEL}"


class World:
    """For one event loop. All that it hands out are values: they do not change under a reader."""

    def __init__(
        self, client: Client, namespace: str | None, wants_look: Callable[[FlowName, float], None]
    ) -> None:
        """``namespace`` None: all. ``wants_look`` hears which flow, and within how many seconds."""
        self._client, self._wants_look = client, wants_look
        self._flows: dict[FlowName, Object] = {}
        self._parsed: dict[FlowName, ReplicationFlow] = {}
        self._tasks: dict[FlowName, dict[str, ReplicationTask]] = {}
        self._in_order: dict[FlowName, tuple[str | None, list[ReplicationTask]]] = {}
        """Asked for several times a reconcile: of 10,000 units each would take 40 ms."""
        self._written: dict[FlowName, frozenset[Target]] = {}
        self._pods: dict[FlowName, dict[DriverName, DriverPod]] = {}
        self._told: dict[FlowName, Mapping[DriverName, DriverLease]] = {}
        self._task_copy = Reflector(client, TASK, namespace, on_change=self._task_changed)
        self._pod_copy = Reflector(
            client, POD, namespace, labels=_DRIVERS, on_change=self._pod_changed
        )
        self._leases = LeaseWatch(
            client, _DRIVERS, namespace=namespace, on_change=self._leases_changed
        )

    async def run(self) -> None:
        """Watch; never returns."""
        async with asyncio.TaskGroup() as tasks:
            copies = (self._task_copy, self._pod_copy, self._leases)
            for copy in copies:
                tasks.create_task(copy.run())
            for copy in copies:
                await copy.synced.wait()
            await self._tell_of_trouble()

    async def _tell_of_trouble(self) -> None:
        """Have all flows looked at now, and whenever the operator sees less or more."""
        last: str | None = None
        while True:
            if (now := str(self.trouble or "")) != last:
                last = now
                for name in self._flows:
                    self._wants_look(name, SOON_S)
            await asyncio.sleep(_TROUBLE_EVERY_S)

    @property
    def is_complete(self) -> bool:
        """Whether all was seen once; nothing is decided before."""
        copies = (self._task_copy, self._pod_copy, self._leases)
        return all(copy.synced.is_set() for copy in copies)

    @property
    def trouble(self) -> HeadraceError | None:
        """Why something cannot be seen."""
        return self._task_copy.error or self._pod_copy.error or self._leases.error

    # Flows: kopf watches them.

    def put_flow(self, object: Object) -> None:
        """A flow is there, or changed."""
        name = _name(object)
        if self._flows.get(name) == object:
            return
        self._flows[name] = object
        self._parsed.pop(name, None)
        try:
            self._parsed[name] = parse(ReplicationFlow, object)
        except InvalidSpec as error:
            log.warning("flow not understood", flow=name[1], namespace=name[0], why=str(error))

    def put_flow_written(self, object: Object) -> None:
        """A flow as the API server answered a write, a moment before its watch tells the same."""
        if _name(object) in self._flows:  # else it is deleted meanwhile
            self.put_flow(object)

    def drop_flow(self, name: FlowName) -> None:
        """A flow is gone."""
        self._flows.pop(name, None)
        self._parsed.pop(name, None)

    async def refresh_flow(self, name: FlowName) -> None:
        """Read a flow anew: a watch may have missed its end."""
        object = await self._client.get(FLOW, *name)
        if object is None:
            self.drop_flow(name)
        else:
            self.put_flow(object)

    def flow_object(self, name: FlowName) -> Object | None:
        """A flow as the API has it."""
        return self._flows.get(name)

    def flow(self, name: FlowName) -> ReplicationFlow:
        """A flow that is there; raises ``InvalidSpec`` for one that is not understood."""
        return self._parsed.get(name) or parse(ReplicationFlow, self._flows[name])

    def flows(self) -> list[ReplicationFlow]:
        """All that are understood."""
        return list(self._parsed.values())

    # Units.

    def tasks(self, flow: ReplicationFlow) -> list[ReplicationTask]:
        """The units of a flow, in order; not those of an earlier flow of that name."""
        name, uid = flow_name(flow), flow.metadata.uid
        known = self._in_order.get(name)
        if known is None or known[0] != uid:
            there = self._tasks.get(name, {}).values()
            mine = [task for task in there if is_owned(task.metadata.owner_references, flow)]
            mine.sort(key=lambda task: (task.spec.type, task.spec.index))
            known = self._in_order[name] = (uid, mine)
        return list(known[1])

    def written(self, name: FlowName) -> frozenset[Target]:
        """The target topics that a flow writes."""
        if name not in self._written:
            self._written[name] = written_targets(self._tasks.get(name, {}).values())
        return self._written[name]

    def put_task(self, object: Object) -> None:
        """A unit as the API server answered a write, a moment before its watch tells the same."""
        namespace, name = _name(object)
        if self._task_copy.get(name, namespace) is not None:  # else it is deleted meanwhile
            self._keep_task(object, _understood(object))

    def _task_changed(self, change: Change) -> None:
        flow = _flow_of(change.object)
        before = self._tasks.get(flow, {}).get(_name(change.object)[1])
        after = None if change.type is ChangeType.DELETED else _understood(change.object)
        self._keep_task(change.object, after)
        self._wants_look(flow, LATER_S if _same_but_figures(before, after) else SOON_S)

    def _keep_task(self, object: Object, task: ReplicationTask | None) -> None:
        flow, (_, name) = _flow_of(object), _name(object)
        self._in_order.pop(flow, None)
        units = self._tasks.setdefault(flow, {})
        before = units.pop(name, None)
        if task is not None:
            units[name] = task
        if before is None or task is None or before.spec.partitions != task.spec.partitions:
            self._written.pop(flow, None)

    # Drivers.

    def pods(self, flow: ReplicationFlow) -> list[DriverPod]:
        """The driver pods of a flow."""
        return list(self._pods.get(flow_name(flow), {}).values())

    def leases(self, name: FlowName) -> dict[DriverName, DriverLease]:
        """What is known of the Lease of each driver of a flow."""
        return {pod: self._lease((name[0], pod)) for pod in self._pods.get(name, {})}

    def _lease(self, name: tuple[str, DriverName]) -> DriverLease:
        _, _, incarnation = self._leases.holder(name).rpartition("/")
        return DriverLease(incarnation, self._leases.heard(name), self._leases.is_expired(name))

    def _pod_changed(self, change: Change) -> None:
        namespace, name = _name(change.object)
        flow = (namespace, change.object["metadata"]["labels"][FLOW_LABEL])
        pods = self._pods.setdefault(flow, {})
        pod = driver_pod(change.object)
        if change.type is ChangeType.DELETED:
            pods.pop(name, None)
        elif pods.get(name) == pod:
            return
        else:
            pods[name] = pod
        self._leases.expect(
            (namespace, pod) for (namespace, _), pods in self._pods.items() for pod in pods
        )
        self._wants_look(flow, SOON_S)

    def _leases_changed(self) -> None:
        for name in self._pods:
            if self._told.get(name) != (now := self.leases(name)):
                self._told[name] = now
                self._wants_look(name, SOON_S)


def is_owned(references: object, flow: ReplicationFlow) -> bool:
    """Whether an object's ownerReferences name this very flow."""
    owners = references if isinstance(references, list | tuple) else ()
    return any(owner.get("uid") == flow.metadata.uid for owner in owners)


def _understood(object: Object) -> ReplicationTask | None:
    """A unit; one that is not understood is as good as none, and is said to be so."""
    try:
        return parse(ReplicationTask, object)
    except InvalidSpec as error:
        namespace, name = _name(object)
        log.warning("unit not understood", task=name, namespace=namespace, why=str(error))
        return None


def _same_but_figures(before: ReplicationTask | None, after: ReplicationTask | None) -> bool:
    """Whether only what is measured changed."""
    if before is None or after is None or before.spec != after.spec:
        return False
    if before.metadata.annotations != after.metadata.annotations:
        return False
    figures = {"lag_records": None, "lag_seconds": None, "bytes_per_second": None}
    return before.status.model_copy(update=figures) == after.status.model_copy(update=figures)


def _flow_of(task: Object) -> FlowName:
    return task["metadata"]["namespace"], task["spec"].get("flowName", "")


def _name(object: Object) -> FlowName:
    return object["metadata"]["namespace"], object["metadata"]["name"]
