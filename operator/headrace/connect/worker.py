"""The Worker: hosts the units of one flow on one driver (Connect's ``Worker``)."""

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from headrace.api import ReplicationFlow, ReplicationTask, TaskPhase, TaskType
from headrace.connect.context import FlowContext
from headrace.connect.handover import DriverIdentity, may_claim
from headrace.connect.heartbeat import HeartbeatConnector, HeartbeatTask
from headrace.connect.herder import Herder
from headrace.connect.source_connector import SourceConnector
from headrace.connect.source_task import SourceTask
from headrace.connect.unit import Unit
from headrace.logs import get_logger

_UNITS: dict[TaskType, Callable[..., Unit]] = {
    TaskType.SOURCE_CONNECTOR: SourceConnector,
    TaskType.SOURCE_TASK: SourceTask,
    TaskType.HEARTBEAT_CONNECTOR: HeartbeatConnector,
    TaskType.HEARTBEAT_TASK: HeartbeatTask,
}
_REPORT_INTERVAL_S = 0.5


def restart_delay_s(restarts: int) -> float:
    """Seconds before the next restart of a failed unit: n²+n minutes, at most an hour.

    The first is at once. (Strimzi's auto-restart.)
    """
    return 60.0 * min(restarts * restarts + restarts, 60)


@dataclass
class _Failures:
    count: int
    last: float


class Worker:
    """Compares what the herder wants of this driver with what runs, and acts on the difference.

    ``update`` may be called from any thread; all else happens on the Worker's own.
    """

    def __init__(self, flow: ReplicationFlow, herder: Herder, driver: DriverIdentity) -> None:
        self._driver = driver
        self._herder = herder
        self._context = FlowContext(flow, driver)
        self._log = get_logger(__name__).bind(flow=flow.metadata.name, driver=driver.name)
        self._tasks: dict[str, ReplicationTask] = {}
        self._units: dict[str, Unit] = {}
        self._assigned_since: dict[str, float] = {}
        self._failures: dict[str, _Failures] = {}
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"worker-{flow.metadata.name}", daemon=True
        )
        self._thread.start()

    def update(self, tasks: Iterable[ReplicationTask]) -> None:
        """All units of the flow that this driver is to run or holds."""
        self._tasks = {task.metadata.name: task for task in tasks}
        self._wake.set()

    def stop(self, timeout_s: float) -> bool:
        """Let go of everything, at the same time; whether all ended within ``timeout_s``."""
        deadline = time.monotonic() + timeout_s
        self._stopping.set()
        self._wake.set()
        self._thread.join(timeout_s)
        for unit in self._units.values():
            unit.stop()
        ended = [unit.join(max(0.0, deadline - time.monotonic())) for unit in self._units.values()]
        self._context.close()
        return all(ended)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._reconcile()
            for unit in list(self._units.values()):
                unit.report()
            self._wake.wait(_REPORT_INTERVAL_S)
            self._wake.clear()

    def _reconcile(self) -> None:
        tasks = self._tasks
        for name, unit in list(self._units.items()):
            task = tasks.get(name)
            if task is None or task.spec.driver_name != self._driver.name:
                unit.stop()
            else:
                unit.update(task)
            if not unit.alive:
                self._ended(name, unit)
        for name, task in tasks.items():
            if task.spec.driver_name != self._driver.name:
                self._assigned_since.pop(name, None)
            elif name not in self._units:
                self._consider(name, task)

    def _consider(self, name: str, task: ReplicationTask) -> None:
        now = time.monotonic()
        waited_s = now - self._assigned_since.setdefault(name, now)
        if may_claim(task, self._driver, waited_s):
            failures = self._failures.get(name)
            make = _UNITS[task.spec.type]
            self._units[name] = make(
                task, self._context, self._herder, self._wake.set, failures.count if failures else 0
            ).start()

    def _ended(self, name: str, unit: Unit) -> None:
        if unit.phase is not TaskPhase.FAILED:
            del self._units[name]
            return
        unit.report()
        now = time.monotonic()
        failures = self._failures.setdefault(name, _Failures(0, now))
        if now - unit.started_at > restart_delay_s(failures.count + 1) + 60:
            failures.count = 0  # it ran longer than it would wait: a new trouble, not the old one
        if now - failures.last >= restart_delay_s(failures.count):
            self._log.info("restarting failed unit", task=name, restarts=failures.count + 1)
            failures.count += 1
            failures.last = now
            del self._units[name]
