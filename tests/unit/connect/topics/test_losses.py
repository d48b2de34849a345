"""A source task when records are missing on the source, or copies on the target.

``test_source_task`` describes the fakes.
"""

from collections.abc import Callable

import pytest
from support.lags import lag_of
from support.source_tasks import COPY, P0, P1, Scene

from headrace.api import LossAction, LossCause, OnDataLoss, TaskPhase
from headrace.api.partitions import TopicPartition
from headrace.kafka import KafkaError

DAY_S = 86_400


def test_a_stored_position_above_the_end_of_the_log_is_lost_data(
    scene: Scene, scenes: Callable[..., Scene]
) -> None:
    scene.source.append("orders", b"a", b"b", b"c")
    scene.start()
    scene.settle()
    scene.log(P0).truncate(1)
    following = scenes(kafka=scene.kafka)
    following.task.activate()
    following.restore_pool.run()
    following.guard(following.task.advance)
    assert following.stops(P0)
    assert "ended at offset 1, but offsets up to 2 were copied" in following.error
    assert following.lost_data
    assert following.position() == 3


def test_offsets_that_retention_removed_before_they_were_copied_are_lost_data(
    scene: Scene, scenes: Callable[..., Scene]
) -> None:
    scene.source.append("orders", b"a")
    scene.start()
    scene.settle()
    scene.source.append("orders", b"b", b"c", b"d")
    scene.log(P0).delete_before(3)
    following = scenes(kafka=scene.kafka)
    following.task.activate()
    following.restore_pool.run()
    following.guard(following.task.advance)
    assert following.stops(P0)
    assert "offsets 1 to 2 are lost (possible causes: retention, or a request" in following.error
    assert following.copies() == [b"a"]


def test_a_first_start_that_retention_overtakes_begins_at_what_is_left(
    scene: Scene, scenes: Callable[..., Scene]
) -> None:
    scene.source.append("orders", b"a", b"b", b"c", b"d")
    scene.task.activate()
    scene.restore_pool.run()  # the claim is stored, and nothing is copied
    assert scene.position() == 0
    scene.log(P0).delete_before(2)
    following = scenes(kafka=scene.kafka)
    following.start()
    following.settle()
    assert following.task.status.losses == ()
    assert following.copies() == [b"c", b"d"]


def test_offsets_that_retention_removes_after_the_first_copy_are_lost_data(
    scene: Scene, scenes: Callable[..., Scene]
) -> None:
    scene.source.append("orders", b"a")
    scene.start()
    scene.settle()
    scene.source.append("orders", b"b", b"c")
    scene.log(P0).delete_before(2)
    following = scenes(kafka=scene.kafka)
    following.task.activate()
    following.restore_pool.run()
    following.guard(following.task.advance)
    assert following.stops(P0)


def test_a_log_that_is_truncated_below_the_position_while_running_is_lost_data(
    scene: Scene,
) -> None:
    scene.source.append("orders", b"a", b"b", b"c")
    scene.start()
    scene.settle()
    scene.log(P0).truncate(1)
    scene.recover()
    scene.observe()
    assert scene.stops(P0)
    assert "ended at offset 1" in scene.error
    assert scene.position() == 3


def test_an_offset_that_is_there_after_all_is_read_again(scene: Scene) -> None:
    scene.source.append("orders", b"a")
    scene.start()
    scene.settle()
    error = KafkaError(KafkaError.OFFSET_OUT_OF_RANGE)
    scene.source.consumers[-1].errors.append((P0, error))
    scene.source.append("orders", b"b")
    scene.recover()
    scene.settle()
    assert scene.phase is TaskPhase.RUNNING
    assert scene.copies() == [b"a", b"b"]


def test_a_log_that_the_broker_calls_truncated_is_lost_data_whatever_it_holds_now(
    scene: Scene,
) -> None:
    scene.source.append("orders", b"a")
    scene.start()
    scene.settle()
    reason = KafkaError(KafkaError._LOG_TRUNCATION).str()
    error = KafkaError(KafkaError._AUTO_OFFSET_RESET, reason)
    scene.source.consumers[-1].errors.append((P0, error))
    scene.recover()
    scene.observe()
    assert scene.stops(P0)
    assert "may write others in their place (possible causes: an unclean" in scene.error


@pytest.mark.parametrize(
    ("side", "said"),
    [
        ("source", "records of the old partition 0 from offset 1 on are lost"),
        ("target", "its offsets 0 to 0, all copies of orders-0 until then, are lost"),
    ],
)
def test_a_topic_that_is_created_again_under_a_running_task_is_lost_data(
    scene: Scene, side: str, said: str
) -> None:
    scene.source.append("orders", b"a")
    scene.start()
    scene.settle()
    scene.check_topics()
    assert (scene.phase, scene.error) == (TaskPhase.RUNNING, "")
    cluster, topic = {"source": (scene.source, "orders"), "target": (scene.target, COPY)}[side]
    cluster.recreate_topic(topic)
    scene.source.append("orders", b"b", b"c", b"d")
    scene.settle()
    scene.check_topics()
    scene.recover()
    scene.observe()
    assert scene.stops(P0)
    assert f"topic {topic} on" in scene.error
    assert said in scene.error
    assert scene.lost_data


def test_what_was_copied_of_a_topic_that_was_created_again_hides_no_loss_of_the_old_one(
    scene: Scene, scenes: Callable[..., Scene]
) -> None:
    scene.source.append("orders", b"a", b"b")
    scene.start()
    scene.settle()
    scene.confirm()
    scene.source.append("orders", b"c")
    scene.source.recreate_topic("orders")
    scene.source.append("orders", *[b"n%d" % n for n in range(9)])
    for _ in range(5):
        scene.run_once()
    scene.commit()  # and dies before it compares the topics' ids
    assert scene.position() == 9
    assert scene.copies() == [b"a", b"b", *[b"n%d" % n for n in range(2, 9)]]
    following = scenes(P0, kafka=scene.kafka)
    following.change_spec(onDataLoss=OnDataLoss.CONTINUE)
    following.task.activate()
    following.recover()
    following.settle()
    (loss,) = following.task.status.losses
    assert (loss.cause, loss.first_offset, loss.last_offset) == (
        LossCause.SOURCE_RECREATED,
        2,
        None,
    )
    assert following.copies()[-9:] == [b"n%d" % n for n in range(9)]


def test_the_end_of_a_topic_that_was_created_again_is_none_of_the_old_one(
    scenes: Callable[..., Scene],
) -> None:
    scene = scenes(P0)
    scene.source.append("orders", b"a", b"b")
    scene.start()
    scene.settle()
    scene.confirm()
    scene.source.recreate_topic("orders")
    scene.source.append("orders", *[b"n%d" % n for n in range(9)])
    for _ in range(5):
        scene.run_once()
    scene.check_topics()
    scene.recover()
    scene.settle()
    (loss,) = scene.task.status.losses
    assert (loss.first_offset, loss.last_offset, loss.lower_bound) == (2, None, True), loss


def test_a_topic_that_is_created_again_is_noticed_with_the_progress_that_is_stored_next(
    scene: Scene,
) -> None:
    scene.change_spec(discovery={"topicsSeconds": 3600})
    scene.source.append("orders", b"a")
    scene.start()
    scene.settle()
    scene.confirm()
    scene.source.recreate_topic("orders")
    scene.source.append("orders", b"b", b"c", b"d")
    for _ in range(5):
        scene.run_once()
    scene.commit()
    scene.clock.advance(1)
    scene.confirm()
    assert "has another topic id than" in scene.error


def test_a_topic_that_is_away_for_a_check_is_none_that_was_created_again(scene: Scene) -> None:
    scene.start()
    scene.source.away = True
    scene.check_topics()
    scene.source.away = False
    del scene.source.ids["orders"]
    scene.check_topics()
    assert scene.phase is TaskPhase.RUNNING


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_topic_that_was_made_again_is_found_at_the_next_restore(
    scene: Scene, scenes: Callable[..., Scene], side: str
) -> None:
    scene.source.append("orders", b"a")
    scene.start()
    scene.settle()
    cluster, topic = {"source": (scene.source, "orders"), "target": (scene.target, COPY)}[side]
    cluster.recreate_topic(topic)
    following = scenes(kafka=scene.kafka)
    following.task.activate()
    following.restore_pool.run()
    following.guard(following.task.advance)
    assert following.stops(P0)
    assert f"topic {topic} on" in following.error
    assert "has another topic id than the topic that was" in following.error


@pytest.mark.parametrize("side", ["source", "target"])
def test_no_loss_is_believed_while_a_foreign_broker_answers(
    scene: Scene, scenes: Callable[..., Scene], side: str
) -> None:
    scene.source.append("orders", b"a")
    scene.start()
    scene.settle()
    cluster, topic = {"source": (scene.source, "orders"), "target": (scene.target, COPY)}[side]
    cluster.recreate_topic(topic)
    cluster.foreign_broker = True
    following = scenes(kafka=scene.kafka)
    following.task.activate()
    following.restore_pool.run()
    following.guard(following.task.advance)
    scene.check_topics()
    for one in (scene, following):
        assert not one.stops(P0)
        assert not one.lost_data
    assert "a broker of another cluster answers" in following.error


def test_copies_that_are_gone_from_the_target_are_lost_data(
    scene: Scene, scenes: Callable[..., Scene]
) -> None:
    scene.source.append("orders", b"a", b"b")
    scene.start()
    scene.settle()
    scene.target.logs[P0._replace(topic=COPY)].truncate(1)
    following = scenes(kafka=scene.kafka)
    following.task.activate()
    following.restore_pool.run()
    following.guard(following.task.advance)
    assert following.stops(P0)
    assert "offsets 1 to 1 are missing from the target (possible causes:" in following.error


def test_copies_that_are_lost_while_running_are_lost_data_for_every_instance(
    scene: Scene, scenes: Callable[..., Scene]
) -> None:
    scene.source.append("orders", b"a", b"b", b"c")
    scene.start()
    scene.settle()
    scene.target.logs[TopicPartition(COPY, 0)].truncate(1)
    scene.source.append("orders", b"d", b"e", b"f")
    scene.recover()
    scene.observe()
    assert scene.stops(P0)
    assert "offsets 1 to 2 are missing from the target" in scene.error
    assert (scene.position(), len(scene.copies())) == (3, 4), "the log's end hides the loss now"
    following = scenes(P0, kafka=scene.kafka)
    following.task.activate()
    following.recover()
    assert (following.phase, following.error) == (TaskPhase.FAILED, scene.error)
    assert following.lost_data == scene.lost_data


# A partition's loss does not affect other partitions.


def test_the_others_of_a_task_go_on_and_the_lag_of_the_stopped_one_grows(scene: Scene) -> None:
    scene.source.append("orders", b"a", b"b", b"c")
    scene.start()
    scene.settle()
    scene.log(P0).truncate(1)
    scene.recover()
    scene.source.append("orders", b"x", partition=1)
    scene.source.append("orders", *[b"%d" % n for n in range(9)])
    scene.settle()
    for _ in range(20):
        scene.observe()
        scene.check_pool.run()
    assert (scene.phase, scene.copies(1)) == (TaskPhase.RUNNING, [b"x"])
    assert scene.stops(P0)
    assert not scene.stops(P1)
    assert "offsets up to 2 were copied" in scene.lost_data
    assert lag_of(scene.task).records == 7
    (loss,) = scene.task.status.losses
    assert (loss.cause, loss.first_offset, loss.last_offset, loss.action) == (
        LossCause.SOURCE_DIVERGED,
        1,
        2,
        LossAction.STOPPED,
    )


def test_a_partition_that_was_lost_and_is_not_wanted_any_more_is_no_error(scene: Scene) -> None:
    scene.source.append("orders", b"a", b"b")
    scene.start()
    scene.settle()
    scene.log(P0).truncate(1)
    scene.recover()
    assert scene.error
    scene.task.change(frozenset({P1}))
    scene.settle()
    assert (scene.error, scene.lost_data, scene.task.status.losses) == ("", "", ())


def test_a_changed_policy_takes_effect_at_once(scene: Scene) -> None:
    scene.source.append("orders", b"a", b"b", b"c")
    scene.start()
    scene.settle()
    scene.log(P0).truncate(1)
    scene.recover()
    assert scene.stops(P0)
    scene.change_spec(onDataLoss=OnDataLoss.CONTINUE)
    scene.source.append("orders", b"d")
    for _ in range(3):
        scene.run_once()
    scene.settle()
    assert scene.copies() == [b"a", b"b", b"c", b"d"]
    assert not scene.stops(P0)


# Each policy with the fate of five copied records, and the records copied afterwards.


def retention(scene: Scene) -> None:
    scene.source.append("orders", b"5", b"6", b"7")
    scene.log(P0).delete_before(7)


def unclean_election(scene: Scene) -> None:
    scene.log(P0).truncate(2)
    scene.source.append("orders", b"B")


def source_recreated(scene: Scene) -> None:
    scene.source.recreate_topic("orders")
    scene.source.append("orders", *[b"n%d" % n for n in range(9)])


def target_truncated(scene: Scene) -> None:
    scene.target.logs[P0._replace(topic=COPY)].truncate(2)
    scene.source.append("orders", b"5")


def target_recreated(scene: Scene) -> None:
    scene.target.recreate_topic(COPY)
    scene.source.append("orders", b"5")


FIVE = [b"0", b"1", b"2", b"3", b"4"]
NEW = [b"n%d" % n for n in range(9)]
RECREATED = (LossCause.SOURCE_RECREATED, 5, None)


@pytest.mark.parametrize("running", [False, True])
@pytest.mark.parametrize(
    ("happens", "policy", "copies", "lost"),
    [
        (retention, OnDataLoss.RESTART, [*FIVE, b"7"], (LossCause.SOURCE_TRUNCATED, 5, 6)),
        (retention, OnDataLoss.CONTINUE, [*FIVE, b"7"], (LossCause.SOURCE_TRUNCATED, 5, 6)),
        (
            unclean_election,
            OnDataLoss.RESTART,
            [*FIVE, b"0", b"1", b"B"],
            (LossCause.SOURCE_DIVERGED, 3, 4),
        ),
        (unclean_election, OnDataLoss.CONTINUE, FIVE, (LossCause.SOURCE_DIVERGED, 3, 4)),
        (
            source_recreated,
            OnDataLoss.RESTART,
            [*FIVE, *NEW],
            (LossCause.SOURCE_RECREATED, 5, None),
        ),
        (
            source_recreated,
            OnDataLoss.CONTINUE,
            [*FIVE, *NEW],
            (LossCause.SOURCE_RECREATED, 5, None),
        ),
        (
            target_truncated,
            OnDataLoss.RESTART,
            [*FIVE[:2], *FIVE, b"5"],
            (LossCause.TARGET_TRUNCATED, 2, 4),
        ),
        (
            target_truncated,
            OnDataLoss.CONTINUE,
            [*FIVE[:2], b"5"],
            (LossCause.TARGET_TRUNCATED, 2, 4),
        ),
        (target_recreated, OnDataLoss.RESTART, [*FIVE, b"5"], (LossCause.TARGET_RECREATED, 0, 4)),
        (target_recreated, OnDataLoss.CONTINUE, [b"5"], (LossCause.TARGET_RECREATED, 0, 4)),
    ],
)
def test_a_loss_is_answered_by_policy(  # noqa: PLR0917
    scenes: Callable[..., Scene],
    happens: Callable[[Scene], None],
    policy: OnDataLoss,
    copies: list[bytes],
    lost: tuple[LossCause, int, int | None],
    running: bool,
) -> None:
    scene = scenes(P0)
    scene.change_spec(onDataLoss=policy)
    scene.source.append("orders", *FIVE)
    scene.start()
    scene.settle()
    scene.confirm()
    if running:
        scene.check_topics()
        happens(scene)
        scene.check_topics()
        scene.recover()
    else:
        happens(scene)
        scene = scenes(P0, kafka=scene.kafka)
        scene.change_spec(onDataLoss=policy)
        scene.task.activate()
        scene.recover()
    scene.settle()
    assert dict.fromkeys(copies).keys() <= set(scene.copies()), scene.error
    if not running:
        assert scene.copies() == copies
    (loss,) = scene.task.status.losses
    assert (loss.cause, loss.first_offset, loss.last_offset) == lost
    assert loss.action.startswith(policy.value)
    assert loss.lower_bound == (loss.cause is LossCause.SOURCE_RECREATED)
    assert f"spec.onDataLoss: {policy}" in scene.lost_data
    assert (scene.phase, scene.error, scene.stops(P0)) == (TaskPhase.RUNNING, "", False)
    following = scenes(P0, kafka=scene.kafka)
    following.start()
    following.observe()
    assert (following.task.status.losses, following.copies()) == ((loss,), scene.copies())


def test_a_loss_that_was_answered_is_shown_for_a_while(
    scenes: Callable[..., Scene],
) -> None:
    scene = scenes(P0)
    scene.change_spec(onDataLoss=OnDataLoss.CONTINUE)
    scene.source.append("orders", b"a")
    scene.start()
    scene.settle()
    target_recreated(scene)
    scene.check_topics()
    scene.recover()
    scene.observe()
    assert scene.lost_data
    (loss,) = scene.task.status.losses
    scene.clock.end_s = 2 * DAY_S
    scene.clock.advance(loss.time.timestamp() + DAY_S - 60 - scene.clock.time())
    scene.observe()
    assert scene.lost_data
    assert list(scene.task.status.losses) == [loss]
    scene.clock.advance(120)
    scene.observe()
    assert (scene.lost_data, scene.task.status.losses) == ("", ())
