"""Reports of a task about partitions that were reset."""

from collections.abc import Mapping

from headrace.api import RESET_ANNOTATION, Condition, ConditionType, Reason, Resets, TopicPartition
from headrace.connect.runtime.observations import observation
from headrace.connect.takeover.starts import Start


def resets_done(resets: Resets, starts: Mapping[TopicPartition, Start]) -> tuple[Condition, ...]:
    """``PartitionsReset``, while the annotation names partitions of the task that were reset."""
    done = resets.among(at for at in starts if starts[at].reset_ms >= resets.time_ms(at))
    if not done.times:
        return ()
    message = f"copied again from spec.startFrom on, as {RESET_ANNOTATION} asks: {done}"
    return (observation(ConditionType.PARTITIONS_RESET, Reason.RESET_BY_ANNOTATION, message),)
