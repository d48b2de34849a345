"""A source task: copies the partitions of its share, and keeps their progress."""

from collections.abc import Callable, Mapping, Set
from concurrent.futures import Executor
from functools import partial

from headrace.api import ReplicationTaskStatus, TaskPhase, TopicPartition, TopicPartitions
from headrace.assign import TaskId
from headrace.connect.context import FlowContext
from headrace.connect.copying import Copying
from headrace.connect.figures import Commits
from headrace.connect.lifecycle import LifeCycle
from headrace.connect.losses import sentence
from headrace.connect.observations import batch_not_possible
from headrace.connect.offset_syncing import OffsetSyncing
from headrace.connect.ownership import Ownership
from headrace.connect.pausing import Pausing
from headrace.connect.releasing import Releasing
from headrace.connect.resets import resets_done
from headrace.connect.source_status import Partitions, SourceStatus
from headrace.connect.standby import Standby
from headrace.connect.stuck_positions import StuckPositions
from headrace.connect.task import Role
from headrace.connect.task_progress import TaskProgress
from headrace.connect.topic_check import TopicCheck
from headrace.connect.unread_lag import UnreadLag
from headrace.errors import HeadraceError, Retriable
from headrace.logs import get_logger
from headrace.movers import Copied, Lane, Reached

_OBSERVE_INTERVAL_S = 0.25

_RESTORED = (TaskPhase.RESTORING, TaskPhase.RUNNING, TaskPhase.PAUSED)


class SourceTask:
    """See ``Task``. Positions come from progress, else from ``startFrom``.

    Its life, its reports and what it stores; ``Copying`` restores partitions and has the lane,
    ``Releasing`` frees all at the end.
    """

    def __init__(
        self,
        id: TaskId,
        partitions: frozenset[TopicPartition],
        role: Role,
        *,
        ownership: Ownership,
        context: FlowContext,
        restore_pool: Executor,
        release_pool: Executor,
        check_pool: Executor,
        changed: Callable[[], None],
        restarts: int = 0,
    ) -> None:
        """A hanging ``restore_pool`` must not hold up the ``release_pool``, and checks hold up
        neither: three of them. ``changed`` is called when there is something new to report."""
        self.id, self.role = id, role
        self.ownership = ownership
        self._context, self._clock = context, context.clock
        log = get_logger(__name__).bind(flow=context.name, task=id.name)
        self._life = LifeCycle(ownership, log, context.clock, changed, restarts)
        self._reported = SourceStatus(self._life, context.clock, partial(sentence, context))
        self._syncing = OffsetSyncing(context, check_pool)
        self._progress = TaskProgress(context, ownership, self._syncing, self._reported.copied)
        self._releasing = Releasing(ownership, release_pool, context.clock, log)
        self._contested = context.contested(id.name)
        self._copying = Copying(
            id,
            context,
            self._life,
            progress=self._progress,
            contested=self._contested,
            reported=self._reported,
            pool=restore_pool,
            log=log,
        )
        self._copying.partitions = partitions
        self._standby = Standby(context, self._life, restore_pool)
        self._topic_check = TopicCheck(context, check_pool)
        self._pausing = Pausing(context, check_pool)
        self._stuck = StuckPositions(context, check_pool)
        self._unread_lag = UnreadLag(context, self._life, check_pool)
        self._paused = False
        self._unsynced = False
        """Whether the error that is reported is that offset syncs are not written."""
        self._flow = context.flow
        self._next_observation_s = 0.0
        if role is Role.STANDBY:
            self._enter(TaskPhase.RESTORING)

    # What is reported.

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """What it is to copy."""
        return self._copying.partitions

    @property
    def phase(self) -> TaskPhase:
        """Where in its life it is."""
        return self._life.phase

    @property
    def started_at(self) -> float:
        """Monotonic seconds."""
        return self._life.started_at

    @property
    def status(self) -> ReplicationTaskStatus:
        """What there is to report."""
        return self._life.status

    @property
    def copied(self) -> Copied:
        """What it has copied."""
        return self._reported.copied

    @property
    def commits(self) -> Commits:
        """How often it stored its progress."""
        return self._progress.commits

    @property
    def leaving(self) -> bool:
        """Whether it releases its unit already."""
        return self._releasing.begun

    def superseded(self, partitions: Set[TopicPartition]) -> bool:
        """Of a task that failed: whether a person has changed its flow or its partitions since.
        From any thread."""
        return self._flow is not self._context.flow or self.partitions != partitions

    # Restore.

    def activate(self) -> None:
        """Claim, restore, run."""
        self._contested.keep(self.partitions)
        self._reported.take_over(self.ownership.task.status)
        self.role = Role.ACTIVE
        if self.phase is TaskPhase.CREATED:
            self._enter(TaskPhase.RESTORING)
        self._copying.restore_missing()

    def change(self, partitions: frozenset[TopicPartition]) -> None:
        """Those that stay are not touched; those that go are stored first."""
        self._copying.partitions = partitions
        self._contested.keep(partitions)
        if self._copying.retries.keep(partitions):
            self._life.recovered()

    def advance(self) -> bool:
        """Open what is restored, restore what is missing, and drop what is not wanted any more."""
        if self.phase not in _RESTORED:
            return False
        if self.role is Role.STANDBY:
            return self._stand_by()
        copying = self._copying
        if self._flow is not self._context.flow:
            self._flow = self._context.flow
            copying.retries.at_once()
        if copying.open_restored(claimed=self.phase is TaskPhase.RESTORING):
            self._begin()
        if (lane := copying.lane) is not None:
            lane.keep(copying.kept)
        copying.restore_missing()
        if lane is not None and lane.partitions - copying.kept:
            self._drop_drained(lane)
        wanted = self.partitions - self._contested.given_way
        return self.phase is TaskPhase.RUNNING and wanted == copying.opened

    def _begin(self) -> None:
        """Go on with what was opened."""
        lane = self._copying.lane
        assert lane is not None
        self._pausing.apply(lane, self.partitions)
        self._observe(lane)  # first: a report of Running names the partitions, too
        if self.phase is TaskPhase.RESTORING:
            self._enter(TaskPhase.RUNNING)
            self.pause(self._paused)

    def _drop_drained(self, lane: Lane) -> None:
        """Close partitions that are not to go on, once their progress is stored."""
        leaving = lane.partitions - self._copying.kept
        lane.leave(leaving)
        state = lane.state()
        if any(state[at].in_flight for at in leaving):
            return
        if leaving & self._progress.unstored(lane).keys():
            self.commit()
        elif self._stored():
            self._syncing.take(lane, final=True)
            lane.forget(leaving)
            self._progress.forget(leaving)
            self._observe(lane)  # at once: another task waits for this report
            self._life.changed()

    def _stand_by(self) -> bool:
        """Have clients and what they need before they are needed; whether that is so."""
        ready = self._standby.advance(self.partitions)
        if self._standby.warm:
            self._copying.warm_up()
        return ready

    # Run.

    def process(self) -> int:
        """Move what is there."""
        return self._copying.run_once()

    # Store.

    @property
    def commit_requested(self) -> bool:
        """See ``TaskProgress.commit_requested``."""
        return self._progress.commit_requested

    def commit(self) -> bool:
        """Store what is acknowledged, without waiting for the target to have it."""
        if self._copying.lane is None:
            return False
        self._progress.check_owner(self._copying.owned)
        if not self._stored() or (lane := self._copying.lane) is None:
            return False
        return self._progress.commit(lane, self._contested.to_refresh())

    def _stored(self) -> bool:
        """Whether the target has what was stored last; a refusal makes the task store it again."""
        try:
            late = self._progress.late
            stored = self._progress.stored()
            if late and stored:
                self._life.recovered()
            elif late:
                self._life.retrying(Retriable(late))
            return stored
        except Retriable as error:
            self._copying.retry_all(error)
            return False

    # Pause.

    def pause(self, paused: bool) -> None:
        """Whether the user wants it to rest; what is in flight is still acknowledged."""
        self._paused = paused
        if paused and self.phase is TaskPhase.RUNNING:
            self._enter(TaskPhase.PAUSED)
        elif not paused and self.phase is TaskPhase.PAUSED:
            self._enter(TaskPhase.RUNNING)

    def suspend(self) -> None:
        """Stop reading; progress and ownership stay."""
        self._releasing.suspend()
        self._enter(TaskPhase.SUSPENDED)

    def resume(self) -> None:
        """It is assigned again: nothing to restore."""
        if not self._copying.opened:
            self._enter(TaskPhase.RESTORING)
        else:
            self._enter(TaskPhase.PAUSED if self._paused else TaskPhase.RUNNING)

    # Release.

    def close(self) -> bool:
        """Store what is in flight; then free the clients, release the unit."""
        if not self._releasing.begun:
            if not (settled := self._settled()) and not self._releasing.late:
                return False
            if (lane := self._copying.lane) is not None:
                self._syncing.take(lane, final=True)
            if not settled:
                held = self._progress.settled.keys() | (lane.partitions if lane else frozenset())
                self._releasing.unstored(held)
        if not self._releasing.release(*self._copying.end()):
            return False
        self._life.phase = TaskPhase.CLOSED
        return True

    def _enter(self, phase: TaskPhase) -> None:
        self._life.enter(phase, role=str(self.role))

    def fail(self, error: HeadraceError) -> None:
        """Keep the reason; a task that another driver owns is closed without one."""
        self._reported.lost(self._progress.losses)
        self._flow = self._context.flow
        lane, self._copying.lane = self._copying.lane, None
        if lane is not None:
            self._releasing.free(lane)
        self._life.end(error)

    def _settled(self) -> bool:
        """Whether nothing is in flight or unstored any more."""
        if self.role is Role.STANDBY:
            return True
        copying = self._copying
        if copying.at_work:
            return False
        if self.phase is TaskPhase.SUSPENDED and not copying.settled_is_stored():
            return False
        if (lane := copying.lane) is None or self.phase is TaskPhase.FAILED:
            return True
        lane.poll()
        if lane.in_flight and not self._releasing.late:
            return False
        sent = self.commit()
        return not sent and self._stored() and not lane.in_flight

    # Observe.

    def punctuate(self, now_s: float) -> bool:
        """Update lag, rate and conditions, four times a second; raises what a check finds."""
        unread = self._unread_lag
        if self.phase is TaskPhase.FAILED:
            if reported := unread.observe(self.partitions):
                self._life.observe(lag_records=unread.records, lag_seconds=unread.seconds)
            return reported
        lane = self._copying.lane
        if lane is None:
            return self._reported.also(self._progress.conditions)
        if now_s < self._next_observation_s:
            return False
        self._syncing.prepare()
        self._pausing.apply(lane, self.partitions)
        unread.observe(self.partitions - self._copying.opened - self._contested.given_way)
        not_read = self._stuck.observe(self._read(lane))
        self._observe(lane)
        checked = self._topic_check.check(self._progress.acknowledged(lane))
        self._progress.confirm(checked.confirmed)
        if checked.losses:
            self._progress.noticed(checked.losses)
            changed = Retriable("a topic was created again: looking for what is lost")
            self._copying.retry(dict.fromkeys(checked.losses, changed))
        elif not_read:
            self._copying.retry(not_read)
        return True

    def _read(self, lane: Lane) -> Mapping[TopicPartition, Reached]:
        """The state of what is not paused."""
        if self.phase is not TaskPhase.RUNNING:
            return {}
        paused = self._pausing.partitions
        return {at: reached for at, reached in lane.state().items() if at not in paused}

    def _observe(self, lane: Lane) -> None:
        self._next_observation_s = self._clock.monotonic() + _OBSERVE_INTERVAL_S
        lane.poll()
        self._syncing.take(lane)
        state = lane.state()
        retries = self._copying.retries
        if retries.observe(state):
            self._life.recovered()
        if self.phase is TaskPhase.RUNNING and not (retries or self._progress.late):
            if why := self._syncing.problem:
                self._life.note(Retriable(why))  # records are copied all the same
            elif self._unsynced:
                self._life.recovered()
            else:
                self._reported.forget_error()
            self._unsynced = bool(why)
        progress = self._progress
        known = Partitions(
            self.partitions - self._contested.heartbeats_left,
            self._pausing.with_lag(state, all_paused=self.phase is TaskPhase.PAUSED),
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
            *progress.conditions,
            *batch_not_possible(self._context.choice),
        )
        self._reported.observe(known, self._unread_lag, more)
        self._acknowledge_assignment(lane)

    def _acknowledge_assignment(self, lane: Lane) -> None:
        """Report the generation of the spec whose partitions, and no others, are open now.

        The object may be newer than the assignment that this task follows: that is not reported.
        """
        task = self.ownership.task
        assigned = TopicPartitions.unpack(task.spec.partitions)
        held = lane.partitions | self._contested.given_way | self._copying.retries.failing
        if assigned == self.partitions == held and not self._copying.restoring:
            self._life.observe(observed_generation=task.metadata.generation)
