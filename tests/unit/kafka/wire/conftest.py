"""A loop and brokers for each test."""

from collections.abc import Iterator

import pytest
from support.fake_broker import (
    FIND_COORDINATOR,
    FakeBroker,
    Serve,
    coordinated_by_first,
    metadata_of,
    serving,
)

from headrace.api import ClusterAccess, ClusterSpec
from headrace.kafka import Admin
from headrace.kafka.wire.loop import EventLoop


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
def broker(serve: Serve) -> FakeBroker:
    """Return a broker that coordinates every group, but answers no requests about groups yet."""
    broker = serve({})
    broker.script[3] = lambda _: metadata_of({1: broker.port}, {})
    broker.script[FIND_COORDINATOR] = coordinated_by_first
    return broker


@pytest.fixture
def admin(broker: FakeBroker) -> Admin:
    """Return an admin client of the cluster ``east``, which is that broker."""
    spec = ClusterSpec(alias="east", bootstrap_servers=f"127.0.0.1:{broker.port}")
    return Admin(ClusterAccess(spec))
