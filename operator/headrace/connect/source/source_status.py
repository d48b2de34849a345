"""Report of a source task: lag, rate and conditions."""

from collections.abc import Callable, Mapping, Sequence, Set
from concurrent.futures import Executor
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple, TypeVar

from headrace.api import (
    HEARTBEATS,
    ClusterSpec,
    Condition,
    ConditionStatus,
    ConditionType,
    Lag,
    Reason,
    ReplicationFlowSpec,
    ReplicationTaskStatus,
    TopicPartition,
    TopicPartitions,
    find_condition,
    partitions_text,
)
from headrace.api.client_settings import text_of
from headrace.connect.runtime.background import BackgroundStep
from headrace.connect.runtime.contested_partitions import observation, verification_failed
from headrace.connect.runtime.context import FlowContext
from headrace.connect.runtime.figures import Rate
from headrace.connect.runtime.lifecycle import LifeCycle
from headrace.connect.takeover.starts import Start
from headrace.connect.topics.losses import DataLoss, shown_losses
from headrace.datapath import CopiedCounts, Reached, RecordRefused
from headrace.errors import HeadraceError, Retriable
from headrace.replication import Loss
from headrace.timing import Clock

# Lag of partitions that no lane reads because they or their task failed. It is requested from the
# source.

_INTERVAL_S = 5.0

# Messages of lanes.

_KEPT_S = 6.0
"""Minimum time for which a message is kept. While the cause lasts, a lane repeats the message at
least every 5 s, the longest back-off of connections."""


class UnreadLag:
    """Lag of unread partitions in records and in seconds. Not thread-safe."""

    def __init__(self, context: FlowContext, life: LifeCycle, pool: Executor) -> None:
        self.records = 0
        self.seconds = 0
        self._context, self._life = context, life
        self._asking = BackgroundStep[int](pool, context.clock)
        self._behind_since_s: float | None = None
        """Latest known Unix time in seconds at which there was no lag."""
        self._read_s: float | None = None
        """Monotonic time of the last answer, or of the first request; None without unread
        partitions."""

    @property
    def silent_s(self) -> float:
        """Time in seconds since the source answered; 0 without unread partitions."""
        return 0.0 if self._read_s is None else self._context.clock.monotonic() - self._read_s

    def observe(self, partitions: Set[TopicPartition]) -> bool:
        """Request the lag if a request is due. Return True if a result was received."""
        if not partitions:
            self.records = self.seconds = 0
            self._behind_since_s = self._read_s = None
            return False
        if self._read_s is None:
            self._read_s = self._context.clock.monotonic()
        if self._asking.due:
            self._asking.start(partial(_lag_records, self._context, partitions))
        if not self._asking.done:
            return False
        self._asking.put_off(_INTERVAL_S)
        try:
            self.records = self._asking.take()
        except HeadraceError:  # the partition's own error is more important to a user
            return False
        self._read_s = self._context.clock.monotonic()
        now_s = self._context.clock.time()
        if not self.records:
            self._behind_since_s = now_s
        elif self._behind_since_s is None:
            self._behind_since_s = now_s - (lag.seconds if (lag := self._life.status.lag) else 0)
        self.seconds = int(now_s - self._behind_since_s)
        return True


def _lag_records(context: FlowContext, partitions: Set[TopicPartition]) -> int:
    """Return the number of records on the source after the stored offsets."""
    context.progress.read_to_end()
    ends = context.source.known_ends(partitions)
    stored = {at: context.stored(at) for at in ends}
    return sum(
        max(0, ends[at] - progress.source_offset) for at, progress in stored.items() if progress
    )


def _seconds(cluster: ClusterSpec, *settings: str) -> float:
    """Return the sum of settings that are in ms, converted to seconds."""
    return sum(int(text_of(cluster.config, name)) for name in settings) / 1000


T = TypeVar("T")


class Partitions(NamedTuple):
    """Known state of a task's partitions."""

    wanted: Set[TopicPartition]
    """Partitions that the task should copy."""
    reached: Mapping[TopicPartition, Reached]
    """State of the partitions that the task copies."""
    starts: Mapping[TopicPartition, Start]
    """Offsets at which partitions would resume."""
    losses: Mapping[TopicPartition, Loss]
    """Last loss of each partition that had one."""
    stopped: Mapping[TopicPartition, HeadraceError]
    """Errors of partitions that need a user's action."""
    paused: Set[TopicPartition] = frozenset()
    """Partitions that a user paused."""


class SourceStatus:
    """Fields of a source task's status that describe its partitions."""

    def __init__(
        self,
        life: LifeCycle,
        clock: Clock,
        sentence: Callable[[TopicPartition, Loss], str],
        flow: ReplicationFlowSpec,
    ) -> None:
        """Create the status. ``sentence`` returns the message for a loss."""
        self.copied = CopiedCounts()
        """Counts of records copied by all lanes that the task has had."""
        self._life, self._clock, self._sentence = life, clock, sentence
        self._source, self._target = flow.source.alias, flow.target.alias
        self._silent_after_s = _seconds(flow.source, "fetch.max.wait.ms", "request.timeout.ms")
        """Time without an answer after which the source counts as unreachable."""
        self._held_up_after_s = _seconds(flow.target, "request.timeout.ms")
        """Time without an acknowledgement after which the target counts as unreachable."""
        self._rate = Rate()
        self._acknowledged_before = 0
        self._said_s = -_KEPT_S
        """Monotonic time of the last message of a lane."""
        self._left_out_before = (0, 0)
        self._left_out: tuple[Condition, ...] = ()

    def take_over(self, before: ReplicationTaskStatus) -> None:
        """Continue to report the status of the task's previous instance.

        Lost data and a lag are reported until any instance copies records again. Excluded records
        are reported as long as the task exists.
        """
        self._left_out_before = (before.skipped_records or 0, before.dead_lettered_records or 0)
        left_out = find_condition(before.conditions, ConditionType.RECORDS_LEFT_OUT)
        self._left_out = (left_out,) if left_out else ()
        lost = find_condition(before.conditions, ConditionType.DATA_LOSS_DETECTED)
        self._life.observe(
            lag=before.lag,
            skipped_records=before.skipped_records,
            dead_lettered_records=before.dead_lettered_records,
            losses=before.losses,
            conditions=(*((lost,) if lost else ()), *self._left_out),
        )

    def lost(self, losses: Mapping[TopicPartition, Loss]) -> None:
        """Report the losses of a task that copies nothing."""
        self._life.observe(conditions=(*self._losses(losses), *self._left_out))

    def left_out(self, refused: RecordRefused, dead_letter_topic: str | None) -> None:
        """Count a rejected record that was skipped, or written to a dead-letter topic. Thread-safe.

        ``dead_letter_topic`` is None for a skipped record.
        """
        if dead_letter_topic is None:
            self.copied.skipped += 1
        else:
            self.copied.dead_lettered += 1
        skipped, dead_lettered = self._left_out_so_far
        where = f"is in {dead_letter_topic}" if dead_letter_topic else "was skipped"
        self._left_out = (
            observation(
                ConditionType.RECORDS_LEFT_OUT,
                Reason.RECORD_REFUSED,
                f"records that the target refused: {skipped} skipped, {dead_lettered} "
                f"written to a dead-letter topic; the last {where}: {refused}",
            ),
        )

    @property
    def _left_out_so_far(self) -> tuple[int, int]:
        """Number of skipped and of dead-lettered records, by all instances of the task."""
        skipped, dead_lettered = self._left_out_before
        return skipped + self.copied.skipped, dead_lettered + self.copied.dead_lettered

    def observe(
        self, partitions: Partitions, unread: UnreadLag, more: Sequence[Condition] = ()
    ) -> None:
        """Update lag, rate and conditions.

        Args:
            partitions: State of the task's partitions.
            unread: Lag of partitions that are not copied.
            more: Additional conditions.
        """
        self._rate.count(self._clock.monotonic(), self.copied.bytes)
        reached = partitions.reached.values()
        wall_s = self._clock.time()
        seconds = int(max((one.lag_s(wall_s) for one in reached), default=0))
        losses = {at: loss for at, loss in partitions.losses.items() if at in partitions.wanted}
        skipped, dead_lettered = self._left_out_so_far
        silent = {at for at, one in partitions.reached.items() if self.is_silent(one.silent_s)}
        held_up = {
            at for at, one in partitions.reached.items() if one.held_up_s > self._held_up_after_s
        }
        known = not silent and not self.is_silent(unread.silent_s)
        records = sum(one.lag_records for one in reached) + unread.records
        self._life.observe(
            partitions=TopicPartitions.pack(partitions.reached),
            lag=Lag(records=records, seconds=max(seconds, unread.seconds)) if known else None,
            bytes_per_second=round(self._rate.per_second),
            skipped_records=skipped or None,
            dead_lettered_records=dead_lettered or None,
            conditions=(
                *_caught_up(partitions),
                *_foreign_writer(_without_heartbeats(partitions.reached)),
                *(
                    _not_ready(partitions.stopped)
                    or self._silence(silent, len(reached))
                    or self._held_up(held_up, len(reached))
                ),
                *_partitions_paused(partitions.paused & partitions.wanted, len(partitions.wanted)),
                *self._losses(losses),
                *_tombstones_at_risk(_without_heartbeats(partitions.starts)),
                *_may_repeat(_without_heartbeats(partitions.starts), int(wall_s * 1000)),
                *self._left_out,
                *verification_failed(self.copied),
                *more,
            ),
        )

    def is_silent(self, seconds: float) -> bool:
        """Return True if the source is silent for too long, so that its end is unknown."""
        return seconds > self._silent_after_s

    def _silence(self, silent: Set[TopicPartition], of: int) -> tuple[Condition, ...]:
        if not silent:
            return ()
        message = (
            f"{self._source} has not answered requests about {len(silent)} of {of} partitions for "
            f"more than {self._silent_after_s:g} s, and their lag is unknown: "
            f"{partitions_text(silent)}. The brokers that lead them are slow or unreachable"
        )
        false = ConditionStatus.FALSE
        return (observation(ConditionType.READY, Reason.SOURCE_UNREACHABLE, message, false),)

    def _held_up(self, held_up: Set[TopicPartition], of: int) -> tuple[Condition, ...]:
        if not held_up:
            return ()
        message = (
            f"{self._target} has not acknowledged records of {len(held_up)} of {of} partitions for "
            f"more than {self._held_up_after_s:g} s: {partitions_text(held_up)}. The brokers that "
            "lead them are slow or unreachable, or too few replicas are in sync"
        )
        false = ConditionStatus.FALSE
        return (observation(ConditionType.READY, Reason.TARGET_UNREACHABLE, message, false),)

    def also(self, more: Sequence[Condition]) -> bool:
        """Add conditions to the last observed ones. Return True if a condition was added.

        Use this method for a task that copies nothing at the moment.
        """
        known = self._life.status.conditions
        new = tuple(one for one in more if find_condition(known, one.type) is None)
        if new:
            self._life.observe(conditions=(*known, *new))
        return bool(new)

    def _losses(self, losses: Mapping[TopicPartition, Loss]) -> tuple[Condition, ...]:
        shown = shown_losses(losses, self._clock.time(), self._sentence)
        self._life.observe(losses=shown.listed)
        return shown.conditions

    def say(self, message: str) -> None:
        """Report a problem of a lane, which continues with other partitions."""
        self._said_s = self._clock.monotonic()
        self._life.note(Retriable(f"{message}; trying again"))

    def forget_error(self) -> None:
        """Clear the error if records were acknowledged since the last call.

        Do nothing if a lane has reported a message within the last ``_KEPT_S`` seconds.
        """
        if self._clock.monotonic() - self._said_s < _KEPT_S:
            return
        if self.copied.records > self._acknowledged_before:
            self._life.recovered()
        self._acknowledged_before = self.copied.records


def _without_heartbeats(of: Mapping[TopicPartition, T]) -> Mapping[TopicPartition, T]:
    """Return the entries without heartbeats, which all flows of a source copy in turns."""
    return {at: one for at, one in of.items() if at.topic != HEARTBEATS}


def _caught_up(partitions: Partitions) -> tuple[Condition, ...]:
    behind = not partitions.wanted <= partitions.reached.keys() or any(
        reached.acknowledged < partitions.starts[at].end
        for at, reached in partitions.reached.items()
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
            message=f"unexpected target offsets, by partition: {unexpected}; another client writes "
            "to the target topic, or a lost owner wrote late",
        ),
    )


def _partitions_paused(paused: Set[TopicPartition], of: int) -> tuple[Condition, ...]:
    if not paused:
        return ()
    message = (
        f"{len(paused)} of {of} partitions are paused by spec.pausedPartitions: "
        f"{partitions_text(paused)}"
    )
    return (observation(ConditionType.PARTITIONS_PAUSED, Reason.PAUSED_BY_SPEC, message),)


def _tombstones_at_risk(starts: Mapping[TopicPartition, Start]) -> tuple[Condition, ...]:
    since = {
        at: datetime.fromtimestamp(starts[at].tombstones_since_ms // 1000, UTC)
        for at in sorted(at for at in starts if starts[at].tombstones_since_ms)
    }
    if not since:
        return ()
    each = [f"{at} (not copied from {time:%Y-%m-%dT%H:%M:%SZ} on)" for at, time in since.items()]
    preserved = sorted({at.topic for at in since if starts[at].data_writer is not None})
    cure = (
        f"Copy them again by `headrace flow rebuild FLOW {'|'.join(preserved)}`, because a reset "
        "appends nothing again"
        if preserved
        else "Compare the topics, or copy them again into empty ones, and reset them"
    )
    message = (
        "partitions were not copied for longer than their topic's delete.retention.ms: the source "
        "may have dropped deletions meanwhile, and the target still have those records. "
        f"{cure}: {', '.join(each)}"
    )
    return (observation(ConditionType.TOMBSTONES_AT_RISK, Reason.PROGRESS_TOO_OLD, message),)


def _may_repeat(starts: Mapping[TopicPartition, Start], now_ms: int) -> tuple[Condition, ...]:
    by_doubt: dict[str, set[TopicPartition]] = {}
    for at, start in starts.items():
        if start.doubt and (start.writer is None or now_ms < start.doubt_until_ms):
            by_doubt.setdefault(start.doubt, set()).add(at)
    if not by_doubt:
        return ()
    message = "; ".join(f"{partitions_text(ats)}: {why}" for why, ats in sorted(by_doubt.items()))
    return (observation(ConditionType.RECORDS_MAY_REPEAT, Reason.TAKE_OVER_NOT_PROVED, message),)


def _not_ready(stopped: Mapping[TopicPartition, HeadraceError]) -> tuple[Condition, ...]:
    if not stopped:
        return ()
    at, error = min(stopped.items(), key=lambda item: item[0])
    others = f" (and {len(stopped) - 1} more partitions)" if len(stopped) > 1 else ""
    return (
        observation(
            ConditionType.READY,
            Reason.DATA_LOST if isinstance(error, DataLoss) else Reason.PARTITION_STOPPED,
            f"{at} is not copied{others}: {error}",
            ConditionStatus.FALSE,
        ),
    )
