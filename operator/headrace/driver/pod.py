"""A driver as a pod of Kubernetes: hears of its flow and units from the API server."""

import asyncio
import os
import signal
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.api import ReplicationFlow, ReplicationTask
from headrace.api.labels import (
    COMPONENT_LABEL,
    DRIVER_COMPONENT,
    DRIVER_MANAGER,
    FLOW_LABEL,
    RESTART_ANNOTATION,
    label_value,
)
from headrace.connect import DriverIdentity, Worker
from headrace.driver.health import serve_health
from headrace.driver.units import DriverUnits
from headrace.errors import HeadraceError, InvalidSpec
from headrace.herder.kubernetes import KubernetesHerder
from headrace.k8s import (
    Change,
    Client,
    LeaseKeeper,
    Object,
    Reflector,
    connect,
    owner_reference,
    parse,
)
from headrace.k8s.kinds import FLOW, TASK
from headrace.logs import get_logger

log = get_logger(__name__)


@dataclass(frozen=True)
class Pod:
    """What a driver is told about itself (most of it by the downward API)."""

    flow: str
    namespace: str
    name: str
    """Of the pod, and so of the driver."""
    uid: str | None
    """Of the pod: its Lease goes with it."""
    ip: str
    """Where health is served."""
    port: int
    secrets: Path | None
    """Folder of Secrets, ``<name>/<key>``."""
    stop_timeout_s: float
    """After TERM; less than the pod's grace period."""


def run_pod(pod: Pod) -> None:
    """Be a driver until TERM; then hand over, and end the process."""
    asyncio.run(_run(pod))
    # Client threads of librdkafka that wait for a broker must not keep the process.
    os._exit(0)


async def _run(pod: Pod) -> None:
    client = await connect(f"driver {pod.name}")
    try:
        await PodDriver(client, pod).run()
    finally:
        await client.close()


class PodDriver:
    """One flow, one Worker; all but the Worker on one event loop."""

    def __init__(self, client: Client, pod: Pod) -> None:
        self._client, self._pod = client, pod
        # A new one for each life: a container that is restarted keeps the pod's name.
        self._identity = DriverIdentity(pod.name, uuid.uuid4().hex[:12])
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()
        self._flows = Reflector(
            client,
            FLOW,
            pod.namespace,
            fields=f"metadata.name={pod.flow}",
            on_change=self._changed,
        )
        self._units = DriverUnits(client, pod.namespace, pod.flow, pod.name, self._wake.set)
        self._flow_version = ""
        self._worker: Worker | None = None
        self._lease: LeaseKeeper | None = None
        self._restarted: set[tuple[str | None, str]] = set()
        self._log = log.bind(flow=pod.flow, driver=pod.name)

    async def run(self) -> None:
        """Until TERM (or Ctrl-C): then the units are let go of, and the Lease last."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        async with (
            serve_health(self._pod.ip, self._pod.port, self._live, self._ready),
            asyncio.TaskGroup() as tasks,
        ):
            watching = tasks.create_task(self._flows.run())
            self._units.start(tasks)
            self._log.info("driver starts", incarnation=self._identity.incarnation)
            while not self._stopping.is_set():
                await self._wake.wait()
                self._wake.clear()
                await self._reconcile(tasks)
            await self._hand_over()
            watching.cancel()
            raise asyncio.CancelledError
