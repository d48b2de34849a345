"""The Worker: hosts the units of one flow on one driver (Connect's ``Worker``)."""

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from headrace.api import (
    FlowState,
    ReplicationFlow,
    ReplicationTask,
    ReplicationTaskStatus,
    TaskPhase,
    TaskType,
)
from headrace.api.partitions import TopicPartition, TopicPartitions
from headrace.assign import TaskId
from headrace.connect.context import FlowContext
from headrace.connect.handover import DriverIdentity, may_claim
from headrace.connect.heartbeat import HeartbeatConnector, HeartbeatTask
from headrace.connect.herder import Herder
from headrace.connect.hold import Hold, Lost
from headrace.connect.source_connector import SourceConnector
from headrace.connect.source_task import SourceTask
from headrace.connect.task import Role
from headrace.connect.task_loop import TaskLoop
from headrace.connect.task_manager import TaskManager
from headrace.connect.unit import Unit
from headrace.errors import HeadraceError
from headrace.logs import get_logger

_THREADS: dict[TaskType, Callable[..., Unit]] = {
    TaskType.SOURCE_CONNECTOR: SourceConnector,
    TaskType.HEARTBEAT_CONNECTOR: HeartbeatConnector,
    TaskType.HEARTBEAT_TASK: HeartbeatTask,
}
_REPORT_INTERVAL_S = 0.5
_BESIDE_THREADS = 8
"""Tasks that are restored at the same time."""

StatusListener = Callable[[TaskId, TaskPhase], None]


class _Running(Protocol):
    """A unit or a task, as far as it is reported on and restarted."""

    hold: Hold
    phase: TaskPhase
    started_at: float

    @property
    def status(self) -> ReplicationTaskStatus: ...


@dataclass
class _Failures:
    count: int
    last: float


def restart_delay_s(restarts: int) -> float:
    """Seconds before the next restart of a failed unit: n²+n minutes, at most an hour.

    The first is at once. (Strimzi's auto-restart.)
    """
    return 60.0 * min(restarts * restarts + restarts, 60)


class Worker:
    """Compares what the herder wants of this driver with what runs, and acts on the difference.

    Connectors and the heartbeat task have threads of their own; source tasks share a TaskManager's.
    ``update``, ``change_flow`` and ``restart`` may be called from any thread.
    """

    def __init__(
        self,
        flow: ReplicationFlow,
        herder: Herder,
        driver: DriverIdentity,
        secrets: Path | None = None,
        listener: StatusListener = lambda id, phase: None,
    ) -> None:
        """``secrets``: the folder of Secrets; ``listener`` hears every change of a unit's state."""
        self._driver, self._herder, self._listener = driver, herder, listener
        self._context = FlowContext(flow, driver, secrets)
        self._log = get_logger(__name__).bind(flow=flow.metadata.name, driver=driver.name)
        self._wanted: dict[TaskId, ReplicationTask] = {}
        self._objects: dict[TaskId, ReplicationTask] = {}
        """As last seen, also those not wanted any more: the loop may be a turn behind."""
        self._assigned_since: dict[TaskId, float] = {}
        self._failures: dict[TaskId, _Failures] = {}
        self._phases: dict[TaskId, TaskPhase] = {}
        self._units: dict[TaskId, Unit] = {}
        self._beside = ThreadPoolExecutor(_BESIDE_THREADS, f"restore-{flow.metadata.name}")
        self._aside = ThreadPoolExecutor(_BESIDE_THREADS, f"release-{flow.metadata.name}")
        manager = TaskManager(self._make_task, self._purge)
        self._tasks = TaskLoop(manager, f"tasks-{flow.metadata.name}", self._context.pulse.beat)
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"worker-{flow.metadata.name}", daemon=True
        )
        self._thread.start()

    def update(self, tasks: Iterable[ReplicationTask]) -> None:
        """All units of the flow that this driver is to run, stands by for, or holds."""
        self._wanted = {
            TaskId(task.spec.flow_name, task.spec.type, task.spec.index): task for task in tasks
        }
        self._wake.set()

    def change_flow(self, flow: ReplicationFlow) -> None:
        """Follow a changed spec: so far its ``state``."""
        self._context.flow = flow
        self._wake.set()

    def restart(self, name: str) -> bool:
        """Make a unit anew, failed or not, with no regard to its backoff; whether it is here."""
        for id in list(self._wanted):
            if id.name == name and self._restart(id):
                self._failures.pop(id, None)
                self._wake.set()
                return True
        return False

    def stop(self, timeout_s: float) -> bool:
        """Let go of everything, at the same time; whether all ended within ``timeout_s``."""
        deadline = time.monotonic() + timeout_s
        self._stopping.set()
        self._wake.set()
        self._thread.join(min(1.0, timeout_s))
        for unit in self._units.values():
            unit.stop()
        ended = [self._tasks.stop(max(0.0, deadline - time.monotonic()))]
        ended += [unit.join(max(0.0, deadline - time.monotonic())) for unit in self._units.values()]
        self._beside.shutdown(wait=False)
        self._aside.shutdown(wait=False)
        self._context.close()
        return all(ended)

    def __str__(self) -> str:
        return f"worker of {self._context.name} on {self._driver.name}: {self._tasks.manager}"

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._reconcile()
                self._report()
            except Exception:  # noqa: BLE001 - it is logged, with its trace
                # The next turn may do better, and must come: nobody else reports or lets go.
                self._log.exception("internal error, please report it")
            self._wake.wait(_REPORT_INTERVAL_S)
            self._wake.clear()

    def _reconcile(self) -> None:
        wanted = self._wanted
        self._objects |= wanted
        active: dict[TaskId, frozenset[TopicPartition]] = {}
        standby: dict[TaskId, frozenset[TopicPartition]] = {}
        for id, task in wanted.items():
            running = self._running(id)
            if running is not None:
                running.hold.update(task)
            if task.spec.driver_name != self._driver.name:
                self._assigned_since.pop(id, None)
                if self._driver.name in task.spec.standby_driver_names:
                    standby[id] = TopicPartitions.unpack(task.spec.partitions)
            elif self._holds(running) or self._may_claim(id, task):
                active[id] = TopicPartitions.unpack(task.spec.partitions)
        self._reconcile_units(active)
        self._reconcile_tasks(active, standby)

    def _reconcile_units(self, active: dict[TaskId, frozenset[TopicPartition]]) -> None:
        for id, unit in list(self._units.items()):
            if id not in active:
                unit.stop()
            else:
                unit.update(self._objects[id])
            if not unit.alive and (unit.phase is TaskPhase.CLOSED or self._restart_due(id, unit)):
                del self._units[id]
        for id in active.keys() - self._units.keys():
            if make := _THREADS.get(TaskType(id.type)):
                hold = Hold(self._objects[id], self._driver, self._herder)
                self._units[id] = make(
                    hold, self._context, self._herder, self._wake.set, self._restarts(id)
                ).start()

    def _reconcile_tasks(
        self,
        active: dict[TaskId, frozenset[TopicPartition]],
        standby: dict[TaskId, frozenset[TopicPartition]],
    ) -> None:
        for task in self._tasks.manager:
            if task.phase is TaskPhase.CLOSED or self._restart_due(task.id, task):
                self._tasks.restart(task.id)
        copies = {id: at for id, at in active.items() if id.type == TaskType.SOURCE_TASK}
        self._tasks.assign(copies, standby)
        paused = self._context.spec.state is FlowState.PAUSED
        self._tasks.pause(copies.keys() if paused else frozenset())

    def _make_task(
        self, id: TaskId, partitions: frozenset[TopicPartition], role: Role
    ) -> SourceTask:
        hold = Hold(self._objects[id], self._driver, self._herder)
        return SourceTask(
            id,
            partitions,
            role,
            hold=hold,
            context=self._context,
            beside=self._beside,
            aside=self._aside,
            changed=self._wake.set,
            restarts=self._restarts(id),
        )

    def _purge(self) -> int:
        """Beside: it asks brokers, and nothing waits for it."""
        self._beside.submit(self._purge_beside)
        return 0

    def _purge_beside(self) -> None:
        try:
            purged = self._context.purge_progress()
            if purged:
                self._log.info("purged progress of topics that are gone", records=purged)
        except HeadraceError as error:
            self._log.info("progress not purged, tried again later", why=str(error))

    def _running(self, id: TaskId) -> _Running | None:
        return self._units.get(id) or self._tasks.manager.task(id)

    def _holds(self, running: _Running | None) -> bool:
        return (
            running is not None
            and running.phase is not TaskPhase.CLOSED
            and (not isinstance(running, SourceTask) or running.role is Role.ACTIVE)
        )

    def _may_claim(self, id: TaskId, task: ReplicationTask) -> bool:
        now = time.monotonic()
        return may_claim(task, self._driver, now - self._assigned_since.setdefault(id, now))

    def _restarts(self, id: TaskId) -> int:
        return self._failures[id].count if id in self._failures else 0

    def _restart(self, id: TaskId) -> bool:
        if (unit := self._units.get(id)) is not None:
            unit.stop()
            return True
        if self._tasks.manager.task(id) is not None:
            self._tasks.restart(id)
            return True
        return False

    def _restart_due(self, id: TaskId, running: _Running) -> bool:
        if running.phase is not TaskPhase.FAILED:
            return False
        now = time.monotonic()
        failures = self._failures.setdefault(id, _Failures(0, now))
        if now - running.started_at > restart_delay_s(failures.count + 1):
            failures.count = 0  # it ran longer than it would wait: a new trouble, not the old one
        if now - failures.last < restart_delay_s(failures.count):
            return False
        self._log.info("restarting failed unit", task=id.name, restarts=failures.count + 1)
        failures.count += 1
        failures.last = now
        return True

    def _report(self) -> None:
        running: list[tuple[TaskId, _Running]] = [*self._units.items()]
        running += [(task.id, task) for task in self._tasks.manager if task.role is Role.ACTIVE]
        for id, unit in running:
            if self._phases.get(id) is not unit.phase:
                self._phases[id] = unit.phase
                self._listener(id, unit.phase)
            if unit.phase is TaskPhase.CLOSED:
                continue
            try:
                unit.hold.report(unit.status)
            except Lost as lost:
                self._log.info("lost", task=id.name, why=str(lost))
                unit.hold.forget()
                self._restart(id)
            except HeadraceError as error:
                self._log.debug("report not heard", task=id.name, why=str(error))
