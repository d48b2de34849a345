"""What a source task reports of its lane: lag, rate, conditions."""

from collections.abc import Mapping, Set

from headrace.api import (
    Condition,
    ConditionStatus,
    ConditionType,
    Reason,
    ReplicationTaskStatus,
    TopicPartition,
    TopicPartitions,
    condition,
    partitions_text,
)
from headrace.clock import Clock
from headrace.connect.lifecycle import LifeCycle
from headrace.connect.rate import Rate
from headrace.connect.restoring import DataLoss, Start
from headrace.movers import Copied, Reached

_LONGEST_MESSAGE = 1024
"""Of each task: a flow shows those of all."""


class SourceStatus:
    """Sets the fields of a task's status that come from what it copies."""

    def __init__(self, life: LifeCycle, clock: Clock) -> None:
        self.copied = Copied()
        """By all lanes that the task has had."""
        self._life, self._clock = life, clock
        self._rate = Rate()
        self._acknowledged_before = 0

    def take_over(self, before: ReplicationTaskStatus) -> None:
        """Lost data and a lag are reported until records are copied again, by any instance."""
        self._life.observe(lag_records=before.lag_records, lag_seconds=before.lag_seconds)
        if lost := condition(before.conditions, ConditionType.DATA_LOSS_DETECTED):
            self._life.observe(conditions=(lost,))

    def lost_data(self, loss: DataLoss) -> None:
        """Report a loss as a condition, too."""
        self._life.observe(conditions=(_lost_data(loss),))

    def observe(
        self,
        state: Mapping[TopicPartition, Reached],
        starts: Mapping[TopicPartition, Start],
        wanted: Set[TopicPartition],
        paused: Set[TopicPartition] = frozenset(),
    ) -> None:
        """Lag, rate and conditions; ``wanted`` are the partitions that the task is to hold,
        ``paused`` those that are not copied, as the user asks."""
        self._rate.count(self._clock.monotonic(), self.copied.bytes)
        wall_s = self._clock.time()
        self._life.observe(
            partitions=TopicPartitions.pack(state),
            lag_records=sum(reached.lag_records for reached in state.values()),
            lag_seconds=int(max((reached.lag_s(wall_s) for reached in state.values()), default=0)),
            bytes_per_second=round(self._rate.per_second),
            conditions=(
                *_caught_up(state, starts, wanted),
                *_foreign_writer(state),
                *_partitions_paused(paused & wanted, len(wanted)),
            ),
        )

    def forget_error(self) -> None:
        """Records are acknowledged again: the task has recovered from its error."""
        if self.copied.records > self._acknowledged_before:
            self._life.recovered()
        self._acknowledged_before = self.copied.records


def _caught_up(
    state: Mapping[TopicPartition, Reached],
    starts: Mapping[TopicPartition, Start],
    wanted: Set[TopicPartition],
) -> tuple[Condition, ...]:
    behind = not wanted <= state.keys() or any(
        reached.acknowledged < starts[at].end for at, reached in state.items()
    )
    status = ConditionStatus.FALSE if behind else ConditionStatus.TRUE
    reason = Reason.CATCHING_UP if behind else Reason.CAUGHT_UP
    return (Condition(type=ConditionType.CAUGHT_UP, status=status, reason=reason),)


def _foreign_writer(state: Mapping[TopicPartition, Reached]) -> tuple[Condition, ...]:
    unexpected = {
        str(at): reached.unexpected_offsets
        for at, reached in state.items()
        if reached.unexpected_offsets
    }
    if not unexpected:
        return ()
    return (
        Condition(
            type=ConditionType.FOREIGN_WRITER,
            status=ConditionStatus.TRUE,
            reason=Reason.UNEXPECTED_OFFSET,
            message=f"unexpected target offsets, by partition: {unexpected}; somebody else writes "
            "to the target topic, or an owner that was given up wrote late",
        ),
    )


def _partitions_paused(paused: Set[TopicPartition], of: int) -> tuple[Condition, ...]:
    if not paused:
        return ()
    message = (
        f"{len(paused)} of {of} partitions are paused by spec.pausedPartitions: "
        f"{partitions_text(paused)}"
    )
    return (
        Condition(
            type=ConditionType.PARTITIONS_PAUSED,
            status=ConditionStatus.TRUE,
            reason=Reason.PAUSED_BY_SPEC,
            message=message[:_LONGEST_MESSAGE],
        ),
    )


def _lost_data(error: DataLoss) -> Condition:
    return Condition(
        type=ConditionType.DATA_LOSS_DETECTED,
        status=ConditionStatus.TRUE,
        reason=Reason.DATA_LOST,
        message=str(error),
    )
