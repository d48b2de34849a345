"""Status that a source task reports."""

import time
from types import SimpleNamespace
from typing import cast

from support.fake_kafka import FakeClock
from support.lags import lag_of
from support.source_tasks import FLOW

from headrace.api import (
    HEARTBEATS,
    Condition,
    ConditionType,
    Lag,
    LossCause,
    Reason,
    TopicPartition,
    find_condition,
)
from headrace.connect.runtime.lifecycle import LifeCycle
from headrace.connect.runtime.ownership import Ownership
from headrace.connect.source.source_status import Partitions, SourceStatus, UnreadLag
from headrace.connect.takeover.starts import Start
from headrace.datapath import Reached
from headrace.logs import get_logger
from headrace.replication import Loss


def life() -> LifeCycle:
    ownership = cast("Ownership", SimpleNamespace(epoch=1))
    return LifeCycle(ownership, get_logger(__name__), time, lambda: None)


def reported(life: LifeCycle) -> SourceStatus:
    return SourceStatus(
        life,
        time,
        lambda at, loss: f"offsets {loss.first} to {loss.last} are lost",
        FLOW.spec,
    )


def test_a_message_of_a_lane_stays_while_it_is_repeated_and_others_are_copied() -> None:
    """A user who looks once must see why one partition of many is not copied."""
    clock, found = FakeClock(), life()
    status = SourceStatus(found, clock, lambda at, loss: f"{at}: {loss}", FLOW.spec)
    for second in range(20):
        if not second % 5:
            status.say("west: a broker of another cluster responds")
        status.copied.records += 10
        status.forget_error()
        assert found.error is not None
        assert found.error.message == "west: a broker of another cluster responds; trying again"
        clock.advance(1)
    clock.advance(5)
    status.forget_error()
    assert found.error is None


def test_lost_data_and_a_lag_stay_over_a_restart() -> None:
    failed, restarted = life(), life()
    failed.observe(lag=Lag(records=50, seconds=7))
    loss = Loss(LossCause.SOURCE_TRUNCATED, 100, 149, time_ms=0)
    reported(failed).lost({TopicPartition("orders", 0): loss})
    reported(restarted).take_over(failed.status)
    assert (lag_of(restarted).records, lag_of(restarted).seconds) == (50, 7)
    (lost,) = restarted.status.conditions
    assert (lost.type, lost.message) == (
        ConditionType.DATA_LOSS_DETECTED,
        "offsets 100 to 149 are lost",
    )


def test_heartbeats_that_another_flow_wrote_as_well_are_no_foreign_writer() -> None:
    """All flows of a source copy them to one topic, and take turns that may last for days."""
    task, unread = life(), cast("UnreadLag", SimpleNamespace(records=0, seconds=0, silent_s=0.0))
    found = {}
    for topic in (HEARTBEATS, "orders"):
        at = TopicPartition(topic, 0)
        reached = SimpleNamespace(
            acknowledged=9,
            unexpected_offsets=1,
            lag_records=0,
            lag_s=lambda _: 0,
            silent_s=0.0,
            held_up_s=0.0,
        )
        start = SimpleNamespace(
            end=9,
            tombstones_since_ms=1,
            data_writer=None,
            doubt="the owner before",
            writer=None,
            doubt_until_ms=0,
        )
        partitions = Partitions(
            wanted={at},
            reached={at: cast("Reached", reached)},
            starts={at: cast("Start", start)},
            losses={},
            stopped={},
        )
        reported(task).observe(partitions, unread)
        found[topic] = {one.type for one in task.status.conditions}
    assert found[HEARTBEATS] == {ConditionType.CAUGHT_UP}
    assert found["orders"] - found[HEARTBEATS] == {
        ConditionType.FOREIGN_WRITER,
        ConditionType.TOMBSTONES_AT_RISK,
        ConditionType.RECORDS_MAY_REPEAT,
    }


def test_a_batch_that_was_joined_wrongly_is_a_condition() -> None:
    task = life()
    status = reported(task)
    nothing = Partitions(wanted=set(), reached={}, starts={}, losses={}, stopped={})
    unread = cast("UnreadLag", SimpleNamespace(records=0, seconds=0, silent_s=0.0))
    status.copied.verified["Same"] = 1
    status.observe(nothing, unread)
    assert find_condition(task.status.conditions, ConditionType.VERIFICATION_FAILED) is None
    status.copied.verified["Misjoined"] = 1
    status.observe(nothing, unread)
    found = find_condition(task.status.conditions, ConditionType.VERIFICATION_FAILED)
    assert found is not None
    assert found.reason is Reason.HELPER_FAULTY
    assert "compare the topics" in found.message


def test_the_lag_of_a_source_that_does_not_answer_is_unknown() -> None:
    task, unread = life(), cast("UnreadLag", SimpleNamespace(records=0, seconds=0, silent_s=0.0))
    status = reported(task)
    seen: dict[float, tuple[Lag | None, Condition | None]] = {}
    for silent_s in (30.4, 30.6, 0.0):
        ends = {
            TopicPartition("orders", number): Reached(9, 9, 0, 0, 9, None, 0, None, silence)
            for number, silence in enumerate((0.0, silent_s))
        }
        start = cast(
            "Start",
            SimpleNamespace(end=9, tombstones_since_ms=0, data_writer=None, doubt=""),
        )
        status.observe(
            Partitions(ends.keys(), ends, dict.fromkeys(ends, start), losses={}, stopped={}), unread
        )
        ready = find_condition(task.status.conditions, ConditionType.READY)
        seen[silent_s] = task.status.lag, ready

    assert seen[30.4] == seen[0.0] == (Lag(), None)
    lag, said = seen[30.6]
    assert lag is None
    assert said is not None
    assert said.reason is Reason.SOURCE_UNREACHABLE
    assert "about 1 of 2 partitions for more than 30.5 s" in said.message
    assert "orders/1" in said.message


def test_the_lag_of_partitions_that_no_lane_reads_is_unknown_if_the_source_does_not_answer() -> (
    None
):
    task = life()
    unread = cast("UnreadLag", SimpleNamespace(records=5, seconds=1, silent_s=31.0))
    nothing = Partitions(wanted=set(), reached={}, starts={}, losses={}, stopped={})
    reported(task).observe(nothing, unread)

    assert task.status.lag is None
