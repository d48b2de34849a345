"""Observations of a source task about its partitions while it copies: reported, or acted on."""

from collections.abc import Mapping
from concurrent.futures import Executor

from headrace.api import Lag, TaskPhase, TopicPartition, TopicPartitions
from headrace.connect.runtime.observations import bandwidth_used_up
from headrace.connect.source.copying import Copying
from headrace.connect.source.pausing import Pausing
from headrace.connect.source.source_ends import SourceEnds
from headrace.connect.source.source_status import Partitions
from headrace.connect.source.stuck_positions import StuckPositions
from headrace.connect.source.task_context import TaskContext
from headrace.connect.source.topic_check import TopicCheck
from headrace.connect.source.unread_lag import UnreadLag
from headrace.connect.takeover.resets import resets_done
from headrace.errors import Retriable
from headrace.movers import Lane, Reached

_INTERVAL_S = 0.25


class Observing:
    """Observations of a lane.

    Information that the lane does not have is requested in a pool. One thread calls this object.
    """

    def __init__(self, task: TaskContext, copying: Copying, pool: Executor) -> None:
        context = task.flow
        self._context, self._life, self._copying = context, task.life, copying
        self._progress, self._contested, self._syncing = task.progress, task.contested, task.syncing
        self._reported = task.reported
        self._topic_check = TopicCheck(context, pool)
        self._pausing = Pausing(context)
        self._source_ends = SourceEnds(context, pool)
        self._stuck = StuckPositions(context, pool)
        self._unread_lag = UnreadLag(context, task.life, pool)
        self._unsynced = False
        """Whether the error that is reported is that offset syncs are not written."""
        self._next_s = 0.0

    def punctuate(self, now_s: float) -> bool:
        """Update lag, rate and conditions, four times a second; raises what a check finds."""
        copying, unread = self._copying, self._unread_lag
        if self._life.phase is TaskPhase.FAILED:
            if reported := unread.observe(copying.partitions):
                self._life.observe(lag=Lag(records=unread.records, seconds=unread.seconds))
            return reported
        lane = copying.lane
        if lane is None:
            return self._reported.also(self._progress.outcomes.conditions)
        if now_s < self._next_s:
            return False
        self._syncing.prepare()
        self._pausing.apply(lane, copying.partitions)
        unread.observe(copying.partitions - copying.opened - self._contested.given_way)
        not_read = self._stuck.observe(self._read(lane))
        self.observe()
        checked = self._topic_check.check(self._progress.acknowledged(lane))
        self._progress.confirm(checked.confirmed)
        if checked.losses:
            self._progress.noticed(checked.losses)
            changed = Retriable(
                "a topic has another topic id than before: looking for what is lost"
            )
            copying.retry(dict.fromkeys(checked.losses, changed))
        elif not_read:
            copying.retry(not_read)
        return True

    def _read(self, lane: Lane) -> Mapping[TopicPartition, Reached]:
        """Return the state of partitions that are not paused."""
        if self._life.phase is not TaskPhase.RUNNING:
            return {}
        paused = self._pausing.partitions
        return {at: reached for at, reached in lane.state().items() if at not in paused}

    def observe_opened(self) -> None:
        """Partitions were opened: those that are paused are not read at all."""
        if (lane := self._copying.lane) is not None:
            self._pausing.apply(lane, self._copying.partitions)
        self.observe()

    def observe(self) -> None:
        """Update what is reported now."""
        if (lane := self._copying.lane) is None:
            return
        self._next_s = self._context.clock.monotonic() + _INTERVAL_S
        lane.poll()
        self._syncing.take(lane)
        state = lane.state()
        retries, progress = self._copying.retries, self._progress
        if retries.observe(state):
            self._life.recovered()
        if self._life.phase is TaskPhase.RUNNING and not (retries or progress.late):
            self._observe_syncs()
        known = Partitions(
            self._copying.partitions - self._contested.heartbeats_left,
            self._source_ends.observe(
                state,
                state.keys() if self._life.phase is TaskPhase.PAUSED else self._pausing.partitions,
            ),
            progress.starts,
            progress.losses,
            retries.stopped,
            self._pausing.partitions,
        )
        reset = resets_done(self._context.resets, progress.starts)
        more = (
            *self._contested.conditions,
            *self._stuck.conditions,
            *reset,
            *progress.outcomes.conditions,
            *bandwidth_used_up(self._context.spec, self._context.bandwidth),
        )
        self._reported.observe(known, self._unread_lag, more)
        self._acknowledge_assignment(lane)

    def _observe_syncs(self) -> None:
        """Report problems of offset syncs if the task has no other error."""
        if why := self._syncing.problem:
            self._life.note(Retriable(why))  # records are copied nevertheless
        elif self._unsynced:
            self._life.recovered()
        else:
            self._reported.forget_error()
        self._unsynced = bool(why)

    def _acknowledge_assignment(self, lane: Lane) -> None:
        """Report the generation of the spec whose partitions, and no others, are open now.

        The object may be newer than the assignment that this task follows: that is not reported.
        """
        task, copying = self._life.ownership.task, self._copying
        assigned = TopicPartitions.unpack(task.spec.partitions)
        held = lane.partitions | self._contested.given_way | copying.retries.failing
        if assigned == copying.partitions == held and not copying.preparing.pending:
            self._life.observe(observed_generation=task.metadata.generation)
