"""A source task: copies the partitions of its share, and keeps their progress."""

from collections.abc import Callable, Mapping, Set
from concurrent.futures import Executor
from functools import partial

from headrace.api import ReplicationTaskStatus, TaskPhase, TopicPartition, TopicPartitions
from headrace.assign import TaskId
from headrace.connect.background import BackgroundStep
from headrace.connect.context import FlowContext
from headrace.connect.figures import Commits
from headrace.connect.hanging_transactions import HangingTransactions
from headrace.connect.lifecycle import LifeCycle
from headrace.connect.losses import DataLoss, sentence
from headrace.connect.ownership import Ownership
from headrace.connect.pausing import Pausing
from headrace.connect.record_errors import RecordErrors
from headrace.connect.releasing import Releasing
from headrace.connect.resets import resets_done
from headrace.connect.restoring import Starts, epoch_floor, restore
from headrace.connect.retries import Retries
from headrace.connect.settling import settle, store_settled
from headrace.connect.source_status import Partitions, SourceStatus
from headrace.connect.standby import Standby
from headrace.connect.task import Role
from headrace.connect.task_progress import TaskProgress
from headrace.connect.topic_check import TopicCheck
from headrace.connect.unread_lag import UnreadLag
from headrace.errors import HeadraceError, Retriable
from headrace.logs import get_logger
from headrace.movers import Copied, Lane, OffsetGone, TargetLoss

_OBSERVE_INTERVAL_S = 0.25

_RESTORED = (TaskPhase.RESTORING, TaskPhase.RUNNING, TaskPhase.PAUSED)


class SourceTask:
    """See ``Task``. Positions come from progress, else from ``startFrom``.

    Decides what is to happen next; what takes time is in the background steps: ``restoring``
    before it runs, ``settling`` when it needs a new lane, ``releasing`` at its end.
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
        self.id, self.role, self.partitions = id, role, partitions
        self.ownership = ownership
        self._context, self._clock = context, context.clock
        self._log = get_logger(__name__).bind(flow=context.name, task=id.name)
        self._life = LifeCycle(ownership, self._log, context.clock, changed, restarts)
        self._reported = SourceStatus(self._life, context.clock, partial(sentence, context))
        self._progress = TaskProgress(context, ownership)
        self._restoring = BackgroundStep[Starts](restore_pool, context.clock)
        self._releasing = Releasing(ownership, release_pool, context.clock, self._log)
        self._retries = Retries(context.clock)
        self._record_errors = RecordErrors(context, id, self._reported, self._log)
        self._contested = context.contested(id.name)
        self._standby = Standby(context, self._life, restore_pool)
        self._topic_check = TopicCheck(context, check_pool)
        self._pausing = Pausing(context, check_pool)
        self._transactions = HangingTransactions(context, check_pool)
        self._unread_lag = UnreadLag(context, self._life, check_pool)
        self._lane: Lane | None = None
        self._settling: Lane | None = None
        """The lane that the background step settles, or has settled."""
        self._stalls_seen = 0
        self._paused = False
        self._flow = context.flow
        self._next_observation_s = 0.0
        if role is Role.STANDBY:
            self._enter(TaskPhase.RESTORING)

    # What is reported.

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
        self._restore_missing()

    def change(self, partitions: frozenset[TopicPartition]) -> None:
        """Those that stay are not touched; those that go are stored first."""
        self.partitions = partitions
        self._contested.keep(partitions)
        if self._retries.keep(partitions):
            self._life.recovered()

    def advance(self) -> bool:
        """Open what is restored, restore what is missing, and drop what is not wanted any more."""
        if self.phase not in _RESTORED:
            return False
        if self.role is Role.STANDBY:
            return self._stand_by()
        if self._flow is not self._context.flow:
            self._flow = self._context.flow
            self._retries.at_once()
        if self._restoring.done:
            self._open_restored()
        if self._lane is not None:
            self._lane.keep(self._kept)
        if not self._restoring.pending and self._missing:
            self._restore_missing()
        if self._lane is not None and self._opened - self._kept:
            self._drop_drained(self._lane)
        wanted = self.partitions - self._contested.given_way
        return self.phase is TaskPhase.RUNNING and wanted == self._opened

    @property
    def _opened(self) -> Set[TopicPartition]:
        return self._lane.partitions if self._lane is not None else frozenset()

    @property
    def _kept(self) -> Set[TopicPartition]:
        """What goes on as it is: a partition that is reset is closed, then restored."""
        return self.partitions - self._progress.resetting

    @property
    def _missing(self) -> Set[TopicPartition]:
        """What is to be opened now."""
        waiting = self._retries.waiting | self._contested.waiting
        return self.partitions - self._opened - waiting

    @property
    def _owned(self) -> frozenset[TopicPartition]:
        """Also those that leave: another task may have taken them already."""
        return self.partitions.union(self._progress.starts) - self._contested.given_way

    def _restore_missing(self) -> None:
        if self._restoring.due:
            self._restoring.start(partial(self._claim_and_restore, self._missing))

    def _claim_and_restore(self, partitions: Set[TopicPartition]) -> Starts:
        if not self.ownership.epoch:
            self.ownership.claim(epoch_floor(self._context, partitions))
            if self.ownership.handed_over:
                self._contested.keep(frozenset())
        if self._progress.unstored_loss:
            store_settled(self._context, self._progress, self._owned)
        partitions = self._contested.review(partitions, self.ownership.signature)
        if not partitions:
            return {}
        return restore(self._context, self.ownership, partitions, self._progress.settled)

    def _open_restored(self) -> None:
        try:
            starts = self._restoring.take()
            lane = self._lane or self._make_lane()
        except Retriable as error:
            self._life.retrying(error)
            self._restoring.back_off()
            return
        self._restoring.succeeded()
        self._settling = None
        if self._lane is None or self.phase is TaskPhase.RESTORING:
            # The claim is fresh: only a stall from now on matters.
            self._context.stall_detector.beat()
            self._stalls_seen = self._context.stall_detector.stalls
        self._lane = lane
        starts = self._without_waiting(starts)
        self._contested.hold(starts.keys())
        lane.open({at: self._record_errors.copy_from(at, start) for at, start in starts.items()})
        self._pausing.apply(lane, self.partitions)
        if not self._retries:
            self._life.recovered()
        self._observe(lane)  # first: a report of Running names the partitions, too
        if self.phase is TaskPhase.RESTORING:
            self._enter(TaskPhase.RUNNING)
            self.pause(self._paused)
        if starts:
            self._log.info("copying", partitions=len(starts), epoch=self.ownership.epoch)

    def _without_waiting(self, starts: Starts) -> Starts:
        """Those to be opened; raises the error of a task whose partitions are all stopped."""
        positions = {**self._progress.settled, **starts}
        for at, why in self._record_errors.take_not_answered().items():
            self._failed(at, positions[at].source_offset, why)
        self._progress.restored(starts)
        for at, start in starts.items():
            if start.loss is not None and start.waits:
                loss = DataLoss(sentence(self._context, at, start.loss))
                self._failed(at, start.source_offset, loss)
        # Those that wait are stored: they are restored when their time comes.
        waiting = self._retries.waiting
        self._progress.forget(waiting)
        if self.partitions and self.partitions <= (stopped := self._retries.stopped).keys():
            raise stopped[min(self.partitions)]
        return {at: start for at, start in starts.items() if at not in waiting}

    def _make_lane(self) -> Lane:
        return self._context.mover.lane(self.id, self._broker_away, self._reported.copied)

    def _broker_away(self, message: str) -> None:
        self._life.note(Retriable(f"{message}; trying again"))

    def _drop_drained(self, lane: Lane) -> None:
        """Close partitions that are not to go on, once their progress is stored."""
        leaving = lane.partitions - self._kept
        lane.leave(leaving)
        state = lane.state()
        if any(state[at].in_flight for at in leaving):
            return
        if leaving & self._progress.unstored(lane).keys():
            self.commit()
        elif self._stored():
            lane.forget(leaving)
            self._progress.forget(leaving)
            self._observe(lane)  # at once: another task waits for this report
            self._life.changed()

    def _stand_by(self) -> bool:
        """Have clients and what they need before they are needed; whether that is so."""
        if self._lane is None and self._standby.due:
            self._lane = self._make_lane()  # its clients connect by themselves
        return self._standby.advance(self.partitions)

    # Run.

    def process(self) -> int:
        """Move what is there."""
        lane = self._lane
        if lane is None:
            return 0
        self._context.stall_detector.beat()
        if self._stalls_seen != self._context.stall_detector.stalls:
            self._log.warning("stalled: checking the claim")
            self._renew_lane()
            return 0
        if lane.outdated:
            self._log.info("secrets changed: new clients")
            self._renew_lane()
            return 0
        try:
            moved = lane.run_once()
        except Retriable as error:
            self._retry(lane, dict.fromkeys(lane.partitions, error))
            return 0
        if problems := lane.problems():
            self._retry(lane, dict(self._record_errors.others(problems)))
            return 0
        if moved:
            self._progress.moved()
        return moved

    def _retry(self, lane: Lane, errors: Mapping[TopicPartition, HeadraceError]) -> None:
        """With a new lane, which opens these partitions after their back-off."""
        state = lane.state()
        for at, error in errors.items():
            self._failed(at, state[at].acknowledged, error)
        self._renew_lane()

    def _failed(self, at: TopicPartition, acknowledged: int, error: HeadraceError) -> None:
        if isinstance(error, Retriable):
            self._life.retrying(error)
        elif not isinstance(error, OffsetGone | TargetLoss):  # which the restore looks into
            if at not in self._retries.stopped:
                self._log.error("partition stopped", partition=str(at), why=str(error))
            self._life.note(error)
        self._retries.failed(at, acknowledged, error)

    def _renew_lane(self) -> None:
        """Settle the lane in the background; the next one goes on from there."""
        lane, self._lane = self._lane, None
        if lane is not None:
            # Here: the pool may be busy, and another owner may have these partitions after a stall.
            lane.drop_unsent()
            self._settling = lane
            settling = partial(settle, self._context, self._progress, self._record_errors)
            failed = self._retries.failing
            self._restoring.start(partial(settling, lane, self._owned, failed=failed))

    # Store.

    @property
    def commit_requested(self) -> bool:
        """See ``TaskProgress.commit_requested``."""
        return self._progress.commit_requested

    def commit(self) -> bool:
        """Store what is acknowledged, without waiting for the target to have it."""
        if self._lane is None:
            return False
        self._progress.check_owner(self._owned)
        if not self._stored() or self._lane is None:
            return False
        return self._progress.commit(self._lane, self._contested.to_refresh())

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
            if (lane := self._lane) is not None:
                self._retry(lane, dict.fromkeys(lane.partitions, error))
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
        if not self._opened:
            self._enter(TaskPhase.RESTORING)
        else:
            self._enter(TaskPhase.PAUSED if self._paused else TaskPhase.RUNNING)

    # Release.

    def close(self) -> bool:
        """Store what is in flight; then free the clients, release the unit."""
        if not self._releasing.begun and not self._settled():
            return False
        settling = self._settling
        if settling and not settling.closed.is_set() and self._restoring.cancel():
            self._lane = settling  # no thread was free to settle it
        lane, self._lane = self._lane, None
        if not self._releasing.release(lane, settling):
            return False
        self._life.phase = TaskPhase.CLOSED
        return True

    def _enter(self, phase: TaskPhase) -> None:
        self._life.enter(phase, role=str(self.role))

    def fail(self, error: HeadraceError) -> None:
        """Keep the reason; a task that another driver owns is closed without one."""
        self._reported.lost(self._progress.losses)
        self._flow = self._context.flow
        lane, self._lane = self._lane, None
        if lane is not None:
            self._releasing.free(lane)
        self._life.end(error)

    def _settled(self) -> bool:
        """Whether nothing is in flight or unstored any more, or the time for it is over."""
        if self.role is Role.STANDBY:
            return True
        late = self._releasing.late
        if self._restoring.running:
            return late
        if self.phase is TaskPhase.SUSPENDED and not self._stored_settled() and not late:
            return False
        lane = self._lane
        if lane is None or self.phase is TaskPhase.FAILED:
            return True
        lane.poll()
        if lane.in_flight and not late:
            return False
        return not (self.commit() or not self._stored()) or late

    def _stored_settled(self) -> bool:
        """Whether what closed lanes have acknowledged is stored; tries again when it was not."""
        if self._settling is not None and self._restoring.done:
            try:
                self._restoring.take()
                self._settling = None
            except Retriable:
                self._restoring.back_off()
        if self._settling is not None and self._restoring.due:
            self._restoring.start(
                partial(store_settled, self._context, self._progress, self._owned)
            )
        return self._settling is None

    # Observe.

    def punctuate(self, now_s: float) -> bool:
        """Update lag, rate and conditions, four times a second; raises what a check finds."""
        unread = self._unread_lag
        if self.phase is TaskPhase.FAILED:
            if reported := unread.observe(self.partitions):
                self._life.observe(lag_records=unread.records, lag_seconds=unread.seconds)
            return reported
        lane = self._lane
        if lane is None or now_s < self._next_observation_s:
            return False
        self._pausing.apply(lane, self.partitions)
        unread.observe(self.partitions - self._opened - self._contested.given_way)
        self._transactions.observe(lane.state())
        self._observe(lane)
        if losses := self._topic_check.check(self._progress.acknowledged(lane)):
            self._progress.noticed(losses)
            changed = Retriable("a topic was created again: looking for what is lost")
            self._retry(lane, dict.fromkeys(losses, changed))
        return True

    def _observe(self, lane: Lane) -> None:
        self._next_observation_s = self._clock.monotonic() + _OBSERVE_INTERVAL_S
        lane.poll()
        state = lane.state()
        if self._retries.observe(state):
            self._life.recovered()
        if self.phase is TaskPhase.RUNNING and not (self._retries or self._progress.late):
            self._reported.forget_error()
        progress = self._progress
        known = Partitions(
            self.partitions - self._contested.heartbeats_left,
            self._pausing.with_lag(state, all_paused=self.phase is TaskPhase.PAUSED),
            progress.starts,
            progress.losses,
            self._retries.stopped,
            self._pausing.partitions,
        )
        reset = resets_done(self._context.resets, progress.starts)
        more = (*self._contested.conditions, *self._transactions.conditions, *reset)
        self._reported.observe(known, self._unread_lag, more)
        self._acknowledge_assignment(lane)

    def _acknowledge_assignment(self, lane: Lane) -> None:
        """Report the generation of the spec whose partitions, and no others, are open now.

        The object may be newer than the assignment that this task follows: that is not reported.
        """
        task = self.ownership.task
        assigned = TopicPartitions.unpack(task.spec.partitions)
        held = lane.partitions | self._contested.given_way | self._retries.stopped.keys()
        if assigned == self.partitions == held and not self._restoring.pending:
            self._life.observe(observed_generation=task.metadata.generation)
