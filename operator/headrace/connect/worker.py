"""The Worker: hosts the units of one flow on one driver (Connect's ``Worker``)."""

import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from headrace.api import (
    ReplicationFlow,
    ReplicationTask,
    TaskPhase,
    TopicPartition,
    TopicPartitions,
)
from headrace.assign import TaskId
from headrace.connect.checkpoint.checkpoint_task import CheckpointTask
from headrace.connect.heartbeat import HeartbeatTask
from headrace.connect.instances import Instances, Running
from headrace.connect.runtime.context import FlowContext
from headrace.connect.runtime.figures import UnitFigures
from headrace.connect.runtime.handover import DriverIdentity, may_claim
from headrace.connect.runtime.herder import Herder
from headrace.connect.runtime.ownership import OwnershipLost
from headrace.connect.runtime.task import Role
from headrace.connect.source.source_task import SourceTask
from headrace.errors import HeadraceError, from_exception
from headrace.logs import get_logger

_REPORT_INTERVAL_S = 0.5
_RECONCILE_TIMEOUT_S = 60.0
"""A reconcile waits for a herder that does not answer, but never so long."""

StatusListener = Callable[[TaskId, TaskPhase], None]


class Worker:
    """Compares what the herder assigns to this driver with what runs, and acts on the difference.

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
        """``secrets``: the folder of Secrets; ``listener`` receives each change of a phase."""
        self._driver, self._listener = driver, listener
        self._context = FlowContext(flow, driver, secrets)
        self._log = get_logger(__name__).bind(flow=flow.metadata.name, driver=driver.name)
        self._assigned: dict[TaskId, ReplicationTask] = {}
        self._assigned_since: dict[TaskId, float] = {}
        """Of units that another driver has to release first; monotonic seconds."""
        self._phases: dict[TaskId, TaskPhase] = {}
        self._wake = threading.Event()
        self._instances = Instances(self._context, herder, driver, self._wake.set)
        self._reconciled_at = time.monotonic()
        self._stopping = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"worker-{flow.metadata.name}", daemon=True
        )
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether it still reconciles its units, and its tasks still have their turns."""
        return (
            self._thread.is_alive()
            and self._instances.alive
            and time.monotonic() - self._reconciled_at < _RECONCILE_TIMEOUT_S
        )

    @property
    def namespace(self) -> str:
        """The flow's."""
        return self._context.flow.metadata.namespace

    def update(self, tasks: Iterable[ReplicationTask]) -> None:
        """All units of the flow that this driver is to run, stands by for, or owns."""
        self._assigned = {
            TaskId(task.spec.flow_name, task.spec.type, task.spec.index): task for task in tasks
        }
        self._wake.set()

    def change_flow(self, flow: ReplicationFlow) -> None:
        """Follow a changed spec; units read it the next time they run."""
        self._context.change(flow)
        self._wake.set()

    def restart(self, name: str) -> bool:
        """Restart a unit, failed or not, without its back-off; whether it runs here."""
        for id in list(self._assigned):
            if id.name == name and self._instances.restart(id):
                self._instances.restarts.forget(id)
                self._wake.set()
                return True
        return False

    def figures(self) -> list[UnitFigures]:
        """All units that run here, standbys left out; from any thread."""
        return [
            UnitFigures(
                id,
                unit.status,
                copied=unit.copied if isinstance(unit, SourceTask) else None,
                commits=unit.commits if isinstance(unit, SourceTask) else None,
                bandwidth_waited_s=self._context.bandwidth.waited_s
                if isinstance(unit, SourceTask) and self._context.bandwidth.limited
                else None,
                taken=self._context.contested(id.name).taken,
                restarts=self._instances.restarts.total(id),
                groups=unit.groups if isinstance(unit, CheckpointTask) else {},
                translations=unit.translations if isinstance(unit, CheckpointTask) else {},
                beats=dict(unit.beats) if isinstance(unit, HeartbeatTask) else {},
            )
            for id, unit in self._instances.active()
            if unit.phase is not TaskPhase.CLOSED
        ]

    def stop(self, timeout_s: float) -> bool:
        """Release all units, at the same time; whether all ended within ``timeout_s``."""
        deadline = time.monotonic() + timeout_s
        self._stopping.set()
        self._wake.set()
        self._thread.join(min(1.0, timeout_s))
        ended = self._instances.stop(deadline)
        self._context.close()
        return ended

    def __str__(self) -> str:
        return f"worker of {self._context.name} on {self._driver.name}: {self._instances}"

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._reconcile()
                self._report()
            except Exception as error:  # noqa: BLE001 - it is logged, with its trace
                # The next reconcile may succeed, and must come: nothing else reports or releases.
                self._log.exception("could not reconcile", error=str(from_exception(error)))
            self._reconciled_at = time.monotonic()
            self._wake.wait(_REPORT_INTERVAL_S)
            self._wake.clear()

    def _reconcile(self) -> None:
        assigned = self._assigned
        self._instances.receive(assigned)
        active: dict[TaskId, frozenset[TopicPartition]] = {}
        standby: dict[TaskId, frozenset[TopicPartition]] = {}
        for id, task in assigned.items():
            running = self._instances.running(id)
            if running is not None:
                running.ownership.update(task)
                self._ask(id, running, partial(running.ownership.check, task))
            if task.spec.driver_name != self._driver.name:
                self._assigned_since.pop(id, None)
                if self._driver.name in task.spec.standby_driver_names:
                    standby[id] = TopicPartitions.unpack(task.spec.partitions)
            elif self._may_run(id, task, running):
                active[id] = TopicPartitions.unpack(task.spec.partitions)
        self._instances.run(active, standby)

    def _owns(self, running: Running | None) -> bool:
        return (
            running is not None
            and running.phase is not TaskPhase.CLOSED
            and (not isinstance(running, SourceTask) or running.role is Role.ACTIVE)
        )

    def _may_run(self, id: TaskId, task: ReplicationTask, running: Running | None) -> bool:
        if self._owns(running):
            self._assigned_since.pop(id, None)
            return True
        now = time.monotonic()
        return may_claim(task, self._driver, now - self._assigned_since.setdefault(id, now))

    def _report(self) -> None:
        for id, unit in self._instances.active():
            if self._phases.get(id) is not unit.phase:
                self._phases[id] = unit.phase
                self._listener(id, unit.phase)
            if unit.phase is not TaskPhase.CLOSED:
                self._ask(id, unit, partial(unit.ownership.report, unit.status))

    def _ask(self, id: TaskId, unit: Running, check_or_report: Callable[[], None]) -> None:
        """Where a write shows that ownership is lost, stop the unit; restart it if assigned."""
        try:
            check_or_report()
        except OwnershipLost as lost:
            self._log.info("lost", task=id.name, why=str(lost))
            unit.ownership.forget()
            self._instances.restart(id)
        except HeadraceError as error:
            self._log.debug("report not written", task=id.name, why=str(error))
