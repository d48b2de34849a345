"""What a source task reports of itself."""

import time
from types import SimpleNamespace

from headrace.api import ConditionType
from headrace.connect.lifecycle import LifeCycle
from headrace.connect.restoring import DataLoss
from headrace.connect.source_status import SourceStatus
from headrace.logs import get_logger


def life() -> LifeCycle:
    return LifeCycle(SimpleNamespace(epoch=1), get_logger(__name__), time, lambda: None)


def test_lost_data_stays_lost_over_a_restart() -> None:
    failed, restarted = life(), life()
    SourceStatus(failed, time).lost_data(DataLoss("offsets 100 to 149 are lost"))
    SourceStatus(restarted, time).take_over(failed.status.conditions)
    (lost,) = restarted.status.conditions
    assert (lost.type, lost.message) == (
        ConditionType.DATA_LOSS_DETECTED,
        "offsets 100 to 149 are lost",
    )
