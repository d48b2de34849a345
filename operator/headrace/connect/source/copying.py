"""Copying of a source task: its lane, and the preparation and opening of its partitions.

A lane copies the partitions that are open on it. Partitions are restored, then opened. A new lane
replaces the current one after an error, a stall or a change of credentials.
"""

import threading
from collections.abc import Callable, Mapping, Set
from concurrent.futures import Executor
from functools import partial

from headrace.api import TopicPartition, partitions_text
from headrace.connect.runtime.background import BackgroundStep
from headrace.connect.runtime.context import FlowContext
from headrace.connect.runtime.lifecycle import DRAIN_TIMEOUT_S
from headrace.connect.runtime.retries import Retries
from headrace.connect.source.record_errors import RecordErrors
from headrace.connect.source.task_context import TaskContext
from headrace.connect.source.task_progress import TaskProgress
from headrace.connect.takeover.fenced import with_new_epoch
from headrace.connect.takeover.restoring import epoch_floor, restore
from headrace.connect.takeover.starts import Restored, Starts
from headrace.connect.topics.losses import DataLoss, sentence
from headrace.datapath import Filling, Lane, OffsetGone, TargetLoss
from headrace.errors import HeadraceError, Retriable

# A lane is created in the pool that prepares its partitions. Clients with OAUTHBEARER tokens take a
# second each, and the loop that moves data must not wait.


class Lanes:
    """Lanes of a source task. The next lane is created in advance.

    Call ``prepare`` in the pool, and the other methods in the loop.
    """

    def __init__(self, make: Callable[[], Lane], pool: Executor) -> None:
        """Create the object without a lane.

        ``make`` creates a lane, which may take seconds or raise an error. ``pool`` closes a lane
        that is not needed.
        """
        self._make, self._pool = make, pool
        self._lock = threading.Lock()
        self._prepared: Lane | None = None
        self._ended = False

    def prepare(self) -> None:
        """Create the next lane unless there is one. Raise the errors of the lane's creation."""
        with self._lock:
            if self._prepared is not None or self._ended:
                return
        lane = self._make()
        with self._lock:
            if self._prepared is None and not self._ended:
                self._prepared = lane
                return
        lane.close()  # the task has ended

    def take(self) -> Lane:
        """Return the prepared lane, or create one."""
        return self._taken() or self._make()

    def end(self) -> None:
        """Stop preparing lanes, and close a prepared lane that was not taken."""
        with self._lock:
            self._ended = True
        if (lane := self._taken()) is not None:
            self._pool.submit(lane.close)

    def _taken(self) -> Lane | None:
        with self._lock:
            lane, self._prepared = self._prepared, None
            return lane


def settle(
    context: FlowContext,
    progress: TaskProgress,
    record_errors: RecordErrors,
    lane: Lane,
    partitions: frozenset[TopicPartition],
    *,
    failed: Set[TopicPartition],
) -> Restored:
    """Close a lane, and store the outcome of its records; return where partitions resume.

    Queued records are dropped, and the outcome of sent records is awaited. The offsets of
    partitions that ``failed`` or have lost records are also stored, but a restore decides where
    these partitions resume. The same holds for partitions that fail during the call; their errors
    are in the result. Rejected records are handled after everything before them is stored.

    Raises:
        OwnershipLost: Another driver owns the partitions, according to progress.
        Retriable: Brokers do not respond. A restore then continues from ``progress.settled``.
    """
    held = lane.partitions
    try:
        lane.settle(DRAIN_TIMEOUT_S)
        if lane.transactions is not None:
            progress.commit_settled(lane, DRAIN_TIMEOUT_S)
    finally:
        progress.keep(lane)
        record_errors.keep(lane)
        lane.close()
    others = record_errors.others(lane.problems())
    late = {at: error for at, error in others if at not in failed}
    store_settled(context, progress, partitions)
    record_errors.answer(progress)
    if lane.transactions is not None or context.preserved:
        # All partitions are taken over again. A marker must abort uncommitted records and be read
        # in each partition. With preserved offsets, the target determines where the copy ends.
        return Restored({}, late)
    settled = {
        at: start
        for at, start in progress.settled.items()
        if at in held and at not in failed and at not in late and not start.waits
    }
    starts = with_new_epoch(context, progress.ownership, settled)
    # An owner that claimed since the last check may have fenced only the epoch before.
    context.progress.read_to_end()
    progress.check_owner(partitions)
    return Restored(starts, late)


def store_settled(
    context: FlowContext, progress: TaskProgress, partitions: frozenset[TopicPartition]
) -> Restored:
    """Store what ``settle`` could not store.

    No partition may be opened with the result, because the closed lane has used the epoch.
    """
    context.progress.read_to_end()
    progress.check_owner(partitions)
    progress.write(progress.to_store)
    progress.keep_settled(partitions)
    return Restored({}, {})


# Preparation of a source task's partitions. A pool restores partitions, or settles their lane. Both
# steps wait for brokers.


class Preparing(BackgroundStep[Restored]):
    """Background steps: claim and restore, settle a lane, or store what was settled.

    One step runs at a time, except that a lane is settled at once, although a restore of other
    partitions may still run. The result of that restore is dropped, and the next restore begins
    after its end. Otherwise it would overwrite later progress with its older offsets.
    """

    def __init__(
        self, task: TaskContext, record_errors: RecordErrors, lanes: Lanes, pool: Executor
    ) -> None:
        super().__init__(pool, task.flow.clock)
        self._lanes = lanes
        self._context, self._ownership = task.flow, task.life.ownership
        self._progress, self._contested = task.progress, task.contested
        self._record_errors = record_errors
        self.settling: Lane | None = None
        """Lane that was settled last; None once partitions were opened on the next lane."""

    def restore(
        self, missing: Set[TopicPartition], owned: frozenset[TopicPartition], *, lane: Lane | None
    ) -> None:
        """Claim the unit if necessary, and restore the ``missing`` partitions.

        ``owned`` contains the partitions of the unit. ``lane`` is the open lane; without one, the
        next lane is prepared.
        """
        during_transactions = (
            lane is not None and lane.transactions is not None and bool(lane.partitions)
        )
        step = partial(
            self._claim_and_restore, missing, owned, during_transactions=during_transactions
        )
        self.start(partial(self._with_lane, step) if lane is None else step)

    def _with_lane(self, step: Callable[[], Restored]) -> Restored:
        restored = step()
        self._lanes.prepare()
        return restored

    def _claim_and_restore(
        self,
        partitions: Set[TopicPartition],
        owned: frozenset[TopicPartition],
        *,
        during_transactions: bool,
    ) -> Restored:
        if not self._ownership.epoch:
            self._ownership.claim(epoch_floor(self._context, partitions))
            if self._ownership.handed_over:
                self._contested.keep(frozenset())
        if self._progress.unstored_loss:
            store_settled(self._context, self._progress, owned)
        partitions = self._contested.review(partitions, self._ownership.signature)
        if not partitions:
            return Restored({}, {})
        return restore(
            self._context,
            self._ownership,
            partitions,
            self._progress.settled,
            during_transactions=during_transactions,
        )

    def settle(
        self, lane: Lane, owned: frozenset[TopicPartition], failed: Set[TopicPartition]
    ) -> None:
        """Settle a lane in the pool. Afterwards all partitions except ``failed`` ones resume."""
        self.settling = lane
        settling = partial(settle, self._context, self._progress, self._record_errors)
        step = partial(settling, lane, owned, failed=failed)
        self.start(partial(self._with_lane, step))

    def settled_is_stored(self, owned: frozenset[TopicPartition]) -> bool:
        """Return whether the results of closed lanes are stored. If not, store them in the pool."""
        if self.settling is not None and self.done:
            try:
                self.take()
                self.settling = None
            except Retriable:
                self.back_off()
        if self.settling is not None and self.due:
            self.start(partial(store_settled, self._context, self._progress, owned))
        return self.settling is None


class Copying:
    """Partitions and lane of a source task. It runs in the loop that moves data and never waits.

    ``Preparing`` waits for brokers instead.
    """

    def __init__(
        self, task: TaskContext, partitions: frozenset[TopicPartition], pool: Executor
    ) -> None:
        self.partitions = partitions
        """Partitions to copy."""
        self.lane: Lane | None = None
        self.retries = Retries(task.flow.clock)
        self._task, self._context, self._life, self._log = task, task.flow, task.life, task.log
        self._ownership = task.life.ownership
        self._progress, self._contested = task.progress, task.contested
        self._record_errors = RecordErrors(task.flow, task.id, task.reported, task.log)
        self._lanes = Lanes(self._make_lane, pool)
        self.preparing = Preparing(task, self._record_errors, self._lanes, pool)
        self._flow = task.flow.flow
        self._stalls_seen = 0

    # Wanted and open partitions

    def change(self, partitions: frozenset[TopicPartition]) -> None:
        """Copy exactly these partitions from now on."""
        self.partitions = partitions
        self._contested.keep(partitions)
        if self.retries.keep(partitions):
            self._life.recovered()

    def follow_flow(self) -> None:
        """Retry stopped partitions if the flow has changed, because a user has acted."""
        if self.superseded:
            self._flow = self._context.flow
            self.retries.at_once()

    @property
    def superseded(self) -> bool:
        """Whether the flow has changed since the last ``follow_flow``. Any thread may read it."""
        return self._flow is not self._context.flow

    @property
    def opened(self) -> Set[TopicPartition]:
        """Partitions that are open on the lane."""
        return self.lane.partitions if self.lane is not None else frozenset()

    @property
    def kept(self) -> Set[TopicPartition]:
        """Partitions without a pending reset. A partition to reset is closed, then restored."""
        return self.partitions - self._progress.resetting

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """Partitions that this task owns.

        They include partitions that leave the task and are not closed yet. Another task may have
        taken these.
        """
        return self.partitions.union(self._progress.starts) - self._contested.given_way

    @property
    def complete(self) -> bool:
        """Whether all partitions are open, except the ones that another owner keeps."""
        return self.partitions - self._contested.given_way == self.opened

    # Restore and open

    def restore_missing(self) -> None:
        """Claim the unit if necessary, and restore closed partitions that need not wait."""
        if not self.preparing.due:
            return
        waiting = self.retries.waiting | self._contested.waiting
        missing = self.partitions - self.opened - waiting
        if missing or not self._ownership.epoch:
            self.preparing.restore(missing, self.owned, lane=self.lane)

    def open_restored(self, *, claimed: bool) -> bool:
        """Open restored partitions; return whether a restore has ended without an error.

        ``claimed`` states that the unit was claimed by this restore.

        Raises:
            HeadraceError: All partitions of the task are stopped.
        """
        if not self.preparing.done:
            return False
        try:
            starts, put_off, renew = self.preparing.take()
            if claimed and not starts and self.preparing.settling is None:
                _raise_first(put_off)
            lane = self.lane or self._take_lane()
        except Retriable as error:
            self._life.retrying(error)
            self.preparing.back_off()
            return False
        self.preparing.succeeded()
        self.preparing.settling = None
        if self.lane is None or claimed:
            # The unit was just claimed, so earlier stalls do not matter.
            self._context.stall_detector.beat()
            self._stalls_seen = self._context.stall_detector.stalls
        self.lane = lane
        for at, why in put_off.items():
            if at not in self.partitions:
                continue
            known = self._context.stored(at)
            reached = known.source_offset if known else 0
            self._failed(at, why.offset if isinstance(why, Filling) else reached, why)
        if renew:
            self._renew()
            return False
        starts = self._without_waiting(starts)
        self._contested.hold(starts.keys())
        lane.open({at: self._record_errors.copy_from(at, start) for at, start in starts.items()})
        if not self.retries:
            self._life.recovered()
        if starts:
            self._log.info(
                "copying", partitions=partitions_text(starts.keys()), epoch=self._ownership.epoch
            )
        return True

    def _without_waiting(self, starts: Starts) -> Starts:
        positions = {**self._progress.settled, **starts}
        for at, why in self._record_errors.take_not_answered().items():
            self._failed(at, positions[at].source_offset, why)
        self._progress.restored(starts)
        for at, start in starts.items():
            if start.loss is not None and start.waits:
                loss = DataLoss(sentence(self._context, at, start.loss))
                self._failed(at, start.source_offset, loss)
        # Waiting partitions are stored. They are restored when their back-off is over.
        waiting = self.retries.waiting
        self._progress.forget(waiting)
        known = self._progress.starts.keys() | self._progress.settled.keys()
        self._progress.leave(known - self.partitions - self.opened - starts.keys())
        if self.partitions and self.partitions <= (stopped := self.retries.stopped).keys():
            raise stopped[min(self.partitions)]
        return {at: start for at, start in starts.items() if at not in waiting}

    def prepare_lane(self) -> None:
        """Prepare a lane in a pool, before ``warm_up``."""
        self._lanes.prepare()

    def warm_up(self) -> None:
        """Take the prepared lane before it is needed, so that its clients connect."""
        if self.lane is None:
            self.lane = self._take_lane()

    def _take_lane(self) -> Lane:
        return self._lanes.take()

    def _make_lane(self) -> Lane:
        return self._context.mover.lane(
            self._task.id, self._task.reported.say, self._task.reported.copied
        )

    # Copy

    def rest(self) -> None:
        """Read nothing more until the next ``run_once``."""
        if self.lane is not None:
            self.lane.rest()

    def run_once(self) -> int:
        """Copy available records, or replace the lane if that is due.

        Return the number of records that this call has moved. Records that a mover's own thread
        moves are not counted.
        """
        lane = self.lane
        if lane is None:
            return 0
        self._context.stall_detector.beat()
        if self._may_be_replaced:
            self._log.warning("stalled: checking the claim")
            self._renew()
            return 0
        if lane.outdated:
            self._log.info("secrets changed: new clients")
            self._renew()
            return 0
        try:
            moved = self._run(lane)
        except Retriable as error:
            self.retry_all(error)
            return 0
        if problems := lane.problems():
            self.retry(dict(self._record_errors.others(problems)))
            return 0
        if moved:
            self._progress.moved()
        return moved if lane.polled else 0

    @property
    def _may_be_replaced(self) -> bool:
        """Whether another driver may own the task while the target accepts batches of both drivers.

        This is possible only if the target cannot fence this task. A target that has fenced a task
        rejects its batches, and the lane reports that.
        """
        stalled = self._stalls_seen != self._context.stall_detector.stalls
        return stalled and any(one.writer is None for one in self._progress.starts.values())

    def _run(self, lane: Lane) -> int:
        if self._progress.unanswered:
            lane.poll()
            return 0
        return lane.run_once()

    def retry_all(self, error: Retriable) -> None:
        """Retry all open partitions with a new lane."""
        self.retry(dict.fromkeys(self.opened, error))

    def retry(self, errors: Mapping[TopicPartition, HeadraceError]) -> None:
        """Replace the lane.

        The next lane opens the partitions in ``errors`` after their back-off.
        """
        if self.lane is None:
            return
        state = self.lane.state()
        for at, error in errors.items():
            self._failed(at, state[at].acknowledged, error)
        self._renew()

    def _failed(self, at: TopicPartition, acknowledged: int, error: HeadraceError) -> None:
        if isinstance(error, Retriable):
            self._life.retrying(error)
        elif not isinstance(error, OffsetGone | TargetLoss):  # the restore examines these
            if at not in self.retries.stopped:
                self._log.error("partition stopped", partition=str(at), why=str(error))
            self._life.note(error)
        self.retries.failed(at, acknowledged, error)

    def _renew(self) -> None:
        """Settle the lane in the background. The next lane continues from the result."""
        lane, self.lane = self.lane, None
        assert lane is not None
        # Unsent records are dropped now, because the pool may be busy, and another owner may have
        # these partitions after a stall.
        lane.drop_unsent()
        self.preparing.settle(lane, self.owned, self.retries.failing)

    # End

    def give_up(self) -> Lane | None:
        """Return the lane to close after the task has failed, or None."""
        self._lanes.end()
        lane, self.lane = self.lane, None
        if lane is not None:
            lane.drop_unsent()
        return lane

    def end(self) -> tuple[Lane | None, Lane | None]:
        """Return the lane to close, and the lane that a pool thread is closing; keep neither."""
        settling = self.preparing.settling
        if settling and not settling.closed.is_set() and self.preparing.cancel():
            self.lane = settling  # no pool thread has begun to settle it
        return self.give_up(), settling


def _raise_first(errors: Mapping[TopicPartition, HeadraceError]) -> None:
    for error in errors.values():
        raise error
