"""Order in which a connector's epoch is written. An API server's test covers rejected writes."""

import asyncio
from typing import Any, cast

import pytest

from headrace.api import ReplicationTask, TaskType
from headrace.connect.runtime.herder import TaskConflict
from headrace.driver.kubernetes_herder import EpochFence
from headrace.k8s import Client, NotFound, ObjectInvalid

SOURCE = TaskType.SOURCE_TASK


class Written:
    """Client that records writes. ``errors`` are its answers, by task."""

    def __init__(self, **errors: Exception) -> None:
        self.names: list[str] = []
        self._errors = errors

    async def patch(self, kind: object, namespace: str, name: str, patch: Any) -> None:
        self.names.append(name)
        if name in self._errors:
            raise self._errors[name]


def tasks(*names: str, epoch: int = 1) -> list[ReplicationTask]:
    return [
        ReplicationTask.model_validate(
            {
                "metadata": {"name": name, "namespace": "shop"},
                "spec": {
                    "flowName": "orders",
                    "type": "SourceTask",
                    "index": index,
                    "connectorEpoch": epoch,
                },
            }
        )
        for index, name in enumerate(names)
    ]


def fence(written: Written) -> EpochFence:
    return EpochFence(cast("Client", written), "shop", interval_s=0.001)


async def settle() -> None:
    await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))


def test_one_is_written_at_once_and_the_others_follow() -> None:
    async def scene() -> None:
        written = Written(b=NotFound("it is gone"))
        raised = fence(written)
        await raised.raise_in_time(SOURCE, 2, [*tasks("a", "b", "c"), *tasks("done", epoch=2)])
        assert written.names == ["a"]
        await settle()
        assert written.names == ["a", "b", "c"]

    asyncio.run(scene())


def test_a_change_does_not_wait_its_turn() -> None:
    async def scene() -> None:
        written = Written()
        raised = fence(written)
        await raised.raise_in_time(SOURCE, 2, tasks("a", "b", "c"))
        await raised.raise_now(SOURCE, 2, tasks("b", "c"))
        assert written.names == ["a", "b", "c"]
        await asyncio.sleep(0.05)
        assert written.names == ["a", "b", "c"]

    asyncio.run(scene())


def test_a_driver_that_stops_writes_nothing_more() -> None:
    async def scene() -> None:
        written = Written()
        raised = fence(written)
        await raised.raise_in_time(SOURCE, 2, tasks("a", "b", "c"))
        await raised.end()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert written.names == ["a"]
        await raised.end()

    asyncio.run(scene())


def test_a_later_connector_ends_it() -> None:
    later = ObjectInvalid("spec.connectorEpoch: a connector of a higher epoch wrote this split")

    async def scene() -> None:
        written = Written(b=later)
        raised = fence(written)
        await raised.raise_in_time(SOURCE, 2, tasks("a", "b", "c"))
        await settle()
        assert written.names == ["a", "b"]
        with pytest.raises(TaskConflict, match="higher epoch"):
            await raised.raise_now(SOURCE, 2, tasks("b", "c"))

    asyncio.run(scene())
