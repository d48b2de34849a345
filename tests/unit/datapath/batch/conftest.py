"""A loop, brokers and an appender for each test."""

from collections.abc import Iterator

import pytest
from support.fake_broker import Serve, serving
from support.fake_target import Appending, FakeTarget

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
def target(serve: Serve) -> FakeTarget:
    """Return a target with three partitions."""
    return FakeTarget(serve, partitions=3)


@pytest.fixture
def appending(loop: EventLoop, target: FakeTarget) -> Iterator[Appending]:
    appending = Appending(loop, target)
    yield appending
    appending.close()
