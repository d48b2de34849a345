"""The Herder of pods apart from its requests, which are tested on an API server."""

import asyncio
import gc
import time
from threading import Thread
from typing import Any, cast

import pytest

from headrace.api import ReplicationFlow, ReplicationTask, TaskType
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
