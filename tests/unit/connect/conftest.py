"""A source task on clusters in memory."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.memory_mover import MemoryLane
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


@pytest.fixture
def renew(monkeypatch: pytest.MonkeyPatch) -> Callable[[Scene], None]:
    """Return a function that renews an outdated lane, once the pool has settled it."""

    def outdate(scene: Scene) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(MemoryLane, "outdated", True)
            scene.task.process()

    return outdate
