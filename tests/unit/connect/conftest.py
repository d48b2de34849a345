"""A source task on clusters in memory."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.source_tasks import Scene


@pytest.fixture
def scenes() -> Iterator[Callable[..., Scene]]:
    made: list[Scene] = []

    def make(*args: Any, **kwargs: Any) -> Scene:
        made.append(Scene(*args, **kwargs))
        return made[-1]

    yield make
    for scene in made:
        scene.close()


@pytest.fixture
def scene(scenes: Callable[..., Scene]) -> Scene:
    return scenes()
