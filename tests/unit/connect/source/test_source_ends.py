"""Lag of records that a lane has not read."""

import pytest
from support.fake_kafka import FakeConsumer
from support.lags import lag_of
from support.source_tasks import Scene


@pytest.fixture
def hears_of_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the client report no log end, as after it fetched until its queue was full."""
    monkeypatch.setattr(FakeConsumer, "get_watermark_offsets", lambda *_, **__: (0, 0))


def test_the_lag_of_a_partition_that_the_target_does_not_take_grows(
    scene: Scene, hears_of_no_end: None
) -> None:
    scene.source.append("orders", b"a")
    scene.start()
    scene.hold_back()
    scene.run_once()
    scene.source.append("orders", b"b", b"c")
    scene.check_topics()
    assert lag_of(scene.task).records == 3
    assert lag_of(scene.task).seconds > 5
    scene.let_through()


def test_the_lag_of_a_paused_task_grows(scene: Scene, hears_of_no_end: None) -> None:
    scene.source.append("orders", b"a")
    scene.start()
    scene.settle()
    scene.task.pause(True)
    scene.source.append("orders", b"b")
    scene.check_topics()
    assert lag_of(scene.task).records == 1
    assert lag_of(scene.task).seconds > 5


def test_the_lag_of_a_paused_task_is_unknown_while_the_source_does_not_answer(
    scene: Scene, hears_of_no_end: None
) -> None:
    scene.source.append("orders", b"a")
    scene.start()
    scene.settle()
    scene.task.pause(True)
    scene.observe()
    scene.source.away = True
    for _ in range(110):  # 33 s
        scene.observe()
    assert scene.task.status.lag is None

    scene.source.away = False
    scene.check_topics()
    assert lag_of(scene.task).records == 0


def test_the_lag_of_a_failed_task_is_unknown_while_the_source_does_not_answer(scene: Scene) -> None:
    scene.source.append("orders", b"a")
    scene.start()
    scene.settle()
    scene.guard(scene.fail)
    scene.observe_failed()
    scene.source.away = True
    for _ in range(10):
        scene.observe_failed()
    assert scene.task.status.lag is None
