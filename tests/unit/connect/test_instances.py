"""Running units of a driver, if the herder does not answer."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, cast

import pytest
from support.fake_kafka import FakeKafka
from support.source_tasks import COPY, FLOW, P0, TOPIC, StoreHerder

from headrace.api import ReplicationTask, ReplicationTaskStatus, TaskPhase, TaskType
from headrace.assign import TaskId
from headrace.connect import DriverIdentity, Herder
from headrace.connect.runtime.context import FlowContext
from headrace.connect.worker import Instances
from headrace.errors import Fatal

TASK = TaskId("f", TaskType.SOURCE_TASK, 0)
ASSIGNED = {TASK: frozenset({P0})}


class SlowHerder(StoreHerder):
    """Herder that carries out a release only when a test lets it."""

    def __init__(self) -> None:
        super().__init__([P0])
        self.releasing, self.answers = threading.Event(), threading.Event()

    def release(self, task: ReplicationTask, status: ReplicationTaskStatus) -> ReplicationTask:
        self.releasing.set()
        assert self.answers.wait(60)
        return self.claim(task, status)


def broken_mover(*_: Any) -> Any:
    raise Fatal("broken by the test")


@pytest.fixture
def context() -> Iterator[FlowContext]:
    """Return a context in which every source task fails."""
    kafka = FakeKafka("east", "west")
    kafka.clusters["east"].create_topic(TOPIC, 1)
    kafka.clusters["west"].create_topic(COPY, 1)
    clients = replace(kafka.clients(), mover=broken_mover)
    made = FlowContext(FLOW, DriverIdentity("me", "1"), clients=clients)
    yield made
    made.close()


def wait_for(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_nothing_waits_for_the_release_of_a_failed_task(context: FlowContext) -> None:
    herder = SlowHerder()
    instances = Instances(context, cast("Herder", herder), context.driver, lambda: None)

    def fails_again() -> bool:
        """Run until the immediate restart of the first failure is over."""
        instances.receive({TASK: herder.task})
        instances.run(ASSIGNED, {})
        running = instances.running(TASK)
        if running is None or running.status.restarts == 0:
            return False
        return running.phase is TaskPhase.FAILED

    wait_for(fails_again)
    with ThreadPoolExecutor() as pool:
        instances.run({}, {})
        assert herder.releasing.wait(60)
        topics = FLOW.spec.topics.model_copy(update={"include": ("payments",)})
        spec = FLOW.spec.model_copy(update={"topics": topics})
        context.change(FLOW.model_copy(update={"spec": spec}))  # the failure may have ended
        decided = pool.submit(instances.run, {}, {})
        try:
            decided.result(10)
        finally:
            herder.answers.set()
    assert instances.stop(time.monotonic() + 60)
    assert herder.task.status.driver_name == ""
