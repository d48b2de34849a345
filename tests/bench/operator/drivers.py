"""A driver without Kafka, which uses the API by the same code as real drivers.

Watches, Lease, the rule of the hand-over, claims, reports, releases and the objects that connectors
publish are headrace's own. Only Worker and data are left out: a claimed unit runs at once.
"""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TypeVar

from headrace.api import (
    Condition,
    ConditionStatus,
    ConditionType,
    Lag,
    Reason,
    ReplicationFlow,
    ReplicationTask,
    ReplicationTaskStatus,
    TaskPhase,
    TaskType,
    TopicPartitions,
)
from headrace.api.labels import COMPONENT_LABEL, DRIVER_COMPONENT, DRIVER_MANAGER, FLOW_LABEL
from headrace.connect.runtime.ownership import DriverIdentity, Ownership, OwnershipLost, may_claim
from headrace.driver.kubernetes_herder import KubernetesHerder
from headrace.driver.pod import DriverUnits
from headrace.errors import HeadraceError, Retriable
from headrace.k8s import Client, LeaseKeeper, Object, connect_by_file, parse
from headrace.k8s.kinds import FLOW

TURN_S = 0.5
"""Interval of a Worker's turns."""
AGAIN_S = 0.5
CLUSTER_ID = "bench-target"
TASKS = "bench/tasks"
"""Annotation of a flow: how many source tasks its connector publishes."""

T = TypeVar("T")


async def until_done(work: Callable[[], Awaitable[T]]) -> T:
    """Repeat the work while it fails by a reason that passes."""
    while True:
        try:
            return await work()
        except Retriable:
            await asyncio.sleep(AGAIN_S)


class SimulatedDriver:
    """An incarnation of a driver pod, until ``leave`` or ``vanish``."""

    def __init__(
        self, pod: Object, kubeconfig: Path, threads: Executor, tasks: asyncio.TaskGroup
    ) -> None:
        metadata = pod["metadata"]
        self.name: str = metadata["name"]
        self._namespace, self._flow = metadata["namespace"], metadata["labels"][FLOW_LABEL]
        self._owner = {"apiVersion": "v1", "kind": "Pod", "name": self.name, "uid": metadata["uid"]}
        self._identity = DriverIdentity(self.name, uuid.uuid4().hex[:12])
        self._kubeconfig, self._threads = kubeconfig, threads
        self._holds: dict[str, Ownership] = {}
        self._reported: dict[str, int | None] = {}
        self._busy: set[str] = set()
        self._since: dict[str, float] = {}
        self._wake, self._leaving = asyncio.Event(), asyncio.Event()
        self._running = tasks.create_task(self._run())

    async def leave(self) -> None:
        """Release all units and then the Lease, as on TERM."""
        self._leaving.set()
        self._wake.set()
        await asyncio.wait([self._running])

    def vanish(self) -> None:
        """Stop without a release of units or Lease, as on kill -9."""
        self._running.cancel()

    async def _run(self) -> None:
        async with AsyncExitStack() as stack:
            client = await connect_by_file(f"driver {self.name}", str(self._kubeconfig))
            stack.push_async_callback(client.close)
            # A driver may list and watch its flow, but not get it.
            own = f"metadata.name={self._flow}"
            (found,) = await until_done(lambda: client.list(FLOW, self._namespace, fields=own))
            flow = parse(ReplicationFlow, found)
            units = DriverUnits(client, self._namespace, self.name, self._wake.set)
            herder = KubernetesHerder(client, asyncio.get_running_loop(), flow)
            stack.push_async_callback(herder.end)
            lease = self._lease(client, flow)
            async with asyncio.TaskGroup() as tasks:
                watching = [tasks.create_task(units.run()), tasks.create_task(lease.run())]
                while not self._leaving.is_set():
                    self._turn(units, herder, flow, tasks)
                    await self._wait()
                await asyncio.gather(*(self._release(name) for name in list(self._holds)))
                for task in watching:
                    task.cancel()
            await lease.release()

    async def _wait(self) -> None:
        """Wait for a change, or the next attempt to claim: a hundred drivers share a process."""
        try:
            async with asyncio.timeout(TURN_S if self._since else None):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()

    def _lease(self, client: Client, flow: ReplicationFlow) -> LeaseKeeper:
        return LeaseKeeper(
            client,
            self._namespace,
            self.name,
            f"{self._identity.name}/{self._identity.incarnation}",
            duration_s=flow.spec.drivers.lease_seconds,
            manager=DRIVER_MANAGER,
            labels={COMPONENT_LABEL: DRIVER_COMPONENT, FLOW_LABEL: self._flow},
            owners=[self._owner],
        )

    def _turn(
        self,
        units: DriverUnits,
        herder: KubernetesHerder,
        flow: ReplicationFlow,
        tasks: asyncio.TaskGroup,
    ) -> None:
        now = time.monotonic()
        for task in units.of(flow):
            name = task.metadata.name
            if name in self._busy:
                continue
            ownership = self._holds.get(name)
            if ownership is None:
                since = self._since.setdefault(name, now)
                if task.spec.driver_name != self.name:
                    self._since.pop(name)
                elif may_claim(task, self._identity, now - since):
                    self._begin(tasks, name, self._take(task, herder, flow))
            elif self._is_lost(ownership, task):
                del self._holds[name]
            elif task.spec.driver_name != self.name:
                self._begin(tasks, name, self._release(name))
            elif self._reported.get(name) != task.metadata.generation:
                self._begin(tasks, name, self._report(ownership))

    def _is_lost(self, ownership: Ownership, task: ReplicationTask) -> bool:
        ownership.update(task)
        try:
            ownership.check(task)
        except OwnershipLost:
            ownership.forget()
            return True
        return False

    def _begin(self, tasks: asyncio.TaskGroup, name: str, work: Awaitable[None]) -> None:
        async def do() -> None:
            try:
                await work
            except HeadraceError:
                self._holds.pop(name, None)  # the next turn sees how it is
            finally:
                self._busy.discard(name)
                self._wake.set()

        self._busy.add(name)
        tasks.create_task(do())

    async def _take(
        self, task: ReplicationTask, herder: KubernetesHerder, flow: ReplicationFlow
    ) -> None:
        ownership = Ownership(task, self._identity, herder)
        await self._in_thread(ownership.claim, 0)
        if task.spec.type.is_connector:
            await until_done(lambda: self._in_thread(put_tasks, herder, ownership.task, flow))
        await self._report(ownership)
        self._holds[task.metadata.name] = ownership
        self._since.pop(task.metadata.name, None)

    async def _report(self, ownership: Ownership) -> None:
        status = running(ownership.task)
        await until_done(lambda: self._in_thread(ownership.report, status))
        self._reported[ownership.name] = status.observed_generation

    async def _release(self, name: str) -> None:
        ownership = self._holds.pop(name)
        self._since.pop(name, None)
        await until_done(lambda: self._in_thread(ownership.release))

    def _in_thread(self, work: Callable[..., T], *arguments: object) -> Awaitable[T]:
        return asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)


def put_tasks(herder: KubernetesHerder, connector: ReplicationTask, flow: ReplicationFlow) -> None:
    """Write the tasks of a connector: one partition each; no groups."""
    if connector.spec.type is TaskType.CHECKPOINT_CONNECTOR:
        return
    if connector.spec.type is TaskType.HEARTBEAT_CONNECTOR:
        herder.put_tasks(connector, TaskType.HEARTBEAT_TASK, {0: ()}, {})
        return
    topic = flow.metadata.name
    tasks = {
        index: (TopicPartitions(topic=topic, partitions=str(index)),)
        for index in range(int(flow.metadata.annotations[TASKS]))
    }
    target = f"{flow.spec.source.alias}.{topic}"
    herder.put_tasks(connector, TaskType.SOURCE_TASK, tasks, {CLUSTER_ID: [target]})


def running(task: ReplicationTask) -> ReplicationTaskStatus:
    """Return the status of a unit that runs and has nothing to do."""
    condition = Condition(
        type=ConditionType.READY,
        status=ConditionStatus.TRUE,
        reason=Reason.RUNNING,
        message="replicates 1 topics",
    )
    is_source = task.spec.type is TaskType.SOURCE_TASK
    return ReplicationTaskStatus(
        phase=TaskPhase.RUNNING,
        partitions=task.spec.partitions,
        lag=Lag() if is_source else None,
        bytes_per_second=1_000_000 if is_source else None,
        conditions=(condition,) if task.spec.type.is_connector else (),
        observed_generation=task.metadata.generation,
    )
