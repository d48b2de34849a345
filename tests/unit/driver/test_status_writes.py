"""Reports that are written, and their times."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from headrace.api import (
    Condition,
    ConditionStatus,
    ConditionType,
    Lag,
    Reason,
    ReplicationTaskStatus,
    TaskError,
    TaskPhase,
    TopicPartitions,
)
from headrace.driver.kubernetes_herder import StatusWriteLimiter, Urgency, urgency

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ERROR = TaskError(reason="Retriable", message="no broker answers", time=NOW)
READY = Condition(type=ConditionType.READY, status=ConditionStatus.TRUE, reason=Reason.RUNNING)
BEFORE = ReplicationTaskStatus(
    driver_name="a",
    driver_incarnation="1",
    epoch=3,
    phase=TaskPhase.RUNNING,
    lag=Lag(records=5, seconds=0),
    bytes_per_second=1000,
    last_error=ERROR,
    conditions=(READY,),
)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, Urgency.NONE),
        ({"phase": TaskPhase.PAUSED}, Urgency.AT_ONCE),
        ({"epoch": 4}, Urgency.AT_ONCE),
        ({"driver_incarnation": "2"}, Urgency.AT_ONCE),
        ({"restarts": 1}, Urgency.AT_ONCE),
        ({"observed_generation": 2}, Urgency.AT_ONCE),
        ({"partitions": (TopicPartitions(topic="t", partitions="0"),)}, Urgency.AT_ONCE),
        ({"last_error": None}, Urgency.AT_ONCE),
        ({"last_error": ERROR.model_copy(update={"reason": "DataLoss"})}, Urgency.AT_ONCE),
        (
            {"conditions": (READY.model_copy(update={"status": ConditionStatus.FALSE}),)},
            Urgency.AT_ONCE,
        ),
        ({"lag": Lag(records=7)}, Urgency.NONE),
        ({"lag": Lag(records=8)}, Urgency.FINE),
        ({"lag": Lag(records=3)}, Urgency.FINE),
        ({"lag": None}, Urgency.FINE),
        ({"lag": Lag(records=5, seconds=1)}, Urgency.FINE),
        ({"bytes_per_second": 1023}, Urgency.NONE),
        ({"bytes_per_second": 1024}, Urgency.FINE),
        ({"last_error": ERROR.model_copy(update={"message": "another"})}, Urgency.FINE),
        (
            {"last_error": ERROR.model_copy(update={"time": NOW + timedelta(seconds=5)})},
            Urgency.NONE,
        ),
        ({"conditions": (READY.model_copy(update={"message": "12 topics"}),)}, Urgency.FINE),
    ],
)
def test_urgency(change: dict[str, Any], expected: Urgency) -> None:
    assert urgency(BEFORE, BEFORE.model_copy(update=change)) is expected


def test_one_turn_a_second_for_whoever_waited_longest() -> None:
    turns = StatusWriteLimiter()
    names = [f"task-{number}" for number in range(5)]
    served = [
        (now, name)
        for now in (10 + tick / 2 for tick in range(40))
        for name in names
        if turns.is_due(name, now)
    ]
    assert [name for _, name in served[:10]] == names * 2
    assert all(later - earlier >= 1 for (earlier, _), (later, _) in pairwise(served))


def test_who_does_not_ask_any_more_keeps_nobody_waiting() -> None:
    turns = StatusWriteLimiter()
    assert turns.is_due("a", 10)
    assert not turns.is_due("gone", 10.1)
    assert not turns.is_due("b", 10.2)
    assert not turns.is_due("b", 12), "the other has waited longer"
    assert turns.is_due("b", 16)
