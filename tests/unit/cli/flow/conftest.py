"""Fixtures for commands that watch a flow."""

from collections.abc import Callable

import pytest
from support.source_tasks import Scene


@pytest.fixture
def meanwhile(scene: Scene) -> list[Callable[[], object]]:
    """Return the list of steps that happen, one after the other, while the command watches."""
    steps: list[Callable[[], object]] = []

    def sleep(seconds: float) -> None:
        scene.clock.advance(seconds)
        if steps:
            steps.pop(0)()

    scene.context.sleep = sleep
    return steps
