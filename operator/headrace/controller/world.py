"""What the operator sees: local copies of units, driver pods and Leases, and of flows.

Whatever changes here puts the flow that it belongs to into the queue.
"""

import asyncio
from collections.abc import Callable, Mapping

from headrace.api import ReplicationFlow, ReplicationTask
from headrace.api.labels import COMPONENT_LABEL, DRIVER_COMPONENT, FLOW_LABEL
from headrace.assign import DriverName
from headrace.controller.drivers import DriverLease, DriverPod
from headrace.controller.flows import Flows
from headrace.controller.pods import driver_pod
from headrace.controller.queue import LATER_S, SOON_S
from headrace.controller.targets import FlowName, Target, flow_name, written_targets
from headrace.errors import HeadraceError, InvalidSpec
from headrace.k8s import (
    Change,
    ChangeType,
    Client,
    LeaseWatch,
    Object,
    Reflector,
    is_older,
    is_owned,
    parse,
)
from headrace.k8s.kinds import FLOW, POD, TASK
from headrace.logs import get_logger
from headrace.scheduling import task_id

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
        self._flows = Flows()
        self._tasks: dict[FlowName, dict[str, ReplicationTask]] = {}
        self._in_order: dict[FlowName, tuple[str | None, list[ReplicationTask]]] = {}
        """Asked for several times a reconcile: of 10,000 units each would take 40 ms."""
        self._strange: dict[FlowName, dict[str, str]] = {}
        self._written: dict[FlowName, frozenset[Target]] = {}
        self._looked_at: dict[FlowName, frozenset[Target]] = {}
        """What each flow wrote when it was looked at last."""
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
        if self._flows.put(object):
            self._written.pop(_name(object), None)  # which units are its own depends on its uid

    def put_flow_written(self, object: Object) -> None:
        """A flow as the API server answered a write, a moment before its watch tells the same."""
        if self._flows.object(_name(object)) is not None:  # else it is deleted meanwhile
            self.put_flow(object)

    def drop_flow(self, object: Object) -> None:
        """A flow is gone."""
        self._flows.drop(object)
        self._written.pop(_name(object), None)

    async def refresh_flow(self, name: FlowName) -> None:
        """Read a flow anew: a watch may have missed its end."""
        self._flows.set(name, await self._client.get(FLOW, *name))
        self._written.pop(name, None)

    def flow_object(self, name: FlowName) -> Object | None:
        """A flow as the API has it."""
        return self._flows.object(name)

    def flow(self, name: FlowName) -> ReplicationFlow:
        """A flow that is there; raises ``InvalidSpec`` for one that is not understood."""
        return self._flows.get(name)

    def flows(self) -> list[ReplicationFlow]:
        """All that are understood."""
        return self._flows.all()

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

    def strange(self, name: FlowName) -> str:
        """What is wrong with a unit that is not understood; empty when all are."""
        return next(iter(self._strange.get(name, {}).values()), "")

    def written(self, name: FlowName) -> frozenset[Target]:
        """The target topics that a flow writes; none of one that is gone or not understood."""
        if name not in self._written:
            flow = self._flows.understood(name)
            self._written[name] = written_targets(self.tasks(flow) if flow else ())
        return self._written[name]

    def wake_rivals(self, name: FlowName) -> None:
        """Have flows looked at that write a target topic which ``name`` took or freed since it was
        looked at last: one of them may have waited for it."""
        now, before = self.written(name), self._looked_at.get(name, frozenset())
        self._looked_at[name] = now
        if not now:
            del self._looked_at[name]
        if now is before or not (changed := now ^ before):
            return
        for flow in self._flows.all():
            if (rival := flow_name(flow)) != name and changed & self.written(rival):
                self._wants_look(rival, SOON_S)

    def put_task(self, object: Object) -> None:
        """A unit as the API server answered a write, a moment before its watch tells the same."""
        namespace, name = _name(object)
        seen = self._task_copy.get(name, namespace)
        if seen is None or is_older(object, seen):
            return  # it is deleted meanwhile, or changed once more
        self._keep_task(object, self._understood(object))

    async def refresh_task(self, namespace: str, name: str) -> None:
        """Read a unit anew: its watch is behind."""
        if (object := await self._client.get(TASK, namespace, name)) is not None:
            self.put_task(object)

    def _task_changed(self, change: Change) -> None:
        flow = _flow_of(change.object)
        before = self._tasks.get(flow, {}).get(_name(change.object)[1])
        self._strange.get(flow, {}).pop(_name(change.object)[1], None)
        after = None if change.type is ChangeType.DELETED else self._understood(change.object)
        self._keep_task(change.object, after)
        self._wants_look(flow, LATER_S if _same_but_figures(before, after) else SOON_S)

    def _keep_task(self, object: Object, task: ReplicationTask | None) -> None:
        flow, (_, name) = _flow_of(object), _name(object)
        self._in_order.pop(flow, None)
        units = self._tasks.setdefault(flow, {})
        before = units.pop(name, None)
        if task is not None:
            units[name] = task
        if _targets(before) != _targets(task):
            self._written.pop(flow, None)

    def _understood(self, object: Object) -> ReplicationTask | None:
        """A unit; one that is not understood is as good as none, and is said to be so.

        Nor is one whose name is not that of the unit which its spec speaks of: there would be two.
        """
        namespace, name = _name(object)
        try:
            task = parse(ReplicationTask, object)
            if task_id(task).name == name:
                return task
            why = f"it says that it is {task_id(task).name}: delete it"
        except InvalidSpec as error:
            why = str(error)
            self._strange.setdefault(_flow_of(object), {})[name] = why
        log.warning("unit not understood", task=name, namespace=namespace, why=why)
        return None

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


def _targets(task: ReplicationTask | None) -> object:
    """What a unit writes, and for whom."""
    return task and (task.metadata.owner_references, written_targets([task]))


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
