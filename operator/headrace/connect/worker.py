"""Worker that hosts the units of one flow on one driver (Connect's ``Worker``)."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Protocol

from headrace.api import (
    FlowState,
    ReplicationFlow,
    ReplicationTask,
    ReplicationTaskStatus,
    TaskPhase,
    TaskType,
    TopicPartition,
    TopicPartitions,
)
from headrace.assign import TaskId
from headrace.connect.checkpoint.checkpointing import CheckpointConnector, CheckpointTask
from headrace.connect.failover.source_watcher import SourceWatcher
from headrace.connect.heartbeat import HeartbeatConnector, HeartbeatTask
from headrace.connect.runtime.context import FlowContext
from headrace.connect.runtime.figures import UnitFigures
from headrace.connect.runtime.herder import Herder
from headrace.connect.runtime.lifecycle import release
from headrace.connect.runtime.ownership import DriverIdentity, Ownership, OwnershipLost, may_claim
from headrace.connect.runtime.retries import Reclaims, Restarts
from headrace.connect.runtime.task_manager import Role, TaskLoop, TaskManager
from headrace.connect.runtime.threaded_unit import ThreadedUnit
from headrace.connect.source.source_connector import SourceConnector
from headrace.connect.source.source_task import SourceTask
from headrace.errors import HeadraceError, from_exception
from headrace.logs import get_logger
from headrace.timing import Clock

_THREADS: dict[TaskType, Callable[..., ThreadedUnit]] = {
    TaskType.SOURCE_CONNECTOR: SourceConnector,
    TaskType.CHECKPOINT_CONNECTOR: CheckpointConnector,
    TaskType.CHECKPOINT_TASK: CheckpointTask,
    TaskType.HEARTBEAT_CONNECTOR: HeartbeatConnector,
    TaskType.HEARTBEAT_TASK: HeartbeatTask,
    TaskType.SOURCE_WATCH: SourceWatcher,
}
_POOL_THREADS = 8
"""Number of threads in a pool, and of tasks that are restored at the same time."""


class Running(Protocol):
    """Running unit with its own thread, or source task."""

    @property
    def ownership(self) -> Ownership:
        """Ownership by this instance."""

    @property
    def phase(self) -> TaskPhase:
        """Current phase."""

    @property
    def started_at(self) -> float:
        """Monotonic time in seconds of the instance's creation, which identifies the instance."""

    @property
    def status(self) -> ReplicationTaskStatus:
        """Status of the next report."""


class Instances:
    """Running units of a driver.

    Connectors, checkpoint tasks and heartbeat tasks have their own threads. Source tasks share the
    thread of a TaskLoop. The Worker's thread calls this object. Any thread may use ``alive``,
    ``running``, ``active``, ``restart`` and ``restarts``.
    """

    def __init__(
        self,
        context: FlowContext,
        herder: Herder,
        driver: DriverIdentity,
        changed: Callable[[], None],
    ) -> None:
        """Create the object without units.

        ``changed`` is called when a unit has something to report.
        """
        self._context, self._herder, self._driver = context, herder, driver
        self._changed = changed
        flow = context.flow.metadata.name
        self._log = get_logger(__name__).bind(flow=flow, driver=driver.name)
        self._objects: dict[TaskId, ReplicationTask] = {}
        """Last received objects, including units that were unassigned and that the task loop may
        still need."""
        self.restarts = Restarts()
        self._reclaims = Reclaims()
        self._transferred: dict[TaskId, Ownership] = {}
        self._units: dict[TaskId, ThreadedUnit] = {}
        self._starting = threading.Lock()
        """Held while units are started or ``_stopped`` is set. It is never held for long."""
        self._stopped = False
        self._restore_pool = ThreadPoolExecutor(_POOL_THREADS, f"restore-{flow}")
        self._release_pool = ThreadPoolExecutor(_POOL_THREADS, f"release-{flow}")
        self._check_pool = ThreadPoolExecutor(1, f"check-{flow}")
        manager = TaskManager(self._make_task)
        self._tasks = TaskLoop(manager, f"tasks-{flow}", context.stall_detector.beat)

    @property
    def alive(self) -> bool:
        """Whether the task loop still iterates."""
        return self._tasks.alive

    def __str__(self) -> str:
        return str(self._tasks)

    def running(self, id: TaskId) -> Running | None:
        """Return the current instance of a unit or standby, or None."""
        return self._units.get(id) or self._tasks.tasks.get(id)

    def active(self) -> list[tuple[TaskId, Running]]:
        """Return the active instances without standbys. Any thread may call it."""
        tasks = [(task.id, task) for task in self._tasks.tasks.values() if task.role is Role.ACTIVE]
        return [*self._units.copy().items(), *tasks]

    def receive(self, objects: Mapping[TaskId, ReplicationTask]) -> None:
        """Receive the current objects of units. New instances use them."""
        self._objects |= objects

    def run(
        self,
        active: dict[TaskId, frozenset[TopicPartition]],
        standby: dict[TaskId, frozenset[TopicPartition]],
    ) -> None:
        """Start assigned units, restart failed ones, and end all others.

        Call ``receive`` for all of them first. The values are the partitions that source tasks
        copy. After ``stop``, the call does nothing.
        """
        if self._stopped:
            return
        self._release_transferred(but=active.keys())
        self._reclaims.keep(active.keys())
        self._reconcile_units(active)
        self._reconcile_tasks(active, standby)

    def restart(self, id: TaskId) -> bool:
        """Stop an instance; return whether there was one.

        A new instance follows if the unit is still active.
        """
        if (unit := self._units.get(id)) is not None:
            unit.stop()
            return True
        if self._tasks.tasks.get(id) is not None:
            self._tasks.restart(id)
            return True
        return False

    def stop(self, deadline: float) -> bool:
        """Release all units at the same time; return whether all ended before the deadline.

        ``deadline`` is in monotonic seconds. Any thread may call it, also during a call of ``run``.
        """
        with self._starting:
            self._stopped = True
            units = list(self._units.values())
        for unit in units:
            unit.stop()
        ended = [self._tasks.stop(max(0.0, deadline - time.monotonic()))]
        ended += [unit.join(max(0.0, deadline - time.monotonic())) for unit in units]
        self._release_transferred(but=frozenset())
        self._restore_pool.shutdown(wait=False)
        self._release_pool.shutdown(wait=False)
        self._check_pool.shutdown(wait=False, cancel_futures=True)
        return all(ended)

    def _reconcile_units(self, active: dict[TaskId, frozenset[TopicPartition]]) -> None:
        for id, unit in list(self._units.items()):
            if id not in active:
                unit.stop()
            else:
                unit.update(self._objects[id])
            if unit.alive:
                continue
            if unit.phase is TaskPhase.CLOSED:
                if unit.stopping or self._reclaim_due(id, unit):
                    del self._units[id]
            elif self._restart_due(id, unit, at_once=unit.superseded):
                del self._units[id]
        for id in active.keys() - self._units.keys():
            if make := _THREADS.get(TaskType(id.type)):
                self._start(id, make)

    def _start(self, id: TaskId, make: Callable[..., ThreadedUnit]) -> None:
        with self._starting:
            if not self._stopped:
                self._units[id] = make(
                    self._ownership(id),
                    self._context,
                    self._herder,
                    self._changed,
                    self.restarts.count(id),
                ).start()

    def _reconcile_tasks(
        self,
        active: dict[TaskId, frozenset[TopicPartition]],
        standby: dict[TaskId, frozenset[TopicPartition]],
    ) -> None:
        for task in self._tasks.tasks.values():
            changed = task.superseded(active.get(task.id, task.partitions))
            if task.phase is TaskPhase.CLOSED:
                if task.id not in active or self._reclaim_due(task.id, task):
                    self._tasks.restart(task.id)
            elif not task.leaving and self._restart_due(task.id, task, at_once=changed):
                # A task that leaves is replaced as soon as the herder has answered its release.
                self._tasks.restart(task.id)
        copies = {id: at for id, at in active.items() if id.type == TaskType.SOURCE_TASK}
        self._context.bandwidth.limit(self._bandwidth(copies.keys()))
        with self._starting:
            if not self._stopped:  # otherwise the loop would resume tasks that it closes
                self._tasks.assign(copies, standby)
        paused = self._context.spec.state is not FlowState.RUNNING  # a stopped flow is paused first
        self._tasks.pause(copies.keys() if paused else frozenset())

    def _bandwidth(self, copying: Set[TaskId]) -> float | None:
        """Return this driver's share of the bandwidth, by its share of the source tasks.

        A task that does not know the number of tasks counts as if all tasks ran here.
        """
        if (bandwidth := self._context.spec.bandwidth) is None:
            return None
        counts = (self._objects[id].spec.task_count or len(copying) for id in copying)
        return bandwidth.bytes_per_second * sum(1 / count for count in counts) or None

    def _make_task(
        self, id: TaskId, partitions: frozenset[TopicPartition], role: Role
    ) -> SourceTask:
        # The loop's thread calls this. It only reads single entries of the Worker's dicts.
        return SourceTask(
            id,
            partitions,
            role,
            ownership=self._ownership(id),
            context=self._context,
            restore_pool=self._restore_pool,
            release_pool=self._release_pool,
            check_pool=self._check_pool,
            changed=self._changed,
            restarts=self.restarts.count(id),
        )

    def _ownership(self, id: TaskId) -> Ownership:
        """Return the ownership for a new instance, which a failed instance may have transferred."""
        transferred = self._transferred.pop(id, None)
        return (
            transferred
            if transferred and transferred.epoch
            else Ownership(self._objects[id], self._driver, self._herder)
        )

    def _release_transferred(self, but: Set[TaskId]) -> None:
        """Release transferred ownerships that no new instance will use.

        Their units were reassigned before they were restarted.
        """
        for id in [id for id in list(self._transferred) if id not in but]:
            if transferred := self._transferred.pop(id, None):
                self._release_pool.submit(release, transferred, self._log)

    def release(self, task: ReplicationTask) -> None:
        """Release a unit of which there is no instance, in a pool."""
        held = Ownership(task, self._driver, self._herder)
        held.epoch = task.status.epoch
        self._release_pool.submit(release, held, self._log)

    def _reclaim_due(self, id: TaskId, running: Running) -> bool:
        return self._reclaims.is_due(id, running.started_at, time.monotonic())

    def _restart_due(self, id: TaskId, running: Running, *, at_once: bool = False) -> bool:
        if running.phase is not TaskPhase.FAILED:
            return False
        due = self.restarts.is_due(id, running.started_at, time.monotonic())
        if not due and at_once:
            self.restarts.add(id)
        elif not due:
            return False
        restarts = self.restarts.count(id)
        self._log.info("restarting failed unit", task=id.name, restarts=restarts)
        # The herder may be unreachable and is not needed: the unit stays on this driver.
        self._transferred[id] = running.ownership.transfer()
        return True


_REPORT_INTERVAL_S = 0.5
_RELEASE_AGAIN_S = 5.0
"""Time in seconds after which a unit that this driver does not run is released again. Its release
has failed if the object still names this driver."""
_RECONCILE_TIMEOUT_S = 60.0
"""Time in seconds after which a reconcile counts as hanging. It exceeds the longest wait for a
herder that does not respond."""

StatusListener = Callable[[TaskId, TaskPhase], None]


class Worker:
    """Starts and stops units as the herder assigns them to this driver.

    Any thread may call ``update``, ``change_flow`` and ``restart``.
    """

    def __init__(
        self,
        flow: ReplicationFlow,
        herder: Herder,
        driver: DriverIdentity,
        secrets: Path | None = None,
        listener: StatusListener = lambda id, phase: None,
        *,
        clock: Clock = time,
    ) -> None:
        """Start the Worker's thread.

        Args:
            flow: The flow.
            herder: Coordinator of the units.
            driver: This driver.
            secrets: Folder of Secrets.
            listener: Receives each change of a unit's phase.
            clock: Source of the time, also of the time for which an owner's release is awaited.
        """
        self._driver, self._listener = driver, listener
        self._context = FlowContext(flow, driver, secrets, clock=clock)
        self._log = get_logger(__name__).bind(flow=flow.metadata.name, driver=driver.name)
        self._assigned: dict[TaskId, ReplicationTask] = {}
        self._assigned_since: dict[TaskId, float] = {}
        """Monotonic time at which a unit was first seen that is assigned to this driver and that
        this driver does not own."""
        self._held_since: dict[TaskId, float] = {}
        """Monotonic time since which a unit names this driver, although it does not run here."""
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
        """Whether the Worker still reconciles its units, and its task loop still iterates."""
        return (
            self._thread.is_alive()
            and self._instances.alive
            and time.monotonic() - self._reconciled_at < _RECONCILE_TIMEOUT_S
        )

    @property
    def namespace(self) -> str:
        return self._context.flow.metadata.namespace

    def update(self, tasks: Iterable[ReplicationTask]) -> None:
        """Receive all units of the flow that this driver runs, stands by for, or owns."""
        self._assigned = {
            TaskId(task.spec.flow_name, task.spec.type, task.spec.index): task for task in tasks
        }
        self._wake.set()

    def change_flow(self, flow: ReplicationFlow) -> None:
        """Use a changed spec. Units read it in their next iteration."""
        self._context.change(flow)
        self._wake.set()

    def restart(self, name: str) -> bool:
        """Restart a unit without its back-off; return whether it runs here.

        The unit need not have failed.
        """
        for id in list(self._assigned):
            if id.name == name and self._instances.restart(id):
                self._instances.restarts.forget(id)
                self._wake.set()
                return True
        return False

    def figures(self) -> list[UnitFigures]:
        """Return the figures of all running units, without standbys. Any thread may call it."""
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
        """Release all units at the same time; return whether all ended within ``timeout_s``."""
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
                # The loop must continue, because nothing else reports or releases units.
                self._log.exception("could not reconcile", error=str(from_exception(error)))
            self._reconciled_at = time.monotonic()
            self._wake.wait(_REPORT_INTERVAL_S)
            self._wake.clear()

    def _reconcile(self) -> None:
        assigned = self._assigned
        self._instances.receive(assigned)
        for since in (self._assigned_since, self._held_since):
            for id in since.keys() - assigned.keys():
                del since[id]
        active: dict[TaskId, frozenset[TopicPartition]] = {}
        standby: dict[TaskId, frozenset[TopicPartition]] = {}
        for id, task in assigned.items():
            running = self._instances.running(id)
            if running is not None:
                running.ownership.update(task)
                self._ask(id, running, partial(running.ownership.check, task))
            if task.spec.driver_name != self._driver.name:
                self._assigned_since.pop(id, None)
                self._release_again(id, task, running)
                if self._driver.name in task.spec.standby_driver_names:
                    standby[id] = TopicPartitions.unpack(task.spec.partitions)
            elif self._may_run(id, task, running):
                active[id] = TopicPartitions.unpack(task.spec.partitions)
        self._instances.run(active, standby)

    def _release_again(self, id: TaskId, task: ReplicationTask, running: Running | None) -> None:
        """Release a unit that still names this driver, because its first release has failed."""
        owner, now_s = task.status, self._context.clock.monotonic()
        if running or owner.driver_incarnation != self._driver.incarnation:
            self._held_since.pop(id, None)
        elif now_s - self._held_since.setdefault(id, now_s) > _RELEASE_AGAIN_S:
            self._held_since[id] = now_s
            self._instances.release(task)

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
        now_s = self._context.clock.monotonic()
        return may_claim(task, self._driver, now_s - self._assigned_since.setdefault(id, now_s))

    def _report(self) -> None:
        for id, unit in self._instances.active():
            if self._phases.get(id) is not unit.phase:
                self._phases[id] = unit.phase
                self._listener(id, unit.phase)
            if unit.phase is not TaskPhase.CLOSED:
                self._ask(id, unit, partial(unit.ownership.report, unit.status))

    def _ask(self, id: TaskId, unit: Running, check_or_report: Callable[[], None]) -> None:
        """Check or report a unit.

        If its ownership is lost, stop the unit. It is restarted if it is still assigned.
        """
        try:
            check_or_report()
        except OwnershipLost as lost:
            self._log.info("lost", task=id.name, why=str(lost))
            unit.ownership.forget()
            self._instances.restart(id)
        except HeadraceError as error:
            self._log.debug("report not written", task=id.name, why=str(error))
