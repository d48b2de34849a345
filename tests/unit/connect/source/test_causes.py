"""Early retries of stopped partitions when a cluster has changed."""

from collections.abc import Callable

import pytest
from support.source_tasks import COPY, P0, Scene

from headrace.kafka import Operation


def superseded(scene: Scene) -> bool:
    return scene.task.superseded(scene.task.partitions)


def fail(scene: Scene) -> None:
    scene.start()
    scene.guard(scene.fail)


def fail_again(scene: Scene) -> None:
    scene.restart()
    scene.guard(scene.fail)
    for _ in range(10):
        scene.observe_failed()


def test_failed_task_is_retried_once_for_each_state_of_the_clusters(scene: Scene) -> None:
    scene.target.denied.add((COPY, Operation.WRITE))
    fail(scene)
    scene.observe_failed()
    assert superseded(scene), "a user may have acted before the first look"
    fail_again(scene)
    assert not superseded(scene), "nothing has changed"
    scene.target.denied.clear()
    for _ in range(3):
        scene.observe_failed()
    assert superseded(scene)


@pytest.mark.parametrize(
    "change",
    [
        lambda scene: scene.target.configs[COPY].update({"max.message.bytes": "9"}),
        lambda scene: scene.source.denied.add((P0.topic, Operation.READ)),
        lambda scene: scene.source.ids.pop(P0.topic),
    ],
    ids=["setting", "permission", "topic"],
)
def test_each_change_of_a_topic_is_noticed(scene: Scene, change: Callable[[Scene], None]) -> None:
    fail(scene)
    scene.observe_failed()
    fail_again(scene)
    assert not superseded(scene)
    change(scene)
    for _ in range(3):
        scene.observe_failed()
    assert superseded(scene)


def test_unreachable_cluster_is_no_change(scene: Scene) -> None:
    fail(scene)
    scene.observe_failed()
    fail_again(scene)
    scene.source.away = True
    for _ in range(10):
        scene.observe_failed()
    assert not superseded(scene)
