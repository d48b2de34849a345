"""The herder of ``headrace run``: keeps units, and starts and watches local drivers.

What Kubernetes' API server, Deployment and Leases are to the operator, this process is to
standalone drivers: it keeps the units (``store``), starts the drivers (``fleet``), decides by
heartbeats who is alive, and has units placed (``placement_loop``). It carries no data.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headrace import logs
from headrace.api import (
    ConditionStatus,
    ConditionType,
    FlowState,
    ReplicationFlow,
    ReplicationFlowStatus,
    ReplicationTask,
    ReplicationTaskStatus,
    TaskType,
    TopicPartitions,
    condition,
)
from headrace.connect import TargetTaken
from headrace.control.task_rows import as_json, target_driver
from headrace.driver.herder_link import answer_error, dump
from headrace.errors import HeadraceError, InvalidSpec
from headrace.logs import get_logger
from headrace.placement import task_id
from headrace.standalone.driver_process import DriverProcess
from headrace.standalone.fleet import Fleet
from headrace.standalone.metrics import Measured
from headrace.standalone.placement_loop import PlacementLoop
from headrace.standalone.task_store import TaskStore
from headrace.status import FlowFacts, flow_status

log = get_logger(__name__)

_CONNECTORS = (TaskType.SOURCE_CONNECTOR, TaskType.HEARTBEAT_CONNECTOR)
_SAMPLES_TIMEOUT_S = 2.0
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
        log_format: str = "logfmt",
    ) -> None:
        """``log_file`` takes what the drivers log; ``None``: this process's standard error.
        ``secrets``: the folder of Secrets that they read."""
        self._flows = {flow.metadata.name: _made_now(flow) for flow in flows}
        self._lease_s = float(min(f.spec.drivers.lease_seconds for f in self._flows.values()))
        self.secrets = secrets
        self.before_pause: Callable[[ReplicationFlow], None] = lambda flow: None
        """Receives the flow as it is to be; what it raises keeps the flow as it is."""
        self.notices: Callable[[], list[str]] = list
        """What else a person should know of this run."""
        self._store = TaskStore()
        self._fleet = Fleet(
            drivers,
            self._lease_s,
            log_file,
            secrets,
            on_joined=self._driver_joined,
            on_left=self._driver_left,
            on_call=self._answer,
            log_format=log_format,
        )
        self._placement = PlacementLoop(
            self._flows.values, self._store, self._fleet, self._send_all_units
        )
        self._writers: dict[tuple[str, str], str] = {}  # (target cluster id, topic) -> flow
        self._log_level: str | None = None
        """When it was changed since the start."""
        self._overdue: dict[str, set[str]] = defaultdict(set)
        """Units that were taken from a live driver that did not release them in time, by driver."""
        for name in self._flows:
            self._make_connectors(name)

    # For the command line.

    async def run(self, until: asyncio.Event) -> None:
        """Run the drivers until ``until`` is set, then stop them, within 5 s."""
        try:
            await self._fleet.start()
            ends: set[asyncio.Future[Any]] = {
                asyncio.create_task(self._watch()),
                asyncio.create_task(self._placement.run()),
                asyncio.create_task(until.wait()),
                self._fleet.failure,
            }
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for end in ends:
                end.cancel()
            for end in done:
                end.result()  # raises its error
        finally:
            self._placement.close()
            await self._fleet.stop(_STOP_TIMEOUT_S)

    def flows(self) -> list[str]:
        """The flows of this run, by name."""
        return list(self._flows)

    def find_flow(self, name: str) -> ReplicationFlow | None:
        """A flow, if this run has it."""
        return self._flows.get(name)

    def flow(self, name: str) -> ReplicationFlow:
        """A flow of this run."""
        return self._flows[name]

    def tasks(self, flow: str) -> list[ReplicationTask]:
        """The units of a flow."""
        return self._store.of_flow(flow)

    def status(self, name: str) -> ReplicationFlowStatus:
        """The status of a flow now."""
        flow = self._flows[name]
        facts = FlowFacts(
            datetime.now(UTC),
            flow,
            self._store.of_flow(name),
            alive=len(self._fleet.alive()),
            placement_problem=self._placement.problems.get(name, ""),
            overdue=self._overdue,
        )
        status = flow_status(facts)
        self._flows[name] = flow.model_copy(update={"status": status})
        return status

    def not_ready(self) -> list[str]:
        """A sentence for each flow that is not Ready."""
        conditions = {
            name: condition(self.status(name).conditions, ConditionType.READY)
            for name in self._flows
        }
        return [
            f"{name}: {ready.message if ready else 'unknown'}"
            for name, ready in conditions.items()
            if ready is None or ready.status is not ConditionStatus.TRUE
        ]

    async def measure(self) -> Measured:
        """For a scrape; a driver that does not answer within two seconds is left out."""
        drivers = self._fleet.alive()
        answers = await asyncio.gather(*(driver.samples(_SAMPLES_TIMEOUT_S) for driver in drivers))
        owners = {task.metadata.name: task.status.driver_name for task in self._store}
        return Measured(
            flows=tuple(map(self._as_measured, self._flows)),
            # While a unit moves, its next owner measures it too.
            samples={
                driver.name: [one for one in samples if owners.get(one[1][2]) == driver.name]
                for driver, samples in zip(drivers, answers, strict=True)
            },
            pids={driver.name: driver.pid for driver in drivers},
        )

    def _as_measured(self, name: str) -> dict[str, Any]:
        flow = self._flows[name]
        return {
            "metadata": {"namespace": flow.metadata.namespace, "name": name},
            "spec": {"state": flow.spec.state, "drivers": {"replicas": self._fleet.size}},
            "status": as_json(self.status(name)),
        }

    def set_log_level(self, level: str) -> None:
        """Of this process and its drivers."""
        self._log_level = logs.set_level(level)
        for driver in self._fleet.alive():
            driver.send({"event": "log-level", "level": level})

    def kill_driver(self, flow: str) -> dict[str, Any]:
        """Kill -9 the driver that holds most source tasks of a flow, as a fault for a test."""
        alive = {driver.name: driver for driver in self._fleet.alive()}
        victim = alive[target_driver(self._store.of_flow(flow), alive, flow)]
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
        """Have the owner of a unit restart it."""
        if (driver := self._fleet.get(task.status.driver_name)) is not None:
            driver.send({"event": "restart", "task": task.metadata.name})

    def move(self, task: ReplicationTask, driver: str) -> None:
        """Run a unit on that driver from now on, for as long as it lives."""
        ready = [one.name for one in self._fleet.ready()]
        if driver not in ready:
            why = "is leaving" if self._fleet.get(driver) else "is not there"
            raise InvalidSpec(f"driver {driver} {why}; there are {', '.join(ready) or 'none'}")
        self._placement.pin(task_id(task), driver)

    def change_spec(self, flow: str, **fields: Any) -> None:
        """Change fields of a flow's spec that drivers follow while they run."""
        known = self._flows[flow]
        spec = known.spec.model_copy(update=fields)
        generation = (known.metadata.generation or 0) + 1
        metadata = known.metadata.model_copy(update={"generation": generation})
        self._change(known.model_copy(update={"spec": spec, "metadata": metadata}))
        self._placement.request()

    def pause(self, flow: str, **fields: Any) -> None:
        """The same for what ``headrace pause`` changes, which is kept for the next run."""
        known = self._flows[flow]
        spec = known.spec.model_copy(update=fields)
        self.before_pause(known.model_copy(update={"spec": spec}))
        self.change_spec(flow, **fields)

    def annotate(self, flow: str, annotation: str, value: str) -> None:
        """Set an annotation of a flow that drivers follow while they run."""
        known = self._flows[flow]
        annotations = {**known.metadata.annotations, annotation: value}
        metadata = known.metadata.model_copy(update={"annotations": annotations})
        self._change(known.model_copy(update={"metadata": metadata}))

    def add(self, flow: ReplicationFlow) -> None:
        """Run one more flow."""
        self._make_connectors(flow.metadata.name)
        self._change(_made_now(flow))
        self._placement.request()

    def roll_drivers(self) -> None:
        """Replace all drivers: of a flow's clusters and policy they read once."""
        self._fleet.roll()
        self._placement.await_drivers()

    def _make_connectors(self, flow: str) -> None:
        for connector in _CONNECTORS:
            self._store.put(flow, connector)

    def _change(self, flow: ReplicationFlow) -> None:
        self._flows[flow.metadata.name] = flow
        for driver in self._fleet.alive():
            self._send_flows(driver)

    def scale(self, drivers: int) -> int:
        """Run ``drivers`` drivers from now on; returns how many were to run before."""
        before = self._fleet.size
        self._fleet.resize(drivers)
        self._placement.await_drivers()
        return before

    # Calls of drivers.

    def _driver_joined(self, driver: DriverProcess) -> None:
        self._send_flows(driver)
        if self._log_level is not None:
            driver.send({"event": "log-level", "level": self._log_level})
        log.info("driver joined", driver=driver.name, pid=driver.pid)
        self._placement.driver_joined(driver)

    def _driver_left(self, driver: DriverProcess) -> None:
        units = sum(task.status.driver_incarnation == driver.incarnation for task in self._store)
        self._overdue.pop(driver.name, None)
        if driver.process.returncode == 0 and not units:
            log.info("driver left", driver=driver.name, pid=driver.pid)
        else:
            log.warning("driver lost", driver=driver.name, pid=driver.pid, units=units)
        self._placement.driver_left(driver)

    def _answer(
        self, driver: DriverProcess, call: str, message: Mapping[str, Any]
    ) -> dict[str, Any]:
        try:
            if call == "put-tasks":
                self._put_tasks(message)
                return {}
            if call == "list-tasks":
                return {"tasks": self._list_tasks(message)}
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
            self._note_overdue(written, before)
            self._send_units(written.spec.driver_name)
            self._stop_leaving()
        return written

    def _note_overdue(self, task: ReplicationTask, before: ReplicationTaskStatus) -> None:
        """Record a claim of a unit that a driver holds which is not known to be lost."""
        holder = self._fleet.get(before.driver_name)
        taken = task.status.driver_name and holder is not None
        if taken and not self._placement.is_lost(before.driver_incarnation):
            log.warning(
                "driver did not release its unit in time, the unit is taken",
                driver=before.driver_name,
                task=task.metadata.name,
                by=task.status.driver_name,
            )
            self._overdue[before.driver_name].add(task.metadata.name)

    def _stop_leaving(self) -> None:
        """Stop leaving drivers that hold no unit."""
        held = {task.status.driver_name for task in self._store}
        for driver in self._fleet.alive():
            if driver.leaving and driver.name not in held:
                driver.send({"event": "stop"})

    def _put_tasks(self, message: Mapping[str, Any]) -> None:
        connector = ReplicationTask.model_validate(message["connector"])
        flow = connector.spec.flow_name
        topics = {
            (cluster, topic)
            for cluster, names in message["targetTopics"].items()
            for topic in names
        }
        self._refuse_taken(flow, topics)
        changed = self._store.put_tasks(
            connector,
            TaskType(message["type"]),
            {
                int(index): [TopicPartitions.model_validate(packed) for packed in held]
                for index, held in message["tasks"].items()
            },
        )
        self._writers.update(dict.fromkeys(topics, flow))
        if changed:
            self._placement.request()

    def _list_tasks(self, message: Mapping[str, Any]) -> list[dict[str, Any]]:
        connector = ReplicationTask.model_validate(message["connector"])
        return [
            dump(task)
            for task in self._store.of_flow(connector.spec.flow_name)
            if task.spec.type == message["type"]
        ]

    def _refuse_taken(self, flow: str, topics: Iterable[tuple[str, str]]) -> None:
        written: dict[tuple[str, str], set[str]] = defaultdict(set)
        for cluster_id, topic in topics:
            written[self._writers.get((cluster_id, topic), flow), cluster_id].add(topic)
        for (writer, cluster_id), shared in written.items():
            if writer != flow and not self._has_stopped(writer):
                raise TargetTaken.by(writer, flow, shared, cluster_id)

    def _has_stopped(self, flow: str) -> bool:
        """It then gives way, so that a flow can follow another, as on Kubernetes."""
        stopped = self._flows[flow].spec.state is FlowState.STOPPED
        return stopped and not any(task.status.driver_name for task in self._store.of_flow(flow))

    async def _watch(self) -> None:
        """Notice silent drivers; a herder that stalled itself has seen nothing, and waits."""
        last = time.monotonic()
        interval_s = min(0.5, self._lease_s / 6)
        while True:
            await asyncio.sleep(interval_s)
            now = time.monotonic()
            blind = now - last > self._lease_s / 3
            last = now
            self._fleet.expire(now, forgive=blind)
            self._stop_leaving()

    # What drivers receive.

    def _send_all_units(self) -> None:
        for driver in self._fleet.alive():
            self._send_units(driver.name)

    def _send_flows(self, driver: DriverProcess) -> None:
        flows = [
            flow.model_dump(mode="json", by_alias=True, exclude_unset=True)
            for flow in self._flows.values()
        ]
        driver.send({"event": "flows", "flows": flows})

    def _send_units(self, driver_name: str) -> None:
        """Send a driver all units that it is assigned, stands by for, or holds."""
        driver = self._fleet.get(driver_name)
        if driver is None:
            return
        concerned = [
            dump(task)
            for task in self._store
            if driver_name
            in (task.spec.driver_name, task.status.driver_name, *task.spec.standby_driver_names)
        ]
        driver.send({"event": "tasks", "tasks": concerned})


def _made_now(flow: ReplicationFlow) -> ReplicationFlow:
    """As the API server does: the moment that ``startFrom: Latest`` means, and a generation."""
    stamped = {"creation_timestamp": flow.metadata.creation_timestamp or datetime.now(UTC)}
    metadata = flow.metadata.model_copy(update={**stamped, "generation": 1})
    return flow.model_copy(update={"metadata": metadata})
