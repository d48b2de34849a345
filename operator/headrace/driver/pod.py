"""Driver as a Kubernetes pod, which watches its flow and its units."""

import asyncio
import os
import signal
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from headrace.api import (
    COMPONENT_LABEL,
    DRIVER_COMPONENT,
    DRIVER_MANAGER,
    FLOW_LABEL,
    RESET_ANNOTATION,
    RESTART_ANNOTATION,
    ReplicationFlow,
    ReplicationTask,
    label_value,
    standby_label,
)
from headrace.connect import DriverIdentity, UnitFigures, Worker
from headrace.driver.kubernetes_herder import KubernetesHerder
from headrace.driver.metrics import DriverCollector
from headrace.errors import HeadraceError, InvalidSpec
from headrace.k8s import (
    FLOW,
    POD,
    TASK,
    Client,
    Conflict,
    InForce,
    LeaseKeeper,
    Object,
    Reflector,
    RequestMetrics,
    WatchEvent,
    connect,
    is_older,
    is_owned,
    owner_reference,
    parse,
    read_in_force,
)
from headrace.logs import get_logger, override
from headrace.telemetry import make_registry
from headrace.telemetry.serving import serve

log = get_logger(__name__)


class DriverUnits:
    """Watches the units that are assigned to a driver, held by it, or have it as a standby.

    With 10,000 tasks on 100 drivers, a driver that watched its whole flow would receive every
    report of all other drivers. Therefore there are three watches, two of them by field. No field
    selector can match the list of standbys, so the operator sets a label on the task for each
    standby.
    """

    def __init__(
        self, client: Client, namespace: str, driver: str, changed: Callable[[], None]
    ) -> None:
        """Create the watches.

        ``changed`` is called on the event loop at every change of a unit. It is also called once
        when the assigned and held units were listed, even if there are none.
        """
        self._client, self._namespace, self._changed = client, namespace, changed
        self._parsed: dict[str, tuple[str, ReplicationTask | None]] = {}
        self._standing_by = asyncio.Event()
        self._active = [
            self._reflector(fields=f"spec.driverName={driver}"),
            self._reflector(fields=f"status.driverName={driver}"),
        ]
        self._standby = self._reflector(labels=standby_label(driver))

    async def run(self) -> None:
        """Watch the units of this driver until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for reflector in self._active:
                tasks.create_task(reflector.run())
            for reflector in self._active:
                await reflector.synced.wait()
            self._changed()
            await self._standing_by.wait()
            tasks.create_task(self._standby.run())

    def stand_by(self) -> None:
        """Start watching the units that have this driver as a standby."""
        self._standing_by.set()

    @property
    def synced(self) -> bool:
        """True if the units that are assigned to the driver or held by it were listed."""
        return all(reflector.synced.is_set() for reflector in self._active)

    @property
    def error(self) -> HeadraceError | None:
        """Error of a watch, or None."""
        return next((reflector.error for reflector in self._active if reflector.error), None)

    def of(self, flow: ReplicationFlow) -> Iterator[ReplicationTask]:
        """Yield the units of this flow object, each in its latest known version."""
        newest: dict[str, Object] = {}
        for reflector in (*self._active, self._standby):
            for object in reflector:
                name = object["metadata"]["name"]
                if name not in newest or is_older(newest[name], object):
                    newest[name] = object
        self._parsed = {name: self._parse(name, object) for name, object in newest.items()}
        for _, task in self._parsed.values():
            if task is not None and is_owned(task.metadata.owner_references, flow):
                yield task

    def _reflector(self, *, fields: str = "", labels: str = "") -> Reflector:
        def changed(_: WatchEvent) -> None:
            self._changed()

        return Reflector(
            self._client, TASK, self._namespace, fields=fields, labels=labels, on_change=changed
        )

    def _parse(self, name: str, object: Object) -> tuple[str, ReplicationTask | None]:
        version = object["metadata"]["resourceVersion"]
        known = self._parsed.get(name)
        if known is not None and known[0] == version:
            return known
        try:
            return version, parse(ReplicationTask, object)
        except InvalidSpec as error:
            log.error("unit ignored, it is not understood", task=name, why=str(error))
            return version, None


_RETRY_S = 2.0


@dataclass(frozen=True)
class Pod:
    """Options of a driver pod, most of them from the downward API."""

    flow: str
    namespace: str
    name: str
    """Name of the pod, which is also the driver's name."""
    uid: str | None
    """Uid of the pod, which owns its Lease. If None, the flow owns the Lease."""
    ip: str
    """Address of health checks and metrics."""
    port: int
    secrets: Path | None
    """Folder of Secrets, ``<name>/<key>``."""
    stop_timeout_s: float
    """Time limit after TERM in seconds, less than the pod's grace period."""
    rack: str = ""
    """Zone from the pod's label, or empty."""


def run_pod(pod: Pod) -> None:
    """Run a driver until TERM, then release its units and end the process."""
    try:
        asyncio.run(_run(pod))
    except ExceptionGroup:
        log.exception("internal error, the driver ends: please report it", driver=pod.name)
        os._exit(1)
    # Threads of librdkafka that wait for a broker must not prevent the end of the process.
    os._exit(0)


async def _run(pod: Pod) -> None:
    client = await connect(f"driver {pod.name}")
    try:
        await PodDriver(client, pod).run()
    finally:
        await client.close()


MakeWorker = Callable[[ReplicationFlow, KubernetesHerder, DriverIdentity, Path | None], Worker]
"""Creates a Worker. The last argument is the folder of Secrets."""


class PodDriver:
    """Driver of one flow, with one Worker. Everything except the Worker runs on one event loop."""

    def __init__(self, client: Client, pod: Pod, make_worker: MakeWorker = Worker) -> None:
        """Create a driver. ``make_worker`` creates the Worker for the first valid spec."""
        self._client, self._pod, self._make_worker = client, pod, make_worker
        # Each process has a new incarnation, because a restarted container keeps the pod's name.
        self._identity = DriverIdentity(pod.name, uuid.uuid4().hex[:12], pod.rack)
        self._registry = make_registry()
        self._registry.register(DriverCollector(pod.namespace, pod.flow, self._figures))
        client.on_request = RequestMetrics(self._registry)
        self._wake, self._stopping = asyncio.Event(), asyncio.Event()
        self._flows = Reflector(
            client,
            FLOW,
            pod.namespace,
            fields=f"metadata.name={pod.flow}",
            on_change=lambda _: self._wake.set(),
        )
        self._units = DriverUnits(client, pod.namespace, pod.name, self._wake.set)
        self._background: list[asyncio.Task[None]] = []
        self._seen: tuple[object, ...] | None = None
        """Generations of the spec that the Worker follows, and the requested resets."""
        self._in_force: InForce | None = None
        self._herder: KubernetesHerder | None = None
        self._worker: Worker | None = None
        self._lease: LeaseKeeper | None = None
        self._restarted: set[tuple[str | None, str]] = set()
        self._log = log.bind(flow=pod.flow, driver=pod.name)

    async def run(self) -> None:
        """Run until TERM or SIGINT, then release the units and delete the Lease."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stop)
        async with (
            serve(
                self._pod.ip,
                self._pod.port,
                self._registry,
                live=self._not_live,
                ready=self._not_ready,
            ),
            asyncio.TaskGroup() as tasks,
        ):
            self._log.info("driver starts", incarnation=self._identity.incarnation)
            self._background = [
                tasks.create_task(self._flows.run()),
                tasks.create_task(self._units.run()),
            ]
            while not self._stopping.is_set():
                await self._wake.wait()
                self._wake.clear()
                await self._update_flow(tasks)
                await self._update_units()
            await self._hand_over()

    def _stop(self) -> None:
        self._stopping.set()
        self._wake.set()

    # Changes of flow and units.

    @property
    def _flow(self) -> ReplicationFlow | None:
        return self._in_force.flow if self._in_force is not None else None

    async def _update_flow(self, tasks: asyncio.TaskGroup) -> None:
        object = self._flows.get(self._pod.flow)
        uid = object["metadata"]["uid"] if object else None
        if self._flow is not None and uid != self._flow.metadata.uid:
            self._log.info("the flow was deleted")  # a new flow of this name has its own pods
            self._stop()
            return
        if object is None or (seen := _followed(object)) == self._seen:
            return
        self._seen = seen
        try:
            self._in_force = read_in_force(object, self._in_force)
        except InvalidSpec as error:
            self._log.error("waits for a valid spec", why=str(error))
            return
        if self._in_force.error:
            generation = self._in_force.generation
            self._log.error(
                "the last valid spec counts", generation=generation, why=self._in_force.error
            )
        flow = self._in_force.flow
        override(flow.spec.drivers.log_level, flow.spec.drivers.log_format)
        self._log.debug("follows the flow", generation=flow.metadata.generation)
        if flow.spec.tasks.standbys:
            self._units.stand_by()
        if self._worker is None or self._lease is None:
            self._herder = KubernetesHerder(self._client, asyncio.get_running_loop(), flow)
            self._worker = await asyncio.to_thread(
                self._make_worker, flow, self._herder, self._identity, self._pod.secrets
            )
            self._lease = self._make_lease(flow)
            self._background.append(tasks.create_task(self._lease.run()))
        else:
            self._worker.change_flow(flow)
            self._lease.duration_s = flow.spec.drivers.lease_seconds

    def _make_lease(self, flow: ReplicationFlow) -> LeaseKeeper:
        pod: Object = {
            "apiVersion": POD.api_version,
            "kind": POD.name,
            "name": self._pod.name,
            "uid": self._pod.uid,
        }
        return LeaseKeeper(
            self._client,
            self._pod.namespace,
            self._pod.name,
            f"{self._identity.name}/{self._identity.incarnation}",
            duration_s=flow.spec.drivers.lease_seconds,
            manager=DRIVER_MANAGER,
            labels={
                "app.kubernetes.io/name": "headrace",
                COMPONENT_LABEL: DRIVER_COMPONENT,
                FLOW_LABEL: label_value(self._pod.flow),
            },
            # The Lease is deleted with the pod, even if the pod was killed.
            owners=[pod] if self._pod.uid else [owner_reference(flow)],
        )

    async def _update_units(self) -> None:
        if self._worker is None or self._flow is None or not self._units.synced:
            return
        tasks = list(self._units.of(self._flow))
        self._worker.update(tasks)
        asked = [task for task in tasks if RESTART_ANNOTATION in task.metadata.annotations]
        self._restarted &= {_request(task) for task in asked}
        for task in asked:
            if _request(task) in self._restarted or task.status.driver_name == self._pod.name:
                await self._restart(self._worker, task)

    async def _restart(self, worker: Worker, task: ReplicationTask) -> None:
        """Restart a unit once for each request, even if the removal of the request is retried."""
        if _request(task) not in self._restarted:
            self._restarted.add(_request(task))
            self._log.info("restart requested", task=task.metadata.name)
            worker.restart(task.metadata.name)
        removal: Object = {
            "resourceVersion": task.metadata.resource_version,
            "annotations": {RESTART_ANNOTATION: None},
        }
        try:
            await self._client.patch(
                TASK, self._pod.namespace, task.metadata.name, {"metadata": removal}
            )
        except Conflict:
            pass  # the unit has changed, and its watch will report it
        except HeadraceError as error:
            self._log.info("restart request not removed, retried", why=str(error))
            asyncio.get_running_loop().call_later(_RETRY_S, self._wake.set)

    # Stop.

    async def _hand_over(self) -> None:
        """Release all units, then delete the Lease.

        The Lease is renewed until all units are released. Its deletion then immediately shows that
        the driver has ended.
        """
        self._log.info("driver stops")
        if self._worker is not None:
            ended = await asyncio.to_thread(self._worker.stop, self._pod.stop_timeout_s)
            self._log.info("units released", all=ended)
        if self._herder is not None:
            await self._herder.end()
        for task in self._background:
            task.cancel()  # including the renewal, which would create the Lease again
        await asyncio.gather(*self._background, return_exceptions=True)
        if self._lease is not None:
            await self._lease.release()

    # Health and metrics.

    def _figures(self) -> list[UnitFigures]:
        return self._worker.figures() if self._worker is not None else []

    def _not_live(self) -> list[str]:
        """Return the problems for the liveness probe. A restart of the container solves them."""
        if self._worker is None or self._worker.alive:
            return []
        return ["the Worker, or the loop of its source tasks, has ended or hangs"]

    def _not_ready(self) -> list[str]:
        problems = []
        if self._stopping.is_set():
            problems.append("the driver stops")
        if self._worker is None:
            problems.append(f"ReplicationFlow {self._pod.flow} was not read yet")
        if not self._units.synced:
            problems.append("the units of this driver were not listed yet")
        if self._lease is not None and not self._lease.held:
            problems.append("its Lease was not renewed in time")
        return problems + [str(error) for error in (self._flows.error, self._units.error) if error]


def _followed(flow: Object) -> tuple[object, ...]:
    metadata = flow["metadata"]
    last_valid = (flow.get("status") or {}).get("lastValid") or {}
    resets = metadata.get("annotations", {}).get(RESET_ANNOTATION, "")
    return metadata["generation"], last_valid.get("generation"), resets


def _request(task: ReplicationTask) -> tuple[str | None, str]:
    return task.metadata.uid, task.metadata.annotations[RESTART_ANNOTATION]
