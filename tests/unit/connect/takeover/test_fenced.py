"""A take-over behind a fence: which writers are fenced, and the progress during that time.

The fence is a fake: tests/integration/test_fence.py has the real one.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import replace
from typing import Any, cast

import pytest
from support.fake_kafka import MARKER, FakeRecord
from support.memory_mover import MemoryLane
from support.patience import WITHIN_S
from support.source_tasks import COPY, P0, P1, Scene

from headrace.api import ConditionType, OnDataLoss, TaskPhase, find_condition
from headrace.api.partitions import TopicPartition
from headrace.datapath import Before, Resumed
from headrace.errors import Fatal, Retriable
from headrace.replication import ContiguousRange
from headrace.replication.progress import OwnerProducer, Progress, TargetSeen
from headrace.replication.reconcile import Accounts, Resume, ResumeReason

DEAD = OwnerProducer("headrace-dead", 7, 0)
NONE = Accounts(0, 0, 0)


class FakeFencing:
    """Fencing that finds the records of ``tails`` after progress."""

    impossible = ""

    def __init__(self) -> None:
        self.epochs: dict[str, int] = {}
        self.before: dict[TopicPartition, Before] = {}
        self.tails: dict[TopicPartition, int] = {}
        self.meanwhile: Callable[[], None] = lambda: None
        self.ended: set[str] = set()
        self.commits: Callable[[], None] = lambda: None
        """Effect of a commit that a coordinator completes before it ends a transaction."""
        self.error: Exception | None = None
        self.put_off: dict[TopicPartition, Retriable] = {}
        self.ends: dict[TopicPartition, int | Retriable] = {}
        """Ends of leader epochs of the target."""
        self.expired: set[int] = set()
        """Producer ids that can no longer be fenced."""
        self.next_id = 0
        """Increment of new ids, raised if the coordinator forgot an id or used its epochs."""

    def identify(self, transactional_id: str) -> OwnerProducer:
        if isinstance(self.error, Fatal):
            raise self.error
        self.meanwhile()
        epoch = self.epochs[transactional_id] = self.epochs.get(transactional_id, -1) + 1
        return OwnerProducer(transactional_id, hash(transactional_id) % 1000 + self.next_id, epoch)

    def end_transactions(self, transactional_ids: Set[str]) -> None:
        self.ended |= transactional_ids
        self.commits()

    def epoch_ends(
        self, epochs: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int | Retriable]:
        return {at: self.ends[at] for at in epochs if at in self.ends}

    def resume(
        self, own: OwnerProducer, partitions: Mapping[TopicPartition, Before]
    ) -> Mapping[TopicPartition, Resumed | Retriable]:
        if self.error is not None:
            raise self.error
        self.before |= partitions
        return {
            at: self.put_off.get(at) or Resumed(self._resume(at, one), 0)
            for at, one in partitions.items()
        }

    def _resume(self, at: TopicPartition, before: Before) -> Resume:
        records = self.tails.get(at, 0)
        tail = records if before.compare else 0
        expired = self.expired & {writer.producer_id for writer in before.writers}
        unfenced = before.unfenced | expired
        outcome = ResumeReason.AGREES if before.compare else ResumeReason.FILTER_CHANGED
        outcome = ResumeReason.UNFENCED if unfenced else outcome
        marker = 0 if unfenced else 1
        return Resume(
            outcome,
            before.source_offset + tail,
            before.target_offset + tail + marker,
            NONE,
            Accounts(records, 0, 0),
            copied=tail,
            unfenced=unfenced,
            runs=(ContiguousRange(before.source_offset, before.target_offset, tail, 1),)
            if tail
            else (),
        )


Made = Callable[..., Scene]


@pytest.fixture
def made() -> Iterator[Made]:
    """Return a factory of scenes of drivers that each have their own fence."""
    scenes: list[Scene] = []

    def make(*partitions: TopicPartition, **more: Any) -> Scene:
        scene = Scene(*partitions, **more)
        cast("Any", scene.context.mover).fencing = FakeFencing()
        scenes.append(scene)
        return scene

    yield make
    for scene in scenes:
        scene.close()


def fence(scene: Scene) -> FakeFencing:
    found = scene.context.mover.fencing
    assert isinstance(found, FakeFencing)
    return found


def fill(scene: Scene, records: int) -> None:
    scene.source.append("orders", *(b"%d" % number for number in range(records)))


def write_progress(scene: Scene, at: TopicPartition, **fields: Any) -> None:
    stored = scene.stored(at)
    scene.context.progress.write({scene.context.progress_key(at): replace(stored, **fields)})
    scene.context.progress.read_to_end()


def may_repeat(scene: Scene) -> str:
    scene.observe()
    found = find_condition(scene.task.status.conditions, ConditionType.RECORDS_MAY_REPEAT)
    return found.message if found else ""


def test_the_first_owner_has_nobody_to_fence(made: Made) -> None:
    scene = made(P0)
    scene.start()
    writer = scene.stored(P0).writer
    assert writer is not None
    assert writer.transactional_id == "headrace-f-source-task-0-me-me-1"
    assert (scene.stored(P0).fencing, fence(scene).before) == ((), {})
    assert may_repeat(scene) == ""


def test_a_copy_resumes_behind_what_the_last_owner_had_not_stored(made: Made) -> None:
    first = made(P0)
    first.start()
    fill(first, 5)
    for _ in range(3):
        first.run_once()
    copied = first.copies()
    assert copied
    assert first.position() == 0, "killed before it has stored anything"
    writer = first.stored(P0).writer
    assert writer is not None

    second = made(P0, kafka=first.kafka, driver="other")
    fence(second).tails[P0] = len(copied)
    second.start()
    before = fence(second).before[P0]
    assert (set(before.writers), before.target) == ({writer}, TopicPartition(COPY, 0))
    stored = second.stored(P0)
    assert (stored.source_offset, stored.target_offset) == (len(copied), len(copied) + 1)
    assert (stored.fencing, stored.unfenced) == ((), ())
    last = len(copied) - 1
    assert [pair.offsets for pair in stored.pairs] == [(0, 0), (last, last)]
    second.settle()
    assert second.copies() == [b"%d" % number for number in range(5)]


def grown_again(made: Made, end: int) -> tuple[Scene, Scene]:
    """Return an owner whose target lost its log from ``end``, and grew longer by markers.

    Also returns the next owner.
    """
    first = made(P0)
    first.start()
    fill(first, 5)
    first.settle()
    write_progress(first, P0, target_seen=TargetSeen(5, leader_epoch=3))
    for _ in range(3):
        first.target.write(TopicPartition(COPY, 0), MARKER)
    second = made(P0, kafka=first.kafka, driver="other")
    fence(second).ends[TopicPartition(COPY, 0)] = end
    return first, second


def test_a_target_whose_log_ends_the_epoch_below_what_it_had_has_lost_records(made: Made) -> None:
    _, second = grown_again(made, 2)
    second.task.activate()
    second.restore_pool.run()
    second.guard(second.task.advance)
    assert second.stops(P0)
    assert "continued at offset 2, but all offsets below 5 were acknowledged" in second.error
    assert fence(second).before == {}, "nothing is compared: a person decides"


def test_a_loss_of_the_target_that_is_accepted_is_no_loss_later(made: Made) -> None:
    _, second = grown_again(made, 2)
    second.change_spec(onDataLoss=OnDataLoss.CONTINUE)
    second.start()
    second.settle()
    stored = second.stored(P0)
    assert stored.loss is not None
    assert (stored.loss.first, stored.loss.last) == (2, 4)
    assert (stored.source_offset, stored.target_seen) == (5, None)
    assert (second.error, second.stops(P0)) == ("", False)


def test_a_target_that_still_has_all_of_it_has_lost_nothing_and_says_so_to_the_next(
    made: Made,
) -> None:
    _, second = grown_again(made, 5)
    second.start()
    assert second.stored(P0).loss is None
    assert second.stored(P0).target_seen == TargetSeen(5, leader_epoch=3)


def test_a_target_that_does_not_say_where_an_epoch_ends_is_asked_again(made: Made) -> None:
    _, second = grown_again(made, 5)
    fence(second).ends[TopicPartition(COPY, 0)] = Retriable("its leader moved")
    second.task.activate()
    second.restore_pool.run()
    second.guard(second.task.advance)
    assert "its leader moved" in second.error
    assert fence(second).before == {}


def test_an_owner_that_claims_at_the_same_time_is_fenced_too(made: Made) -> None:
    first = made(P0)
    first.start()
    second = made(P0, kafka=first.kafka, driver="other")
    frozen = OwnerProducer("headrace-frozen", 9, 0)

    def claim() -> None:  # after the end that the second has read, before its own claim
        write_progress(first, P0, owner="frozen", writer=frozen, fencing=())

    fence(second).meanwhile = claim
    second.start()
    writers = {one.transactional_id for one in fence(second).before[P0].writers}
    assert writers == {"headrace-f-source-task-0-me-me-1", "headrace-frozen"}


def test_until_it_is_done_progress_names_those_who_are_to_be_fenced(made: Made) -> None:
    first = made(P0)
    first.start()
    second = made(P0, kafka=first.kafka, driver="other")
    fence(second).error = Retriable("no coordinator")
    second.task.activate()
    second.restore_pool.run()
    stored = second.stored(P0)
    assert stored.writer is not None
    assert stored.writer.transactional_id == "headrace-f-source-task-0-other-other-1"
    assert [one.transactional_id for one in stored.fencing] == ["headrace-f-source-task-0-me-me-1"]

    third = made(P0, kafka=first.kafka, driver="third")
    third.start()
    assert len(fence(third).before[P0].writers) == 2
    assert third.stored(P0).fencing == ()


def test_without_rights_it_copies_and_fences_nobody(made: Made) -> None:
    scene = made(P0)
    fence(scene).error = Fatal("no rights on the transactional id")
    scene.start()
    fill(scene, 3)
    scene.settle()
    assert scene.stored(P0).writer is None
    assert len(scene.copies()) == 3
    assert "prefix headrace-" in may_repeat(scene)

    after = made(P0, kafka=scene.kafka, driver="other")
    after.start()
    assert after.stored(P0).unfenced == (-1,)


def test_target_without_coordinator_is_copied_to_unfenced_and_reported(made: Made) -> None:
    scene = made(P0)
    fence(scene).impossible = "west has no transaction coordinator"
    fence(scene).error = Fatal("west has no transaction coordinator")
    scene.start()
    fill(scene, 3)
    scene.settle()
    assert scene.stored(P0).writer is None
    assert len(scene.copies()) == 3
    sentence = "earlier owners cannot be fenced: west has no transaction coordinator"
    assert sentence in may_repeat(scene)
    scene.clock.advance(7200)
    assert sentence in may_repeat(scene), "it stays True as long as the target cannot fence"


@pytest.mark.parametrize("fences", [True, False])
def test_stall_renews_only_a_lane_that_nobody_can_fence(made: Made, *, fences: bool) -> None:
    scene = made(P0)
    if not fences:
        fence(scene).error = Fatal("no rights on the transactional id")
    scene.start()
    scene.settle()
    producer = scene.producer
    fill(scene, 1)
    scene.clock.advance(1.5)
    scene.settle()
    assert scene.copies() == [b"0"]
    assert (scene.producer is producer) is fences


def test_an_unfenced_owner_counts_for_an_hour(made: Made) -> None:
    first = made(P0)
    first.start()
    write_progress(first, P0, writer=None, fencing=(), owner="an earlier release")
    second = made(P0, kafka=first.kafka, driver="other")
    second.start()
    assert second.stored(P0).unfenced == (-1,)
    assert may_repeat(second).startswith("orders/0: an earlier owner could not be fenced")
    second.clock.advance(3601)
    fill(second, 1)
    second.settle()
    second.recover()
    assert may_repeat(second) == ""
    assert second.stored(P0).unfenced == ()


def test_a_take_over_does_not_begin_that_hour_again(made: Made) -> None:
    first = made(P0)
    first.start()
    write_progress(first, P0, writer=None, fencing=(), owner="an earlier release")
    second = made(P0, kafka=first.kafka, driver="other")
    second.start()
    second.clock.advance(3000)
    third = made(P0, kafka=first.kafka, driver="third")
    third.start()
    assert third.stored(P0).unfenced == (-1,)
    assert may_repeat(third).startswith("orders/0: an earlier owner could not be fenced")
    third.clock.advance(601)
    assert may_repeat(third) == ""
    fourth = made(P0, kafka=first.kafka, driver="fourth")
    fourth.start()
    assert fourth.stored(P0).unfenced == ()
    assert may_repeat(fourth) == ""
    assert fence(fourth).before[P0].unfenced == frozenset()


def test_one_that_was_not_fenced_now_may_append_for_an_hour_from_now(made: Made) -> None:
    first = made(P0)
    first.start()
    write_progress(first, P0, writer=None, fencing=(), owner="an earlier release")
    second = made(P0, kafka=first.kafka, driver="other")
    second.start()
    second.clock.advance(3000)
    third = made(P0, kafka=first.kafka, driver="third")
    writer = second.stored(P0).writer
    assert writer is not None
    fence(third).expired.add(writer.producer_id)
    third.start()
    assert third.stored(P0).unfenced == (-1, writer.producer_id)
    third.clock.advance(3000)
    assert may_repeat(third)
    third.clock.advance(601)
    assert may_repeat(third) == ""


def test_the_tail_of_a_first_owner_begins_where_the_target_ended(made: Made) -> None:
    """Otherwise another client's earlier records would be considered a part of the tail."""
    first = made(P0)
    first.target.append(COPY, b"by another program", b"by another program")
    first.start()
    assert first.stored(P0).target_offset == 2
    second = made(P0, kafka=first.kafka, driver="other")
    second.start()
    assert fence(second).before[P0].target_offset == 2


def test_of_two_first_owners_at_the_same_time_it_is_said_what_is_copied_twice(made: Made) -> None:
    """The other owner's copies may be below the end that was read."""
    first = made(P0)
    first.context.progress.start()
    frozen = OwnerProducer("headrace-frozen", 9, 0)

    def claim() -> None:  # after the end that was read, before its own claim
        key = first.context.progress_key(P0)
        theirs = Progress("x", 0, -1, "y", 0, 1, "frozen", writer=frozen)
        first.context.progress.write({key: theirs})

    first.target.append(COPY, b"its first copy")
    fence(first).meanwhile = claim
    fence(first).tails[P0] = 1
    first.start()
    assert fence(first).before[P0].target_offset == 0
    assert may_repeat(first) == "orders/0: copied again up to 1 records (FilterChanged)"


class SlowFence:
    """Fence whose next call lasts until ``respond``, as if no broker responded."""

    def __init__(self, scene: Scene) -> None:
        self._called, self._responds = threading.Event(), threading.Event()
        self._fence = fence(scene)
        self._fence.meanwhile = self._wait

    def _wait(self) -> None:
        self._fence.meanwhile = lambda: None
        self._called.set()
        assert self._responds.wait(WITHIN_S)

    def await_call(self) -> None:
        assert self._called.wait(WITHIN_S)

    def respond(self) -> None:
        self._responds.set()


def test_restore_that_ends_late_does_not_overwrite_later_progress(
    made: Made, renew: Callable[[Scene], None]
) -> None:
    """New credentials replace the lane of partition 1 while partition 0 is restored."""
    scene = made(P0, P1)
    scene.source.leaderless.add(P0)
    scene.start()
    scene.source.leaderless.clear()
    slow = SlowFence(scene)
    scene.clock.advance(1)
    scene.task.advance()
    restore = scene.restore_pool.run_in_thread()
    slow.await_call()
    renew(scene)
    scene.source.append("orders", b"a", b"b", b"c")
    scene.source.append("orders", b"x", partition=1)
    scene.recover()
    scene.settle()
    assert scene.copies(1) == [b"x"], "other partitions are copied during the restore"
    slow.respond()
    restore.join(WITHIN_S)
    scene.target.write(TopicPartition(COPY, 0), MARKER)  # the next restore fences this one
    scene.recover()
    scene.settle()
    assert scene.copies(0) == [b"a", b"b", b"c"]
    assert scene.position(P0) == 3


def test_each_lane_has_an_epoch_of_its_own(made: Made, renew: Callable[[Scene], None]) -> None:
    scene = made(P0)
    scene.start()
    renew(scene)
    fill(scene, 2)
    for _ in range(4):
        scene.run_once()
    scene.settle()
    writer = scene.stored(P0).writer
    assert writer is not None
    assert writer.producer_epoch == 1


def test_another_producer_id_is_stored_before_anything_is_appended(
    made: Made, renew: Callable[[Scene], None]
) -> None:
    scene = made(P0)
    scene.start()
    before = scene.stored(P0).writer
    fence(scene).next_id = 1000
    renew(scene)
    scene.restore_pool.run()
    after = scene.stored(P0).writer
    assert before
    assert after
    assert after.producer_id == before.producer_id + 1000


def test_a_task_that_comes_back_while_it_stores_what_was_settled_has_another_epoch(
    made: Made, renew: Callable[[Scene], None]
) -> None:
    scene = made(P0)
    scene.start()
    fill(scene, 1)
    scene.run_once()
    renew(scene)
    scene.target.away = True
    scene.restore_pool.run()
    scene.task.suspend()
    scene.target.away = False
    assert not scene.task.close(), "what was settled could not be stored"
    scene.clock.advance(0.5)
    scene.context.stall_detector.beat()
    assert not scene.task.close()
    scene.restore_pool.run()
    scene.task.resume()
    scene.target.write(TopicPartition(COPY, 0), MARKER)  # of the fence
    fill(scene, 2)
    scene.settle()
    scene.settle()
    writer = scene.stored(P0).writer
    assert writer
    assert (writer.producer_epoch, scene.position()) == (1, 3)


def test_a_partition_that_cannot_be_fenced_now_delays_no_other(made: Made) -> None:
    first = made()
    first.start()
    second = made(kafka=first.kafka, driver="other")
    fence(second).put_off[P1] = Retriable("orders-1 has no leader")
    for partition in (0, 1):
        second.target.write(TopicPartition(COPY, partition), MARKER)
    fill(second, 3)
    second.source.append("orders", b"late", partition=1)
    second.start()
    second.settle()
    assert (second.copies(0), second.copies(1)) == ([b"0", b"1", b"2"], [])
    assert second.error == "orders-1 has no leader"
    claim = second.stored(P1)
    assert [one.transactional_id for one in claim.fencing] == ["headrace-f-source-task-0-me-me-1"]

    fence(second).put_off.clear()
    second.recover()
    second.settle()
    assert second.copies(1) == [b"late"]
    assert second.stored(P1).fencing == ()
    assert second.error == ""


def test_what_an_owner_with_transactions_had_committed_is_known_before_it_is_replaced(
    made: Made,
) -> None:
    """After the next owner's claim, the commit would not count and only the tail could show it."""
    first = made(P0)
    first.start()
    writer = first.stored(P0).writer
    assert writer is not None
    write_progress(first, P0, source_offset=3)
    fill(first, 6)

    second = made(P0, kafka=first.kafka, driver="other")
    second.context.exactly_once = True
    fence(second).commits = lambda: write_progress(first, P0, source_offset=5)
    second.start()
    assert fence(second).ended == {writer.transactional_id}
    before = fence(second).before[P0]
    assert before.source_offset == 5
    key = second.context.progress_key(P0)
    assert before.progress == second.context.progress.partition_of(key)


def test_a_partition_whose_last_owner_has_a_higher_epoch_is_not_lost(made: Made) -> None:
    scene = made(P0, P1)
    fill(scene, 1)
    scene.start()
    scene.settle()
    scene.task.change(frozenset({P0}))
    for _ in range(4):
        scene.run_once()
        scene.commit()
    scene.take_away(P1, epoch=9)
    scene.task.change(frozenset({P0, P1}))
    fill(scene, 1)
    scene.guard(scene.task.advance)  # it begins to restore the partition
    scene.guard(scene.task.process)
    scene.guard(scene.task.commit)
    assert scene.phase is TaskPhase.RUNNING


def test_a_lane_is_not_continued_behind_the_fence_of_a_later_owner(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = made(P0)
    scene.start()
    scene.settle()
    fill(scene, 1)

    def take_it() -> None:
        fence(scene).meanwhile = lambda: None
        scene.take_away(P0)
        scene.target.write(TopicPartition(COPY, 0), FakeRecord(None, b"0", 0))

    fence(scene).meanwhile = take_it
    monkeypatch.setattr(MemoryLane, "outdated", True)
    scene.guard(scene.task.process)
    monkeypatch.setattr(MemoryLane, "outdated", False)
    scene.restore_pool.run()
    for _ in range(3):
        scene.run_once()
    assert scene.copies() == [b"0"]
