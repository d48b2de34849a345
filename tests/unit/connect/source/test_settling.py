"""Lanes that are replaced, and settled offsets of partitions that another task may have."""

from collections.abc import Callable

import pytest
from support.source_tasks import COPY, P0, P1, Scene

from headrace.api.partitions import TopicPartition
from headrace.connect.source.copying import settle
from headrace.connect.source.record_errors import RecordErrors
from headrace.connect.source.task_context import TaskContext
from headrace.connect.takeover.restoring import epoch_floor, restore
from headrace.connect.takeover.starts import Starts
from headrace.datapath import Lane
from headrace.errors import Retriable


class Settling:
    """Progress of a task whose lanes the test opens and settles one after another."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.task = TaskContext.make(
            scene.task.id,
            scene.context,
            scene.ownership,
            changed=lambda: None,
            restarts=0,
            check_pool=scene.check_pool,
        )
        self.progress = self.task.progress
        self._record_errors = RecordErrors(
            scene.context, self.task.id, self.task.reported, self.task.log
        )
        scene.ownership.claim(epoch_floor(scene.context, {P0, P1}))

    def open(self, *partitions: TopicPartition) -> Lane:
        """Return a lane with restored partitions."""
        context, reported = self.scene.context, self.task.reported
        settled = self.progress.settled
        starts = restore(context, self.scene.ownership, frozenset(partitions), settled).starts
        self.progress.restored(starts)
        lane = context.mover.lane(self.task.id, reported.say, reported.copied)
        lane.open({at: self._record_errors.copy_from(at, one) for at, one in starts.items()})
        return lane

    def settle(self, lane: Lane, *owned: TopicPartition) -> Starts:
        """Settle a lane of a task that owns these partitions; return where partitions resume."""
        return settle(
            self.scene.context,
            self.progress,
            self._record_errors,
            lane,
            frozenset(owned),
            failed=frozenset(),
        ).starts

    def store_nothing(self) -> None:
        """Copy one record of partition 0, and settle its lane while the target is unreachable."""
        self.scene.source.append("orders", b"a")
        lane = self.open(P0, P1)
        lane.run_once()
        lane.run_once()
        self.scene.target.away = True
        with pytest.raises(Retriable):
            self.settle(lane, P0, P1)
        self.scene.target.away = False
        assert self.scene.position(P0) == 0
        assert self.progress.settled[P0].source_offset == 1


@pytest.fixture
def settling(scene: Scene) -> Settling:
    """Return a task with settled offsets that are not stored."""
    settling = Settling(scene)
    settling.store_nothing()
    return settling


def test_only_partitions_of_the_settled_lane_resume(settling: Settling) -> None:
    starts = settling.settle(settling.open(P1), P0, P1)
    assert starts.keys() == {P1}


def test_offset_that_could_not_be_stored_is_stored_with_the_next_lane(
    settling: Settling, scene: Scene
) -> None:
    settling.settle(settling.open(P1), P0, P1)
    assert scene.position(P0) == 1


def test_settled_offset_of_partition_with_another_owner_is_not_stored(
    settling: Settling, scene: Scene
) -> None:
    scene.take_away(P0)
    theirs = scene.stored(P0)
    settling.settle(settling.open(P1), P1)
    assert scene.stored(P0) == theirs
    assert not scene.context.progress.overtaken(scene.context.progress_key(P0))


def test_settled_offset_is_not_stored_after_its_progress_was_deleted(
    settling: Settling, scene: Scene
) -> None:
    lane = settling.open(P1)
    scene.context.progress.purge([scene.context.progress_key(P0)])
    settling.settle(lane, P1)
    assert scene.position(P0) is None


def test_settled_offset_of_partition_that_left_is_forgotten(settling: Settling) -> None:
    settling.settle(settling.open(P1), P1)
    assert settling.progress.settled.keys() == {P1}


def test_loss_of_partition_that_left_is_not_stored_over_its_next_owner(
    scene: Scene, renew: Callable[[Scene], None]
) -> None:
    scene.source.append("orders", b"a", b"b")
    scene.start()
    scene.settle()
    scene.target.logs[TopicPartition(COPY, 0)].truncate(1)
    scene.source.append("orders", b"c")
    scene.task.process()
    scene.task.process()
    scene.task.change(frozenset({P1}))
    scene.recover()
    assert scene.stored(P0).loss is not None
    scene.take_away(P0)
    renew(scene)
    scene.recover()
    assert not scene.context.progress.overtaken(scene.context.progress_key(P0))
