"""Records that the client neither returns nor reports as an error."""

from support.lags import lag_of
from support.source_tasks import COPY, FLOW, P0, P1, TOPIC, Scene

from headrace.api import ConditionType, ReplicationFlow, TaskPhase, find_condition


def begin(scene: Scene) -> None:
    scene.source.append(TOPIC, b"a", b"unreadable", b"behind")
    scene.log(P0).unreadable_at = 1
    scene.start()
    scene.settle()


def last(scene: Scene, seconds: float) -> None:
    """Let the time elapse, with requests to the source when they are due."""
    for _ in range(int(seconds / 0.3)):
        scene.observe()
        scene.run_once()
        scene.check_pool.run()


def test_what_cannot_be_read_is_tried_with_another_client_then_stops_its_partition(
    scene: Scene,
) -> None:
    begin(scene)
    clients = len(scene.source.consumers)
    last(scene, 65)
    assert (scene.error, len(scene.source.consumers)) == ("", clients)
    last(scene, 15)
    assert "could not read orders-0 offset 1 of east: the client returned nothing" in scene.error
    assert "committed records go on to offset 2" in scene.error
    assert len(scene.source.consumers) == clients + 1
    assert not scene.stops(P0)
    last(scene, 120)
    assert scene.stops(P0)
    scene.source.append(TOPIC, b"x", partition=1)
    scene.settle()
    assert (scene.phase, scene.copies(), scene.copies(1)) == (TaskPhase.RUNNING, [b"a"], [b"x"])
    assert not scene.stops(P1)


def test_a_partition_that_can_be_read_again_recovers(scene: Scene) -> None:
    begin(scene)
    last(scene, 80)
    assert scene.error
    scene.log(P0).unreadable_at = None
    last(scene, 10)
    scene.settle()
    assert (scene.error, scene.copies()) == ("", [b"a", b"unreadable", b"behind"])


def test_a_client_that_reads_nothing_as_the_target_is_behind_is_not_replaced(scene: Scene) -> None:
    begin(scene)
    scene.source.append(TOPIC, b"x", partition=1)
    scene.hold_back(COPY)
    clients = len(scene.source.consumers)
    last(scene, 120)
    assert (scene.error, len(scene.source.consumers)) == ("", clients)


def test_a_paused_partition_is_not_read_and_not_stuck(scene: Scene) -> None:
    begin(scene)
    scene.change_spec(pausedPartitions=[{"topic": TOPIC}])
    last(scene, 120)
    assert (scene.error, lag_of(scene.task).records) == ("", 2)


def test_a_client_that_reads_nothing_within_its_bandwidth_is_not_replaced(scene: Scene) -> None:
    begin(scene)
    clients = len(scene.source.consumers)
    document = FLOW.model_dump(by_alias=True, exclude_unset=True)
    document["spec"] |= {"bandwidth": {"bytesPerSecond": 1024}}
    scene.context.change(ReplicationFlow.model_validate(document))
    scene.context.bandwidth.limit(1024)
    scene.context.bandwidth.spend(1 << 20)  # one large batch of another partition
    last(scene, 120)
    assert (scene.error, len(scene.source.consumers)) == ("", clients)
    used_up = find_condition(scene.task.status.conditions, ConditionType.BANDWIDTH_USED_UP)
    assert used_up is not None
    assert "spec.bandwidth (1024 bytes a second for the flow)" in used_up.message
