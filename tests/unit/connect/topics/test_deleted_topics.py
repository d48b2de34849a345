"""Progress of topics that were deleted on the source.

``test_source_task`` describes the fakes.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from support.source_tasks import COPY, P0, P1, TOPIC, Scene

from headrace.api import RESET_ANNOTATION, LossAction, LossCause, OnDataLoss, TopicPartition
from headrace.connect.topics.losses import sentence
from headrace.connect.topics.topic_deletion import DeletedTopics
from headrace.errors import Fatal, Retriable
from headrace.kafka import Topic
from headrace.replication import Loss, Switch

DAY_S = 86_400


def two_copied_of_three(scene: Scene) -> None:
    """Copy two records of partition 0. A third record is seen, and the topic is deleted."""
    scene.source.append(TOPIC, b"a", b"b")
    scene.start()
    scene.settle()
    scene.log(P0).entries.append(scene.log(P0).at(1))


def discover(scene: Scene, deleted: DeletedTopics, *held: TopicPartition) -> None:
    deleted.find(scene.source.topics(), set(held))


def gone(scene: Scene) -> DeletedTopics:
    """Return the result of a connector that ran before the deletion."""
    scene.context.progress.read_to_end()
    deleted = DeletedTopics(scene.context)
    deleted.saw({P0: 3, P1: 0})
    discover(scene, deleted, P0, P1)
    scene.source.delete_topic(TOPIC)
    discover(scene, deleted)
    discover(scene, deleted)
    return deleted


@pytest.mark.parametrize(
    ("policy", "action"),
    [
        (OnDataLoss.FAIL, LossAction.STOPPED),
        (OnDataLoss.RESTART, LossAction.RESTARTED),
        (OnDataLoss.CONTINUE, LossAction.CONTINUED),
    ],
)
def test_what_a_deleted_topic_had_and_was_not_copied_is_lost_data(
    scene: Scene, policy: OnDataLoss, action: LossAction
) -> None:
    scene.change_spec(onDataLoss=policy)
    two_copied_of_three(scene)
    deleted = gone(scene)
    assert set(deleted.losses) == {P0}
    loss = deleted.losses[P0]
    assert loss == Loss(LossCause.SOURCE_DELETED, 2, 2, loss.time_ms, True, action)
    assert "topic orders on east was deleted: offsets 2 to" in sentence(scene.context, P0, loss)
    assert scene.stored(P0).loss == loss


def test_another_connector_knows_the_loss_at_once_and_from_progress_alone(scene: Scene) -> None:
    two_copied_of_three(scene)
    losses = gone(scene).losses
    scene.clock.advance(1_000)
    other = DeletedTopics(scene.context)
    discover(scene, other)
    assert other.losses == losses


def test_the_last_end_that_a_task_stored_is_enough(scene: Scene) -> None:
    scene.source.append(TOPIC, b"a", b"b", b"c")
    scene.start()
    scene.hold_back()
    scene.run_once()
    scene.producer.acknowledge(scene.producer.queue[0])
    scene.settle()
    assert scene.position() == 1
    scene.source.delete_topic(TOPIC)
    deleted = DeletedTopics(scene.context)
    discover(scene, deleted)
    assert not deleted.losses, "one list may lack a topic"
    discover(scene, deleted)
    assert (deleted.losses[P0].first, deleted.losses[P0].last) == (1, 2)


def test_progress_of_a_topic_that_was_copied_to_its_end_is_purged(scene: Scene) -> None:
    scene.source.append(TOPIC, b"a", b"b", b"c")
    scene.start()
    scene.settle()
    deleted = gone(scene)
    assert not deleted.losses
    assert (scene.position(P0), scene.position(P1)) == (None, None)


def test_progress_of_a_partition_that_was_failed_over_is_kept(scene: Scene) -> None:
    """Its fail-over prevents that the copy is deleted, and that a new topic is copied into it."""
    scene.source.append(TOPIC, b"a", b"b", b"c")
    scene.start()
    scene.settle()
    switched = replace(scene.stored(P0), switch=Switch(1, True, 3, 3))
    scene.context.progress.write({scene.context.progress_key(P0): switched})
    deleted = gone(scene)
    assert not deleted.losses
    assert (scene.stored(P0).switch, scene.position(P1)) == (switched.switch, None)


def test_nothing_is_judged_while_a_task_may_still_store_something(scene: Scene) -> None:
    two_copied_of_three(scene)
    scene.source.delete_topic(TOPIC)
    deleted = DeletedTopics(scene.context)
    deleted.saw({P0: 3})
    for _ in range(3):
        discover(scene, deleted, P0)
    assert not deleted.losses
    assert scene.position() == 2


def test_a_topic_that_a_list_lacks_for_a_moment_is_not_deleted(scene: Scene) -> None:
    two_copied_of_three(scene)
    deleted = DeletedTopics(scene.context)
    deleted.saw({P0: 3})
    for _ in range(3):
        deleted.find({}, set())  # the broker still describes it
    assert not deleted.losses
    assert scene.position() == 2


def test_a_topic_that_a_foreign_broker_lacks_is_not_deleted(scene: Scene) -> None:
    two_copied_of_three(scene)
    scene.context.progress.read_to_end()
    scene.source.delete_topic(TOPIC)
    scene.source.foreign_broker = True
    deleted = DeletedTopics(scene.context)
    deleted.saw({P0: 3})
    for _ in range(3):
        with pytest.raises(Retriable, match="a broker of another cluster answers"):
            deleted.find({}, set())
    assert not deleted.losses
    assert scene.position() == 2


def test_a_topic_that_may_not_be_described_any_more_is_not_deleted(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.change_spec(topics={"include": [TOPIC, "payments"]})
    two_copied_of_three(scene)
    payments = scene.context.progress_key(TopicPartition("payments", 0))
    scene.context.progress.write({payments: scene.stored(P0)})
    describe = scene.source.describe

    def refusing(names: Iterable[str]) -> dict[str, Topic]:
        if TOPIC in (asked := list(names)):
            raise Fatal("grant Describe")
        return describe(asked)

    monkeypatch.setattr(scene.source, "describe", refusing)
    scene.context.progress.read_to_end()
    deleted = DeletedTopics(scene.context)
    deleted.saw({TopicPartition("payments", 0): 9})
    for _ in range(3):
        deleted.find({}, set())
    assert {at.topic for at in deleted.losses} == {"payments"}
    assert scene.position() == 2


def test_an_unresolved_loss_is_shown_for_longer_than_a_day(scene: Scene) -> None:
    two_copied_of_three(scene)
    deleted = gone(scene)
    scene.clock.end_s = 2 * DAY_S
    scene.clock.advance(DAY_S + 100)
    discover(scene, deleted)
    assert deleted.losses[P0].unresolved


def test_an_accepted_loss_is_shown_for_a_day_and_stays_in_progress_until_a_reset(
    scene: Scene,
) -> None:
    two_copied_of_three(scene)
    deleted = gone(scene)
    scene.clock.advance(400)
    discover(scene, deleted)
    assert deleted.losses[P0].unresolved
    scene.change_spec(onDataLoss=OnDataLoss.CONTINUE)
    discover(scene, deleted)
    assert deleted.losses[P0].action is LossAction.CONTINUED
    scene.change_spec(onDataLoss=OnDataLoss.FAIL)
    discover(scene, deleted)
    assert deleted.losses[P0].action is LossAction.CONTINUED
    scene.clock.end_s = 2 * DAY_S
    lost_s = deleted.losses[P0].time_ms / 1000
    scene.clock.advance(lost_s + DAY_S - 60 - scene.clock.time())
    discover(scene, deleted)
    assert deleted.losses[P0].action is LossAction.CONTINUED
    scene.clock.advance(120)
    discover(scene, deleted)
    assert deleted.losses == {}
    assert [one.action for one in scene.stored(P0).losses] == [LossAction.CONTINUED]
    discover(scene, deleted)
    assert len(scene.stored(P0).losses) == 1
    flow = scene.context.flow
    annotations = {RESET_ANNOTATION: "orders/0@2026-01-31T18:00:00Z"}
    metadata = flow.metadata.model_copy(update={"annotations": annotations})
    scene.context.change(flow.model_copy(update={"metadata": metadata}))
    discover(scene, deleted)
    assert scene.position() is None


@pytest.mark.parametrize(
    "topics", [{"include": ["payments"]}, {"include": [TOPIC], "exclude": [TOPIC]}]
)
def test_what_the_filter_excludes_is_no_loss_of_this_flow(
    scene: Scene, topics: dict[str, list[str]]
) -> None:
    two_copied_of_three(scene)
    deleted = gone(scene)
    scene.change_spec(topics=topics)
    discover(scene, deleted)
    assert not deleted.losses
    assert scene.position() == 2, "another flow may copy it"


def test_a_topic_that_is_there_again_later_is_answered_by_the_policy(
    scene: Scene, scenes: Callable[..., Scene]
) -> None:
    two_copied_of_three(scene)
    gone(scene)
    scene.source.create_topic(TOPIC, 2)
    scene.source.append(TOPIC, b"n")
    following = scenes(P0, kafka=scene.kafka)
    following.task.activate()
    following.recover()
    following.observe()
    assert following.stops(P0)
    (loss,) = following.task.status.losses
    found = (loss.cause, loss.first_offset, loss.last_offset, loss.lower_bound)
    assert found == (LossCause.SOURCE_RECREATED, 2, 2, True)


def test_a_topic_whose_loss_was_accepted_is_copied_from_its_beginning_when_it_is_there_again(
    scene: Scene, scenes: Callable[..., Scene]
) -> None:
    scene.change_spec(onDataLoss=OnDataLoss.CONTINUE)
    two_copied_of_three(scene)
    gone(scene)
    scene.source.create_topic(TOPIC, 2)
    scene.source.append(TOPIC, b"n")
    following = scenes(P0, kafka=scene.kafka)  # its policy is Fail
    following.start()
    following.settle()
    assert following.copies() == [b"a", b"b", b"n"]
    (loss,) = following.task.status.losses
    assert (loss.action, loss.first_offset) == (LossAction.CONTINUED, 2)


def shrunk(scene: Scene) -> None:
    """Create the topic again with one partition."""
    scene.source.delete_topic(TOPIC)
    del scene.source.logs[P1]
    scene.source.create_topic(TOPIC, 1)


def copied_one_of_two(scene: Scene) -> None:
    """Copy one record of partition 1. The second one is seen if the test says so."""
    scene.source.append(TOPIC, b"a", partition=1)
    scene.start()
    scene.settle()
    scene.context.progress.read_to_end()


def test_a_topic_created_again_with_fewer_partitions_loses_the_rest_in_a_run(scene: Scene) -> None:
    copied_one_of_two(scene)
    deleted = DeletedTopics(scene.context)
    deleted.saw({P0: 0, P1: 2})
    shrunk(scene)
    discover(scene, deleted, P0)
    assert not deleted.losses, "one list may be an old one"
    discover(scene, deleted, P0)
    (at,) = deleted.losses
    loss = deleted.losses[at]
    assert (at, loss.cause, loss.first, loss.last) == (P1, LossCause.SOURCE_DELETED, 1, 1)
    assert loss.unresolved
    assert scene.stored(P1).loss == loss


def test_a_partition_that_is_gone_after_a_stop_is_named_without_its_end(scene: Scene) -> None:
    """The records that were written while the flow was stopped were never seen."""
    copied_one_of_two(scene)
    shrunk(scene)
    deleted = DeletedTopics(scene.context)
    for _ in range(2):
        discover(scene, deleted, P0)
    said = sentence(scene.context, P1, deleted.losses[P1])
    assert "records of its partition 1 from offset 1 on were not copied, and are lost" in said
    assert sorted(deleted.losses) == [P1]
    again = DeletedTopics(scene.context)
    discover(scene, again, P0)
    assert again.losses == deleted.losses


def test_a_partition_that_was_copied_to_its_end_and_is_gone_is_purged(scene: Scene) -> None:
    copied_one_of_two(scene)
    deleted = DeletedTopics(scene.context)
    deleted.saw({P0: 0, P1: 1})
    shrunk(scene)
    for _ in range(2):
        discover(scene, deleted, P0)
    assert not deleted.losses
    assert (scene.position(P0), scene.position(P1)) == (0, None)


def test_a_broker_that_does_not_know_new_partitions_yet_deletes_none(scene: Scene) -> None:
    copied_one_of_two(scene)
    deleted = DeletedTopics(scene.context)
    deleted.saw({P0: 0, P1: 2})
    for _ in range(3):
        deleted.find({TOPIC: 1}, {P0})
    del scene.source.logs[P1]  # it also describes the earlier topic, with the same id
    for _ in range(3):
        deleted.find({TOPIC: 1}, {P0})
    assert not deleted.losses
    assert scene.position(P1) == 1


def test_a_partition_that_a_task_still_holds_is_not_judged(scene: Scene) -> None:
    copied_one_of_two(scene)
    deleted = DeletedTopics(scene.context)
    deleted.saw({P0: 0, P1: 2})
    shrunk(scene)
    for _ in range(3):
        discover(scene, deleted, P0, P1)
    assert not deleted.losses


def test_an_accepted_loss_of_a_partition_lets_it_begin_again(
    scene: Scene, scenes: Callable[..., Scene]
) -> None:
    scene.change_spec(onDataLoss=OnDataLoss.CONTINUE)
    copied_one_of_two(scene)
    deleted = DeletedTopics(scene.context)
    deleted.saw({P0: 0, P1: 2})
    shrunk(scene)
    for _ in range(2):
        discover(scene, deleted, P0)
    assert deleted.losses[P1].action is LossAction.CONTINUED
    scene.source.delete_topic(TOPIC)
    scene.source.create_topic(TOPIC, 2)
    scene.source.append(TOPIC, b"n", partition=1)
    following = scenes(P1, kafka=scene.kafka)  # its policy is Fail
    following.start()
    following.settle()
    assert scene.target.records(COPY, 1) == [b"a", b"n"]
