"""TaskManager of one flow on one driver, as in Kafka Streams, and its thread.

Only the TaskLoop's thread calls the manager and the methods of its tasks. Other threads may read
``tasks``, ``str()`` and the tasks' properties. The loop calls the *steps of tasks* again and again.
"""

import os
import queue
import threading
import time
from collections.abc import Callable, Mapping, Set
from enum import StrEnum
from functools import partial
from types import MappingProxyType
from typing import Protocol, TypeVar

from headrace.api import ReplicationTaskStatus, TaskPhase, TopicPartition
from headrace.assign import TaskId
from headrace.connect.runtime.ownership import Ownership
from headrace.errors import HeadraceError, from_exception
from headrace.logs import get_logger


class Role(StrEnum):
    """Role of a task. A standby stays in phase Restoring until it takes over."""

    ACTIVE = "Active"
    STANDBY = "Standby"


class Task(Protocol):
    """Source task, as the manager uses it. No call waits for a broker.

    Slow steps run in a pool, and ``advance`` receives their results. Each method may raise a
    ``HeadraceError``, which fails only this task. Any thread may read properties and attributes.
    Only the loop's thread calls methods.
    """

    id: TaskId
    role: Role
    ownership: Ownership

    @property
    def partitions(self) -> frozenset[TopicPartition]: ...

    @property
    def phase(self) -> TaskPhase: ...

    @property
    def started_at(self) -> float:
        """Monotonic time in seconds at which the instance was created."""
        ...

    @property
    def status(self) -> ReplicationTaskStatus: ...

    @property
    def commit_requested(self) -> bool:
        """Whether the task requests a commit before the next regular one."""
        ...

    @property
    def leaving(self) -> bool:
        """Whether the release of the unit has begun, so that the task cannot be resumed."""
        ...

    def superseded(self, partitions: Set[TopicPartition]) -> bool:
        """Return whether a user has possibly removed the cause of the task's failure.

        That is the case if the flow, the partitions or a cluster changed since the failure.

        Any thread may call it.
        """
        ...

    def change(self, partitions: frozenset[TopicPartition]) -> None:
        """Copy exactly these partitions from now on. Remaining partitions are not interrupted."""
        ...

    def activate(self) -> None:
        """Claim the unit and restore its partitions. A standby becomes active."""
        ...

    def advance(self) -> bool:
        """Process background results, and start due steps; return whether the task runs."""
        ...

    def process(self) -> int:
        """Copy available records; return the number of records moved."""
        ...

    def commit(self) -> bool:
        """Store progress; return whether there was any to store."""
        ...

    def punctuate(self, now_s: float) -> bool:
        """Run periodic work that is due; return whether any was.

        ``now_s`` is in monotonic seconds.
        """
        ...

    def pause(self, paused: bool) -> None:
        """Pause or resume the task, as the user requests.

        Records in flight are still acknowledged.
        """
        ...

    def suspend(self) -> None:
        """Stop reading. The ownership stays."""
        ...

    def resume(self) -> None:
        """Resume after a suspension, without restoring."""
        ...

    def close(self) -> bool:
        """Store the acknowledged progress, close the clients and release the unit.

        Call it again until it returns True.
        """
        ...

    def fail(self, error: HeadraceError) -> None:
        """Stop permanently, and keep the error."""
        ...


T = TypeVar("T")

log = get_logger(__name__)

Shares = Mapping[TaskId, frozenset[TopicPartition]]
Create = Callable[[TaskId, frozenset[TopicPartition], Role], Task]


class TaskManager:
    """Active and standby tasks, from their creation until they are closed."""

    def __init__(self, create: Create) -> None:
        """Create a manager without tasks; ``create`` returns a new task."""
        self._create = create
        self._tasks: Mapping[TaskId, Task] = MappingProxyType({})
        self._closing: set[TaskId] = set()
        self._restarting: set[TaskId] = set()
        """Closing tasks that are replaced by a new instance."""

    @property
    def tasks(self) -> Mapping[TaskId, Task]:
        """All current tasks.

        The mapping is replaced and never modified, so any thread may read it.
        """
        return self._tasks

    def __str__(self) -> str:
        tasks = self._tasks
        roles = [task.role for task in tasks.values()]
        lines = [f"{roles.count(Role.ACTIVE)} active, {roles.count(Role.STANDBY)} standby"]
        for id, task in sorted(tasks.items()):
            held = ", ".join(map(str, sorted(task.partitions))) or "no partitions"
            lines.append(f"  {id.name}: {task.role} {task.phase}, {held}")
        return "\n".join(lines)

    # Assignment

    def assign(self, active: Shares, standby: Shares) -> None:
        """Run the ``active`` tasks, and keep the ``standby`` tasks ready.

        All other tasks are suspended. ``update_restoring`` closes them once their progress is
        stored. A suspended task that is assigned again is resumed.
        """
        for id, task in self._tasks.items():
            wanted = id in active or (id in standby and task.role is Role.STANDBY)
            if not wanted:
                self._revoke(id, task)
        for id, partitions in sorted(active.items()):
            self._begin(id, partitions, Role.ACTIVE)
        for id, partitions in sorted(standby.items()):
            if id not in active:
                self._begin(id, partitions, Role.STANDBY)

    def pause(self, ids: Set[TaskId]) -> None:
        """Pause exactly these active tasks, and resume the others. Progress is kept."""
        for id, task in self._tasks.items():
            if task.role is Role.ACTIVE and id not in self._closing:
                self._guard(task, partial(task.pause, id in ids))

    def restart(self, id: TaskId) -> None:
        """Close a task. The first ``assign`` after that creates a new instance."""
        if (task := self._tasks.get(id)) is not None:
            self._restarting.add(id)
            self._revoke(id, task)

    # Steps of tasks

    def update_restoring(self) -> bool:
        """Advance tasks that wait for a step; return whether every active task runs.

        Each task continues by itself: one that is not restored yet does not delay others.
        """
        for id in list(self._closing):
            task = self._tasks[id]
            if self._guard(task, task.close):
                self._closing.discard(id)
                self._restarting.discard(id)
                self._keep({other: task for other, task in self._tasks.items() if other != id})
        running = [
            bool(self._guard(task, task.advance)) or task.role is Role.STANDBY
            for id, task in self._tasks.items()
            if id not in self._closing
        ]
        return all(running)

    def process(self) -> int:
        """Let every running task copy available records; return the number of records moved."""
        return sum(self._guard(task, task.process) or 0 for task in self._in(TaskPhase.RUNNING))

    def commit_all(self) -> int:
        """Store the progress of all tasks; return the number of tasks that had any."""
        return sum(bool(self._guard(task, task.commit)) for task in self._in(*_HOLDING))

    def commit_requested(self) -> int:
        """Store the progress of tasks that request it; return the number of tasks that had any."""
        asking = [task for task in self._in(*_HOLDING) if task.commit_requested]
        return sum(bool(self._guard(task, task.commit)) for task in asking)

    def punctuate(self, now_s: float) -> int:
        """Let tasks run periodic work that is due; return the number of tasks that did."""
        tasks = self._in(*_HOLDING, TaskPhase.FAILED)
        return sum(bool(self._guard(task, partial(task.punctuate, now_s))) for task in tasks)

    def shutdown(self) -> None:
        """Begin to close all tasks. Call ``update_restoring`` until the manager is ``empty``."""
        self.assign({}, {})

    @property
    def empty(self) -> bool:
        """Whether there is no task."""
        return not self._tasks

    def _keep(self, tasks: Mapping[TaskId, Task]) -> None:
        self._tasks = MappingProxyType(tasks)

    def _revoke(self, id: TaskId, task: Task) -> None:
        if id not in self._closing:
            if task.phase in (TaskPhase.RUNNING, TaskPhase.PAUSED, TaskPhase.RESTORING):
                self._guard(task, task.suspend)
            self._closing.add(id)

    def _begin(self, id: TaskId, partitions: frozenset[TopicPartition], role: Role) -> None:
        task = self._tasks.get(id)
        if id in self._restarting or (
            task is not None and id in self._closing and (role is Role.STANDBY or task.leaving)
        ):
            return  # it must be closed first
        if task is None:
            task = self._create(id, partitions, role)
            self._keep({**self._tasks, id: task})
            if role is Role.ACTIVE:
                self._guard(task, task.activate)
            return
        if id in self._closing:
            self._closing.discard(id)
            if task.phase is TaskPhase.SUSPENDED:
                self._guard(task, task.resume)
        if role is Role.ACTIVE and task.role is Role.STANDBY:
            self._guard(task, task.activate)
        if task.partitions != partitions and task.phase is not TaskPhase.FAILED:
            self._guard(task, partial(task.change, partitions))

    def _guard(self, task: Task, step: Callable[[], T]) -> T | None:
        """Run a step of a task. An error fails only that task, and the result is then None."""
        try:
            return step()
        except HeadraceError as error:
            task.fail(error)
        except Exception as error:
            log.exception("ended by an error", task=task.id.name)
            task.fail(from_exception(error))
        return None

    def _in(self, *phases: TaskPhase) -> list[Task]:
        return [task for task in self._tasks.values() if task.phase in phases]


_HOLDING = (TaskPhase.RUNNING, TaskPhase.PAUSED, TaskPhase.SUSPENDED)


_COMMIT_INTERVAL_S = 1.0
"""Interval in seconds at which progress is stored. If the target cannot fence earlier owners,
records of this time are copied again after a kill -9."""
_TURN_TIMEOUT_S = 60.0
"""Time in seconds after which an iteration counts as hanging. An iteration waits for brokers only
in ``settle`` and ``close``, for seconds."""
_SHORTEST_REST_S, _MAX_REST_S = 0.001, 0.02
"""Minimum and maximum wait, in seconds, of an idle loop. The wait doubles with each idle iteration.
The maximum adds to the latency of a record."""


class TaskLoop:
    """Thread of a TaskManager. Any thread may call it.

    Each call takes effect in the loop's thread, in the order of the calls.
    """

    def __init__(
        self,
        manager: TaskManager,
        name: str,
        beat: Callable[[], None],
        turn_timeout_s: float = _TURN_TIMEOUT_S,
    ) -> None:
        """Start the thread.

        ``beat`` is called in every iteration, to detect stalls. An iteration that takes longer than
        ``turn_timeout_s`` counts as hanging.
        """
        self._manager = manager
        self._beat, self._turn_timeout_s = beat, turn_timeout_s
        self._orders: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._turn_began_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the thread runs and its current iteration is not hanging."""
        turn_s = time.monotonic() - self._turn_began_at
        return self._thread.is_alive() and turn_s < self._turn_timeout_s

    @property
    def tasks(self) -> Mapping[TaskId, Task]:
        return self._manager.tasks

    def __str__(self) -> str:
        return str(self._manager)

    def assign(self, active: Shares, standby: Shares) -> None:
        self._order(lambda: self._manager.assign(active, standby))

    def pause(self, ids: Set[TaskId]) -> None:
        self._order(lambda: self._manager.pause(ids))

    def restart(self, id: TaskId) -> None:
        self._order(lambda: self._manager.restart(id))

    def stop(self, timeout_s: float) -> bool:
        """Close all tasks and end the thread; return whether that was done in time."""
        self._order(self._manager.shutdown)
        self._stopping.set()
        self._wake.set()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _order(self, order: Callable[[], None]) -> None:
        self._orders.put(order)
        self._wake.set()

    def _run(self) -> None:
        try:
            self._run_until_empty()
        except Exception:
            # Without the loop, tasks would look alive. The process ends, so that the herder detects
            # the loss.
            log.exception("internal error, the driver ends: please report it")
            os._exit(1)

    def _run_until_empty(self) -> None:
        rest_s = _SHORTEST_REST_S
        next_commit = time.monotonic()
        while not (self._stopping.is_set() and self._orders.empty() and self._manager.empty):
            self._turn_began_at = time.monotonic()
            self._beat()
            while not self._orders.empty():
                self._orders.get()()
            self._manager.update_restoring()
            moved = self._manager.process()
            now = time.monotonic()
            if now >= next_commit:
                next_commit = now + _COMMIT_INTERVAL_S
                self._manager.commit_all()
            else:
                self._manager.commit_requested()
            self._manager.punctuate(now)
            rest_s = _SHORTEST_REST_S if moved else min(2 * rest_s, _MAX_REST_S)
            if not moved:
                self._wake.wait(rest_s)
                self._wake.clear()
