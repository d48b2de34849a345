"""Offset syncs that a source task writes, with clusters in memory."""

from collections.abc import Callable

import pytest
from support.fake_kafka import MARKER, FakeRecord
from support.source_tasks import P0, P1, TOPIC, Scene

from headrace.api import TopicPartition
from headrace.replication import STRETCH, OffsetSync

SYNCS = TopicPartition("mm2-offset-syncs.east.internal", 0)


def syncs(scene: Scene, at: TopicPartition = P0) -> list[tuple[int, int]]:
    """Return the pairs of a partition in the order of their writes."""
    entries = scene.target.logs[SYNCS].entries
    decoded = [OffsetSync.decode(one.key or b"", one.value or b"") for one in entries if one]
    return [
        (one.source_offset, one.target_offset)
        for one in decoded
        if (one.topic, one.partition) == at
    ]


def stretches(scene: Scene) -> list[bytes]:
    return [dict(one.headers)[STRETCH] for one in scene.target.logs[SYNCS].entries if one]


def start(scene: Scene) -> None:
    """Start the task and create its topic."""
    scene.start()
    scene.observe()
    scene.check_pool.run()


def copy(scene: Scene) -> None:
    """Copy all records, then let the task be idle."""
    for _ in range(3):
        scene.run_once()
        scene.observe()
    scene.observe()


def test_a_partition_without_holes_has_the_first_pair_and_the_last(scene: Scene) -> None:
    start(scene)
    scene.source.append(TOPIC, *[b"%d" % n for n in range(100)])
    copy(scene)
    assert syncs(scene) == [(0, 0), (99, 99)]
    assert syncs(scene, P1) == []
    assert len(set(stretches(scene))) == 1


def test_a_run_that_goes_on_is_written_again_every_ten_seconds(scene: Scene) -> None:
    start(scene)
    for _ in range(45):  # 0.3 s each
        scene.source.append(TOPIC, b"x")
        scene.run_once()
        scene.observe()
    pairs = syncs(scene)
    assert len(pairs) == 2
    assert 30 <= pairs[1][0] <= 40


def test_both_sides_of_a_hole_are_written(scene: Scene) -> None:
    start(scene)
    scene.source.append(TOPIC, b"a", b"b")
    scene.source.write(P0, MARKER)
    scene.source.append(TOPIC, b"c", b"d")
    copy(scene)
    assert syncs(scene) == [(0, 0), (1, 1), (3, 2), (4, 3)]


def test_records_of_others_on_the_target_begin_another_stretch(scene: Scene) -> None:
    start(scene)
    scene.source.append(TOPIC, b"a")
    copy(scene)
    scene.target.write(TopicPartition("east.orders", 0), FakeRecord(b"k", b"foreign", 1))
    scene.source.append(TOPIC, b"b")
    copy(scene)
    assert syncs(scene) == [(0, 0), (1, 2)]
    assert len(set(stretches(scene))) == 2


def test_a_new_lane_begins_another_stretch(scene: Scene) -> None:
    start(scene)
    scene.source.append(TOPIC, b"a")
    copy(scene)
    scene.clock.advance(3)  # a stall: the lane is renewed
    scene.recover()
    scene.source.append(TOPIC, b"b")
    copy(scene)
    assert syncs(scene) == [(0, 0), (1, 1)]
    assert len(set(stretches(scene))) == 2


def test_so_many_holes_that_not_all_can_be_written_leave_the_last_pair(scene: Scene) -> None:
    start(scene)
    for n in range(3_000):
        scene.source.append(TOPIC, b"%d" % n)
        scene.source.write(P0, MARKER)
        if n % 10 == 0:
            scene.run_once()
            scene.clock.advance(-0.29)
            scene.observe()
    copy(scene)
    pairs = syncs(scene)
    assert len(pairs) < 2_000
    assert pairs[-1] == (5_998, 2_999)
    assert all(source == 2 * target for source, target in pairs)


def test_the_last_pair_is_written_when_the_task_is_closed(scene: Scene) -> None:
    start(scene)
    scene.source.append(TOPIC, b"a", b"b", b"c")
    scene.run_once()
    scene.task.suspend()
    for _ in range(3):
        scene.guard(scene.task.close)
        scene.release_pool.run()
    scene.context.close()
    assert syncs(scene) == [(0, 0), (2, 2)]


def test_what_a_killed_driver_had_not_written_whoever_takes_over_writes(
    scenes: Callable[..., Scene],
) -> None:
    killed = scenes()
    killed.start()  # its topic does not exist yet
    killed.source.append(TOPIC, b"a", b"b", b"c")
    killed.run_once()
    killed.settle()
    assert [one.offsets for one in killed.stored(P0).pairs] == [(0, 0), (2, 2)]
    assert SYNCS not in killed.target.logs

    scene = scenes(kafka=killed.kafka, driver="other")
    start(scene)
    scene.observe()
    scene.source.append(TOPIC, b"d", b"e")
    copy(scene)
    assert syncs(scene) == [(0, 0), (2, 2), (3, 3), (4, 4)]
    assert len(set(stretches(scene))) == 2


def test_progress_keeps_pairs_until_they_are_written(scene: Scene) -> None:
    start(scene)
    scene.target.holds_back = lambda at: at == SYNCS
    scene.source.append(TOPIC, b"a", b"b", b"c")
    scene.settle()
    assert [one.offsets for one in scene.stored(P0).pairs] == [(0, 0), (2, 2)]
    scene.let_through()
    copy(scene)
    scene.source.append(TOPIC, b"d")
    scene.settle()
    assert [one.offsets for one in scene.stored(P0).pairs] == [(3, 3)]


def test_a_task_that_goes_on_in_the_same_driver_writes_no_pair_twice(scene: Scene) -> None:
    start(scene)
    scene.source.append(TOPIC, b"a", b"b", b"c")
    scene.settle()
    assert scene.stored(P0).pairs
    scene.clock.advance(3)  # a stall: the lane is renewed
    scene.recover()
    copy(scene)
    assert syncs(scene) == [(0, 0), (2, 2)]


def test_without_checkpoints_there_is_no_topic(scene: Scene) -> None:
    scene.change_spec(checkpoints={"enabled": False})
    start(scene)
    scene.source.append(TOPIC, b"a")
    copy(scene)
    assert SYNCS not in scene.target.logs


def test_on_the_source_when_the_flow_says_so(scene: Scene) -> None:
    scene.change_spec(offsetSyncs={"location": "Source"})
    start(scene)
    scene.source.append(TOPIC, b"a")
    copy(scene)
    there = scene.source.logs[TopicPartition("mm2-offset-syncs.west.internal", 0)]
    assert len(there.entries) == 1
    assert SYNCS not in scene.target.logs


def test_without_rights_records_are_copied_and_the_status_says_what_is_missing(
    scenes: Callable[..., Scene],
) -> None:
    scene = scenes()
    scene.target.forbidden.add(SYNCS.topic)
    start(scene)
    scene.source.append(TOPIC, b"a")
    copy(scene)
    assert scene.copies() == [b"a"]
    assert "mm2-offset-syncs.east.internal" in scene.error
    scene.target.forbidden.clear()
    scene.clock.advance(31)
    scene.recover()
    scene.observe()
    scene.check_pool.run()
    scene.source.append(TOPIC, b"b")
    copy(scene)
    assert scene.error == ""
    assert syncs(scene)[-1] == (1, 1)


@pytest.mark.parametrize("away_s", [1, 100])
def test_syncs_wait_until_the_topic_is_there(scene: Scene, away_s: int) -> None:
    scene.start()
    scene.source.append(TOPIC, b"a")
    copy(scene)
    scene.clock.advance(away_s)
    scene.recover()
    scene.check_pool.run()
    copy(scene)
    assert syncs(scene)[0] == (0, 0)


def test_syncs_that_were_refused_are_written_again(scene: Scene) -> None:
    start(scene)
    denied = 29  # TOPIC_AUTHORIZATION_FAILED
    scene.target.refuses = lambda at, _: denied if at == SYNCS else 0
    scene.source.append(TOPIC, b"a", b"b", b"c")
    copy(scene)
    assert "write offset syncs to topic mm2-offset-syncs.east.internal" in scene.error
    assert syncs(scene) == []
    scene.target.refuses = lambda at, _: 0
    for _ in range(40):  # 0.3 s each
        scene.observe()
    assert set(syncs(scene)) == {(0, 0), (2, 2)}
    assert scene.error == ""
    there = len(syncs(scene))
    for _ in range(80):
        scene.observe()
    assert len(syncs(scene)) == there
