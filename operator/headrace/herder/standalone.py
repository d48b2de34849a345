"""The herder of ``headrace run``: places units on local driver processes and watches over them.

What Kubernetes' API server, Deployment and Leases are to the operator, this process is to
standalone drivers: it keeps the units (``store``), starts the drivers (``fleet``), and decides by
heartbeats who is alive. It carries no data.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headrace.api import (
    FlowState,
    ReplicationFlow,
    ReplicationFlowStatus,
    ReplicationTask,
    ReplicationTaskStatus,
    TaskType,
    TopicPartitions,
)
from headrace.assign import ApplicationState, DriverState, EvenAssignor, TaskAssignor, TaskId, weigh
from headrace.connect.herder import TargetTaken
from headrace.errors import HeadraceError, InvalidSpec
from headrace.herder.fleet import DriverProcess, Fleet
from headrace.herder.flow_status import flow_status
from headrace.herder.link import answer_error, dump
from headrace.herder.store import TaskStore, task_id
from headrace.logs import get_logger

log = get_logger(__name__)

_CONNECTORS = (TaskType.SOURCE_CONNECTOR, TaskType.HEARTBEAT_CONNECTOR)
_FIRST_PLACEMENT_S = 5.0
"""Wait at most so long for the drivers to come together, or the first would get everything."""
_STOP_TIMEOUT_S = 4.5
"""Of the 5 s that a graceful stop may take."""


class StandaloneHerder:
    """All on one event loop; nothing here blocks it."""

    def __init__(
        self,
        flows: Iterable[ReplicationFlow],
        drivers: int,
        log_file: Path | None = None,
        secrets: Path | None = None,
    ) -> None:
        """``log_file`` takes what the drivers log; ``None``: this process's standard error.
        ``secrets``: the folder of Secrets that they read."""
        self._flows = {flow.metadata.name: _made_now(flow) for flow in flows}
        self._wanted_drivers = drivers
        self._lease_s = float(min(f.spec.drivers.lease_seconds for f in self._flows.values()))
        self._store = TaskStore()
        self._fleet = Fleet(
            drivers,
            self._lease_s,
            log_file,
            secrets,
            joined=self._joined,
            left=self._left,
            called=self._called,
        )
        self._assignor: TaskAssignor = EvenAssignor()
        self._writers: dict[tuple[str, str], str] = {}  # (target cluster id, topic) -> flow
        self._started = time.monotonic()
        self._lost: set[str] = set()
        self._pinned: dict[TaskId, str] = {}
        for name in self._flows:
            for connector in _CONNECTORS:
                self._store.put(name, connector)

    # What the command line uses.

    async def run(self, until: asyncio.Event) -> None:
        """Run the drivers until ``until`` is set, then stop them, within 5 s."""
        try:
            await self._fleet.start()
            watch = asyncio.create_task(self._watch())
            stopped = asyncio.create_task(until.wait())
            ends: set[asyncio.Future[Any]] = {watch, stopped, self._fleet.failure}
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for end in ends:
                end.cancel()
            for end in done:
                end.result()  # raises what went wrong
        finally:
            await self._fleet.stop(_STOP_TIMEOUT_S)

    def flow(self, name: str) -> ReplicationFlow:
        """A flow of this run."""
        return self._flows[name]

    def tasks(self, flow: str) -> list[ReplicationTask]:
        """The units of a flow."""
        return self._store.of_flow(flow)

    def status(self, name: str) -> ReplicationFlowStatus:
        """How a flow stands now."""
        flow = self._flows[name]
        status = flow_status(
            flow, self._store.of_flow(name), len(self._fleet.alive()), datetime.now(UTC)
        )
        self._flows[name] = flow.model_copy(update={"status": status})
        return status

    def kill_driver(self, flow: str) -> dict[str, Any]:
        """Kill -9 the driver that holds most source tasks of a flow, as a test of it."""
        held: dict[str, list[str]] = {}
        for task in self._store.of_flow(flow):
            if task.spec.type is TaskType.SOURCE_TASK and task.status.driver_name:
                held.setdefault(task.status.driver_name, []).append(task.metadata.name)
        candidates = [driver for driver in self._fleet.alive() if driver.name in held]
        if not candidates:
            raise InvalidSpec(f"no driver holds a source task of flow {flow}: nothing to kill")
        victim = max(candidates, key=lambda driver: (len(held[driver.name]), driver.name))
        units = [
            task.metadata.name
            for task in self._store.of_flow(flow)
            if task.status.driver_name == victim.name
        ]
        victim.kill()
        return {
            "driver": victim.name,
            "pid": victim.pid,
            "timeMs": int(time.time() * 1000),
            "units": sorted(units),
        }

    def restart(self, task: ReplicationTask) -> None:
        """Have the driver that holds a unit make it anew."""
        if (driver := self._fleet.get(task.status.driver_name)) is not None:
            driver.send({"event": "restart", "task": task.metadata.name})

    def move(self, task: ReplicationTask, driver: str) -> None:
        """Run a unit on that driver from now on, for as long as it lives."""
        alive = [one.name for one in self._fleet.alive()]
        if driver not in alive:
            raise InvalidSpec(f"there is no driver {driver}; there are {', '.join(alive)}")
        self._pinned[task_id(task)] = driver
        self._place()

    def pause(self, flow: str, paused: bool) -> None:
        """Let the tasks of a flow rest, or go on; positions and connections are kept."""
        known = self._flows[flow]
        state = FlowState.PAUSED if paused else FlowState.RUNNING
        spec = known.spec.model_copy(update={"state": state})
        generation = (known.metadata.generation or 0) + 1
        metadata = known.metadata.model_copy(update={"generation": generation})
        self._flows[flow] = known.model_copy(update={"spec": spec, "metadata": metadata})
        for driver in self._fleet.alive():
            self._tell_flows(driver)

    def scale(self, drivers: int) -> int:
        """Have so many drivers from now on; returns how many were wanted before."""
        before, self._wanted_drivers = self._wanted_drivers, drivers
        self._fleet.resize(drivers)
        self._place()
        return before

    # What drivers do.

    def _joined(self, driver: DriverProcess) -> None:
        self._lost.discard(driver.incarnation)
        self._tell_flows(driver)
        log.info("driver joined", driver=driver.name, pid=driver.pid)
        self._place()

    def _left(self, driver: DriverProcess) -> None:
        self._lost.add(driver.incarnation)
        units = [
            task.metadata.name
            for task in self._store
            if task.status.driver_incarnation == driver.incarnation
        ]
        log.warning("driver lost", driver=driver.name, pid=driver.pid, units=len(units))
        self._place()

    def _called(
        self, driver: DriverProcess, call: str, message: Mapping[str, Any]
    ) -> dict[str, Any]:
        try:
            if call == "publish":
                self._publish(message)
                return {}
            if call == "published":
                return {"tasks": self._published(message)}
            return {"task": dump(self._write_status(message))}
        except HeadraceError as error:
            return answer_error(error)

    def _write_status(self, message: Mapping[str, Any]) -> ReplicationTask:
        task = ReplicationTask.model_validate(message["task"])
        before = task.status
        written = self._store.write_status(
            task, ReplicationTaskStatus.model_validate(message["status"])
        )
        if written.status.driver_incarnation != before.driver_incarnation:
            self._tell(written.spec.driver_name)
            self._dismiss()
        return written

    def _dismiss(self) -> None:
        """Let leaving drivers go that hold nothing any more."""
        held = {task.status.driver_name for task in self._store}
        for driver in self._fleet.alive():
            if driver.leaving and driver.name not in held:
                driver.send({"event": "stop"})

    def _publish(self, message: Mapping[str, Any]) -> None:
        connector = ReplicationTask.model_validate(message["connector"])
        flow = connector.spec.flow_name
        topics = {
            (cluster, topic)
            for cluster, names in message["targetTopics"].items()
            for topic in names
        }
        self._refuse_taken(flow, topics)
        changed = self._store.publish(
            connector,
            TaskType(message["type"]),
            {
                int(index): [TopicPartitions.model_validate(packed) for packed in held]
                for index, held in message["tasks"].items()
            },
        )
        self._writers.update(dict.fromkeys(topics, flow))
        if changed:
            self._place()

    def _published(self, message: Mapping[str, Any]) -> dict[int, list[dict[str, Any]]]:
        connector = ReplicationTask.model_validate(message["connector"])
        return {
            task.spec.index: [dump(packed) for packed in task.spec.partitions]
            for task in self._store.of_flow(connector.spec.flow_name)
            if task.spec.type == message["type"]
        }

    def _refuse_taken(self, flow: str, topics: Iterable[tuple[str, str]]) -> None:
        for key in sorted(topics):
            owner = self._writers.get(key, flow)
            if owner != flow:
                raise TargetTaken(
                    f"flows {owner} and {flow} of this run both write topic {key[1]} on the same "
                    f"target cluster ({key[0]}): narrow spec.topics of one, or let their source "
                    "aliases or policies differ"
                )

    # Placement.

    async def _watch(self) -> None:
        """Notice silent drivers; a herder that stood still itself has seen nothing, and waits."""
        last = time.monotonic()
        interval_s = min(0.5, self._lease_s / 6)
        while True:
            await asyncio.sleep(interval_s)
            now = time.monotonic()
            blind = now - last > self._lease_s / 3
            last = now
            self._fleet.expire(now, forgive=blind)
            self._dismiss()
            if not self._placed:
                self._place()

    @property
    def _placed(self) -> bool:
        return any(task.spec.driver_name for task in self._store)

    def _place(self) -> None:
        """Decide where units run, write it, and tell the drivers whose units changed."""
        alive = {driver.name for driver in self._fleet.alive() if not driver.leaving}
        waited_s = time.monotonic() - self._started
        if not self._placed and len(alive) < self._wanted_drivers and waited_s < _FIRST_PLACEMENT_S:
            return
        tasks = {task_id(task): task for task in self._store}
        held: dict[str, set[TaskId]] = {name: set() for name in alive}
        for id, task in tasks.items():
            if task.spec.driver_name in held:
                held[task.spec.driver_name].add(id)
        owners = self._assignor.assign(
            ApplicationState.of(
                weigh(dict.fromkeys(tasks)).values(),
                [DriverState(name, active=frozenset(units)) for name, units in held.items()],
            )
        ).owners
        self._pinned = {id: driver for id, driver in self._pinned.items() if driver in alive}
        for id, task in tasks.items():
            driver = self._pinned.get(id) or owners.get(id, "")
            holder = task.status.driver_incarnation
            lost = holder if holder in self._lost else ""
            if driver != task.spec.driver_name or (lost and lost != task.spec.lost_incarnation):
                self._store.assign(task.metadata.name, driver, lost)
        for driver_process in self._fleet.alive():
            self._tell(driver_process.name)

    def _tell_flows(self, driver: DriverProcess) -> None:
        flows = [
            flow.model_dump(mode="json", by_alias=True, exclude_unset=True)
            for flow in self._flows.values()
        ]
        driver.send({"event": "flows", "flows": flows})

    def _tell(self, driver_name: str) -> None:
        """Send a driver all units that it is to run or holds, when they changed."""
        driver = self._fleet.get(driver_name)
        if driver is None:
            return
        concerned = [
            dump(task)
            for task in self._store
            if driver_name in (task.spec.driver_name, task.status.driver_name)
        ]
        driver.send({"event": "tasks", "tasks": concerned})


def _made_now(flow: ReplicationFlow) -> ReplicationFlow:
    """As the API server does: the moment that ``startFrom: Latest`` means, and a generation."""
    stamped = {"creation_timestamp": flow.metadata.creation_timestamp or datetime.now(UTC)}
    metadata = flow.metadata.model_copy(update={**stamped, "generation": 1})
    return flow.model_copy(update={"metadata": metadata})
