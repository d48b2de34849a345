"""The Herder port on Kubernetes: the units are ReplicationTask objects."""

import asyncio
import random
import time
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from functools import partial
from typing import Any, TypeVar

from headrace.api import (
    CONNECTOR_MANAGER,
    ReplicationFlow,
    ReplicationTask,
    ReplicationTaskStatus,
    TaskType,
    Work,
    dump,
)
from headrace.connect import EpochAltered, TaskConflict
from headrace.driver.epoch_fence import EpochFence, write_all
from headrace.driver.status_writes import Urgency, WriteTurns, urgency
from headrace.driver.target_topics import check_not_taken
from headrace.driver.task_objects import TaskBuilder, matches, selector
from headrace.errors import HeadraceError, InvalidSpec, Retriable
from headrace.k8s import TASK, Client, Conflict, NotFound, Object, Unavailable, owns, parse

T = TypeVar("T")

_WRITE_S = 12.0
"""A status write, and the read after a refusal: two requests."""
_PUBLISH_S = 120.0
_QUIET_S = 4.0
"""After an API server did not answer, reports wait for so long: those who report do more than
that, and must not stall while it is unreachable."""


class KubernetesHerder:
    """For the Workers' threads; requests run on ``loop``, which another thread drives."""

    def __init__(
        self, client: Client, loop: asyncio.AbstractEventLoop, flow: ReplicationFlow
    ) -> None:
        self._client, self._loop, self._flow = client, loop, flow
        self._namespace, self._name = flow.metadata.namespace, flow.metadata.name
        self._fence = EpochFence(client, self._namespace)
        self._turns = WriteTurns()
        self._quiet_until = 0.0
        self._not_taken: dict[str, set[str]] = {}
        """Target topics, by cluster id, that were found to be no other flow's."""

    def claim(self, task: ReplicationTask, status: ReplicationTaskStatus) -> ReplicationTask:
        """See ``Herder``."""
        return self._wait(self._write(task, status), _WRITE_S)

    def report(
        self, task: ReplicationTask, status: ReplicationTaskStatus
    ) -> ReplicationTask | None:
        """See ``Herder``; figures alone are written rarely (``status_writes``)."""
        now = time.monotonic()
        if now < self._quiet_until:
            raise Retriable("the API server did not answer just now")
        match urgency(task.status, status):
            case Urgency.NONE:
                return None
            case Urgency.FINE if not self._turns.is_due(task.metadata.name, now):
                return None
        try:
            return self._wait(self._write(task, status), _WRITE_S)
        except Unavailable:
            self._quiet_until = time.monotonic() + _QUIET_S * random.uniform(0.5, 1.0)
            raise

    def release(self, task: ReplicationTask, status: ReplicationTaskStatus) -> ReplicationTask:
        """See ``Herder``."""
        return self._wait(self._write(task, status), _WRITE_S)

    def list_tasks(self, connector: ReplicationTask, type: TaskType) -> list[ReplicationTask]:
        """See ``Herder``."""
        return self._wait(self._tasks(type), _PUBLISH_S)

    def put_tasks(
        self,
        connector: ReplicationTask,
        type: TaskType,
        tasks: Mapping[int, Sequence[Work]],
        target_topics: Mapping[str, Sequence[str]],
        source_cluster_id: str = "",
    ) -> None:
        """See ``Herder``."""
        publish = self._publish(connector, type, tasks, target_topics, source_cluster_id)
        self._wait(publish, _PUBLISH_S)

    async def end(self) -> None:
        """On its loop, when no Worker uses it any more and before the client is closed."""
        await self._fence.end()

    def _wait(self, work: Coroutine[Any, Any, T], timeout_s: float) -> T:
        """Each request has a time-out of its own; this one is for a loop that stalls."""
        future = asyncio.run_coroutine_threadsafe(_settled(work), self._loop)
        try:
            done = future.result(timeout_s)
        except FutureTimeout:
            future.cancel()
            raise Unavailable(f"the API server did not answer within {timeout_s:.0f} s") from None
        if isinstance(done, HeadraceError):
            raise done
        return done

    # Status.

    async def _write(self, task: ReplicationTask, status: ReplicationTaskStatus) -> ReplicationTask:
        object = dump(task) | {"status": dump(status)}
        try:
            return parse(ReplicationTask, await self._client.replace_status(object))
        except (Conflict, NotFound) as error:
            now = await self._get(task.metadata.name)
            if now is not None and now.metadata.uid != task.metadata.uid:
                now = None  # another object of that name: ours is gone
            raise TaskConflict(str(error), now) from error

    async def _get(self, name: str) -> ReplicationTask | None:
        found = await self._client.get(TASK, self._namespace, name)
        return None if found is None else parse(ReplicationTask, found)

    # Tasks of a connector.

    async def _tasks(self, type: TaskType) -> list[ReplicationTask]:
        selected = selector(self._name, type)
        found = await self._client.list(TASK, self._namespace, labels=selected)
        return [_without_invalid_partitions(task) for task in found if owns(self._flow, task)]

    async def _publish(
        self,
        connector: ReplicationTask,
        type: TaskType,
        tasks: Mapping[int, Sequence[Work]],
        target_topics: Mapping[str, Sequence[str]],
        source_cluster_id: str,
    ) -> None:
        epoch = connector.status.epoch
        there = {task.spec.index: task for task in await self._tasks(type)}
        await self._refuse_stale(connector, type, there.values())
        await self._check_topics(target_topics)
        target_id = next(iter(target_topics), "")
        builder = TaskBuilder(self._flow, type, epoch, target_id, len(tasks), source_cluster_id)
        wanted = {index: builder.build(index, work) for index, work in tasks.items()}
        changed = [
            object
            for index, object in wanted.items()
            if index not in there or not matches(there[index], object)
        ]
        gone = there.keys() - tasks.keys()
        if not changed and not gone:
            await self._fence.raise_in_time(type, epoch, there.values())
            return
        # Only when an earlier connector can write to no task any more is the split changed.
        await self._fence.raise_now(type, epoch, there.values())
        apply = partial(self._client.apply, manager=CONNECTOR_MANAGER)
        await write_all(partial(apply, object) for object in changed)
        for index in gone:
            await self._delete(connector, there[index])

    async def _check_topics(self, target_topics: Mapping[str, Sequence[str]]) -> None:
        unknown = {
            cluster_id: new
            for cluster_id, topics in target_topics.items()
            if (new := set(topics) - self._not_taken.setdefault(cluster_id, set()))
        }
        await check_not_taken(self._client, self._namespace, self._name, unknown)
        for cluster_id, new in unknown.items():
            self._not_taken[cluster_id] |= new

    async def _delete(self, connector: ReplicationTask, task: ReplicationTask) -> None:
        """A task that a later connector has written meanwhile stays."""
        now: ReplicationTask | None = task
        while now is not None:
            await self._refuse_stale(connector, task.spec.type, [now])
            name, version = now.metadata.name, now.metadata.resource_version
            try:
                await self._client.delete(TASK, self._namespace, name, resource_version=version)
                return
            except Conflict:
                now = await self._get(name)

    async def _refuse_stale(
        self, connector: ReplicationTask, type: TaskType, there: Iterable[ReplicationTask]
    ) -> None:
        """Raise an error if a task has a higher epoch than its connector.

        Raises:
            TaskConflict: A later connector wrote it.
            EpochAltered: There is no later connector.
        """
        epoch = connector.status.epoch
        later = next((task for task in there if task.spec.connector_epoch > epoch), None)
        if later is None:
            return
        now = await self._get(connector.metadata.name)
        if now is not None and now.status.epoch == epoch:
            name = later.metadata.name
            raise EpochAltered(
                f"task {name} has connectorEpoch {later.spec.connector_epoch}, which no connector "
                f"wrote: its connector has epoch {epoch}. A user changed the task's spec: delete "
                f"it by `kubectl -n {self._namespace} delete rtask {name}`, and its connector "
                "creates another one"
            )
        raise TaskConflict(
            f"a later connector than epoch {epoch} writes the {type}s of flow {self._name}"
        )


def _without_invalid_partitions(object: Object) -> ReplicationTask:
    """A task; one whose partitions somebody wrote by hand, as 5-2, has none: the connector writes
    them again."""
    try:
        return parse(ReplicationTask, object)
    except InvalidSpec:
        return parse(ReplicationTask, object | {"spec": object["spec"] | {"partitions": []}})


async def _settled(work: Coroutine[Any, Any, T]) -> T | HeadraceError:
    """Its error as a result: one that comes when nobody waits any more would be printed by asyncio,
    with its stack."""
    try:
        return await work
    except HeadraceError as error:
        return error
