"""What a source task reports of its lane: lag, rate, conditions."""

from collections.abc import Mapping, Sequence, Set

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
from headrace.movers import Copied, Reached, RecordRefused

_LONGEST_MESSAGE = 2_000

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
        self._left_out_before = (0, 0)
        self._left_out: tuple[Condition, ...] = ()

    def take_over(self, before: ReplicationTaskStatus) -> None:
        """Lost data and a lag are reported until records are copied again, by any instance; records
        that were left out for as long as the task exists."""
        self._left_out_before = (before.skipped_records or 0, before.dead_lettered_records or 0)
        left_out = condition(before.conditions, ConditionType.RECORDS_LEFT_OUT)
        self._left_out = (left_out,) if left_out else ()
        lost = condition(before.conditions, ConditionType.DATA_LOSS_DETECTED)
        self._life.observe(
            lag_records=before.lag_records,
            lag_seconds=before.lag_seconds,
            skipped_records=before.skipped_records,
            dead_lettered_records=before.dead_lettered_records,
            conditions=(*((lost,) if lost else ()), *self._left_out),
        )

    def lost_data(self, loss: DataLoss) -> None:
        """Report a loss as a condition, too."""
        self._life.observe(conditions=(_lost_data(loss), *self._left_out))

    def left_out(self, refused: RecordRefused, dead_letter_topic: str | None) -> None:
        """Count a record that is skipped (``None``) or dead-lettered; from any thread."""
        if dead_letter_topic is None:
            self.copied.skipped += 1
        else:
            self.copied.dead_lettered += 1
        skipped, dead_lettered = self._left_out_so_far
        where = f"is in {dead_letter_topic}" if dead_letter_topic else "was skipped"
        self._left_out = (
            Condition(
                type=ConditionType.RECORDS_LEFT_OUT,
                status=ConditionStatus.TRUE,
                reason=Reason.RECORD_REFUSED,
                message=f"records that the target refused: {skipped} skipped, {dead_lettered} "
                f"written to a dead-letter topic; the last {where}: "
                f"{refused}"[:_LONGEST_MESSAGE],
            ),
        )

    @property
    def _left_out_so_far(self) -> tuple[int, int]:
        """Skipped, dead-lettered; by all instances of the task."""
        skipped, dead_lettered = self._left_out_before
        return skipped + self.copied.skipped, dead_lettered + self.copied.dead_lettered

    def observe(
        self,
        state: Mapping[TopicPartition, Reached],
        starts: Mapping[TopicPartition, Start],
        wanted: Set[TopicPartition],
        paused: Set[TopicPartition] = frozenset(),
        more: Sequence[Condition] = (),
    ) -> None:
        """Lag, rate and conditions, with ``more``; ``wanted`` are the partitions that the task is
        to hold, ``paused`` those that are not copied, as the user asks."""
        self._rate.count(self._clock.monotonic(), self.copied.bytes)
        wall_s = self._clock.time()
        skipped, dead_lettered = self._left_out_so_far
        self._life.observe(
            partitions=TopicPartitions.pack(state),
            lag_records=sum(reached.lag_records for reached in state.values()),
            lag_seconds=int(max((reached.lag_s(wall_s) for reached in state.values()), default=0)),
            bytes_per_second=round(self._rate.per_second),
            skipped_records=skipped or None,
            dead_lettered_records=dead_lettered or None,
            conditions=(
                *_caught_up(state, starts, wanted),
                *_foreign_writer(state),
                *_partitions_paused(paused & wanted, len(wanted)),
                *self._left_out,
                *more,
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
