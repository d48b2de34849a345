"""Partitions that the user pauses, while their task runs."""

from support.lags import lag_of
from support.source_tasks import FLOW, P0, P1, TOPIC, Scene

from headrace.api import ConditionType, ReplicationFlow, TaskPhase, find_condition
from headrace.kafka import KafkaError


def pause_partitions(scene: Scene, *items: dict[str, str]) -> None:
    """Change ``spec.pausedPartitions`` while the task runs."""
    document = FLOW.model_dump(by_alias=True, exclude_unset=True)
    document["spec"] |= {"pausedPartitions": items}
    scene.context.change(ReplicationFlow.model_validate(document))
    scene.observe()
    scene.check_pool.run()
    scene.observe()


def paused_message(scene: Scene) -> str:
    found = find_condition(scene.task.status.conditions, ConditionType.PARTITIONS_PAUSED)
    return found.message if found else ""


P0_ONLY = {"topic": TOPIC, "partitions": "0"}


def test_a_paused_partition_rests_and_the_others_go_on(scene: Scene) -> None:
    scene.source.append("orders", b"a")
    scene.start()
    scene.settle()
    producer = scene.producer
    pause_partitions(scene, P0_ONLY)
    scene.source.append("orders", b"b", b"c")
    scene.source.append("orders", b"x", partition=1)
    scene.settle()
    assert (scene.copies(), scene.copies(1)) == ([b"a"], [b"x"])
    assert scene.phase is TaskPhase.RUNNING
    assert paused_message(scene) == (
        "1 of 2 partitions are paused by spec.pausedPartitions: orders/0"
    )
    pause_partitions(scene)
    scene.settle()
    assert (scene.copies(), scene.copies(1)) == ([b"a", b"b", b"c"], [b"x"])
    assert (scene.position(P0), paused_message(scene)) == (3, "")
    assert scene.producer is producer, "neither needs a new lane"


def test_what_is_in_flight_of_a_paused_partition_is_acknowledged_and_stored(scene: Scene) -> None:
    scene.source.append("orders", b"a")
    scene.start()
    scene.hold_back()
    scene.run_once()
    pause_partitions(scene, {"topic": TOPIC})
    scene.source.append("orders", b"b")
    scene.source.append("orders", b"x", partition=1)
    scene.let_through()
    scene.settle()
    assert (scene.copies(), scene.copies(1), scene.position()) == ([b"a"], [], 1)


def test_a_paused_partition_is_not_read_after_a_restore_and_its_lag_grows(scene: Scene) -> None:
    scene.source.append("orders", b"a", b"b")
    pause_partitions(scene, P0_ONLY)
    scene.start()
    scene.settle()
    assert scene.copies() == []
    scene.source.append("orders", b"c")
    scene.clock.advance(20)
    scene.check_topics()
    assert lag_of(scene.task).records == 3
    assert 20 <= lag_of(scene.task).seconds <= 40
    assert scene.task.partitions == {P0, P1}


def test_a_back_off_resumes_only_what_the_user_did_not_pause(scene: Scene) -> None:
    scene.source.append("orders", b"a")
    scene.source.append("orders", b"x", partition=1)
    scene.start()
    scene.hold_back()
    scene.run_once()
    queued = list(scene.producer.queue)
    scene.producer.refuse_batch(dict.fromkeys(queued, KafkaError.NOT_ENOUGH_REPLICAS))
    scene.let_through()
    scene.run_once()
    pause_partitions(scene, P0_ONLY)
    scene.recover()
    scene.settle()
    assert (scene.copies(), scene.copies(1)) == ([], [b"x"])
    assert scene.error, "why it was put off, until it is copied again"
    pause_partitions(scene)
    scene.settle()
    assert (scene.copies(), scene.error) == ([b"a"], "")


def test_a_paused_partition_leaves_its_task_and_comes_back(scene: Scene) -> None:
    pause_partitions(scene, P0_ONLY)
    scene.start()
    scene.task.change(frozenset({P1}))
    scene.settle()
    scene.settle()
    scene.task.change(frozenset({P0, P1}))
    scene.source.append("orders", b"a")
    scene.settle()
    assert scene.copies() == []
    pause_partitions(scene)
    scene.settle()
    assert scene.copies() == [b"a"]
