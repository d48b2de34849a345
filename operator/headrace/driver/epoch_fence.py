"""A connector's epoch in the tasks of its kind: the API server refuses (CEL) what an earlier
connector may still write to them."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from headrace.api import ReplicationTask, TaskType
from headrace.connect import TaskConflict
from headrace.errors import HeadraceError, Retriable
from headrace.k8s import TASK, Client, NotFound, Refused
from headrace.logs import get_logger

log = get_logger(__name__)

_AT_ONCE = 16
"""Requests of one connector at the same time."""
_EVERY_S = 0.05
"""Between two writes that nobody waits for: with 10,000 tasks they are done after ten minutes."""
_AGAIN_S = 5.0

Write = Callable[[], Coroutine[Any, Any, object]]


class EpochFence:
    """For one event loop and one flow. ``epoch`` is that of the current connector."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client, self._namespace = client, namespace
        self._in_time: dict[TaskType, asyncio.Task[None]] = {}

    async def raise_now(self, type: TaskType, epoch: int, tasks: Iterable[ReplicationTask]) -> None:
        """Before the split is changed. Raises ``TaskConflict`` when there is a later connector."""
        if (running := self._in_time.pop(type, None)) is not None:
            running.cancel()
        await write_all(partial(self._raise, task, epoch) for task in _lower(tasks, epoch))

    async def raise_in_time(
        self, type: TaskType, epoch: int, tasks: Iterable[ReplicationTask]
    ) -> None:
        """While nothing changes: one now, so that an earlier connector, which reads before it
        writes, finds a later one; all others one by one. Raises as ``raise_now``."""
        lower = _lower(tasks, epoch)
        await self.raise_now(type, epoch, lower[:1])
        if lower[1:]:
            self._in_time[type] = asyncio.create_task(self._raise_rest(epoch, lower[1:]))

    async def end(self) -> None:
        """Before the client is closed: what is not raised yet is left to the next connector."""
        running = list(self._in_time.values())
        self._in_time.clear()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _raise_rest(self, epoch: int, tasks: Sequence[ReplicationTask]) -> None:
        for task in tasks:
            await asyncio.sleep(_EVERY_S)
            while True:
                try:
                    await self._raise(task, epoch)
                    break
                except Retriable:
                    await asyncio.sleep(_AGAIN_S)
                except HeadraceError as error:
                    log.info("fence not raised any further", epoch=epoch, why=str(error))
                    return

    async def _raise(self, task: ReplicationTask, epoch: int) -> None:
        patch = {"spec": {"connectorEpoch": epoch}}
        with suppress(NotFound):
            await self._client.patch(TASK, self._namespace, task.metadata.name, patch)


async def write_all(writes: Iterable[Write]) -> None:
    """Do all writes, some at a time. Raises the first error when all have ended; ``TaskConflict``
    for one that the epoch of a later connector forbids."""
    at_once = asyncio.Semaphore(_AT_ONCE)

    async def do(write: Write) -> None:
        async with at_once:
            try:
                await write()
            except Refused as error:
                if "connectorEpoch" in str(error):
                    raise TaskConflict(str(error)) from error
                raise

    for done in await asyncio.gather(*map(do, writes), return_exceptions=True):
        if isinstance(done, BaseException):
            raise done


def _lower(tasks: Iterable[ReplicationTask], epoch: int) -> list[ReplicationTask]:
    return [task for task in tasks if task.spec.connector_epoch < epoch]
