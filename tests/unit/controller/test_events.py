"""Frequency of repeated Events."""

import asyncio
from typing import Any, cast

from headrace.api import ReplicationFlow
from headrace.controller.events import EventRecorder, Occurrence
from headrace.k8s import Client, Object

FLOW = ReplicationFlow.model_validate(
    {
        "metadata": {"name": "orders", "uid": "1"},
        "spec": {
            "source": {"alias": "east", "bootstrapServers": "e:9092"},
            "target": {"alias": "west", "bootstrapServers": "w:9092"},
            "topics": {"include": ["orders"]},
        },
    }
)


class Posted:
    """Created events, with a clock of their own."""

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.now = 1000.0

    async def create(self, event: Object) -> Any:
        self.reasons.append(event["reason"])

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now


def test_a_state_that_flaps_has_few_events() -> None:
    """All day long, every ten seconds; an API server keeps Events for an hour."""
    posted = Posted()
    recorder = EventRecorder(cast("Client", posted), "operator-0", posted)

    async def flap(seconds: int) -> None:
        for _ in range(0, seconds, 10):
            await recorder.post(FLOW, Occurrence("Running", "all 3 units run"))
            await recorder.post(FLOW, Occurrence("SourceUnreachable", "no broker", warning=True))
            posted.now += 10

    asyncio.run(flap(3600))
    assert len(posted.reasons) <= 12
    posted.reasons.clear()
    asyncio.run(flap(3600))
    assert 2 <= len(posted.reasons) <= 6
    posted.now += 7200
    posted.reasons.clear()
    asyncio.run(flap(10))
    assert posted.reasons == ["Running", "SourceUnreachable"], "it was away for long"
