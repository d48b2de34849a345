"""A loop and brokers for each test."""

from collections.abc import Iterator
from typing import Any

import pytest
from support.fake_broker import FakeBroker, Script, Serve

from headrace.kafka.wire.loop import Loop


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


@pytest.fixture
def serve() -> Iterator[Serve]:
    """``serve({key: answer})``: a broker that lives as long as the test."""
    brokers: list[FakeBroker] = []

    def start_one(script: Script, **more: Any) -> FakeBroker:
        brokers.append(FakeBroker(script, **more))
        return brokers[-1]

    yield start_one
    for broker in brokers:
        broker.close()
