"""The Herder of pods apart from its requests, which are tested on an API server."""

import asyncio
import gc
import time
from functools import partial
from threading import Thread
from typing import Any, cast

import pytest

from headrace.api import (
    FLOW_LABEL,
    TOPICS_ANNOTATION,
    ReplicationFlow,
    ReplicationTask,
    TaskType,
)
from headrace.connect import TargetTaken
from headrace.driver.kubernetes_herder import KubernetesHerder
from headrace.k8s import Client, Unavailable

CONNECTOR = ReplicationTask.model_validate(
    {
        "metadata": {"name": "orders-source-connector-0", "namespace": "shop"},
        "spec": {"flowName": "orders", "type": "SourceConnector", "index": 0},
    }
)


class Slow:
    """Client that raises its own error when it is cancelled, as an HTTP client does."""

    async def list(self, *wanted: object, **others: object) -> Any:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise Unavailable("the API server did not answer in time") from None


def test_an_error_that_comes_when_nobody_waits_any_more_is_not_printed() -> None:
    printed: list[object] = []
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda _, context: printed.append(context))
    thread = Thread(target=loop.run_forever)
    thread.start()
    try:
        herder = KubernetesHerder(cast(Client, Slow()), loop, _flow(), publish_timeout_s=0.05)
        with pytest.raises(Unavailable, match="did not answer within"):
            herder.list_tasks(CONNECTOR, TaskType.SOURCE_TASK)
        time.sleep(0.2)
        gc.collect()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
    gc.collect()
    assert not printed


class Tasks:
    """Client that lists the tasks of other flows only."""

    def __init__(self) -> None:
        self.of_others: list[Any] = []

    async def list(self, *_: object, metadata_only: bool = False, **__: object) -> Any:
        return self.of_others if metadata_only else []


def test_a_topic_that_was_left_is_checked_before_it_is_written_again() -> None:
    async def scene() -> None:
        client, loop = Tasks(), asyncio.get_running_loop()
        herder = KubernetesHerder(cast(Client, client), loop, _flow())

        async def publish(*topics: str) -> None:
            publishing = partial(herder.put_tasks, CONNECTOR, TaskType.SOURCE_TASK, {})
            await asyncio.to_thread(publishing, {"T": topics})

        await publish("left", "kept")
        await publish("kept")
        labels, annotations = {FLOW_LABEL: "other"}, {TOPICS_ANNOTATION: "left"}
        client.of_others = [{"metadata": {"labels": labels, "annotations": annotations}}]
        await publish("kept")
        with pytest.raises(TargetTaken, match="other"):
            await publish("kept", "left")

    asyncio.run(scene())


def _flow() -> ReplicationFlow:
    return ReplicationFlow.model_validate(
        {
            "metadata": {"name": "orders", "namespace": "shop"},
            "spec": {
                "source": {"alias": "east", "bootstrapServers": "east:9092"},
                "target": {"alias": "west", "bootstrapServers": "west:9092"},
                "topics": {"include": ["orders"]},
            },
        }
    )
