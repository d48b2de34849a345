"""A source task on clusters in memory: all is real above librdkafka, and one thread drives it."""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import Any, cast

from support.fake_kafka import FakeKafka, FakeLog, FakeProducer, FakeRecord

from headrace.api import (
    ConditionType,
    ReplicationFlow,
    ReplicationTask,
    ReplicationTaskStatus,
    TaskPhase,
    TaskType,
    TopicPartitions,
    find_condition,
)
from headrace.api.partitions import TopicPartition
from headrace.assign import TaskId
from headrace.connect import DriverIdentity, Herder, Role
from headrace.connect.runtime.context import FlowContext
from headrace.connect.runtime.ownership import Ownership
from headrace.connect.source.source_task import SourceTask
from headrace.datapath.clients import MakeMover
from headrace.errors import Fatal, HeadraceError
from headrace.replication.progress import Progress
from headrace.standalone.task_store import TaskStore

TOPIC, COPY = "orders", "east.orders"
NAME = "f-source-task-0"
P0, P1 = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
FLOW = ReplicationFlow.model_validate(
    {
        "metadata": {"name": "f"},
        "spec": {
            "source": {"alias": "east", "bootstrapServers": "127.0.0.1:1"},
            "target": {"alias": "west", "bootstrapServers": "127.0.0.1:2"},
            "topics": {"include": [TOPIC]},
        },
    }
)


class ManualPool(Executor):
    """Runs submitted steps on the test's request, in the test's thread."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, step: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append((future, lambda: step(*args, **kwargs)))
        return future

    def run(self) -> None:
        """Run all waiting steps, and the steps that follow from them."""
        while self.waiting:
            self._run(*self.waiting.pop(0))

    def run_in_thread(self) -> threading.Thread:
        """Run the first waiting step in a new thread, and return the thread."""
        thread = threading.Thread(target=self._run, args=self.waiting.pop(0))
        thread.start()
        return thread

    def _run(self, future: Future[Any], step: Callable[[], Any]) -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(step())
        except Exception as error:  # noqa: BLE001 - as any pool: whoever asks gets it
            future.set_exception(error)


class StoreHerder:
    """A herder for one source task, with the rules of ``headrace run``'s store."""

    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        self.store = TaskStore()
        self.put(partitions)

    @property
    def task(self) -> ReplicationTask:
        return next(iter(self.store))

    def put(self, partitions: Iterable[TopicPartition]) -> None:
        self.store.put("f", TaskType.SOURCE_TASK, 0, TopicPartitions.pack(partitions))

    def claim(self, task: ReplicationTask, status: ReplicationTaskStatus) -> ReplicationTask:
        return self.store.write_status(task, status)

    report = release = claim


class Scene:
    """A task that copies topic ``orders`` with two partitions from ``east`` to ``west``."""

    def __init__(
        self,
        *partitions: TopicPartition,
        kafka: FakeKafka | None = None,
        driver: str = "me",
        flow: ReplicationFlow | None = None,
        make_mover: MakeMover | None = None,
    ) -> None:
        """Create a task.

        ``kafka`` are the clusters of an earlier scene. ``make_mover`` creates the flow's mover,
        by default one that needs no wire protocol.
        """
        self.kafka = kafka or FakeKafka("east", "west")
        self.clock = self.kafka.clock
        self.source, self.target = self.kafka.clusters["east"], self.kafka.clusters["west"]
        if kafka is None:
            self.source.create_topic(TOPIC, 2)
            self.target.create_topic(COPY, 2)
        self.driver = DriverIdentity(driver, f"{driver}-1")
        clients = self.kafka.clients()
        clients = replace(clients, mover=make_mover or clients.mover)
        self.context = FlowContext(
            flow or FLOW, self.driver, clients=clients, clock=self.kafka.clock
        )
        self.herder = StoreHerder(partitions or (P0, P1))
        self.ownership = self._own()
        self.restore_pool, self.release_pool, self.check_pool = (ManualPool() for _ in range(3))
        self.task = self.make_task(Role.ACTIVE, frozenset(partitions or (P0, P1)))

    def _own(self) -> Ownership:
        return Ownership(self.herder.task, self.driver, cast("Herder", self.herder))

    def make_task(self, role: Role, partitions: frozenset[TopicPartition]) -> SourceTask:
        return SourceTask(
            TaskId("f", TaskType.SOURCE_TASK, 0),
            partitions,
            role,
            ownership=self.ownership,
            context=self.context,
            restore_pool=self.restore_pool,
            release_pool=self.release_pool,
            check_pool=self.check_pool,
            changed=lambda: None,
        )

    def close(self) -> None:
        """Close the context, also where a test lets commands leave it open."""
        FlowContext.close(self.context)

    def change_spec(self, **fields: Any) -> None:
        """Change fields of the flow's spec, as their owner does while it runs."""
        document = self.context.flow.model_dump(by_alias=True, exclude_none=True, mode="json")
        document["spec"] |= fields
        self.context.change(ReplicationFlow.model_validate(document))

    # Actions of the loop.

    def guard(self, step: Callable[[], Any]) -> Any:
        """Fail the task on an error of headrace's, as the TaskManager does."""
        try:
            return step()
        except HeadraceError as error:
            self.task.fail(error)

    def run_once(self) -> None:
        """Run one turn of the loop, without a commit, and then the waiting steps of the pools."""
        self.context.stall_detector.beat()
        if self.task.phase in (TaskPhase.RESTORING, TaskPhase.RUNNING, TaskPhase.PAUSED):
            self.guard(self.task.advance)
        if self.task.phase is TaskPhase.RUNNING:
            self.guard(self.task.process)
        self.restore_pool.run()
        self.release_pool.run()

    def commit(self) -> None:
        """Receive acknowledgements, store them, and receive the answer to that."""
        self.observe()
        self.guard(self.task.commit)
        self.guard(self.task.commit)
        self.observe()

    def observe(self) -> None:
        """Update the reports."""
        self.clock.advance(0.3)
        self.context.stall_detector.beat()
        self.guard(lambda: self.task.punctuate(self.clock.monotonic()))

    def confirm(self) -> None:
        """Compare the ids of topics of which records were acknowledged, and store the outcome."""
        self.observe()
        self.check_pool.run()
        self.commit()

    def check_topics(self) -> None:
        """Observe for a whole interval of discovery, including its results."""
        for _ in range(40):
            self.observe()
            self.check_pool.run()

    def fail(self) -> None:
        """Raise an error that fails a task."""
        raise Fatal("broken by the test")

    def observe_failed(self) -> None:
        """Run for as long as a failed task may take to report its lag."""
        for _ in range(2):
            self.clock.advance(2.5)
            self.guard(lambda: self.task.punctuate(self.clock.monotonic()))
            self.check_pool.run()

    def start(self) -> None:
        """Restore, and run."""
        self.task.activate()
        self.restore_pool.run()
        self.run_once()
        assert self.phase is TaskPhase.RUNNING, self.error

    def restart(self) -> None:
        """Create another instance of a closed task, as the Worker does."""
        self.ownership = self._own()
        self.task = self.make_task(Role.ACTIVE, self.task.partitions)
        self.guard(self.task.activate)

    def settle(self) -> None:
        """Run turns until all records are acknowledged, then store progress."""
        for _ in range(5):
            self.run_once()
        self.commit()

    def recover(self) -> None:
        """Run turns with time between them, as back-off requires."""
        for _ in range(5):
            for _ in range(6):
                self.clock.advance(0.9)
                self.context.stall_detector.beat()
            self.run_once()

    # Observations of a test.

    @property
    def phase(self) -> TaskPhase:
        return self.task.phase

    @property
    def error(self) -> str:
        error = self.task.status.last_error
        return error.message if error else ""

    def stops(self, at: TopicPartition) -> bool:
        """Return whether a partition is reported as stopped until a user acts."""
        ready = find_condition(self.task.status.conditions, ConditionType.READY)
        stopped = ready is not None and f"{at} is not copied" in ready.message
        return stopped or self.phase is TaskPhase.FAILED

    @property
    def lost_data(self) -> str:
        """The message of the condition."""
        lost = find_condition(self.task.status.conditions, ConditionType.DATA_LOSS_DETECTED)
        return lost.message if lost else ""

    @property
    def producer(self) -> FakeProducer:
        """The producer of the task's lane."""
        return self.target.producer

    def hold_back(self, topic: str = COPY) -> None:
        """Hold this topic's records back: the test sends and reports them."""
        self.target.holds_back = lambda at: at.topic == topic

    def let_through(self) -> None:
        """Acknowledge records at once again."""
        self.target.holds_back = lambda at: False

    def stored(self, at: TopicPartition) -> Progress:
        """Return the progress of a partition in the progress topic."""
        progress = self._progress(at)
        assert progress is not None, f"no progress of {at} is stored"
        return progress

    def _progress(self, at: TopicPartition) -> Progress | None:
        self.context.progress.read_to_end()
        return self.context.progress.get(self.context.progress_key(at))

    def position(self, at: TopicPartition = P0) -> int | None:
        """Return the stored source offset."""
        progress = self._progress(at)
        return progress.source_offset if progress else None

    def take_away(self, *partitions: TopicPartition, epoch: int | None = None) -> None:
        """Claim partitions in the progress topic, as another driver's task does.

        The epoch is one higher by default.
        """
        for at in partitions:
            mine = self.stored(at)
            theirs = dict(
                vars(mine),
                epoch=mine.epoch + 1 if epoch is None else epoch,
                owner="f-source-task-0 on other/1",
            )
            key = self.context.progress_key(at).encode()
            record = FakeRecord(key, Progress(**theirs).encode(), 0)
            self.target.write(self.target.partition_of(self.context.progress.topic, key), record)
        self.context.progress.read_to_end()

    def copies(self, partition: int = 0) -> list[bytes | None]:
        return self.target.records(COPY, partition)

    def log(self, at: TopicPartition) -> FakeLog:
        return self.source.logs[at]
