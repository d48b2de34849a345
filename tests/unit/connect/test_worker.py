"""Figures that a Worker reports about its units, without a request to a broker."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.fake_kafka import FakeClock

from headrace.api import (
    ReplicationFlow,
    ReplicationTask,
    ReplicationTaskStatus,
    TaskPhase,
    TaskType,
    Work,
)
from headrace.connect import DriverIdentity, EpochAltered, Worker
from headrace.connect.runtime.ownership import RELEASE_TIMEOUT_S, Ownership
from headrace.errors import Fatal, HeadraceError, Retriable
from headrace.standalone.task_store import TaskStore

FLOW = ReplicationFlow.model_validate(
    {
        "metadata": {"name": "orders"},
        "spec": {
            "source": {"alias": "east", "bootstrapServers": "127.0.0.1:1"},
            "target": {"alias": "west", "bootstrapServers": "127.0.0.1:2"},
            "topics": {"include": ["orders"]},
        },
    }
)
CONNECTOR, SECOND_CONNECTOR = "orders-heartbeat-connector-0", "orders-heartbeat-connector-1"
WORKER_THREAD = "worker-orders"


class Herder:
    """Herder with the rules of the store that publishes nothing."""

    def __init__(self) -> None:
        self.store = TaskStore()
        self.store.put("orders", TaskType.HEARTBEAT_CONNECTOR)
        self.rejections: list[HeadraceError] = []
        """Errors of the next attempts to publish tasks."""
        self.may_release: Callable[[], object] = lambda: None
        """Called before each release."""

    @property
    def assigned_to_me(self) -> ReplicationTask:
        (unit,) = self.all_assigned_to_me
        return unit

    @property
    def all_assigned_to_me(self) -> list[ReplicationTask]:
        assigned = {"driver_name": "me"}
        return [
            unit.model_copy(update={"spec": unit.spec.model_copy(update=assigned)})
            for unit in self.store
        ]

    def claim(self, task: ReplicationTask, status: ReplicationTaskStatus) -> ReplicationTask:
        return self.store.write_status(task, status)

    report = claim

    def release(self, task: ReplicationTask, status: ReplicationTaskStatus) -> ReplicationTask:
        self.may_release()
        return self.claim(task, status)

    def list_tasks(self, connector: ReplicationTask, type: TaskType) -> list[ReplicationTask]:
        return []

    def put_tasks(
        self,
        connector: ReplicationTask,
        type: TaskType,
        tasks: Mapping[int, Sequence[Work]],
        target_topics: Mapping[str, Sequence[str]],
        source_cluster_id: str = "",
    ) -> None:
        if self.rejections:
            raise self.rejections.pop()


@pytest.fixture
def herder() -> Herder:
    return Herder()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def worker(herder: Herder, clock: FakeClock) -> Iterator[Worker]:
    made = Worker(FLOW, herder, DriverIdentity("me", "1"), clock=clock)
    yield made
    made.stop(5)


def phases(worker: Worker) -> dict[str, TaskPhase | None]:
    return {unit.id.name: unit.status.phase for unit in worker.figures()}


def wait_for(
    worker: Worker,
    expected: dict[str, TaskPhase | None],
    step: Callable[[], object] = lambda: None,
) -> None:
    """Repeat a step until the units have these phases."""
    deadline = time.monotonic() + 60
    while phases(worker) != expected:
        assert time.monotonic() < deadline, phases(worker)
        step()
        time.sleep(0.01)


def test_what_was_lost_is_waited_for_from_then_on(
    worker: Worker, herder: Herder, clock: FakeClock
) -> None:
    worker.update([herder.assigned_to_me])
    wait_for(worker, {CONNECTOR: TaskPhase.RUNNING})
    clock.advance(2 * RELEASE_TIMEOUT_S)
    Ownership(herder.assigned_to_me, DriverIdentity("other", "1"), herder).claim(above=0)
    worker.update([herder.assigned_to_me])
    wait_for(worker, {})
    # A second unit that starts shows that the worker has decided about the first one again.
    herder.store.put("orders", TaskType.HEARTBEAT_CONNECTOR, index=1)
    worker.update(herder.all_assigned_to_me)
    wait_for(worker, {SECOND_CONNECTOR: TaskPhase.RUNNING})
    clock.advance(RELEASE_TIMEOUT_S)
    wait_for(worker, {CONNECTOR: TaskPhase.RUNNING, SECOND_CONNECTOR: TaskPhase.RUNNING})


def test_figures_are_those_of_the_units_that_run_here(worker: Worker, herder: Herder) -> None:
    assert worker.figures() == []
    worker.update([herder.assigned_to_me])
    wait_for(worker, {CONNECTOR: TaskPhase.RUNNING})
    (figures,) = worker.figures()
    assert (figures.copied, figures.beats, figures.restarts) == (None, {}, 0)
    herder.rejections.append(EpochAltered("somebody changed the spec of a task"))
    assert worker.restart(CONNECTOR)
    wait_for_restarts(worker, herder, in_status=1, total=1)
    # The restart by hand resets the count in the status. The metric continues to count.
    assert worker.restart(CONNECTOR)
    wait_for_restarts(worker, herder, in_status=0, total=1)
    worker.update([])
    wait_for(worker, {})


def wait_for_restarts(worker: Worker, herder: Herder, *, in_status: int, total: int) -> None:
    deadline = time.monotonic() + 60
    expected = [(TaskPhase.RUNNING, in_status, total)]
    while expected != (
        found := [
            (unit.status.phase, unit.status.restarts, unit.restarts) for unit in worker.figures()
        ]
    ):
        assert time.monotonic() < deadline, found
        worker.update([herder.assigned_to_me])  # a new instance needs the status after the release
        time.sleep(0.01)


class Occupied(Herder):
    """Rejects the tasks of connectors while another flow exists."""

    def __init__(self) -> None:
        super().__init__()
        self.other_flow = True
        self.attempts = 0

    def put_tasks(self, *_: object, **__: object) -> None:
        self.attempts += 1
        if self.other_flow:
            raise EpochAltered("somebody changed the spec of a task")


@pytest.fixture
def occupied() -> Iterator[tuple[Worker, Occupied]]:
    herder = Occupied()
    made = Worker(FLOW, herder, DriverIdentity("me", "1"))
    made.update([herder.assigned_to_me])
    wait_for(made, {CONNECTOR: TaskPhase.FAILED})
    # The first restart is immediate, the next one follows after two minutes.
    deadline = time.monotonic() + 60
    while herder.attempts < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    wait_for(made, {CONNECTOR: TaskPhase.FAILED})
    yield made, herder
    made.stop(5)


def test_failed_connector_recovers_without_its_back_off_once_the_cause_is_gone(
    occupied: tuple[Worker, Occupied],
) -> None:
    worker, herder = occupied
    herder.other_flow = False
    wait_for(worker, {CONNECTOR: TaskPhase.RUNNING})


def test_failed_connector_is_restarted_at_once_when_its_flow_changes(
    occupied: tuple[Worker, Occupied],
) -> None:
    worker, _ = occupied
    (figures,) = worker.figures()
    topics = {"topics": FLOW.spec.topics.model_copy(update={"include": ("payments",)})}
    worker.change_flow(FLOW.model_copy(update={"spec": FLOW.spec.model_copy(update=topics)}))
    deadline = time.monotonic() + 60
    # Between its end and its next start the unit has no figures.
    while all(unit.restarts == figures.restarts for unit in worker.figures()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_failed_connector_is_released_when_it_is_assigned_elsewhere(
    occupied: tuple[Worker, Occupied],
) -> None:
    worker, herder = occupied
    worker.update([])
    wait_for(worker, {})
    (unit,) = herder.store
    assert unit.status.driver_name == ""


def test_a_restart_does_not_wait_for_the_release_of_a_failed_unit(
    occupied: tuple[Worker, Occupied],
) -> None:
    """The event loop of a pod restarts units, and carries out their releases."""
    worker, herder = occupied
    answers = threading.Event()
    herder.may_release = lambda: answers.wait(60)
    assert worker.restart(CONNECTOR)
    assert phases(worker) == {CONNECTOR: TaskPhase.FAILED}
    answers.set()
    herder.other_flow = False
    wait_for(
        worker,
        {CONNECTOR: TaskPhase.RUNNING},
        lambda: worker.update([herder.assigned_to_me]),
    )


def test_a_failed_connector_is_restarted_though_it_waits_for_a_remedy(
    occupied: tuple[Worker, Occupied],
) -> None:
    worker, _ = occupied
    deadline = time.monotonic() + 60
    while [unit.restarts for unit in worker.figures()] != [1]:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_release_that_failed_is_repeated(
    worker: Worker, herder: Herder, clock: FakeClock
) -> None:
    worker.update([herder.assigned_to_me])
    wait_for(worker, {CONNECTOR: TaskPhase.RUNNING})
    failures: list[HeadraceError] = [Retriable("the API server did not answer")]

    def fail_once() -> None:
        if failures:
            raise failures.pop()

    herder.may_release = fail_once
    deadline = time.monotonic() + 60
    while [unit.status.driver_name for unit in herder.store] != [""]:
        assert time.monotonic() < deadline
        worker.update(herder.store)
        clock.advance(1)
        time.sleep(0.01)
    assert not failures


def test_the_wait_for_an_owner_begins_again_with_each_assignment(
    worker: Worker, herder: Herder, clock: FakeClock
) -> None:
    Ownership(herder.assigned_to_me, DriverIdentity("other", "1"), herder).claim(above=0)
    names = [CONNECTOR]

    def update_with_another_unit(*, without_first: bool = False) -> None:
        """Return when the worker has decided about all units."""
        herder.store.put("orders", TaskType.HEARTBEAT_CONNECTOR, index=len(names))
        names.append(f"orders-heartbeat-connector-{len(names)}")
        worker.update(herder.all_assigned_to_me[without_first:])
        wait_for(worker, dict.fromkeys(names[1:], TaskPhase.RUNNING))

    update_with_another_unit()
    update_with_another_unit(without_first=True)  # it was assigned elsewhere
    clock.advance(2 * RELEASE_TIMEOUT_S)
    update_with_another_unit()
    assert herder.all_assigned_to_me[0].status.driver_name == "other"


class AllowsOne(Herder):
    """Rejects the tasks of all connectors except the second one."""

    def put_tasks(self, connector: ReplicationTask, *_: object, **__: object) -> None:
        if connector.metadata.name != SECOND_CONNECTOR:
            raise Fatal("broken by the test")


def test_a_unit_is_started_while_releases_of_many_failed_ones_are_not_answered() -> None:
    """The liveness probe ends a driver whose Worker waits for a minute."""
    herder, answers = AllowsOne(), threading.Event()
    for index in range(2, 13):
        herder.store.put("orders", TaskType.HEARTBEAT_CONNECTOR, index=index)
    failing = herder.all_assigned_to_me
    worker = Worker(FLOW, herder, DriverIdentity("me", "1"))
    worker.update(failing)
    deadline = time.monotonic() + 60
    # The first restart is immediate, the next one follows after two minutes.
    while [unit.restarts for unit in worker.figures()] != [1] * len(failing):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    still_failed: dict[str, TaskPhase | None] = {
        unit.metadata.name: TaskPhase.FAILED for unit in failing
    }
    wait_for(worker, still_failed)
    herder.may_release = lambda: answers.wait(60)
    herder.store.put("orders", TaskType.HEARTBEAT_CONNECTOR, index=1)
    worker.update([herder.all_assigned_to_me[-1]])
    wait_for(worker, still_failed | {SECOND_CONNECTOR: TaskPhase.RUNNING})
    answers.set()
    assert worker.stop(30)


class HeldClock(FakeClock):
    """Clock that a Worker's thread cannot read while a test holds it."""

    def __init__(self) -> None:
        super().__init__()
        self.free, self.awaited = threading.Event(), threading.Event()
        self.free.set()

    def monotonic(self) -> float:
        if threading.current_thread().name == WORKER_THREAD and not self.free.is_set():
            self.awaited.set()
            assert self.free.wait(60)
        return super().monotonic()


def test_stop_ends_all_units_though_the_worker_is_about_to_start_another(herder: Herder) -> None:
    clock, releasing, answers = HeldClock(), threading.Event(), threading.Event()
    worker = Worker(FLOW, herder, DriverIdentity("me", "1"), clock=clock)
    worker.update([herder.assigned_to_me])
    wait_for(worker, {CONNECTOR: TaskPhase.RUNNING})
    (thread,) = (one for one in threading.enumerate() if one.name == WORKER_THREAD)

    def wait_for_answer() -> None:
        releasing.set()
        assert answers.wait(60)

    herder.may_release = wait_for_answer
    clock.free.clear()
    herder.store.put("orders", TaskType.HEARTBEAT_CONNECTOR, index=1)
    worker.update(herder.all_assigned_to_me)
    assert clock.awaited.wait(60)
    with ThreadPoolExecutor() as pool:
        stopped = pool.submit(worker.stop, 30)
        assert releasing.wait(60)
        clock.free.set()
        thread.join(60)
        answers.set()
        assert stopped.result(60)
    assert [unit.status.driver_name for unit in herder.store] == ["", ""]
