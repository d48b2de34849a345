"""What a source task has to report of itself."""

import time
from collections.abc import Callable, Iterable, Mapping, Set
from datetime import UTC, datetime

from structlog.typing import FilteringBoundLogger

from headrace.api import (
    Condition,
    ConditionStatus,
    ConditionType,
    Reason,
    ReplicationTaskStatus,
    TaskError,
    TaskPhase,
)
from headrace.api.conditions import condition
from headrace.api.partitions import TopicPartition, TopicPartitions
from headrace.connect.rate import Rate
from headrace.connect.restoring import DataLoss, Start
from headrace.errors import Retriable
from headrace.movers import Copied, RecordMover


class SourceStatus:
    """Figures, conditions, and the error that it has not got over yet."""

    def __init__(self, changed: Callable[[], None], log: FilteringBoundLogger) -> None:
        """``changed`` hears of an error that is new."""
        self.error: TaskError | None = None
        self.copied = Copied()
        """By all movers that the task has had."""
        self._changed, self._log = changed, log
        self._observed = ReplicationTaskStatus()
        self._rate = Rate()
        self._acknowledged_before = 0

    def of(self, phase: TaskPhase | None, restarts: int) -> ReplicationTaskStatus:
        """All that there is to report."""
        return self._observed.model_copy(
            update={"phase": phase, "restarts": restarts, "last_error": self.error}
        )

    def observe(self, **fields: object) -> None:
        """Fields of the status as they are now."""
        self._observed = self._observed.model_copy(update=fields)

    def take_over(self, conditions: Iterable[Condition]) -> None:
        """Data that is lost stays so until records are copied again, by whichever instance."""
        if lost := condition(conditions, ConditionType.DATA_LOSS_DETECTED):
            self.observe(conditions=(lost,))

    def look(
        self,
        now_s: float,
        mover: RecordMover,
        starts: Mapping[TopicPartition, Start],
        wanted: Set[TopicPartition],
    ) -> None:
        """Lag, rate and conditions; ``wanted`` are the partitions that the task is to hold."""
        windows = mover.windows
        self._rate.count(now_s, self.copied.bytes)
        wall_s = time.time()
        self.observe(
            partitions=TopicPartitions.pack(windows),
            lag_records=sum(mover.lag_records(at) for at in windows),
            lag_seconds=int(max((mover.lag_s(at, wall_s) for at in windows), default=0)),
            bytes_per_second=round(self._rate.per_second),
            conditions=(*_caught_up(mover, starts, wanted), *_foreign_writer(mover)),
        )

    # Errors.

    def note(self, error: Exception) -> None:
        """Keep an error; the same again is no news."""
        message = str(error)[:4096]
        if isinstance(error, DataLoss):
            self.observe(conditions=(_lost_data(error),))
        if self.error is None or self.error.message != message:
            self.error = TaskError(
                reason=type(error).__name__, message=message, time=datetime.now(UTC)
            )
            self._changed()

    def complain(self, error: Retriable) -> None:
        """Keep an error that is tried to be got over, and log it once."""
        if self.error is None or self.error.message != str(error):
            self._log.warning("retrying", why=str(error))
        self.note(error)

    def note_broker(self, message: str) -> None:
        """A broker is away, as the client says in its own words."""
        self.note(Retriable(f"{message}; trying again"))

    def forget_error(self) -> None:
        """An error that was got over is no news: records are acknowledged again."""
        if self.copied.records > self._acknowledged_before:
            self.error = None
        self._acknowledged_before = self.copied.records


def _caught_up(
    mover: RecordMover, starts: Mapping[TopicPartition, Start], wanted: Set[TopicPartition]
) -> tuple[Condition, ...]:
    windows = mover.windows
    behind = not wanted <= windows.keys() or any(
        flight.acknowledged < starts[at].end for at, flight in windows.items()
    )
    status = ConditionStatus.FALSE if behind else ConditionStatus.TRUE
    reason = Reason.CATCHING_UP if behind else Reason.CAUGHT_UP
    return (Condition(type=ConditionType.CAUGHT_UP, status=status, reason=reason),)


def _foreign_writer(mover: RecordMover) -> tuple[Condition, ...]:
    gaps = {str(at): flight.gaps for at, flight in mover.windows.items() if flight.gaps}
    if not gaps:
        return ()
    return (
        Condition(
            type=ConditionType.FOREIGN_WRITER,
            status=ConditionStatus.TRUE,
            reason=Reason.UNEXPECTED_OFFSET,
            message=f"unexpected target offsets, by partition: {gaps}; somebody else writes to "
            "the target topic, or an owner that was given up wrote late",
        ),
    )


def _lost_data(error: DataLoss) -> Condition:
    return Condition(
        type=ConditionType.DATA_LOSS_DETECTED,
        status=ConditionStatus.TRUE,
        reason=Reason.DATA_LOST,
        message=str(error),
    )
