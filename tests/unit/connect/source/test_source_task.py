"""A source task under conditions that real clusters, owners and clocks cannot produce on demand.

Only librdkafka is a fake (``support.fake_kafka``). Lane, progress log, restore and ownership are
real.
"""

from collections.abc import Callable

import pytest
from support.fake_kafka import MARKER
from support.lags import lag_of
from support.source_tasks import COPY, P0, P1, Scene

from headrace.api import ConditionType, TaskPhase, TopicPartitions, find_condition
from headrace.connect import Role
from headrace.kafka import KafkaError


def test_records_are_copied_and_their_position_is_stored(scene: Scene) -> None:
    scene.source.append("orders", b"a", b"b")
    scene.source.append("orders", b"c", partition=1)
    scene.source.write(P1, MARKER)
    scene.start()
    scene.settle()
    assert (scene.copies(0), scene.copies(1)) == ([b"a", b"b"], [b"c"])
    assert (scene.position(P0), scene.position(P1)) == (2, 2)
    assert scene.stored(P0).target_offset == 2
    assert (scene.task.copied.records, scene.task.copied.bytes) == (3, 12)
    assert TopicPartitions.unpack(scene.task.status.partitions) == {P0, P1}


def test_another_instance_goes_on_where_the_last_one_stored(
    scene: Scene, scenes: Callable[..., Scene]
) -> None:
    scene.source.append("orders", b"a", b"b")
    scene.start()
    scene.settle()
    scene.source.append("orders", b"c")
    following = scenes(kafka=scene.kafka)
    following.start()
    following.settle()
    assert following.copies() == [b"a", b"b", b"c"]


# Acknowledgements.


def test_only_what_is_acknowledged_without_a_gap_is_stored(scene: Scene) -> None:
    scene.source.append("orders", b"a", b"b", b"c")
    scene.start()
    scene.hold_back()
    scene.run_once()
    first, second, third = scene.producer.queue
    scene.producer.append(first)
    scene.producer.acknowledge(second)
    scene.commit()
    assert scene.position() == 0
    scene.producer.acknowledge(first)
    scene.commit()
    assert scene.position() == 2
    scene.producer.acknowledge(third)
    scene.commit()
    assert scene.position() == 3


def test_partitions_are_acknowledged_apart_from_one_another(scene: Scene) -> None:
    scene.source.append("orders", b"a")
    scene.source.append("orders", b"b", partition=1)
    scene.start()
    scene.hold_back()
    scene.run_once()
    _, of_the_second = scene.producer.queue
    scene.producer.acknowledge(of_the_second)
    scene.commit()
    assert (scene.position(P0), scene.position(P1)) == (0, 1)


def test_a_refused_record_is_sent_again_before_what_follows_it(scene: Scene) -> None:
    scene.source.append("orders", b"a", b"b")
    scene.start()
    scene.hold_back()
    scene.run_once()
    first, _ = scene.producer.queue
    scene.producer.refuse(first, KafkaError.NOT_ENOUGH_REPLICAS)
    scene.run_once()
    scene.run_once()
    scene.commit()
    assert scene.position() == 0
    assert "NOT_ENOUGH_REPLICAS" in scene.error
    assert "orders-0 offset 0" in scene.error
    scene.let_through()
    scene.recover()
    scene.settle()
    assert scene.copies() == [b"a", b"b"]
    assert scene.position() == 2
    assert scene.error == ""


def test_nothing_is_appended_after_a_refused_record_before_it(scene: Scene) -> None:
    scene.source.append("orders", b"a", b"b")
    scene.start()
    scene.hold_back()
    scene.run_once()
    refused, _ = scene.producer.queue
    scene.producer.refuse(refused, KafkaError.NOT_ENOUGH_REPLICAS)
    scene.source.append("orders", b"c")
    scene.let_through()
    scene.recover()
    scene.settle()
    assert scene.copies() == [b"a", b"b", b"c"]


def test_a_refused_partition_waits_and_the_others_go_on(scene: Scene) -> None:
    scene.source.append("orders", b"a")
    scene.start()
    waited: list[float] = []
    for _ in range(4):
        scene.hold_back()
        before_s = scene.clock.monotonic()
        while not any(record.at.partition == 0 for record in scene.producer.queue):
            scene.clock.advance(0.1)
            scene.run_once()
        waited.append(scene.clock.monotonic() - before_s)
        (refused,) = (record for record in scene.producer.queue if record.at.partition == 0)
        scene.producer.refuse(refused, KafkaError.NOT_ENOUGH_REPLICAS)
        scene.let_through()
        scene.source.append("orders", b"other", partition=1)
        for _ in range(4):
            scene.run_once()
        scene.observe()
        assert scene.copies(1)[-1:] == [b"other"]
        assert "NOT_ENOUGH_REPLICAS" in scene.error
    assert scene.copies(1) == [b"other"] * 4
    assert waited[1] < waited[3], "a round that moved nothing resets no back-off"
    scene.recover()
    scene.settle()
    assert (scene.copies(0), scene.error) == ([b"a"], "")


def test_a_refused_partition_that_is_given_up_is_let_go(scene: Scene) -> None:
    scene.source.append("orders", b"a")
    scene.start()
    scene.hold_back()
    scene.run_once()
    scene.producer.refuse(scene.producer.queue[0], KafkaError.NOT_ENOUGH_REPLICAS)
    scene.let_through()
    for _ in range(3):
        scene.run_once()
    scene.task.change(frozenset({P1}))
    scene.take_away(P0)
    scene.source.append("orders", b"b", partition=1)
    scene.settle()
    assert (scene.phase, scene.copies(0), scene.copies(1)) == (TaskPhase.RUNNING, [], [b"b"])
    assert scene.error == ""


def test_the_record_that_was_refused_is_named_not_its_batch(scene: Scene) -> None:
    scene.source.append("orders", b"a", b"b")
    scene.start()
    scene.hold_back()
    scene.run_once()
    same_batch, refused = scene.producer.queue
    scene.producer.refuse_batch(
        {
            same_batch: KafkaError._INVALID_DIFFERENT_RECORD,
            refused: KafkaError.INVALID_TIMESTAMP,
        }
    )
    for _ in range(3):
        scene.run_once()
    assert scene.stops(P0)
    assert "orders-0 offset 1" in scene.error
    assert "message.timestamp" in scene.error


def test_a_producer_that_stops_for_good_is_replaced(scene: Scene) -> None:
    scene.start()
    scene.producer.stop(KafkaError._FATAL)
    scene.source.append("orders", b"a")
    scene.run_once()
    scene.run_once()
    assert "the producer stopped" in scene.error
    scene.recover()
    scene.settle()
    assert (scene.phase, scene.copies(), scene.error) == (TaskPhase.RUNNING, [b"a"], "")


def test_a_refusal_that_is_reported_after_the_producer_stopped_is_the_reason(
    scenes: Callable[..., Scene],
) -> None:
    scene = scenes(P0)
    scene.source.append("orders", b"a", b"too large")
    scene.start()
    scene.hold_back()
    scene.run_once()
    taken, refused = scene.producer.queue
    scene.producer.acknowledge(taken)
    refused.in_flight = True
    scene.producer.stop(KafkaError._FATAL)  # the following records cannot be produced ...
    scene.source.append("orders", b"c")
    for _ in range(2):
        scene.guard(scene.task.process)
    assert "the producer stopped" in scene.error
    scene.producer.refuse(refused, KafkaError.MSG_SIZE_TOO_LARGE)  # ... and then the report arrives
    scene.recover()
    assert scene.phase is TaskPhase.FAILED
    assert "max.message.bytes" in scene.error
    assert scene.position() == 1


def test_a_record_that_will_never_be_taken_fails_the_task_behind_what_was(
    scenes: Callable[..., Scene],
) -> None:
    scene = scenes(P0)
    scene.source.append("orders", b"a", b"too large")
    scene.start()
    scene.hold_back()
    scene.run_once()
    taken, refused = scene.producer.queue
    scene.producer.acknowledge(taken)
    scene.producer.refuse(refused, KafkaError.MSG_SIZE_TOO_LARGE)
    for _ in range(3):
        scene.run_once()
    assert scene.phase is TaskPhase.FAILED
    assert "max.message.bytes" in scene.error
    assert scene.position() == 1
    assert all(consumer.closed for consumer in scene.source.consumers)


def test_what_was_not_acknowledged_when_the_queue_was_dropped_is_copied_again(scene: Scene) -> None:
    scene.source.append("orders", b"a", b"b", b"c")
    scene.start()
    scene.hold_back()
    scene.run_once()
    scene.producer.acknowledge(scene.producer.queue[0])
    scene.clock.advance(1.5)  # the loop stalls
    scene.run_once()
    assert scene.position() == 1
    scene.let_through()
    scene.recover()
    scene.settle()
    assert scene.copies() == [b"a", b"b", b"c"]
    assert scene.position() == 3


def test_a_record_that_was_dropped_behind_a_younger_one_is_not_lost(scene: Scene) -> None:
    scene.source.append("orders", b"a", b"b")
    scene.start()
    scene.hold_back()
    scene.run_once()
    _, second = scene.producer.queue  # the first one was rejected, and is queued again
    scene.producer.acknowledge(second)
    scene.clock.advance(1.5)  # a stall drops the queue
    scene.run_once()
    scene.let_through()
    scene.recover()
    scene.settle()
    assert scene.copies() == [b"b", b"a", b"b"]
    assert scene.position() == 2


def test_a_partition_that_the_target_does_not_acknowledge_delays_no_other(scene: Scene) -> None:
    scene.source.append("orders", *[b"a%d" % n for n in range(10)])
    scene.start()
    scene.target.holds_back = lambda at: at.topic == COPY and at.partition == 0
    scene.run_once()
    scene.source.append("orders", *[b"b%d" % n for n in range(20)], partition=1)
    for _ in range(20):
        scene.run_once()
        scene.clock.advance(0.2)
        scene.observe()
    scene.commit()
    assert (len(scene.copies(0)), len(scene.copies(1)), scene.position(P1)) == (0, 20, 20)
    assert (scene.phase, lag_of(scene.task).records) == (TaskPhase.RUNNING, 10)
    scene.let_through()
    scene.settle()
    assert scene.copies(0) == [b"a%d" % n for n in range(10)]


# Lag of a failed task.


def test_the_lag_of_a_failed_task_goes_on_growing(scene: Scene) -> None:
    scene.source.append("orders", b"a", b"b")
    scene.start()
    scene.settle()
    scene.guard(scene.fail)
    scene.source.append("orders", b"c")
    scene.observe_failed()
    assert lag_of(scene.task).records == 1
    scene.source.append("orders", b"d", partition=1)
    scene.clock.advance(60)
    scene.observe_failed()
    assert lag_of(scene.task).records == 2
    assert lag_of(scene.task).seconds == 65


def test_a_source_that_is_away_leaves_the_lag_of_a_failed_task_as_it_was(scene: Scene) -> None:
    scene.start()
    scene.guard(scene.fail)
    scene.source.append("orders", b"a")
    scene.observe_failed()
    scene.source.away = True
    scene.observe_failed()
    assert (scene.phase, lag_of(scene.task).records) == (TaskPhase.FAILED, 1)
    assert "broken by the test" in scene.error


# Stalls.


def test_a_stall_drops_the_queue_and_checks_the_claim(scene: Scene) -> None:
    scene.source.append("orders", b"a")
    scene.start()
    scene.settle()
    scene.hold_back()
    scene.source.append("orders", b"b")
    scene.run_once()
    assert len(scene.producer.queue) == 1
    scene.take_away(P0)
    stale = scene.producer
    scene.clock.advance(1.5)
    scene.run_once()
    scene.run_once()
    assert scene.phase is TaskPhase.CLOSED
    assert (scene.copies(), stale.queue) == ([b"a"], [])
    assert scene.stored(P0).owner == "f-source-task-0 on other/1"


def test_a_stall_drops_the_queue_also_while_the_pool_is_busy(scene: Scene) -> None:
    scene.source.append("orders", b"a")
    scene.start()
    scene.hold_back()
    scene.run_once()
    assert len(scene.producer.queue) == 1
    scene.clock.advance(1.5)
    scene.guard(scene.task.process)
    assert scene.restore_pool.waiting
    assert scene.producer.queue == []


def fail_after_a_stall(scene: Scene) -> None:
    """Refuse the record in flight of a lane that is to be settled after a stall."""
    scene.source.append("orders", b"a")
    scene.start()
    scene.hold_back()
    scene.run_once()
    [sent] = scene.producer.queue
    sent.in_flight = True
    scene.clock.advance(1.5)
    scene.guard(scene.task.process)
    scene.producer.refuse(sent, KafkaError.TOPIC_AUTHORIZATION_FAILED)


def test_what_fails_while_the_lane_is_settled_is_reported(scene: Scene) -> None:
    fail_after_a_stall(scene)
    scene.let_through()
    scene.restore_pool.run()
    scene.guard(scene.task.advance)
    assert "Topic authorization failed" in scene.error
    assert scene.copies() == []


def test_a_partition_that_left_while_its_lane_was_settled_is_another_tasks(
    scenes: Callable[..., Scene],
) -> None:
    scene = scenes(P0, P1)
    fail_after_a_stall(scene)
    scene.task.change(frozenset({P1}))
    scene.let_through()
    scene.recover()
    scene.take_away(P0, epoch=9)
    scene.source.append("orders", b"x", partition=1)
    scene.settle()
    assert (scene.phase, scene.error) == (TaskPhase.RUNNING, "")
    assert (scene.copies(0), scene.copies(1)) == ([], [b"x"])


def test_a_task_that_is_still_the_owner_goes_on_after_a_stall(scene: Scene) -> None:
    scene.source.append("orders", b"a")
    scene.start()
    scene.settle()
    epoch = scene.ownership.epoch
    scene.source.append("orders", b"b")
    scene.clock.advance(1.5)
    scene.settle()
    assert scene.copies() == [b"a", b"b"]
    assert (scene.phase, scene.ownership.epoch) == (TaskPhase.RUNNING, epoch)


# Lost owners.


def test_a_claim_that_another_driver_won_closes_the_task(scene: Scene) -> None:
    # Another driver claimed it after this task had read its object.
    now = scene.herder.task
    theirs = now.status.model_copy(update={"driver_name": "other", "epoch": 7})
    scene.herder.store.write_status(now, theirs)
    scene.source.append("orders", b"a")
    scene.task.activate()
    scene.run_once()
    scene.run_once()
    assert scene.phase is TaskPhase.CLOSED
    assert scene.copies() == []
    assert scene.position() is None
    assert scene.herder.task.status.driver_name == "other"


def test_a_restore_claims_above_the_epoch_that_progress_names(
    scene: Scene, scenes: Callable[..., Scene]
) -> None:
    scene.source.append("orders", b"a")
    scene.start()
    scene.settle()
    for _ in range(3):
        scene.take_away(P0)
    following = scenes(kafka=scene.kafka)  # its object has no epoch at all
    following.start()
    assert following.ownership.epoch == following.stored(P0).epoch == scene.ownership.epoch + 4


def test_a_partition_that_comes_with_a_higher_epoch_raises_the_claim(
    scene: Scene, scenes: Callable[..., Scene]
) -> None:
    scene.source.append("orders", b"a", partition=1)
    scene.start()
    scene.settle()
    for _ in range(3):
        scene.take_away(P1)
    following = scenes(P0, kafka=scene.kafka)
    following.start()
    claimed, theirs = following.ownership.epoch, following.stored(P1)
    assert claimed < theirs.epoch
    following.task.change(frozenset({P0, P1}))
    following.source.append("orders", b"b", partition=1)
    following.settle()
    mine = following.stored(P1)
    assert (following.copies(1), mine.source_offset) == ([b"a", b"b"], 2)
    assert mine.epoch == following.ownership.epoch == theirs.epoch + 1
    assert mine.owner != theirs.owner


def test_an_owner_that_is_lost_while_running_stores_and_writes_nothing_more(scene: Scene) -> None:
    scene.source.append("orders", b"a")
    scene.start()
    scene.settle()
    scene.source.append("orders", b"b")
    scene.run_once()
    scene.run_once()
    scene.take_away(P0)
    scene.commit()
    scene.run_once()
    assert scene.phase is TaskPhase.CLOSED
    assert scene.position() == 1
    assert scene.stored(P0).owner == "f-source-task-0 on other/1"


def test_an_owner_that_is_lost_while_its_progress_is_stored_does_not_win_it_back(
    scene: Scene,
) -> None:
    scene.source.append("orders", b"a")
    scene.start()
    scene.run_once()
    scene.run_once()
    scene.hold_back(scene.context.progress.topic)
    scene.guard(scene.task.commit)  # in flight ...
    (mine,) = scene.target.producers[0].queue
    scene.let_through()
    scene.target.holds_back = lambda at: True
    theirs = scene.stored(P0)
    scene.target.holds_back = lambda at: False
    scene.target.producers[0].queue.remove(mine)
    scene.take_away(P0)
    scene.target.producers[0].queue.append(mine)  # ... and late
    scene.commit()
    assert theirs.source_offset == 0
    assert scene.phase is TaskPhase.CLOSED
    assert scene.stored(P0).owner == "f-source-task-0 on other/1"


def test_an_owner_that_is_lost_before_its_release_stores_nothing(scene: Scene) -> None:
    scene.source.append("orders", b"a")
    scene.start()
    scene.run_once()
    scene.run_once()
    scene.take_away(P0)
    scene.task.suspend()
    scene.guard(scene.task.close)
    assert scene.phase is TaskPhase.CLOSED
    assert scene.position() == 0
    assert scene.stored(P0).owner == "f-source-task-0 on other/1"


# Progress.


def test_progress_that_is_refused_is_stored_again(scene: Scene) -> None:
    scene.source.append("orders", b"a")
    scene.start()
    scene.run_once()
    scene.run_once()
    scene.hold_back(scene.context.progress.topic)
    scene.guard(scene.task.commit)
    writer = scene.target.producers[0]
    writer.refuse(writer.queue[0], KafkaError.NOT_ENOUGH_REPLICAS)
    scene.guard(scene.task.commit)
    assert "could not write progress" in scene.error
    scene.let_through()
    scene.recover()
    scene.settle()
    assert (scene.phase, scene.position(), scene.copies()) == (TaskPhase.RUNNING, 1, [b"a"])


def test_progress_that_is_refused_during_a_release_is_stored_before_it_ends(scene: Scene) -> None:
    scene.source.append("orders", b"a")
    scene.start()
    scene.run_once()
    scene.run_once()
    scene.hold_back(scene.context.progress.topic)
    scene.task.suspend()
    assert not scene.task.close()
    writer = scene.target.producers[0]
    writer.refuse(writer.queue[0], KafkaError.NOT_ENOUGH_REPLICAS)
    scene.let_through()
    for _ in range(10):
        scene.task.close()
        scene.restore_pool.run()
        scene.release_pool.run()
    assert (scene.phase, scene.position()) == (TaskPhase.CLOSED, 1)


def commits(scene: Scene) -> tuple[int, int]:
    """Succeeded, failed."""
    return scene.task.commits.succeeded, scene.task.commits.failed


def test_progress_that_is_stored_or_refused_is_counted(scene: Scene) -> None:
    scene.source.append("orders", b"a")
    scene.start()
    assert (commits(scene), scene.task.commits.last_at_s) == ((0, 0), None)
    scene.settle()
    assert commits(scene) == (1, 0)
    assert (stored_s := scene.task.commits.last_at_s) is not None
    scene.settle()
    assert commits(scene) == (1, 0), "there was nothing to store"
    scene.source.append("orders", b"b")
    scene.hold_back(scene.context.progress.topic)
    scene.settle()
    assert commits(scene) == (1, 0), "no answer yet"
    scene.target.producers[0].refuse(
        scene.target.producers[0].queue[0], KafkaError.NOT_ENOUGH_REPLICAS
    )
    scene.guard(scene.task.commit)
    assert (commits(scene), scene.task.commits.last_at_s) == ((1, 1), stored_s)
    scene.let_through()
    scene.recover()
    assert commits(scene) == (2, 1), "the new lane's settling stored it"
    assert (scene.task.commits.last_at_s or 0) > stored_s


def test_progress_that_is_not_answered_in_time_has_failed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scene.context.stall_detector, "beat", lambda: None)  # time flies
    scene.source.append("orders", b"a")
    scene.start()
    scene.hold_back(scene.context.progress.topic)
    scene.settle()
    scene.clock.advance(30)
    scene.settle()
    assert commits(scene) == (0, 0)
    scene.clock.advance(31)
    scene.guard(scene.task.commit)
    assert commits(scene) == (0, 1)
    scene.restore_pool.run()  # settles the lane, which also waits for an answer
    assert commits(scene) == (0, 2)


def test_progress_without_an_answer_is_not_followed_by_more(scene: Scene) -> None:
    scene.source.append("orders", b"a")
    scene.start()
    scene.run_once()
    scene.run_once()
    scene.hold_back(scene.context.progress.topic)
    scene.guard(scene.task.commit)
    scene.source.append("orders", b"b")
    scene.run_once()
    scene.run_once()
    scene.guard(scene.task.commit)
    assert len(scene.target.producers[0].queue) == 1
    scene.let_through()
    scene.settle()
    assert (scene.position(), scene.copies()) == (2, [b"a", b"b"])


def not_stored(scene: Scene) -> str:
    """Return the message of the condition, or an empty string."""
    found = find_condition(scene.task.status.conditions, ConditionType.PROGRESS_NOT_STORED)
    return found.message if found else ""


def test_progress_without_an_answer_stops_the_copy_until_it_is_stored(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.source.append("orders", b"a")
    scene.start()
    scene.run_once()
    scene.run_once()
    scene.hold_back(scene.context.progress.topic)
    scene.guard(scene.task.commit)
    monkeypatch.setattr(scene.context.stall_detector, "beat", lambda: None)  # time flies
    scene.source.append("orders", b"b")
    scene.settle()
    assert (scene.copies(), scene.error) == ([b"a", b"b"], ""), "it may be an election"
    scene.clock.advance(2)
    scene.source.append("orders", b"c")
    scene.settle()
    assert (scene.copies(), scene.phase) == ([b"a", b"b"], TaskPhase.RUNNING)
    scene.clock.advance(9)
    scene.settle()
    assert "no answer within 10 s" in scene.error
    assert "nothing more is copied until it does" in not_stored(scene)
    scene.clock.advance(50)
    scene.settle()
    assert "no answer within 60 s" in scene.error
    assert not_stored(scene)
    scene.recover()
    assert (scene.copies(), scene.phase) == ([b"a", b"b"], TaskPhase.RUNNING)
    assert "no answer within" in scene.error
    scene.let_through()
    scene.recover()
    scene.settle()
    assert (scene.copies(), scene.position(), scene.error) == ([b"a", b"b", b"c"], 3, "")
    assert not not_stored(scene)


def test_an_answer_that_comes_late_lets_the_copy_go_on_at_once(scene: Scene) -> None:
    scene.source.append("orders", b"a")
    scene.start()
    scene.run_once()
    scene.run_once()
    scene.hold_back(scene.context.progress.topic)
    scene.guard(scene.task.commit)
    for _ in range(5):
        scene.observe()
    scene.clock.advance(0.6)
    scene.source.append("orders", b"b")
    scene.run_once()
    scene.run_once()
    assert scene.copies() == [b"a"]
    scene.let_through()
    scene.run_once()
    scene.run_once()
    assert scene.copies() == [b"a", b"b"], "the next commit may be a second away"


def test_progress_is_due_once_much_was_copied(scene: Scene) -> None:
    half = bytes(32 << 20)
    scene.source.largest_bytes = scene.target.largest_bytes = 64 << 20
    scene.start()
    scene.settle()
    scene.source.append("orders", half, half[len(b"keykey") + 1 :])
    scene.run_once()
    scene.run_once()
    assert not scene.task.commit_requested
    scene.source.append("orders", b"")
    scene.run_once()
    scene.run_once()
    assert scene.task.commit_requested, "with their keys they have 64 MiB and two bytes"
    scene.hold_back(scene.context.progress.topic)
    scene.guard(scene.task.commit)
    scene.source.append("orders", half, half)
    scene.run_once()
    scene.run_once()
    assert not scene.task.commit_requested, "what was sent has no answer yet"
    scene.let_through()
    assert scene.task.commit_requested


def test_progress_that_is_refused_for_a_while_is_a_condition(scene: Scene) -> None:
    scene.source.append("orders", b"a")
    scene.start()
    scene.settle()
    scene.target.refuses = lambda at, record: (
        KafkaError.NOT_ENOUGH_REPLICAS if at.topic == scene.context.progress.topic else 0
    )
    scene.source.append("orders", b"b")
    scene.settle()
    assert not not_stored(scene), "it may be an election"
    for _ in range(3):
        scene.recover()
        scene.observe()
    assert "has not stored progress" in not_stored(scene)
    scene.target.refuses = lambda at, record: 0
    scene.recover()
    scene.settle()
    assert (scene.copies(), scene.position(), not_stored(scene)) == ([b"a", b"b"], 2, "")


def test_progress_whose_answer_is_late_is_an_error_until_it_is_stored(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scene.context.stall_detector, "beat", lambda: None)  # time flies
    scene.source.append("orders", b"a")
    scene.start()
    scene.run_once()
    scene.run_once()
    scene.hold_back(scene.context.progress.topic)
    scene.guard(scene.task.commit)
    scene.clock.advance(11)
    scene.settle()
    assert "no answer within 10 s" in scene.error
    scene.let_through()
    scene.settle()
    assert (scene.error, scene.position(), len(scene.target.producers)) == ("", 1, 2)


def test_a_claim_that_progress_does_not_take_is_tried_again(scene: Scene) -> None:
    scene.context.progress.start()
    scene.hold_back(scene.context.progress.topic)
    scene.source.append("orders", b"a")
    scene.task.activate()
    scene.restore_pool.run()
    scene.guard(scene.task.advance)
    assert scene.phase is TaskPhase.RESTORING
    assert "no answer within 10 s" in scene.error
    scene.let_through()
    scene.recover()
    scene.settle()
    assert (scene.phase, scene.position()) == (TaskPhase.RUNNING, 1)


# Assignments.


def test_a_partition_is_stored_before_it_is_given_up(scene: Scene) -> None:
    scene.source.append("orders", b"a")
    scene.source.append("orders", b"b", partition=1)
    scene.start()
    scene.hold_back()
    scene.run_once()
    scene.herder.put([P0])
    scene.ownership.update(scene.herder.task)
    scene.task.change(frozenset({P0}))
    scene.run_once()
    scene.observe()
    assert TopicPartitions.unpack(scene.task.status.partitions) == {P0, P1}  # in flight
    of_the_first, of_the_second = scene.producer.queue
    scene.producer.acknowledge(of_the_second)
    for _ in range(4):
        scene.run_once()
    assert scene.position(P1) == 1
    assert TopicPartitions.unpack(scene.task.status.partitions) == {P0}
    assert scene.task.status.observed_generation == scene.herder.task.metadata.generation
    scene.source.append("orders", b"not ours", partition=1)
    scene.producer.acknowledge(of_the_first)
    scene.let_through()
    scene.settle()
    assert scene.copies(1) == [b"b"]
    assert scene.position(P0) == 1


def test_a_partition_is_added_without_touching_the_others(scenes: Callable[..., Scene]) -> None:
    scene = scenes(P0)
    scene.source.append("orders", b"a")
    scene.source.append("orders", b"b", partition=1)
    scene.start()
    scene.settle()
    assert scene.copies(1) == []
    scene.herder.put([P0, P1])
    scene.ownership.update(scene.herder.task)
    scene.task.change(frozenset({P0, P1}))
    for _ in range(3):
        scene.run_once()
    scene.settle()
    assert (scene.copies(0), scene.copies(1)) == ([b"a"], [b"b"])
    assert len(scene.source.consumers) == 1
    assert scene.task.status.observed_generation == scene.herder.task.metadata.generation


def test_a_partition_that_comes_back_before_it_was_given_up_is_read_on(scene: Scene) -> None:
    scene.source.append("orders", b"a", partition=1)
    scene.start()
    scene.hold_back()
    scene.run_once()
    scene.task.change(frozenset({P0}))
    scene.run_once()
    scene.source.append("orders", b"b", partition=1)
    scene.run_once()
    scene.task.change(frozenset({P0, P1}))
    scene.let_through()
    scene.settle()
    assert scene.copies(1) == [b"a", b"b"]
    assert scene.position(P1) == 2


def test_a_paused_task_copies_nothing_and_stores_what_is_acknowledged(scene: Scene) -> None:
    scene.source.append("orders", b"a")
    scene.start()
    scene.hold_back()
    scene.run_once()
    scene.task.pause(True)
    scene.source.append("orders", b"b")
    scene.let_through()
    scene.run_once()
    scene.observe()
    scene.commit()
    assert scene.phase is TaskPhase.PAUSED
    assert (scene.copies(), scene.position()) == ([b"a"], 1)
    scene.task.pause(False)
    scene.settle()
    assert scene.copies() == [b"a", b"b"]


# Release and standby.


def test_a_release_stores_first(scene: Scene) -> None:
    scene.source.append("orders", b"a")
    scene.start()
    scene.hold_back()
    scene.run_once()
    scene.task.suspend()
    assert not scene.task.close()
    assert not scene.task.leaving
    scene.let_through()
    while not scene.task.leaving:
        scene.task.close()
    assert scene.position() == 1
    assert scene.herder.task.status.driver_name == "me"
    scene.release_pool.run()
    assert scene.task.close()
    assert scene.phase is TaskPhase.CLOSED
    assert scene.herder.task.status.driver_name == ""
    assert all(consumer.closed for consumer in scene.source.consumers)


def test_a_release_does_not_wait_for_ever(scene: Scene) -> None:
    scene.source.append("orders", b"a")
    scene.start()
    scene.hold_back()
    scene.run_once()
    scene.task.suspend()
    assert not scene.task.close()
    scene.clock.advance(3)
    scene.task.close()
    scene.release_pool.run()
    assert scene.task.close()
    assert scene.position() == 0
    assert scene.herder.task.status.driver_name == ""


def test_a_suspended_task_that_comes_back_copies_on_without_restoring(scene: Scene) -> None:
    scene.source.append("orders", b"a")
    scene.start()
    scene.settle()
    scene.task.suspend()
    scene.task.resume()
    assert (scene.phase, scene.restore_pool.waiting) == (TaskPhase.RUNNING, [])
    scene.source.append("orders", b"b")
    scene.settle()
    assert scene.copies() == [b"a", b"b"]


def test_a_standby_writes_nothing_and_takes_over_with_its_warm_clients(scene: Scene) -> None:
    scene.source.append("orders", b"a")
    scene.task = standby = scene.make_task(Role.STANDBY, frozenset({P0, P1}))
    scene.recover()
    assert (standby.phase, scene.copies(), scene.position()) == (TaskPhase.RESTORING, [], None)
    assert scene.ownership.epoch == 0
    warm = scene.source.consumers[-1]
    scene.start()
    scene.settle()
    assert scene.copies() == [b"a"]
    assert scene.source.consumers == [warm]


def test_a_standby_keeps_its_warm_clients_after_an_earlier_stall(scene: Scene) -> None:
    scene.task = scene.make_task(Role.STANDBY, frozenset({P0, P1}))
    scene.clock.advance(2)
    scene.context.stall_detector.beat()  # a stall
    scene.run_once()
    scene.run_once()
    warm = scene.producer
    scene.start()
    scene.source.append("orders", b"a")
    scene.settle()
    assert scene.producer is warm
    assert scene.copies() == [b"a"]


def test_a_cluster_that_is_away_is_asked_again_later(scene: Scene) -> None:
    scene.source.away = True
    scene.task.activate()
    scene.restore_pool.run()
    scene.guard(scene.task.advance)
    assert (scene.phase, scene.restore_pool.waiting) == (TaskPhase.RESTORING, [])
    assert "no broker of east answered" in scene.error
    scene.guard(scene.task.advance)
    assert scene.restore_pool.waiting == []  # not before the back-off is over
    scene.source.away = False
    scene.recover()
    assert scene.phase is TaskPhase.RUNNING
    assert scene.error == ""
