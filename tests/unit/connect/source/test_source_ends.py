"""Lag of records that a lane has not read."""

import pytest
from support.fake_kafka import FakeConsumer
from support.lags import lag_of
from support.source_tasks import Scene

from headrace.api import ConditionStatus, ConditionType, Lag, Reason, TaskPhase, find_condition
from headrace.connect import Role


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


def test_a_target_that_acknowledges_nothing_is_unreachable_until_it_does(scene: Scene) -> None:
    scene.source.append("orders", b"a" * 1_000)
    scene.start()
    scene.settle()
    assert scene.task.status.bytes_per_second
    scene.hold_back()
    scene.source.append("orders", b"b")
    scene.run_once()
    for _ in range(20):  # 6 s
        scene.observe()
    assert scene.task.status.bytes_per_second == 0
    assert find_condition(scene.task.status.conditions, ConditionType.READY) is None
    for _ in range(90):  # 27 s
        scene.observe()
        scene.check_pool.run()
    ready = find_condition(scene.task.status.conditions, ConditionType.READY)
    assert ready is not None
    assert (ready.status, ready.reason) == (ConditionStatus.FALSE, Reason.TARGET_UNREACHABLE)
    assert "west has not acknowledged records of 1 of 2 partitions for more than 30 s" in (
        ready.message
    )

    (held_back,) = scene.producer.queue
    scene.producer.acknowledge(held_back)
    scene.observe()
    assert find_condition(scene.task.status.conditions, ConditionType.READY) is None


def test_the_lag_of_an_earlier_instance_becomes_unknown_if_it_cannot_be_read_again(
    scene: Scene,
) -> None:
    scene.source.append("orders", b"a")
    scene.start()
    scene.settle()
    scene.source.append("orders", b"b", b"c")
    scene.check_topics()
    before = scene.task.status
    scene.ownership.report(before.model_copy(update={"lag": Lag(records=2, seconds=1)}))
    scene.target.away = scene.source.away = True
    scene.ownership = scene.ownership.transfer()
    scene.task = scene.make_task(Role.ACTIVE, scene.task.partitions)
    scene.task.activate()
    scene.observe()
    assert lag_of(scene.task).records == 2
    for _ in range(110):  # 33 s
        scene.observe()
    assert scene.task.phase is TaskPhase.RESTORING
    assert scene.task.status.lag is None
