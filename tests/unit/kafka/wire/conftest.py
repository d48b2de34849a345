"""A loop and brokers for each test."""

from collections.abc import Iterator

import pytest
from support.fake_broker import Serve, serving

from headrace.kafka.wire.loop import Loop


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


@pytest.fixture
def serve() -> Iterator[Serve]:
    """``serve({key: answer})``: a broker that lives as long as the test."""
    with serving() as serve:
        yield serve
