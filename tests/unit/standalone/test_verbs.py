"""Changes that commands make to a flow on this machine. No driver runs."""

import asyncio
import time
from typing import Any

import pytest

from headrace.api import ReplicationFlow, Resets, TaskType, TopicPartition, TopicPartitions
from headrace.errors import InvalidSpec
from headrace.standalone import StandaloneHerder
from headrace.standalone.control_handlers import answer
from headrace.standalone.task_store import TaskStore

FLOW = ReplicationFlow.model_validate(
    {
        "metadata": {"name": "f"},
        "spec": {
            "source": {"alias": "east", "bootstrapServers": "127.0.0.1:1"},
            "target": {"alias": "west", "bootstrapServers": "127.0.0.1:2"},
            "topics": {"include": ["orders"]},
        },
    }
)


def test_a_flow_and_its_partitions_are_paused_and_resumed() -> None:
    async def scene() -> None:
        herder = StandaloneHerder([FLOW], 0)

        async def ask(verb: str, **arguments: Any) -> dict[str, Any]:
            return await answer(herder, "f", verb, arguments)

        await ask("set-state", state="Stopped")
        assert herder.flow("f").spec.state == "Stopped"
        assert herder.flow("f").metadata.generation == 2
        await ask("pause-partitions", partitions="orders/0-3", paused=True)
        answered = await ask("pause-partitions", partitions="payments", paused=True)
        paused = {"meant": 0, "paused": ["orders/0-3", "payments"], "state": "Stopped"}
        assert answered == {"changed": True, **paused}
        again = await ask("pause-partitions", partitions="payments", paused=True)
        assert again == {"changed": False, **paused}
        answered = await ask("pause-partitions", partitions="orders/1", paused=False)
        assert answered["paused"] == ["orders/0,2-3", "payments"]
        with pytest.raises(InvalidSpec, match="'orders/x' is neither a topic nor some of its"):
            await ask("pause-partitions", partitions="orders/x", paused=True)
        assert await ask("set-state", state="Running") == {
            **answered,
            "meant": 0,
            "state": "Running",
        }

    asyncio.run(scene())


def test_a_reset_is_an_annotation_that_drivers_receive_and_no_change_of_the_spec() -> None:
    async def scene() -> None:
        store = TaskStore()
        herder = StandaloneHerder([FLOW], 0, store=store)
        at = TopicPartition("orders", 3)
        store.put("f", TaskType.SOURCE_TASK, 0, TopicPartitions.pack([at]))

        async def ask(partitions: str, dry_run: bool = False) -> dict[str, Any]:
            asked = {"partitions": partitions, "dry_run": dry_run}
            return await answer(herder, "f", "reset", asked)

        def asked_ms() -> int:
            return Resets.from_metadata(herder.flow("f").metadata).time_ms(at)

        answered = await ask("orders", dry_run=True)
        assert answered["partitions"] == [{"topic": "orders", "partitions": "3"}]
        assert (asked_ms(), answered["secrets"]) == (0, None)
        await ask("orders/3")
        first_ms = asked_ms()
        assert abs(first_ms - time.time() * 1000) < 60_000
        await ask("orders")
        assert asked_ms() > first_ms, "in the same second, too"
        assert (herder.flow("f").spec, herder.flow("f").metadata.generation) == (FLOW.spec, 1)
        with pytest.raises(InvalidSpec, match="does not copy topic order; it copies orders"):
            await ask("order")
        herder.annotate("f", "headrace.dev/reset", "orders")
        with pytest.raises(InvalidSpec, match="'orders' is not of the form"):
            await ask("orders")

    asyncio.run(scene())
