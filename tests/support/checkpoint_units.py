"""The checkpoint connector and a task of it; clusters in memory, and the store of a run."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from support.source_tasks import TOPIC, Scene

from headrace.api import (
    ReplicationTask,
    ReplicationTaskStatus,
    TaskType,
    TopicPartition,
    Work,
)
from headrace.connect import Herder
from headrace.connect.checkpoint.checkpointing import CheckpointConnector, CheckpointTask
from headrace.connect.runtime.ownership import Ownership
from headrace.connect.runtime.threaded_unit import ThreadedUnit
from headrace.replication import Checkpoint
from headrace.standalone.task_store import TaskStore

CHECKPOINTS = TopicPartition("east.checkpoints.internal", 0)
SYNCS = TopicPartition("mm2-offset-syncs.east.internal", 0)


class StoreHerder:
    """The port, on the store."""

    def __init__(self) -> None:
        self.store = TaskStore()

    def unit(self, type: TaskType) -> ReplicationTask:
        return next(task for task in self.store if task.spec.type is type)

    def claim(self, task: ReplicationTask, status: ReplicationTaskStatus) -> ReplicationTask:
        return self.store.write_status(task, status)

    report = release = claim

    def list_tasks(self, connector: ReplicationTask, type: TaskType) -> list[ReplicationTask]:
        return [task for task in self.store if task.spec.type is type]

    def put_tasks(
        self,
        connector: ReplicationTask,
        type: TaskType,
        tasks: Mapping[int, Sequence[Work]],
        target_topics: Mapping[str, Sequence[str]],
        source_cluster_id: str = "",
    ) -> None:
        self.store.put_tasks(connector, type, tasks)


class Units:
    """Create a connector and a task next to a source task that copies ``orders``."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.herder = StoreHerder()
        self.herder.store.put("f", TaskType.CHECKPOINT_CONNECTOR)
        self.connector = self._make(CheckpointConnector, TaskType.CHECKPOINT_CONNECTOR)

    def _make(self, kind: Callable[..., ThreadedUnit], type: TaskType) -> Any:
        herder = cast("Herder", self.herder)
        ownership = Ownership(self.herder.unit(type), self.scene.driver, herder)
        return kind(ownership, self.scene.context, herder, lambda: None)

    def split(self) -> dict[int, tuple[str, ...]]:
        kind = TaskType.CHECKPOINT_TASK
        return {
            one.spec.index: one.spec.groups for one in self.herder.store if one.spec.type is kind
        }

    def make_task(self, *groups: str) -> CheckpointTask:
        self.herder.store.put("f", TaskType.CHECKPOINT_TASK, 0, groups)
        task = self._make(CheckpointTask, TaskType.CHECKPOINT_TASK)
        assert isinstance(task, CheckpointTask)
        return task

    def copied(self, records: int) -> None:
        """Copy these, write their offset syncs, store progress."""
        self.scene.start()
        self.scene.observe()
        self.scene.check_pool.run()
        self.more(records)

    def more(self, records: int) -> None:
        self.scene.source.append(TOPIC, *[b"x"] * records)
        self.scene.settle()
        for _ in range(4):
            self.scene.observe()

    def checkpoints(self) -> list[Checkpoint]:
        entries = self.scene.target.logs[CHECKPOINTS].entries
        return [Checkpoint.decode(one.key or b"", one.value or b"") for one in entries if one]


def message(unit: ThreadedUnit) -> str:
    """Return the message of the unit's condition."""
    return unit.status.conditions[0].message
