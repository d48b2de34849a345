"""The TaskManager: all source tasks of one flow on one driver (Kafka Streams' ``TaskManager``).

One thread, the TaskLoop's, calls it and every method of its tasks; any other may read ``tasks``,
``str()`` and the tasks' properties. Tasks come and go by ``assign``; the loop repeats the rest.
"""

from collections.abc import Callable, Mapping, Set
from functools import partial
from types import MappingProxyType
from typing import TypeVar

from headrace.api import TaskPhase, TopicPartition
from headrace.assign import TaskId
from headrace.connect.runtime.task import Role, Task
from headrace.errors import HeadraceError, from_exception
from headrace.logs import get_logger

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
        """Let every running task move what is there; the number of records."""
        return sum(self._guard(task, task.process) or 0 for task in self._in(TaskPhase.RUNNING))

    def commit_all(self) -> int:
        """Store the progress of all tasks; the number of those that had any."""
        return sum(bool(self._guard(task, task.commit)) for task in self._in(*_HOLDING))

    def commit_requested(self) -> int:
        """Store the progress of those that ask for it."""
        asking = [task for task in self._in(*_HOLDING) if task.commit_requested]
        return sum(bool(self._guard(task, task.commit)) for task in asking)

    def punctuate(self, now_s: float) -> int:
        """Let tasks do what is due by the clock; the number of those that did."""
        tasks = self._in(*_HOLDING, TaskPhase.FAILED)
        return sum(bool(self._guard(task, partial(task.punctuate, now_s))) for task in tasks)

    def shutdown(self) -> None:
        """Begin to close everything; ``update_restoring`` continues, ``empty`` tells the end."""
        self.assign({}, {})

    @property
    def empty(self) -> bool:
        """Whether nothing is left."""
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
