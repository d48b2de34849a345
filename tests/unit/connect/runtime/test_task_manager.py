"""Order and single thread of the TaskManager, with fake tasks.

Real tasks run in ``test_source_task`` and in the integration tests.
"""

import threading
import time
from collections.abc import Callable, Iterator, Set

import pytest

from headrace.api import ReplicationTaskStatus, TaskPhase
from headrace.api.partitions import TopicPartition
from headrace.assign import TaskId
from headrace.connect import Role, TaskManager
from headrace.connect.runtime.lifecycle import check_transition
from headrace.connect.runtime.ownership import Ownership
from headrace.connect.runtime.task_manager import TaskLoop
from headrace.errors import Fatal

JOURNAL: list[str] = []


class FakeTask:
    """Fake task that acts at once or when a test triggers it."""

    def __init__(self, id: TaskId, partitions: frozenset[TopicPartition], role: Role) -> None:
        self.id, self.partitions, self.role = id, partitions, role
        self.phase = TaskPhase.CREATED
        self.ownership: Ownership
        self.started_at = 0.0
        self.status = ReplicationTaskStatus()
        self.restored = False
        self.settled = True
        self.records = 3
        self.commit_requested = False
        self.leaving = False
        self.breaks: str | None = None
        JOURNAL.append(f"create {role} {id.index}")

    def _enter(self, phase: TaskPhase) -> None:
        check_transition(self.phase, phase)
        self.phase = phase

    def activate(self) -> None:
        self.role = Role.ACTIVE
        self._enter(TaskPhase.RESTORING)

    def superseded(self, partitions: Set[TopicPartition]) -> bool:
        return False

    def change(self, partitions: frozenset[TopicPartition]) -> None:
        JOURNAL.append(f"change {self.id.index}")
        self.partitions = partitions

    def advance(self) -> bool:
        if self.phase is TaskPhase.RESTORING and self.restored and self.role is Role.ACTIVE:
            self._enter(TaskPhase.RUNNING)
        return self.phase is TaskPhase.RUNNING

    def process(self) -> int:
        if self.breaks == "process":
            raise Fatal("broken")
        return self.records

    def commit(self) -> bool:
        return True

    def punctuate(self, now_s: float) -> bool:
        return now_s > 10

    def pause(self, paused: bool) -> None:
        if paused != (self.phase is TaskPhase.PAUSED):
            self._enter(TaskPhase.PAUSED if paused else TaskPhase.RUNNING)

    def suspend(self) -> None:
        JOURNAL.append(f"suspend {self.id.index}")
        self._enter(TaskPhase.SUSPENDED)

    def resume(self) -> None:
        JOURNAL.append(f"resume {self.id.index}")
        self._enter(TaskPhase.RUNNING)

    def close(self) -> bool:
        if not self.settled:
            return False
        JOURNAL.append(f"close {self.id.index}")
        self.phase = TaskPhase.CLOSED
        return True

    def fail(self, error: Exception) -> None:
        JOURNAL.append(f"fail {self.id.index}: {error}")
        self.phase = TaskPhase.FAILED


def share(*indexes: int) -> dict[TaskId, frozenset[TopicPartition]]:
    return {
        TaskId("orders", "SourceTask", n): frozenset({TopicPartition("orders", n)}) for n in indexes
    }


@pytest.fixture
def manager() -> Iterator[TaskManager]:
    JOURNAL.clear()
    yield TaskManager(FakeTask)
    JOURNAL.clear()


def fake(manager: TaskManager, index: int) -> FakeTask:
    task = manager.tasks[TaskId("orders", "SourceTask", index)]
    assert isinstance(task, FakeTask)
    return task


def running(manager: TaskManager, *indexes: int) -> None:
    manager.assign(share(*indexes), {})
    for index in indexes:
        fake(manager, index).restored = True
    assert manager.update_restoring()


def test_a_task_is_created_restored_and_runs(manager: TaskManager) -> None:
    manager.assign(share(0, 1), share(2))
    assert JOURNAL == ["create Active 0", "create Active 1", "create Standby 2"]
    fake(manager, 0).restored = True
    assert not manager.update_restoring()  # 1 is not restored yet ...
    assert fake(manager, 0).phase is TaskPhase.RUNNING  # ... and does not delay the others
    assert manager.process() == 3
    fake(manager, 1).restored = True
    assert manager.update_restoring()


def test_what_is_kept_is_not_touched(manager: TaskManager) -> None:
    running(manager, 0, 1)
    JOURNAL.clear()
    manager.assign(share(0, 1), {})
    assert manager.update_restoring()
    assert JOURNAL == []


def test_a_revoked_task_is_suspended_and_closed_once_its_progress_is_stored(
    manager: TaskManager,
) -> None:
    running(manager, 0, 1)
    JOURNAL.clear()
    fake(manager, 1).settled = False
    manager.assign(share(0), {})
    manager.update_restoring()
    assert JOURNAL == ["suspend 1"]
    assert manager.process() == 3  # the other one continues
    fake(manager, 1).settled = True
    manager.update_restoring()
    assert JOURNAL == ["suspend 1", "close 1"]
    assert manager.tasks.keys() == share(0).keys()


def test_a_suspended_task_that_comes_back_is_resumed_without_restore(manager: TaskManager) -> None:
    running(manager, 0)
    JOURNAL.clear()
    fake(manager, 0).settled = False
    manager.assign({}, {})
    manager.update_restoring()
    manager.assign(share(0), {})
    assert JOURNAL == ["suspend 0", "resume 0"]
    assert manager.update_restoring()


def test_a_task_that_is_being_released_is_closed_before_it_comes_back(manager: TaskManager) -> None:
    running(manager, 0)
    manager.assign({}, {})
    task = fake(manager, 0)
    task.settled, task.leaving = False, True
    manager.assign(share(0), {})
    assert task.phase is TaskPhase.SUSPENDED
    task.settled = True
    manager.update_restoring()
    manager.assign(share(0), {})
    assert fake(manager, 0) is not task


def test_revoked_tasks_go_before_new_ones_come_and_standbys_come_last(manager: TaskManager) -> None:
    running(manager, 0)
    JOURNAL.clear()
    manager.assign(share(1), share(2))
    assert JOURNAL == ["suspend 0", "create Active 1", "create Standby 2"]


def test_a_standby_takes_over_as_it_is(manager: TaskManager) -> None:
    manager.assign({}, share(0))
    standby = fake(manager, 0)
    assert standby.role is Role.STANDBY
    manager.assign(share(0), {})
    assert fake(manager, 0) is standby
    assert fake(manager, 0).role is Role.ACTIVE


def test_an_active_task_closes_before_it_stands_by(manager: TaskManager) -> None:
    running(manager, 0)
    JOURNAL.clear()
    manager.assign({}, share(0))
    assert JOURNAL == ["suspend 0"]
    manager.update_restoring()
    manager.assign({}, share(0))
    assert JOURNAL == ["suspend 0", "close 0", "create Standby 0"]


def test_a_changed_share_changes_the_task(manager: TaskManager) -> None:
    running(manager, 0)
    more = {id: at | {TopicPartition("orders", 9)} for id, at in share(0).items()}
    manager.assign(more, {})
    assert JOURNAL[-1] == "change 0"
    assert TopicPartition("orders", 9) in fake(manager, 0).partitions


def test_one_task_s_error_is_that_task_s_only(manager: TaskManager) -> None:
    running(manager, 0, 1)
    fake(manager, 0).breaks = "process"
    assert manager.process() == 3
    assert fake(manager, 0).phase is TaskPhase.FAILED
    assert manager.process() == 3
    assert JOURNAL[-1] == "fail 0: broken"
    assert not manager.update_restoring()


def test_a_restarted_task_is_created_again_by_the_next_assignment(manager: TaskManager) -> None:
    running(manager, 0)
    first = fake(manager, 0)
    first.settled = False
    manager.restart(first.id)
    manager.assign(share(0), {})
    manager.update_restoring()
    assert fake(manager, 0) is first  # its progress is not stored yet
    first.settled = True
    manager.update_restoring()
    manager.assign(share(0), {})
    assert fake(manager, 0) is not first
    assert JOURNAL[-2:] == ["close 0", "create Active 0"]


def test_counts_are_returned(manager: TaskManager) -> None:
    running(manager, 0, 1)
    fake(manager, 1).commit_requested = True
    assert manager.process() == 6
    assert manager.commit_all() == 2
    assert manager.commit_requested() == 1
    assert (manager.punctuate(5), manager.punctuate(11)) == (0, 2)


def test_paused_tasks_move_nothing(manager: TaskManager) -> None:
    running(manager, 0, 1)
    manager.pause(share(0).keys())
    assert manager.process() == 3


def test_a_shutdown_waits_until_progress_is_stored(manager: TaskManager) -> None:
    running(manager, 0)
    fake(manager, 0).settled = False
    manager.shutdown()
    manager.update_restoring()
    assert not manager.empty
    fake(manager, 0).settled = True
    manager.update_restoring()
    assert manager.empty
    assert JOURNAL[-1] == "close 0"


def test_it_describes_itself(manager: TaskManager) -> None:
    running(manager, 0)
    manager.assign(share(0), share(1))
    assert str(manager).splitlines() == [
        "1 active, 1 standby",
        "  orders-source-task-0: Active Running, orders-0",
        "  orders-source-task-1: Standby Created, orders-1",
    ]


def test_what_there_is_can_be_read_while_it_changes(manager: TaskManager) -> None:
    running(manager, 0, 1)
    there = manager.tasks
    seen = []
    for id in there:  # another thread reads, while the loop closes one task and creates another
        manager.assign(share(1, 2), {})
        manager.update_restoring()
        seen.append(id)
    assert seen == [*share(0, 1)]
    assert manager.tasks.keys() == share(1, 2).keys()
    with pytest.raises(TypeError):
        manager.tasks[seen[0]] = there[seen[0]]  # type: ignore[index]


class WatchedTask(FakeTask):
    """Records which threads create it and call its methods."""

    threads: frozenset[str] = frozenset()

    def __getattribute__(self, name: str) -> object:
        value = super().__getattribute__(name)
        if callable(value) and not name.startswith("__"):
            WatchedTask.threads |= {threading.current_thread().name}
        return value


def test_whoever_asks_only_the_loop_s_thread_calls_a_task() -> None:
    WatchedTask.threads = frozenset()
    begun, closed = threading.Event(), threading.Event()

    class Task(WatchedTask):
        def activate(self) -> None:
            super().activate()
            begun.set()

        def close(self) -> bool:
            closed.set()
            return super().close()

    loop = TaskLoop(TaskManager(Task), "the loop", beat=lambda: None)
    loop.assign(share(0), {})
    assert begun.wait(60)
    loop.pause(frozenset())
    loop.restart(next(iter(share(0))))
    assert closed.wait(60)
    loop.assign(share(1), {})
    assert loop.stop(60)
    assert not loop.tasks
    assert WatchedTask.threads == {"the loop"}


def test_an_idle_loop_rests_between_its_turns_after_an_order() -> None:
    turns, began = threading.Semaphore(0), time.monotonic()
    loop = TaskLoop(TaskManager(FakeTask), "the loop", beat=turns.release)
    loop.pause(frozenset())
    for _ in range(25):
        assert turns.acquire(timeout=60)
    # 2, 4, 8, 16 and 20 times 20 ms, of which the order may shorten one.
    assert time.monotonic() - began > 0.4
    assert loop.stop(60)


def test_a_loop_whose_turn_does_not_end_is_not_alive() -> None:
    hangs, turns = threading.Event(), threading.Semaphore(0)
    turn_may_end = threading.Event()

    def turn() -> None:
        turns.release()
        if hangs.is_set():
            turn_may_end.wait(60)

    loop = TaskLoop(TaskManager(FakeTask), "the loop", beat=turn, turn_timeout_s=0.5)
    for _ in range(3):
        assert turns.acquire(timeout=60)
    wait_until(lambda: loop.alive)
    hangs.set()
    wait_until(lambda: not loop.alive)
    turn_may_end.set()
    wait_until(lambda: loop.alive)
    assert loop.stop(60)
    assert not loop.alive


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
