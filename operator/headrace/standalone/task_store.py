"""Units of a run, in memory, with the rules that the API server enforces on Kubernetes.

A write contains the version that the writer has read. The rules of the status equal the CEL rules
of the custom resource definition, so that drivers get the same rejections in both modes.
"""

from collections.abc import Iterator, Mapping, Sequence

from headrace.api import (
    ObjectMeta,
    ReplicationTask,
    ReplicationTaskSpec,
    ReplicationTaskStatus,
    TaskType,
    Work,
)
from headrace.assign import TaskId
from headrace.connect import TaskConflict


class TaskStore:
    """Units by name. Not thread-safe: use it on the herder's event loop."""

    def __init__(self) -> None:
        self._tasks: dict[str, ReplicationTask] = {}
        self._version = 0

    def __iter__(self) -> Iterator[ReplicationTask]:
        return iter(list(self._tasks.values()))

    def of_flow(self, flow: str) -> list[ReplicationTask]:
        return [task for task in self._tasks.values() if task.spec.flow_name == flow]

    def put(
        self,
        flow: str,
        type: TaskType,
        index: int = 0,
        work: Sequence[Work] = (),
        connector_epoch: int = 0,
        *,
        count: int = 0,
    ) -> None:
        """Write the work of a unit. Its assignment does not change.

        ``count`` is the number of units of its type.
        """
        name = TaskId(flow, type, index).name
        known = self._tasks.get(name)
        if known is None:
            known = ReplicationTask(
                metadata=ObjectMeta(name=name, generation=0),
                spec=ReplicationTaskSpec(flow_name=flow, type=type, index=index),
            )
        self._write_spec(
            known,
            known.spec.model_copy(
                update={
                    **ReplicationTaskSpec.of_work(type, work),
                    "connector_epoch": connector_epoch,
                    "task_count": count,
                }
            ),
        )

    def remove(self, flow: str, type: TaskType) -> None:
        """Delete the units of a type, if there are any."""
        for task in self.of_flow(flow):
            if task.spec.type is type:
                del self._tasks[task.metadata.name]
                self._version += 1

    def assign(
        self, name: str, driver: str, standbys: Sequence[str], lost_incarnation: str
    ) -> None:
        """Write the driver and the standbys of a unit."""
        task = self._tasks[name]
        self._write_spec(
            task,
            task.spec.model_copy(
                update={
                    "driver_name": driver,
                    "standby_driver_names": tuple(standbys),
                    "lost_incarnation": lost_incarnation,
                }
            ),
        )

    def write_status(self, task: ReplicationTask, status: ReplicationTaskStatus) -> ReplicationTask:
        """Replace a status. Raise ``TaskConflict`` if the version is old or a rule is violated."""
        name = task.metadata.name
        now = self._tasks.get(name)
        if now is None:
            raise TaskConflict(f"{name} no longer exists")
        if now.metadata.resource_version != task.metadata.resource_version:
            raise TaskConflict(f"{name} changed since it was read", now)
        before = now.status
        if status.epoch < before.epoch:
            raise TaskConflict(f"{name}: epoch {status.epoch} is below {before.epoch}", now)
        holder = (status.driver_name, status.driver_incarnation)
        if (
            status.driver_name
            and holder != (before.driver_name, before.driver_incarnation)
            and status.epoch == before.epoch
        ):
            raise TaskConflict(
                f"{name}: a new holder needs a higher epoch than {before.epoch}", now
            )
        return self._keep(now, status=status)

    def put_tasks(
        self,
        connector: ReplicationTask,
        type: TaskType,
        tasks: Mapping[int, Sequence[Work]],
    ) -> bool:
        """Write a connector's tasks and delete all others of their type.

        Return True if a task was written or deleted.

        Raise ``TaskConflict`` if a connector with a higher epoch has written tasks.
        """
        flow, epoch = connector.spec.flow_name, connector.status.epoch
        there = {t.spec.index: t for t in self.of_flow(flow) if t.spec.type == type}
        if any(task.spec.connector_epoch > epoch for task in there.values()):
            raise TaskConflict(f"a later connector than epoch {epoch} writes the {type}s of {flow}")
        version = self._version
        for index, work in tasks.items():
            known = there.get(index)
            wanted = (tuple(work), epoch, len(tasks))
            if known is None or _written(known.spec) != wanted:
                self.put(flow, type, index, work, epoch, count=len(tasks))
        for index in there.keys() - tasks.keys():
            del self._tasks[there[index].metadata.name]
            self._version += 1
        return self._version != version

    def _write_spec(self, task: ReplicationTask, spec: ReplicationTaskSpec) -> None:
        generation = (task.metadata.generation or 0) + 1
        metadata = task.metadata.model_copy(update={"generation": generation})
        self._keep(task, metadata=metadata, spec=spec)

    def _keep(self, task: ReplicationTask, **changed: object) -> ReplicationTask:
        self._version += 1
        task = task.model_copy(update=changed)
        metadata = task.metadata.model_copy(update={"resource_version": str(self._version)})
        task = task.model_copy(update={"metadata": metadata})
        self._tasks[metadata.name] = task
        return task


def _written(spec: ReplicationTaskSpec) -> tuple[tuple[Work, ...], int, int]:
    """Return the fields that a task's connector writes."""
    return spec.work, spec.connector_epoch, spec.task_count
