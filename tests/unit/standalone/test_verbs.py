"""What commands change of a flow on this machine; no driver runs."""

import asyncio
from typing import Any

import pytest

from headrace.api import ReplicationFlow
from headrace.errors import InvalidSpec
from headrace.standalone import StandaloneHerder
from headrace.standalone.verbs import answer

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
        assert answered == {"meant": 0, "paused": ["orders/0-3", "payments"], "state": "Stopped"}
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
