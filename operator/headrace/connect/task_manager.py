"""The TaskManager: all source tasks of one flow on one driver (Kafka Streams' ``TaskManager``).

One thread calls it. Tasks come and go by ``assign``; everything else is called again and again.
"""

from collections.abc import Callable, Iterator, Mapping, Set
from functools import partial
from typing import TypeVar

from headrace.api import TaskPhase
from headrace.api.partitions import TopicPartition
from headrace.assign import TaskId
from headrace.connect.task import Role, Task
from headrace.errors import HeadraceError
from headrace.logs import get_logger

T = TypeVar("T")

log = get_logger(__name__)

Shares = Mapping[TaskId, frozenset[TopicPartition]]
Create = Callable[[TaskId, frozenset[TopicPartition], Role], Task]


class TaskManager:
    """Active and standby tasks, from their creation to their close."""

    def __init__(self, create: Create, purge: Callable[[], int] = lambda: 0) -> None:
        """``create`` makes a task; ``purge`` drops progress of topics that are gone."""
        self._create = create
        self._purge = purge
        self._tasks: dict[TaskId, Task] = {}
        self._closing: set[TaskId] = set()
        self._restarting: set[TaskId] = set()
        """Those of them that do not come back as they are."""
        self._previous: frozenset[TaskId] = frozenset()

    # What there is.

    @property
    def active_ids(self) -> frozenset[TaskId]:
        """Tasks that this driver is to run."""
        return self._ids(Role.ACTIVE)

    @property
    def standby_ids(self) -> frozenset[TaskId]:
        """Tasks that it keeps restored for others."""
        return self._ids(Role.STANDBY)

    @property
    def previous_ids(self) -> frozenset[TaskId]:
        """Active tasks before the last assignment."""
        return self._previous

    @property
    def cached_ids(self) -> frozenset[TaskId]:
        """Tasks that could run here at once: all that are restored or being restored."""
        return frozenset(id for id, task in self._tasks.items() if task.phase not in _ENDED)

    def active_task(self, partition: TopicPartition) -> Task | None:
        """The active task that copies a partition."""
        return self._of(partition, Role.ACTIVE)

    def standby_task(self, partition: TopicPartition) -> Task | None:
        """The standby task that would."""
        return self._of(partition, Role.STANDBY)

    def task(self, id: TaskId) -> Task | None:
        """A task by its id."""
        return self._tasks.get(id)

    def __iter__(self) -> Iterator[Task]:
        return iter(list(self._tasks.values()))

    def __str__(self) -> str:
        lines = [f"{len(self.active_ids)} active, {len(self.standby_ids)} standby"]
        for id, task in sorted(self._tasks.items()):
            held = ", ".join(map(str, sorted(task.partitions))) or "no partitions"
            lines.append(f"  {id.name}: {task.role} {task.phase}, {held}")
        return "\n".join(lines)

    # What is to be.

    def assign(
        self, active: Shares, standby: Shares, owned: Set[TopicPartition] | None = None
    ) -> None:
        """Run these tasks, and stand by for those.

        A task that is not named any more is suspended, and closed by ``update_restoring`` once its
        progress is stored; one that comes back before that is resumed. A task with partitions that
        are not in ``owned`` (those that are there; ``None``: all) is skipped with a warning.
        """
        active, standby = self._those_there(active, owned), self._those_there(standby, owned)
        self._previous = self.active_ids
        self._let_go(active, standby)
        for id, partitions in sorted(active.items()):
            self._begin(id, partitions, Role.ACTIVE)
        for id, partitions in sorted(standby.items()):
            if id not in active:
                self._begin(id, partitions, Role.STANDBY)

    def pause(self, ids: Set[TaskId]) -> None:
        """Keep these, and only these, from reading; progress is kept."""
        for id in self.active_ids:
            task = self._tasks[id]
            self._guard(task, partial(task.pause, id in ids))

    def restart(self, id: TaskId) -> None:
        """Close a task; the first ``assign`` after it is closed makes it anew."""
        if (task := self._tasks.get(id)) is not None:
            self._restarting.add(id)
            self._retire(id, task)

    # What goes on.

    def update_restoring(self) -> bool:
        """Bring tasks on that wait for something; true when every active task runs.

        Each resumes by itself: one that is not restored yet holds up no other.
        """
        for id in list(self._closing):
            task = self._tasks[id]
            if self._guard(task, task.close):
                self._closing.discard(id)
                self._restarting.discard(id)
                del self._tasks[id]
        running = [
            bool(self._guard(task, task.advance)) or task.role is Role.STANDBY
            for id, task in list(self._tasks.items())
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
        return sum(
            bool(self._guard(task, partial(task.punctuate, now_s))) for task in self._in(*_HOLDING)
        )

    def purge(self) -> int:
        """Drop the progress of topics that are gone from the source; the number of records."""
        return self._purge()

    def shutdown(self) -> None:
        """Begin to close everything; ``update_restoring`` goes on with it, ``empty`` says when."""
        self.assign({}, {})

    @property
    def empty(self) -> bool:
        """Whether nothing is left."""
        return not self._tasks

    # How.

    def _let_go(self, active: Shares, standby: Shares) -> None:
        for id, task in self._tasks.items():
            wanted = id in active or (id in standby and task.role is Role.STANDBY)
            if not wanted:
                self._retire(id, task)

    def _retire(self, id: TaskId, task: Task) -> None:
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
            task = self._tasks[id] = self._create(id, partitions, role)
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

    def _those_there(self, shares: Shares, owned: Set[TopicPartition] | None) -> Shares:
        if owned is None:
            return shares
        there = {}
        for id, partitions in shares.items():
            if partitions <= owned:
                there[id] = partitions
            else:
                log.warning(
                    "task skipped: not all of its partitions are there",
                    task=id.name,
                    owned=sorted(map(str, partitions & owned)),
                    assigned=sorted(map(str, partitions)),
                )
        return there

    def _guard(self, task: Task, step: Callable[[], T]) -> T | None:
        """One task's error is that task's only."""
        try:
            return step()
        except HeadraceError as error:
            task.fail(error)
        except Exception as error:
            log.exception("internal error", task=task.id.name)
            task.fail(HeadraceError(f"internal error, please report it: {error!r}"))
        return None

    def _in(self, *phases: TaskPhase) -> list[Task]:
        return [task for task in self._tasks.values() if task.phase in phases]

    def _ids(self, role: Role) -> frozenset[TaskId]:
        return frozenset(
            id for id, task in self._tasks.items() if task.role is role and id not in self._closing
        )

    def _of(self, partition: TopicPartition, role: Role) -> Task | None:
        found = (
            task
            for id, task in self._tasks.items()
            if task.role is role and id not in self._closing and partition in task.partitions
        )
        return next(found, None)


_ENDED = (TaskPhase.FAILED, TaskPhase.CLOSED)
_HOLDING = (TaskPhase.RUNNING, TaskPhase.PAUSED, TaskPhase.SUSPENDED)
