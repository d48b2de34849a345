"""TaskManager of one flow on one driver (Kafka Streams), and its thread.

One thread, the TaskLoop's, calls it and every method of its tasks; any other may read ``tasks``,
``str()`` and the tasks' properties. Tasks come and go by ``assign``; the loop repeats the rest.
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
    """Role of a task. A standby's state stays Restoring until it takes over."""

    ACTIVE = "Active"
    STANDBY = "Standby"


class Task(Protocol):
    """No call waits for a broker: what takes time runs in a pool; ``advance`` takes its outcome.

    Each may raise an error of ours: the task then fails, and no other. Properties and attributes
    may be read from any thread; every method is called by the loop's thread only.
    """

    id: TaskId
    role: Role
    ownership: Ownership

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """Partitions to copy."""
        ...

    @property
    def phase(self) -> TaskPhase:
        """Where in its life it is."""
        ...

    @property
    def started_at(self) -> float:
        """Monotonic seconds."""
        ...

    @property
    def status(self) -> ReplicationTaskStatus:
        """Status to report."""
        ...

    @property
    def commit_requested(self) -> bool:
        """Whether the task requests a commit before the next regular one."""
        ...

    @property
    def leaving(self) -> bool:
        """Whether it releases the unit already: it cannot come back from that."""
        ...

    def superseded(self, partitions: Set[TopicPartition]) -> bool:
        """Return whether a user has changed the flow or partitions of a failed task since.

        Any thread may call it.
        """
        ...

    def change(self, partitions: frozenset[TopicPartition]) -> None:
        """Copy these from now on; those that stay are not touched."""
        ...

    def activate(self) -> None:
        """Claim the unit and restore; a standby takes over."""
        ...

    def advance(self) -> bool:
        """Take background results and start missing steps; return whether the task runs."""
        ...

    def process(self) -> int:
        """Move available records. Return the number of records moved."""
        ...

    def commit(self) -> bool:
        """Store progress. Return True if there was any to store."""
        ...

    def punctuate(self, now_s: float) -> bool:
        """Run periodic work that is due. Return True if any was.

        ``now_s`` is in monotonic seconds.
        """
        ...

    def pause(self, paused: bool) -> None:
        """Pause or resume the task, as the user requests."""
        ...

    def suspend(self) -> None:
        """Stop reading; the ownership stays."""
        ...

    def resume(self) -> None:
        """Resume as before the suspension, without restoring."""
        ...

    def close(self) -> bool:
        """Store the acknowledged progress, free resources and release the unit.

        Returns false while that is not done yet: call again.
        """
        ...

    def fail(self, error: HeadraceError) -> None:
        """Stop permanently, and keep the reason."""
        ...


T = TypeVar("T")

log = get_logger(__name__)

Shares = Mapping[TaskId, frozenset[TopicPartition]]
Create = Callable[[TaskId, frozenset[TopicPartition], Role], Task]


class TaskManager:
    """Active and standby tasks, from their creation to their close."""

    def __init__(self, create: Create) -> None:
        """``create`` makes a task."""
        self._create = create
        self._tasks: Mapping[TaskId, Task] = MappingProxyType({})
        self._closing: set[TaskId] = set()
        self._restarting: set[TaskId] = set()
        """Closing tasks that are replaced by a new instance."""

    @property
    def tasks(self) -> Mapping[TaskId, Task]:
        """All tasks that there are now. Never changed, but replaced: from any thread."""
        return self._tasks

    def __str__(self) -> str:
        tasks = self._tasks
        roles = [task.role for task in tasks.values()]
        lines = [f"{roles.count(Role.ACTIVE)} active, {roles.count(Role.STANDBY)} standby"]
        for id, task in sorted(tasks.items()):
            held = ", ".join(map(str, sorted(task.partitions))) or "no partitions"
            lines.append(f"  {id.name}: {task.role} {task.phase}, {held}")
        return "\n".join(lines)

    # Assignment.

    def assign(self, active: Shares, standby: Shares) -> None:
        """Run these tasks, and stand by for those.

        A task that is not named any more is suspended, and closed by ``update_restoring`` once its
        progress is stored; one that comes back before that is resumed.
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
        """Keep these, and only these, from reading; progress is kept."""
        for id, task in self._tasks.items():
            if task.role is Role.ACTIVE and id not in self._closing:
                self._guard(task, partial(task.pause, id in ids))

    def restart(self, id: TaskId) -> None:
        """Close a task; the first ``assign`` after it is closed makes a new instance."""
        if (task := self._tasks.get(id)) is not None:
            self._restarting.add(id)
            self._revoke(id, task)

    # Progress of tasks.

    def update_restoring(self) -> bool:
        """Advance tasks that wait for something; return True when every active task runs.

        Each resumes by itself: one that is not restored yet does not delay others.
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
        """Let every running task move available records. Return the number of records."""
        return sum(self._guard(task, task.process) or 0 for task in self._in(TaskPhase.RUNNING))

    def commit_all(self) -> int:
        """Store the progress of all tasks. Return the number of tasks that had any."""
        return sum(bool(self._guard(task, task.commit)) for task in self._in(*_HOLDING))

    def commit_requested(self) -> int:
        """Store the progress of the tasks that request a commit."""
        asking = [task for task in self._in(*_HOLDING) if task.commit_requested]
        return sum(bool(self._guard(task, task.commit)) for task in asking)

    def punctuate(self, now_s: float) -> int:
        """Let tasks run periodic work that is due. Return the number of tasks that did."""
        tasks = self._in(*_HOLDING, TaskPhase.FAILED)
        return sum(bool(self._guard(task, partial(task.punctuate, now_s))) for task in tasks)

    def shutdown(self) -> None:
        """Begin to close everything; ``update_restoring`` continues, ``empty`` tells the end."""
        self.assign({}, {})

    @property
    def empty(self) -> bool:
        """Whether no task is left."""
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
            return  # it has to be closed first
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
        """One task's error is that task's only."""
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
"""At most this much work is repeated after a kill -9 (Connect: 60 s)."""
_TURN_TIMEOUT_S = 60.0
"""A turn waits for brokers in ``settle`` and ``close`` only, which takes seconds: a turn that
lasts longer hangs."""
_SHORTEST_REST_S, _LONGEST_REST_S = 0.001, 0.02
"""Without work the loop waits, twice as long each time: at most this is added to a latency."""


class TaskLoop:
    """May be called from any thread: each call takes effect on the loop's own, in order."""

    def __init__(self, manager: TaskManager, name: str, beat: Callable[[], None]) -> None:
        """``beat`` is called in every iteration: it notices when the loop stalled."""
        self._manager = manager
        self._beat = beat
        self._orders: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._turn_began_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether its turns end."""
        return self._thread.is_alive() and time.monotonic() - self._turn_began_at < _TURN_TIMEOUT_S

    @property
    def tasks(self) -> Mapping[TaskId, Task]:
        """Tasks of the manager."""
        return self._manager.tasks

    def __str__(self) -> str:
        return str(self._manager)

    def assign(self, active: Shares, standby: Shares) -> None:
        """Assign tasks in the loop's thread."""
        self._order(lambda: self._manager.assign(active, standby))

    def pause(self, ids: Set[TaskId]) -> None:
        """Pause tasks in the loop's thread."""
        self._order(lambda: self._manager.pause(ids))

    def restart(self, id: TaskId) -> None:
        """Restart a task in the loop's thread."""
        self._order(lambda: self._manager.restart(id))

    def stop(self, timeout_s: float) -> bool:
        """Close all tasks and end. Return True if all were closed in time."""
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
            # Tasks without a loop would look alive: the herder must see that this driver is lost.
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
            rest_s = _SHORTEST_REST_S if moved else min(2 * rest_s, _LONGEST_REST_S)
            if not moved:
                self._wake.wait(rest_s)
                self._wake.clear()
