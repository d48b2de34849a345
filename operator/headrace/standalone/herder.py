"""The herder of ``headrace run``.

It does what the API server, Deployments and Leases do on Kubernetes. It stores the units
(``task_store``), starts the drivers (``fleet``), detects lost drivers by their heartbeats, and
assigns units (``placement_loop``). It carries no data.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headrace import logs
from headrace.api import (
    ReplicationFlow,
    ReplicationFlowStatus,
    ReplicationTask,
    TaskType,
    dump,
    wants_watch,
)
from headrace.errors import InvalidSpec
from headrace.host import ForkServer
from headrace.logs import get_logger
from headrace.placement import task_id
from headrace.standalone.driver_calls import DriverCalls
from headrace.standalone.fleet import DriverFaults, DriverProcess, Fleet, driver_server
from headrace.standalone.placement_loop import PlacementLoop
from headrace.standalone.task_store import TaskStore
from headrace.status import FlowFacts, flow_status

log = get_logger(__name__)

_CONNECTORS = (
    TaskType.SOURCE_CONNECTOR,
    TaskType.CHECKPOINT_CONNECTOR,
    TaskType.HEARTBEAT_CONNECTOR,
)
_STOP_TIMEOUT_S = 4.5
"""Time limit for stopping the drivers in seconds, less than the 5 s of a graceful stop."""


class StandaloneHerder:
    """Herder of one run. Everything runs on one event loop, and nothing blocks it."""

    def __init__(
        self,
        flows: Iterable[ReplicationFlow],
        drivers: int,
        log_file: Path | None = None,
        secrets: Path | None = None,
        log_format: str = "logfmt",
        *,
        server: ForkServer | None = None,
        racks: Sequence[str] = (),
        store: TaskStore | None = None,
    ) -> None:
        """Create a herder without drivers. ``run`` starts them.

        Args:
            flows: Flows of the run.
            drivers: Number of drivers.
            log_file: File for the drivers' logs, or None for this process's standard error.
            secrets: Folder of Secrets that they read.
            log_format: One of ``logs.FORMATS``.
            server: Server that starts the drivers. None: ``run`` opens one.
            racks: Racks that are assigned to the drivers in turn.
            store: Store of the units. None: a new one.
        """
        self._flows = {flow.metadata.name: _made_now(flow) for flow in flows}
        self._lease_s = float(min(f.spec.drivers.lease_seconds for f in self._flows.values()))
        self.secrets = secrets
        self.before_pause: Callable[[ReplicationFlow], None] = lambda flow: None
        """Function that is called before a pause, with the flow and its new fields.

        If it raises an error, the flow is not paused.
        """
        self.notices: Callable[[], list[str]] = list
        """Function that returns notices for the user, such as an invalid edit of a manifest."""
        self.dashboard: str | None = None
        """URL of the dashboard, or None if the run does not serve it."""
        self._store = TaskStore() if store is None else store
        self._fleet = Fleet(
            server or driver_server(),
            drivers,
            self._lease_s,
            log_file,
            secrets,
            on_joined=self._driver_joined,
            on_left=self._driver_left,
            on_call=self._answer,
            log_format=log_format,
            racks=racks,
        )
        self._placement = PlacementLoop(
            self._flows.values, self._store, self._fleet, self._send_all_units
        )
        self._calls = DriverCalls(
            self.flow, self._store, self._fleet, self._placement, self._owner_changed
        )
        self.faults = DriverFaults(self._fleet, self._store, self._lease_s)
        """Injects faults into this run's drivers, for mirror tests."""
        self._log_level: str | None = None
        """Log level, or None if it was not changed since the start."""
        for flow in self._flows.values():
            self._make_connectors(flow.metadata.name)
            self._make_watch(flow)

    # For the command line.

    async def run(self, until: asyncio.Event) -> None:
        """Run the drivers until ``until`` is set, then stop them within 5 s."""
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
        return list(self._flows)

    def find_flow(self, name: str) -> ReplicationFlow | None:
        """Return a flow of this run, or None."""
        return self._flows.get(name)

    def flow(self, name: str) -> ReplicationFlow:
        """Return a flow of this run."""
        return self._flows[name]

    def tasks(self, flow: str) -> list[ReplicationTask]:
        return self._store.of_flow(flow)

    def status(self, name: str) -> ReplicationFlowStatus:
        flow = self._flows[name]
        facts = FlowFacts(
            datetime.now(UTC),
            flow,
            self._store.of_flow(name),
            alive=len(self._fleet.alive()),
            placement_problem=self._placement.problems.get(name, ""),
            is_lost=lambda _, incarnation: self._placement.is_lost(incarnation),
            overdue=self._calls.overdue,
        )
        status = flow_status(facts)
        self._flows[name] = flow.model_copy(update={"status": status})
        return status

    def alive(self) -> list[DriverProcess]:
        """Return the drivers that send heartbeats."""
        return self._fleet.alive()

    @property
    def size(self) -> int:
        """Desired number of drivers."""
        return self._fleet.size

    def set_log_level(self, level: str) -> None:
        """Set the log level of this process and its drivers."""
        self._log_level = logs.set_level(level)
        for driver in self._fleet.alive():
            driver.send({"event": "log-level", "level": level})

    def restart(self, task: ReplicationTask) -> None:
        """Request the driver that holds a unit to restart it."""
        if (driver := self._fleet.get(task.status.driver_name)) is not None:
            driver.send({"event": "restart", "task": task.metadata.name})

    def move(self, task: ReplicationTask, driver: str) -> None:
        """Pin a unit to a driver while the driver is alive.

        Raise ``InvalidSpec`` if the driver may not have units.
        """
        ready = [one.name for one in self._fleet.ready()]
        if driver not in ready:
            why = "is leaving" if self._fleet.get(driver) else "does not exist"
            raise InvalidSpec(f"driver {driver} {why}; there are {', '.join(ready) or 'none'}")
        self._placement.pin(task_id(task), driver)

    def change_spec(self, flow: str, **fields: Any) -> None:
        """Change fields of a flow's spec that drivers apply without a restart."""
        known = self._flows[flow]
        spec = known.spec.model_copy(update=fields)
        generation = (known.metadata.generation or 0) + 1
        metadata = known.metadata.model_copy(update={"generation": generation})
        self._change(known.model_copy(update={"spec": spec, "metadata": metadata}))
        self._placement.request()

    def pause(self, flow: str, **fields: Any) -> None:
        """Change fields as ``headrace flow pause`` does, and keep them for the next run."""
        known = self._flows[flow]
        spec = known.spec.model_copy(update=fields)
        self.before_pause(known.model_copy(update={"spec": spec}))
        self.change_spec(flow, **fields)

    def annotate(self, flow: str, annotation: str, value: str) -> None:
        """Set an annotation of a flow, and send it to the running drivers."""
        known = self._flows[flow]
        annotations = {**known.metadata.annotations, annotation: value}
        metadata = known.metadata.model_copy(update={"annotations": annotations})
        self._change(known.model_copy(update={"metadata": metadata}))

    def add(self, flow: ReplicationFlow) -> None:
        """Add a flow to the run."""
        self._make_connectors(flow.metadata.name)
        self._change(_made_now(flow))
        self._placement.request()

    def roll_drivers(self) -> None:
        """Replace all drivers, because fields have changed that they read only at their start."""
        self._fleet.roll()
        self._placement.await_drivers()

    def _make_connectors(self, flow: str) -> None:
        for connector in _CONNECTORS:
            self._store.put(flow, connector)

    def _make_watch(self, flow: ReplicationFlow) -> None:
        """Make the unit that watches the source, or delete it."""
        name, type = flow.metadata.name, TaskType.SOURCE_WATCH
        if not wants_watch(flow):
            self._store.remove(name, type)
        elif not any(task.spec.type is type for task in self._store.of_flow(name)):
            self._store.put(name, type)

    def _change(self, flow: ReplicationFlow) -> None:
        self._flows[flow.metadata.name] = flow
        self._make_watch(flow)
        for driver in self._fleet.alive():
            self._send_flows(driver)

    def scale(self, drivers: int) -> int:
        """Set the desired number of drivers, and return the previous number."""
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
        self._calls.overdue.pop(driver.name, None)
        if driver.process.returncode == 0 and not units:
            log.info("driver left", driver=driver.name, pid=driver.pid)
        else:
            log.warning(
                "driver lost",
                driver=driver.name,
                pid=driver.pid,
                exit_code=driver.process.returncode,  # None if it did not respond
                units=units,
            )
        self._placement.driver_left(driver)

    def _answer(
        self, driver: DriverProcess, call: str, message: Mapping[str, Any]
    ) -> dict[str, Any]:
        return self._calls.answer(driver, call, message)

    def _owner_changed(self, driver: str) -> None:
        self._send_units(driver)
        self._stop_leaving()

    def _stop_leaving(self) -> None:
        """Stop leaving drivers that hold no unit."""
        held = {task.status.driver_name for task in self._store}
        for driver in self._fleet.alive():
            if driver.leaving and driver.name not in held:
                driver.send({"event": "stop"})

    async def _watch(self) -> None:
        """Detect drivers without heartbeats.

        If this process itself was stalled, it has missed heartbeats and waits for new ones.
        """
        last = time.monotonic()
        interval_s = min(0.5, self._lease_s / 6)
        while True:
            await asyncio.sleep(interval_s)
            now = time.monotonic()
            blind = now - last > self._lease_s / 3
            last = now
            self._fleet.expire(now, forgive=blind)
            self._stop_leaving()

    # Messages to drivers.

    def _send_all_units(self) -> None:
        for driver in self._fleet.alive():
            self._send_units(driver.name)

    def _send_flows(self, driver: DriverProcess) -> None:
        flows = [dump(flow) for flow in self._flows.values()]
        driver.send({"event": "flows", "flows": flows})

    def _send_units(self, driver_name: str) -> None:
        """Send a driver all units that it holds, is assigned to, or is a standby of."""
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
    """Set a creation time, which ``startFrom.mode: Latest`` uses, and a generation."""
    stamped = {"creation_timestamp": flow.metadata.creation_timestamp or datetime.now(UTC)}
    metadata = flow.metadata.model_copy(update={**stamped, "generation": 1})
    return flow.model_copy(update={"metadata": metadata})
