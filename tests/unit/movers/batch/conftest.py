"""A loop, brokers and an appender for each test."""

from collections.abc import Iterator
from typing import Any

import pytest
from support.fake_broker import FakeBroker, Script, Serve
from support.fake_target import Appending, FakeTarget

from headrace.kafka.wire import Loop


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


@pytest.fixture
def target(serve: Serve) -> FakeTarget:
    """With three partitions."""
    return FakeTarget(serve, partitions=3)


@pytest.fixture
def appending(loop: Loop, target: FakeTarget) -> Iterator[Appending]:
    appending = Appending(loop, target)
    yield appending
    appending.close()
