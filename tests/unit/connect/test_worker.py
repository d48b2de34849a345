"""Figures that a Worker reports about its units, without a request to a broker."""

import time
from collections.abc import Iterator, Mapping, Sequence

import pytest

from headrace.api import (
    ReplicationFlow,
    ReplicationTask,
    ReplicationTaskStatus,
    TaskPhase,
    TaskType,
    Work,
)
from headrace.connect import DriverIdentity, EpochAltered, Worker, may_claim
from headrace.connect.runtime.ownership import Ownership
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


class Herder:
    """Herder with the rules of the store that publishes nothing."""

    def __init__(self) -> None:
        self.store = TaskStore()
        self.store.put("orders", TaskType.HEARTBEAT_CONNECTOR)

    @property
    def assigned_to_me(self) -> ReplicationTask:
        (unit,) = self.store
        return unit.model_copy(update={"spec": unit.spec.model_copy(update={"driver_name": "me"})})

    def claim(self, task: ReplicationTask, status: ReplicationTaskStatus) -> ReplicationTask:
        return self.store.write_status(task, status)

    report = release = claim

    def list_tasks(self, connector: ReplicationTask, type: TaskType) -> list[ReplicationTask]:
        return []

    def put_tasks(
        self,
        connector: ReplicationTask,
        type: TaskType,
        tasks: Mapping[int, Sequence[Work]],
        target_topics: Mapping[str, Sequence[str]],
        source_cluster_id: str = "",
    ) -> None: ...


@pytest.fixture
def herder() -> Herder:
    return Herder()


@pytest.fixture
def worker(herder: Herder) -> Iterator[Worker]:
    made = Worker(FLOW, herder, DriverIdentity("me", "1"))
    yield made
    made.stop(5)


def phases(worker: Worker) -> dict[str, TaskPhase | None]:
    return {unit.id.name: unit.status.phase for unit in worker.figures()}


def wait_for(worker: Worker, expected: dict[str, TaskPhase | None]) -> None:
    deadline = time.monotonic() + 60
    while phases(worker) != expected:
        assert time.monotonic() < deadline, phases(worker)
        time.sleep(0.01)


def test_what_was_lost_is_waited_for_from_then_on(
    worker: Worker, herder: Herder, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[tuple[str, float]] = []

    def noted(task: ReplicationTask, me: DriverIdentity, waited_s: float) -> bool:
        waits.append((task.status.driver_name, waited_s))
        return may_claim(task, me, waited_s)

    monkeypatch.setattr("headrace.connect.worker.may_claim", noted)
    worker.update([herder.assigned_to_me])
    wait_for(worker, {"orders-heartbeat-connector-0": TaskPhase.RUNNING})
    Ownership(herder.assigned_to_me, DriverIdentity("other", "1"), herder).claim(above=0)
    worker.update([herder.assigned_to_me])
    deadline = time.monotonic() + 60
    while not (waited := [waited_s for holder, waited_s in list(waits) if holder == "other"]):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert waited[0] == 0


def test_figures_are_those_of_the_units_that_run_here(worker: Worker, herder: Herder) -> None:
    assert worker.figures() == []
    worker.update([herder.assigned_to_me])
    wait_for(worker, {"orders-heartbeat-connector-0": TaskPhase.RUNNING})
    (figures,) = worker.figures()
    assert (figures.copied, figures.beats, figures.restarts) == (None, {}, 0)
    worker._instances.restarts.is_due(figures.id, started_at=0.0, now=10.0)
    worker._instances.restarts.forget(figures.id)  # by hand: the metric continues to count
    assert [unit.restarts for unit in worker.figures()] == [1]
    worker.update([])
    wait_for(worker, {})


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


CONNECTOR = "orders-heartbeat-connector-0"


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
