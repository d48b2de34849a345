"""What a source task reports of itself."""

from headrace.api import ConditionType, TaskPhase
from headrace.connect.restoring import DataLoss
from headrace.connect.source_status import SourceStatus
from headrace.logs import get_logger


def test_lost_data_stays_lost_over_a_restart() -> None:
    failed = SourceStatus(lambda: None, get_logger(__name__))
    failed.note(DataLoss("offsets 100 to 149 are lost"))
    restarted = SourceStatus(lambda: None, get_logger(__name__))
    restarted.take_over(failed.of(TaskPhase.FAILED, 0).conditions)
    (lost,) = restarted.of(TaskPhase.RESTORING, 1).conditions
    assert (lost.type, lost.message) == (
        ConditionType.DATA_LOSS_DETECTED,
        "offsets 100 to 149 are lost",
    )
