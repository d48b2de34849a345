"""A loop, brokers and an appender for each test."""

from collections.abc import Iterator

import pytest
from support.appending import Appending
from support.fake_broker import Serve, serving
from support.wire_kafka import WireCluster, wire_cluster

from headrace.kafka.wire import EventLoop


@pytest.fixture
def loop() -> Iterator[EventLoop]:
    loop = EventLoop()
    yield loop
    loop.close()


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Return a function that starts a broker for the test: ``serve({key: answer})``."""
    with serving() as serve:
        yield serve


@pytest.fixture
def target(serve: Serve) -> WireCluster:
    """Return a target with three partitions."""
    return wire_cluster(serve, "west", 3)


@pytest.fixture
def appending(loop: EventLoop, target: WireCluster) -> Iterator[Appending]:
    appending = Appending(loop, target)
    yield appending
    appending.close()
