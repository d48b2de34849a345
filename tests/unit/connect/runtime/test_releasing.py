"""A unit is released last: no append of its old owner follows the next owner's records."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import cast

import pytest
from structlog.testing import capture_logs
from structlog.typing import FilteringBoundLogger
from support.fake_kafka import FakeRecord
from support.source_tasks import P0, P1, Scene

from headrace.api import TaskPhase
from headrace.connect.runtime.lifecycle import Releasing
from headrace.datapath import Lane
from headrace.logs import get_logger
from headrace.replication.progress import Progress


def stall(scene: Scene) -> None:
    """Stall the task, so that its lane has to be settled."""
    scene.clock.advance(60)
    scene.context.stall_detector.beat()
    scene.guard(scene.task.process)


def release(scene: Scene) -> None:
    """Release the task as the loop does, until the release pool has the unit."""
    scene.task.suspend()
    for _ in range(20):
        scene.clock.advance(0.2)
        scene.guard(scene.task.close)
        if scene.task.leaving:
            break
    scene.release_pool.run()
    assert scene.guard(scene.task.close)
    assert scene.herder.task.status.driver_name == ""


def test_a_lane_that_no_thread_was_free_to_settle_is_closed_before_the_release(
    scene: Scene,
) -> None:
    scene.source.append("orders", b"a", b"b")
    scene.start()
    scene.hold_back()
    scene.run_once()
    producer = scene.producer
    for produced in producer.queue:
        produced.in_flight = True  # sent, and repeated by the client until it is answered
    stall(scene)
    release(scene)
    assert producer.queue == [], "its client could append it behind the next owner's records"
    assert scene.source.consumers[-1].closed
    scene.restore_pool.run()
    assert scene.copies() == []


def test_a_release_waits_for_a_lane_that_is_being_settled(scene: Scene) -> None:
    scene.start()
    settling = SimpleNamespace(closed=threading.Event())
    with ThreadPoolExecutor(1) as pool:
        releasing = Releasing(scene.ownership, pool, scene.clock, get_logger(__name__))
        assert not releasing.release(None, cast("Lane", settling))
        assert scene.herder.task.status.driver_name == "me"
        settling.closed.set()
    assert scene.herder.task.status.driver_name == ""


def test_what_a_lane_acknowledged_is_stored_before_the_release_though_it_did_not_settle(
    scene: Scene,
) -> None:
    scene.source.append("orders", b"a", b"b")
    scene.start()
    scene.hold_back()
    scene.run_once()
    first, second = scene.producer.queue
    scene.producer.acknowledge(first)
    second.in_flight = True
    stall(scene)
    scene.restore_pool.run()  # the second one is not answered in time
    scene.task.suspend()
    while not scene.task.leaving:
        scene.clock.advance(0.2)
        scene.guard(scene.task.close)
        scene.restore_pool.run()
    assert scene.position() == 1
    scene.release_pool.run()
    assert scene.guard(scene.task.close)


def test_what_the_target_did_not_answer_is_logged_at_the_release(scene: Scene) -> None:
    scene.start()
    logged: list[tuple[str, int]] = []
    log = SimpleNamespace(warning=lambda event, *, records: logged.append((event, records)))
    lane = SimpleNamespace(in_flight=2, transactions=None, close=lambda: None)
    with ThreadPoolExecutor(1) as pool:
        releasing = Releasing(scene.ownership, pool, scene.clock, cast("FilteringBoundLogger", log))
        releasing.release(cast("Lane", lane), None)
    assert logged == [("released without an answer of the target: these records may come twice", 2)]


@pytest.mark.parametrize("stored", [True, False])
def test_what_could_not_be_stored_is_logged_at_the_release(scene: Scene, *, stored: bool) -> None:
    scene.source.append("orders", b"a", b"b")
    scene.start()
    scene.run_once()
    if not stored:
        scene.hold_back(scene.context.progress.topic)
    with capture_logs() as logged:
        release(scene)
    events = [(line["event"], line["partitions"]) for line in logged if "partitions" in line]
    unstored = "released before its progress was stored: records may come twice"
    assert events == ([] if stored else [(unstored, "orders/0-1")])


def test_a_restore_that_hangs_neither_claims_nor_stores_behind_the_release(
    scene: Scene, scenes: Callable[..., Scene]
) -> None:
    scene.source.append("orders", b"a")
    scene.task.activate()
    scene.restore_pool.run()
    scene.run_once()
    scene.settle()
    scene.task.change(frozenset({P0}))
    scene.settle()
    scene.task.change(frozenset({P0, P1}))
    scene.guard(scene.task.advance)
    assert scene.restore_pool.waiting, "P1 is to be restored"
    before = [len(log.entries) for log in scene.target.logs.values()]
    release(scene)
    scene.restore_pool.run()
    assert [len(log.entries) for log in scene.target.logs.values()] == before
    assert scene.herder.task.status.driver_name == ""


def test_progress_of_an_earlier_owner_that_comes_late_is_stored_over(scene: Scene) -> None:
    scene.source.append("orders", b"a", b"b")
    scene.start()
    scene.settle()
    mine = scene.stored(P0)
    key = scene.context.progress_key(P0).encode()
    late = Progress(**dict(vars(mine), epoch=mine.epoch - 1, source_offset=1)).encode()
    at = scene.target.partition_of(scene.context.progress.topic, key)
    scene.target.write(at, FakeRecord(key, late, 0))
    assert scene.position() == 2
    scene.commit()
    assert scene.phase is TaskPhase.RUNNING
    last = [entry for entry in scene.target.logs[at].entries if entry and entry.key == key][-1]
    assert Progress.decode(last.value or b"") == mine, "compaction keeps the last one only"
