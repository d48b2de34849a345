"""A driver's ownership of a unit: claimed, lost, transferred, and reported later."""

import threading
from datetime import UTC, datetime
from typing import cast

import pytest

from headrace.api import (
    Condition,
    ConditionStatus,
    ConditionType,
    Reason,
    ReplicationTask,
    ReplicationTaskStatus,
    TaskPhase,
    TaskType,
)
from headrace.connect import DriverIdentity, Herder
from headrace.connect.runtime.ownership import Ownership, OwnershipLost
from headrace.errors import Retriable
from headrace.standalone.task_store import TaskStore

ME, OTHER = DriverIdentity("me", "1"), DriverIdentity("other", "1")
RUNNING = ReplicationTaskStatus(phase=TaskPhase.RUNNING)


class StoreHerder:
    """Herder with the rules of the store. ``later`` delays reports."""

    def __init__(self) -> None:
        self.store = TaskStore()
        self.store.put("flow", TaskType.SOURCE_TASK)
        self.later = False

    @property
    def task(self) -> ReplicationTask:
        return next(iter(self.store))

    def claim(self, task: ReplicationTask, status: ReplicationTaskStatus) -> ReplicationTask:
        return self.store.write_status(task, status)

    def report(
        self, task: ReplicationTask, status: ReplicationTaskStatus
    ) -> ReplicationTask | None:
        return None if self.later else self.store.write_status(task, status)

    release = claim

    def own(self, driver: DriverIdentity) -> Ownership:
        return Ownership(self.task, driver, cast("Herder", self))


class OwnClock:
    """Clock that advances only when a test sets it."""

    now = 0.0

    def time(self) -> float:
        return self.now

    monotonic = time


@pytest.fixture
def herder() -> StoreHerder:
    return StoreHerder()


def test_a_report_that_is_put_off_is_made_later(herder: StoreHerder) -> None:
    ownership = herder.own(ME)
    ownership.claim(above=3)
    herder.later = True
    ownership.report(RUNNING)
    assert herder.task.status.phase is None
    herder.later = False
    ownership.report(RUNNING)
    assert herder.task.status.phase is TaskPhase.RUNNING
    assert herder.task.status.epoch == 4


def test_a_unit_that_another_took_is_lost_when_that_is_seen(herder: StoreHerder) -> None:
    ownership = herder.own(ME)
    ownership.check(herder.task)
    ownership.claim(above=0)
    ownership.check(herder.task)
    herder.own(OTHER).claim(above=0)
    with pytest.raises(OwnershipLost, match="other owns flow-source-task-0"):
        ownership.check(herder.task)
    ownership.forget()
    ownership.check(herder.task)


def test_lost_data_stays_lost_when_another_takes_the_unit(herder: StoreHerder) -> None:
    lost = Condition(
        type=ConditionType.DATA_LOSS_DETECTED,
        status=ConditionStatus.TRUE,
        reason=Reason.DATA_LOST,
    )
    caught_up = lost.model_copy(update={"type": ConditionType.CAUGHT_UP})
    first = herder.own(ME)
    first.claim(above=0)
    first.report(RUNNING.model_copy(update={"conditions": (lost, caught_up)}))
    first.release()
    (kept,) = herder.task.status.conditions
    assert herder.task.status == ReplicationTaskStatus(epoch=1, conditions=(kept,))
    assert (kept.type, kept.status) == (lost.type, lost.status)
    herder.own(OTHER).claim(above=0)
    assert herder.task.status.driver_name == "other"
    assert herder.task.status.conditions == (kept,)


def test_the_time_of_a_condition_changes_with_its_status_only() -> None:
    """An unchanged report is not written, however late it is."""
    herder, clock = StoreHerder(), OwnClock()

    def report(status: ConditionStatus, message: str) -> Condition:
        clock.now += 60
        said = Condition(
            type=ConditionType.READY, status=status, reason=Reason.RUNNING, message=message
        )
        ownership.report(
            RUNNING.model_copy(update={"conditions": (said,), "observed_generation": 7})
        )
        return herder.task.status.conditions[0]

    ownership = Ownership(herder.task, ME, cast("Herder", herder), clock)
    ownership.claim(above=0)
    first = report(ConditionStatus.TRUE, "one")
    assert first.last_transition_time == datetime(1970, 1, 1, 0, 1, tzinfo=UTC)
    assert first.observed_generation == 7
    version = herder.task.metadata.resource_version
    assert report(ConditionStatus.TRUE, "one") == first
    assert herder.task.metadata.resource_version == version, "nothing was written"
    other = report(ConditionStatus.TRUE, "two")
    assert (other.message, other.last_transition_time) == ("two", first.last_transition_time)
    ownership = ownership.transfer()
    assert report(ConditionStatus.TRUE, "two").last_transition_time == first.last_transition_time
    assert report(ConditionStatus.FALSE, "no").last_transition_time == datetime(
        1970, 1, 1, 0, 5, tzinfo=UTC
    )


def test_the_next_instance_goes_on_with_the_hold_of_one_that_failed(herder: StoreHerder) -> None:
    failed = herder.own(ME)
    failed.claim(above=0)
    successor = failed.transfer()
    failed.release()
    failed.report(RUNNING)
    assert herder.task.status.driver_name == "me"
    assert herder.task.status.phase is None
    successor.report(RUNNING)
    assert herder.task.status.phase is TaskPhase.RUNNING
    successor.release()
    assert herder.task.status.driver_name == ""
    assert successor.transfer().epoch == 0, "nothing is left to hand on"


class SlowHerder(StoreHerder):
    """Herder whose claims take as long as the test sets."""

    def __init__(self) -> None:
        super().__init__()
        self.claiming, self.answered = threading.Event(), threading.Event()

    def claim(self, task: ReplicationTask, status: ReplicationTaskStatus) -> ReplicationTask:
        written = super().claim(task, status)
        self.claiming.set()
        assert self.answered.wait(120)
        return written


def test_only_writes_wait_for_a_claim_that_is_under_way() -> None:
    herder = SlowHerder()
    ownership = herder.own(ME)
    claim = threading.Thread(target=ownership.claim, args=(3,), daemon=True)
    claim.start()
    assert herder.claiming.wait(60)
    herder.store.put("flow", TaskType.SOURCE_TASK)
    changed = herder.task

    def see() -> None:
        assert ownership.update(changed)
        ownership.check(changed)
        ownership.report(RUNNING)

    others = threading.Thread(target=see, daemon=True)
    others.start()
    others.join(60)
    waits, epoch = others.is_alive(), ownership.epoch
    herder.answered.set()
    claim.join(60)
    assert not waits, "for an answer of the herder that may take 12 s"
    assert epoch == 0, "nothing may rest on a claim that is not granted"
    assert ownership.epoch == 4
    assert ownership.task.metadata.generation == changed.metadata.generation
    assert herder.task.status.phase is None
    ownership.report(RUNNING)
    assert herder.task.status.phase is TaskPhase.RUNNING


def test_a_claim_that_comes_after_the_release_is_none(herder: StoreHerder) -> None:
    unclaimed, claimed = herder.own(ME), herder.own(ME)
    unclaimed.release()
    claimed.claim(above=0)
    claimed.release()
    for ownership in (unclaimed, claimed):
        with pytest.raises(OwnershipLost, match="was released"):
            ownership.claim(above=5)
    assert herder.task.status.driver_name == ""


def test_a_claim_whose_answer_was_lost_is_ours_all_the_same(
    herder: StoreHerder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose_the_answer(task: ReplicationTask, status: ReplicationTaskStatus) -> ReplicationTask:
        herder.store.write_status(task, status)
        raise Retriable("no answer")

    ownership = herder.own(ME)
    ownership.claim(above=0)
    monkeypatch.setattr(herder, "claim", lose_the_answer)
    with pytest.raises(Retriable):
        ownership.claim(above=5)
    ownership.check(herder.task)
    ownership.report(RUNNING)
    assert (ownership.epoch, herder.task.status.epoch) == (6, 6)
    assert herder.task.status.phase is TaskPhase.RUNNING
