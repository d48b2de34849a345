"""What a source task reports of itself."""

import time
from types import SimpleNamespace
from typing import cast

from headrace.api import ConditionType, LossCause, Reason, TopicPartition, condition
from headrace.connect.runtime.lifecycle import LifeCycle
from headrace.connect.runtime.ownership import Ownership
from headrace.connect.source.source_status import Partitions, SourceStatus
from headrace.connect.source.unread_lag import UnreadLag
from headrace.logs import get_logger
from headrace.replication import Loss


def life() -> LifeCycle:
    ownership = cast("Ownership", SimpleNamespace(epoch=1))
    return LifeCycle(ownership, get_logger(__name__), time, lambda: None)


def reported(life: LifeCycle) -> SourceStatus:
    return SourceStatus(
        life, time, lambda at, loss: f"offsets {loss.first} to {loss.last} are lost"
    )


def test_lost_data_and_a_lag_stay_over_a_restart() -> None:
    failed, restarted = life(), life()
    failed.observe(lag_records=50, lag_seconds=7)
    loss = Loss(LossCause.SOURCE_TRUNCATED, 100, 149, time_ms=0)
    reported(failed).lost({TopicPartition("orders", 0): loss})
    reported(restarted).take_over(failed.status)
    assert (restarted.status.lag_records, restarted.status.lag_seconds) == (50, 7)
    (lost,) = restarted.status.conditions
    assert (lost.type, lost.message) == (
        ConditionType.DATA_LOSS_DETECTED,
        "offsets 100 to 149 are lost",
    )


def test_a_batch_that_was_joined_wrongly_is_a_condition() -> None:
    task = life()
    status = reported(task)
    nothing = Partitions(wanted=set(), reached={}, starts={}, losses={}, stopped={})
    unread = cast("UnreadLag", SimpleNamespace(records=0, seconds=0))
    status.copied.verified["Same"] = 1
    status.observe(nothing, unread)
    assert condition(task.status.conditions, ConditionType.VERIFICATION_FAILED) is None
    status.copied.verified["Misjoined"] = 1
    status.observe(nothing, unread)
    found = condition(task.status.conditions, ConditionType.VERIFICATION_FAILED)
    assert found is not None
    assert found.reason is Reason.HELPER_FAULTY
    assert "compare the topics" in found.message
