"""Herder on Kubernetes, where units are ReplicationTask objects."""

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence, Set
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Any, TypeVar

from headrace.api import (
    API_VERSION,
    CONNECTOR_MANAGER,
    FLOW_LABEL,
    SOURCE_LABEL,
    TARGET_LABEL,
    TOPICS_ANNOTATION,
    TYPE_LABEL,
    ReplicationFlow,
    ReplicationTask,
    ReplicationTaskSpec,
    ReplicationTaskStatus,
    TaskType,
    TopicPartitions,
    Work,
    dump,
    dump_work,
    label_value,
)
from headrace.assign import TaskId
from headrace.connect import EpochAltered, TargetTaken, TaskConflict
from headrace.errors import HeadraceError, Retriable
from headrace.k8s import (
    TASK,
    Client,
    Conflict,
    NotFound,
    Object,
    ObjectInvalid,
    Unavailable,
    owner_reference,
    owns,
    parse,
    parse_task,
)
from headrace.logs import get_logger
from headrace.replication import policy_for

log = get_logger(__name__)

_MAX_CONCURRENT_REQUESTS = 16
"""Maximum number of concurrent requests of one connector."""
_RETRY_INTERVAL_S = 5.0

Write = Callable[[], Coroutine[Any, Any, object]]


class EpochFence:
    """Raises the epoch in ReplicationTasks. The API server then rejects writes with a lower one.

    Use it from one event loop. The methods' ``epoch`` is the current connector's epoch.
    """

    def __init__(self, client: Client, namespace: str, interval_s: float = 0.05) -> None:
        """Create a fence.

        Args:
            client: Client of the API server.
            namespace: Namespace of the tasks.
            interval_s: Interval between two writes in the background. With the default, 10,000
                tasks take ten minutes.
        """
        self._client, self._namespace, self._interval_s = client, namespace, interval_s
        self._in_time: dict[TaskType, asyncio.Task[None]] = {}

    async def raise_now(self, type: TaskType, epoch: int, tasks: Iterable[ReplicationTask]) -> None:
        """Raise the epochs of all tasks, before the split of partitions over tasks is changed.

        Raise ``TaskConflict`` if a task has a higher epoch.
        """
        if (running := self._in_time.pop(type, None)) is not None:
            running.cancel()
        await write_all(partial(self._raise, task, epoch) for task in _lower(tasks, epoch))

    async def raise_in_time(
        self, type: TaskType, epoch: int, tasks: Iterable[ReplicationTask]
    ) -> None:
        """Raise the epochs of all tasks, most of them in the background.

        Call it if the split of partitions over tasks does not change. One task is written before
        this call returns. One is enough: a connector with a lower epoch reads all tasks before it
        writes, and finds the higher epoch. Raise ``TaskConflict`` if this task has a higher epoch.
        """
        lower = _lower(tasks, epoch)
        await self.raise_now(type, epoch, lower[:1])
        if lower[1:]:
            self._in_time[type] = asyncio.create_task(self._raise_rest(epoch, lower[1:]))

    async def end(self) -> None:
        """Stop raising epochs in the background. Call this method before the client is closed.

        The next connector raises the epochs of the remaining tasks.
        """
        running = list(self._in_time.values())
        self._in_time.clear()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _raise_rest(self, epoch: int, tasks: Sequence[ReplicationTask]) -> None:
        for task in tasks:
            await asyncio.sleep(self._interval_s)
            while True:
                try:
                    await self._raise(task, epoch)
                    break
                except Retriable:
                    await asyncio.sleep(_RETRY_INTERVAL_S)
                except HeadraceError as error:
                    log.info("fence not raised any further", epoch=epoch, why=str(error))
                    return

    async def _raise(self, task: ReplicationTask, epoch: int) -> None:
        patch = {"spec": {"connectorEpoch": epoch}}
        with suppress(NotFound):
            await self._client.patch(TASK, self._namespace, task.metadata.name, patch)


async def write_all(writes: Iterable[Write]) -> None:
    """Perform all writes concurrently. When all have ended, raise the first error.

    The error is ``TaskConflict`` if a task has a higher epoch than a write.
    """
    at_once = asyncio.Semaphore(_MAX_CONCURRENT_REQUESTS)

    async def do(write: Write) -> None:
        async with at_once:
            try:
                await write()
            except ObjectInvalid as error:
                if "connectorEpoch" in str(error):
                    raise TaskConflict(str(error)) from error
                raise

    for done in await asyncio.gather(*map(do, writes), return_exceptions=True):
        if isinstance(done, BaseException):
            raise done


def _lower(tasks: Iterable[ReplicationTask], epoch: int) -> list[ReplicationTask]:
    return [task for task in tasks if task.spec.connector_epoch < epoch]


# Decides which reports are written to the API server, and when. No I/O. A change of state is
# written at once. Lag and rate change all the time. They are written together with a change of
# state, or alone when they have changed by about a factor of two. A driver writes them alone at
# most once per second.

_FINE_INTERVAL_S = 1.0
_STALE_S = 5.0
"""Time after which a unit that requests no write is removed from the queue, in seconds."""


class Urgency(IntEnum):
    """Urgency of writing a report: not at all, when the unit has its turn, or at once."""

    NONE = 0
    FINE = 1
    AT_ONCE = 2


def urgency(written: ReplicationTaskStatus, now: ReplicationTaskStatus) -> Urgency:
    """Return the urgency of replacing the status ``written`` by ``now``."""
    if _state(written) != _state(now):
        return Urgency.AT_ONCE
    return Urgency.FINE if _detail(written) != _detail(now) else Urgency.NONE


def _state(status: ReplicationTaskStatus) -> tuple[object, ...]:
    return (
        status.driver_name,
        status.driver_incarnation,
        status.epoch,
        status.phase,
        status.partitions,
        status.racks,
        status.observed_generation,
        status.restarts,
        status.last_error and status.last_error.reason,
        [(condition.type, condition.status, condition.reason) for condition in status.conditions],
    )


def _detail(status: ReplicationTaskStatus) -> tuple[object, ...]:
    lag = (status.lag.records, status.lag.seconds) if status.lag else (None, None)
    measured = (*lag, status.bytes_per_second)
    return (
        [None if number is None else number.bit_length() for number in measured],
        status.last_error and status.last_error.message,
        [condition.message for condition in status.conditions],
    )


@dataclass
class _Waiting:
    since: float
    asked: float


class StatusWriteLimiter:
    """Allows one write per second, for the unit that has waited longest.

    Times are in seconds on a monotonic clock.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, _Waiting] = {}
        self._next = 0.0

    def is_due(self, name: str, now: float) -> bool:
        """Return True if the unit ``name`` may write. Otherwise register its request.

        Call it repeatedly until it returns True.
        """
        self._waiting.setdefault(name, _Waiting(now, now)).asked = now
        if now < self._next:
            return False
        self._waiting = {n: w for n, w in self._waiting.items() if now - w.asked < _STALE_S}
        if name != min(self._waiting, key=lambda waiting: self._waiting[waiting].since):
            return False
        del self._waiting[name]
        self._next = now + _FINE_INTERVAL_S
        return True


def selector(flow: str, type: TaskType) -> str:
    """Return the label selector of a flow's tasks of one type."""
    return f"{FLOW_LABEL}={label_value(flow)},{TYPE_LABEL}={type}"


def other_flows_selector(flow: str, cluster_id: str) -> str:
    """Return the label selector of the tasks of other flows that write to a target cluster."""
    return f"{TARGET_LABEL}={label_value(cluster_id)},{FLOW_LABEL}!={label_value(flow)}"


@dataclass(frozen=True)
class TaskBuilder:
    """Builds the tasks of one type of a flow, for one connector."""

    flow: ReplicationFlow
    type: TaskType
    connector_epoch: int
    target_cluster_id: str = ""
    """Target cluster id, or empty if the tasks write no target topics."""
    task_count: int = 0
    """Number of tasks of this type."""
    source_cluster_id: str = ""
    """Source cluster id, or empty if the tasks write no target topics."""

    def build(self, index: int, work: Sequence[Work]) -> Object:
        """Return the fields of a task that the connector owns.

        The operator writes the assignment.
        """
        flow = self.flow.metadata.name
        labels = {
            "app.kubernetes.io/name": "headrace",
            FLOW_LABEL: label_value(flow),
            TYPE_LABEL: str(self.type),
        }
        annotations = {}
        if self.target_cluster_id:
            labels[TARGET_LABEL] = label_value(self.target_cluster_id)
            if self.source_cluster_id:
                labels[SOURCE_LABEL] = label_value(self.source_cluster_id)
            annotations[TOPICS_ANNOTATION] = "\n".join(self._target_topics(work))
        return {
            "apiVersion": API_VERSION,
            "kind": "ReplicationTask",
            "metadata": {
                "name": TaskId(flow, self.type, index).name,
                "namespace": self.flow.metadata.namespace,
                "labels": labels,
                "annotations": annotations,
                "ownerReferences": [owner_reference(self.flow)],
            },
            "spec": {
                "flowName": flow,
                "type": str(self.type),
                "index": index,
                "taskCount": self.task_count,
                **_dump(ReplicationTaskSpec.of_work(self.type, work)),
                "connectorEpoch": self.connector_epoch,
            },
        }

    def _target_topics(self, work: Iterable[Work]) -> list[str]:
        spec = self.flow.spec
        policy = policy_for(spec.replication_policy, spec.source.alias)
        packed = [one for one in work if isinstance(one, TopicPartitions)]
        return sorted({policy.target_topic(one.topic) for one in packed})


def _dump(fields: Mapping[str, Sequence[Work]]) -> Object:
    return {name: [dump_work(one) for one in work] for name, work in fields.items()}


def matches(task: ReplicationTask, object: Object) -> bool:
    """Return True if a task equals the connector's manifest, apart from the epoch."""
    wanted = object["metadata"]
    labels: dict[str, str] = wanted["labels"]
    annotations: dict[str, str] = wanted["annotations"]
    return (
        task.spec.task_count == object["spec"]["taskCount"]
        and _dump(ReplicationTaskSpec.of_work(task.spec.type, task.spec.work)).items()
        <= object["spec"].items()
        and labels.items() <= task.metadata.labels.items()
        and annotations.items() <= task.metadata.annotations.items()
    )


# Detects other flows that write to the same target topic, by the target topics in their tasks. The
# stored progress would show only flows of the same source. Flows of other namespaces are not
# checked.

_TO_BE_RUN = "spec.driverName!="
"""Field selector that excludes the units of stopped flows."""


async def check_not_taken(
    client: Client, namespace: str, flow: str, topics: Mapping[str, Set[str]]
) -> None:
    """Raise ``TargetTaken`` if another flow writes one of ``topics``.

    ``topics`` contains target topics by target cluster id.
    """
    for cluster_id, mine in topics.items():
        selected = other_flows_selector(flow, cluster_id)
        for task in await client.list(
            TASK, namespace, labels=selected, fields=_TO_BE_RUN, metadata_only=True
        ):
            if shared := mine & _target_topics(task):
                writer = task["metadata"]["labels"][FLOW_LABEL]
                raise TargetTaken.by(writer, flow, shared, cluster_id)


def _target_topics(task: Object) -> set[str]:
    return set(task["metadata"].get("annotations", {}).get(TOPICS_ANNOTATION, "").split("\n"))


T = TypeVar("T")

_WRITE_S = 12.0
"""Time limit of a status write in seconds. A conflict needs a second request."""
_PAUSE_AFTER_FAILURE_S = 4.0
"""Time without reports after the API server did not respond, in seconds.

Callers have other work and must not wait for an unreachable API server at each report.
"""


class KubernetesHerder:
    """``Herder`` for the Workers' threads. ``loop``, in another thread, sends the requests."""

    def __init__(
        self,
        client: Client,
        loop: asyncio.AbstractEventLoop,
        flow: ReplicationFlow,
        *,
        publish_timeout_s: float = 120.0,
    ) -> None:
        """Create a herder.

        Args:
            client: Client of the API server.
            loop: Event loop of the client.
            flow: Flow of the tasks.
            publish_timeout_s: Time limit for a connector's requests about all of its tasks.
        """
        self._client, self._loop, self._flow = client, loop, flow
        self._publish_timeout_s = publish_timeout_s
        self._namespace, self._name = flow.metadata.namespace, flow.metadata.name
        self._fence = EpochFence(client, self._namespace)
        self._turns = StatusWriteLimiter()
        self._quiet_until = 0.0
        self._not_taken: dict[str, set[str]] = {}
        """Target topics that this flow writes and no other one, by cluster id, as checked last."""

    def claim(self, task: ReplicationTask, status: ReplicationTaskStatus) -> ReplicationTask:
        return self._wait(self._write(task, status), _WRITE_S)

    def report(
        self, task: ReplicationTask, status: ReplicationTaskStatus
    ) -> ReplicationTask | None:
        """Write a report. Changes of measurements alone are written rarely (``urgency``).

        Return None if nothing was written.
        """
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
            self._quiet_until = time.monotonic() + _PAUSE_AFTER_FAILURE_S * random.uniform(0.5, 1.0)
            raise

    def release(self, task: ReplicationTask, status: ReplicationTaskStatus) -> ReplicationTask:
        return self._wait(self._write(task, status), _WRITE_S)

    def list_tasks(self, connector: ReplicationTask, type: TaskType) -> list[ReplicationTask]:
        return self._wait(self._tasks(type), self._publish_timeout_s)

    def put_tasks(
        self,
        connector: ReplicationTask,
        type: TaskType,
        tasks: Mapping[int, Sequence[Work]],
        target_topics: Mapping[str, Sequence[str]],
        source_cluster_id: str = "",
    ) -> None:
        publish = self._publish(connector, type, tasks, target_topics, source_cluster_id)
        self._wait(publish, self._publish_timeout_s)

    async def end(self) -> None:
        """End the herder, before its client is closed.

        Call it on its loop, when no Worker uses the herder any longer.
        """
        await self._fence.end()

    def _wait(self, work: Coroutine[Any, Any, T], timeout_s: float) -> T:
        """Run a coroutine on the event loop and return its result.

        Raise ``Unavailable`` if the loop does not respond in time. Each request also has its own
        time-out.
        """
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
                now = None  # the task was deleted, and another one has its name
            raise TaskConflict(str(error), now) from error

    async def _get(self, name: str) -> ReplicationTask | None:
        found = await self._client.get(TASK, self._namespace, name)
        return None if found is None else parse(ReplicationTask, found)

    # Tasks of a connector.

    async def _tasks(self, type: TaskType) -> list[ReplicationTask]:
        selected = selector(self._name, type)
        found = await self._client.list(TASK, self._namespace, labels=selected)
        return [parse_task(task) for task in found if owns(self._flow, task)]

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
        # Change the split only when no connector with a lower epoch can write to any task.
        await self._fence.raise_now(type, epoch, there.values())
        apply = partial(self._client.apply, manager=CONNECTOR_MANAGER)
        await write_all(partial(apply, object) for object in changed)
        for index in gone:
            await self._delete(connector, there[index])

    async def _check_topics(self, target_topics: Mapping[str, Sequence[str]]) -> None:
        unknown = {
            cluster_id: new
            for cluster_id, topics in target_topics.items()
            if (new := set(topics) - self._not_taken.get(cluster_id, set()))
        }
        await check_not_taken(self._client, self._namespace, self._name, unknown)
        self._not_taken |= {cluster: set(topics) for cluster, topics in target_topics.items()}

    async def _delete(self, connector: ReplicationTask, task: ReplicationTask) -> None:
        """Delete a task, unless it has a higher epoch than ``connector``."""
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
        self, connector: ReplicationTask, type: TaskType, tasks: Iterable[ReplicationTask]
    ) -> None:
        """Raise an error if a task has a higher epoch than ``connector``.

        Raises:
            TaskConflict: The connector was claimed again with a higher epoch, or deleted.
            EpochAltered: The connector was not claimed again, so a user wrote the task's epoch.
        """
        epoch = connector.status.epoch
        later = next((task for task in tasks if task.spec.connector_epoch > epoch), None)
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


async def _settled(work: Coroutine[Any, Any, T]) -> T | HeadraceError:
    """Return the result of ``work``, or its error as a result.

    asyncio would print an error with its stack trace if it is raised after the caller stopped
    waiting.
    """
    try:
        return await work
    except HeadraceError as error:
        return error
