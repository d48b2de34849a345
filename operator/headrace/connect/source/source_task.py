"""Source task: its life cycle, its standby role, and the times at which progress is stored.

``Copying`` opens partitions and copies records, ``Committing`` stores progress, ``Observing``
reports and checks, and ``Releasing`` releases everything at the end.
"""

import random
from collections.abc import Callable, Set
from concurrent.futures import Executor
from functools import partial

from headrace.api import ReplicationTaskStatus, TaskPhase, TopicPartition, partitions_text
from headrace.assign import TaskId
from headrace.connect.runtime.background import BackgroundStep
from headrace.connect.runtime.context import FlowContext
from headrace.connect.runtime.figures import CommitCounts
from headrace.connect.runtime.lifecycle import Releasing
from headrace.connect.runtime.ownership import Ownership
from headrace.connect.runtime.task_manager import Role
from headrace.connect.source.copying import Copying
from headrace.connect.source.observing import Observing
from headrace.connect.source.task_context import TaskContext
from headrace.connect.takeover.restoring import warm_up
from headrace.datapath import CopiedCounts
from headrace.errors import HeadraceError, Retriable

_FIRST_S, _INTERVAL_S = 2.0, 60.0
"""Delay of a standby's first requests, and interval between requests, in seconds. A standby is
often created when a driver is lost, and takeovers must run first. Requests are repeated because
brokers close a connection that is idle for 10 minutes."""


class Standby:
    """Keeps connections, metadata and progress of a standby current. Not thread-safe."""

    def __init__(self, task: TaskContext, copying: Copying, pool: Executor) -> None:
        self._context, self._life, self._copying = task.flow, task.life, copying
        self._asking = BackgroundStep[None](pool, task.flow.clock)
        self._asking.put_off(_FIRST_S * random.uniform(0.5, 1.0))

    def advance(self) -> bool:
        """Start due requests, and create clients once brokers respond.

        Return whether brokers respond.
        """
        if self._asking.due:
            has_lane = self._copying.lane is not None
            self._asking.start(partial(self._warm_up, self._copying.partitions, has_lane))
        if self._asking.done:
            try:
                self._asking.take()
            except Retriable as error:
                self._life.retrying(error)
                self._asking.back_off()
            else:
                self._copying.warm_up()
                self._life.recovered()
                self._asking.succeeded()
                self._asking.put_off(_INTERVAL_S)
        return self._life.error is None

    def _warm_up(self, partitions: frozenset[TopicPartition], has_lane: bool) -> None:
        warm_up(self._context, partitions)
        if not has_lane:
            self._copying.prepare_lane()


class Committing:
    """Stores progress of a task. Calls do not wait for the target. Not thread-safe.

    The next call receives the acknowledgement.
    """

    def __init__(self, task: TaskContext, copying: Copying) -> None:
        self._copying, self._life, self._log = copying, task.life, task.log
        self._progress, self._contested, self._syncing = task.progress, task.contested, task.syncing

    def commit(self, *, at_once: bool = False) -> bool:
        """Store acknowledged offsets; return whether there was anything to store.

        With ``at_once``, also commit a transaction that is not due.
        """
        if self._copying.lane is None:
            return False
        self._progress.check_owner(self._copying.owned)
        if not self._stored() or (lane := self._copying.lane) is None:
            return False
        try:
            return self._progress.commit(lane, self._contested.to_refresh(), at_once=at_once)
        except Retriable as error:
            if lane.transactions is None:
                raise
            self._copying.retry_all(error)
            return False

    def _stored(self) -> bool:
        """Return whether the last stored progress is acknowledged.

        After an error, the lane is replaced, and progress is stored again.
        """
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

    def close_leaving(self) -> bool:
        """Close leaving partitions once their progress is stored; return whether any was closed."""
        if (lane := self._copying.lane) is None:
            return False
        kept = self._copying.kept
        lane.keep(kept)
        if not (leaving := lane.partitions - kept):
            return False
        lane.leave(leaving)
        state = lane.state()
        if any(state[at].in_flight for at in leaving):
            if lane.transactions is not None:
                self.commit(at_once=True)
            return False
        if leaving & self._progress.unstored(lane).keys():
            self.commit(at_once=True)
            return False
        if not self._stored():
            return False
        self._syncing.take(lane, final=True)
        lane.forget(leaving)
        self._progress.forget(leaving)
        return True

    def finish(self, *, late: bool) -> bool:
        """Store everything before the release; return whether the release may proceed.

        That is the case if everything is stored, or if storing is abandoned because it is ``late``.
        """
        settled = self._settled(late=late)
        if not settled and not late:
            return False
        held = set(self._progress.settled)
        if (lane := self._copying.lane) is not None:
            self._syncing.take(lane, final=True)
            held |= lane.partitions
        if held and not settled and not (lane and lane.transactions):
            self._log.warning(
                "released before its progress was stored: records may come twice",
                partitions=partitions_text(held),
            )
        return True

    def _settled(self, *, late: bool) -> bool:
        """Return True if nothing is in flight and all progress is stored.

        With ``late``, do not wait for records that the target does not acknowledge.
        """
        copying, preparing = self._copying, self._copying.preparing
        if preparing.running:
            return False
        suspended = self._life.phase is TaskPhase.SUSPENDED
        if suspended and not preparing.settled_is_stored(copying.owned):
            return False
        if (lane := copying.lane) is None or self._life.phase is TaskPhase.FAILED:
            return True
        lane.poll()
        if lane.in_flight and not late and lane.transactions is None:
            return False
        sent = self.commit(at_once=True)
        if copying.lane is not lane:  # the commit failed, and the lane is settled
            return False
        return not sent and self._stored() and not lane.in_flight


_RESTORED = (TaskPhase.RESTORING, TaskPhase.RUNNING, TaskPhase.PAUSED)


class SourceTask:
    """Task that copies partitions, from their stored progress or from ``startFrom``.

    ``Task`` documents its methods.
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
        """Create a task.

        There are three pools, because slow restores must not delay releases, and checks must delay
        neither. ``changed`` is called when there is something new to report.
        """
        self.id, self.role, self.ownership = id, role, ownership
        self._task = TaskContext.make(
            id, context, ownership, changed=changed, restarts=restarts, check_pool=check_pool
        )
        self._life = self._task.life
        self._copying = Copying(self._task, partitions, restore_pool)
        self._standby = Standby(self._task, self._copying, restore_pool)
        self._committing = Committing(self._task, self._copying)
        self._observing = Observing(self._task, self._copying, check_pool)
        self._releasing = Releasing(ownership, release_pool, context.clock, self._task.log)
        self._paused = False
        if role is Role.STANDBY:
            self._enter(TaskPhase.RESTORING)

    # Reported state

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        return self._copying.partitions

    @property
    def phase(self) -> TaskPhase:
        return self._life.phase

    @property
    def started_at(self) -> float:
        return self._life.started_at

    @property
    def status(self) -> ReplicationTaskStatus:
        return self._life.status

    @property
    def copied(self) -> CopiedCounts:
        return self._task.reported.copied

    @property
    def commits(self) -> CommitCounts:
        """Counts of attempts to store progress."""
        return self._task.progress.outcomes.commits

    @property
    def leaving(self) -> bool:
        return self._releasing.begun

    def superseded(self, partitions: Set[TopicPartition]) -> bool:
        changed = self._copying.superseded or self._observing.remedied
        return changed or self.partitions != partitions

    # Restore

    def activate(self) -> None:
        self._copying.change(self.partitions)
        self._task.reported.take_over(self.ownership.task.status)
        self.role = Role.ACTIVE
        if self.phase is TaskPhase.CREATED:
            self._enter(TaskPhase.RESTORING)
        self._copying.restore_missing()

    def change(self, partitions: frozenset[TopicPartition]) -> None:
        """Change the partitions.

        Remaining partitions are not interrupted. The progress of leaving ones is stored first.
        """
        self._copying.change(partitions)

    def advance(self) -> bool:
        """Open restored partitions, restore missing ones, and close unwanted ones.

        Return whether the task runs and all its partitions are open.
        """
        if self.phase not in _RESTORED:
            return False
        if self.role is Role.STANDBY:
            return self._standby.advance()
        copying = self._copying
        copying.follow_flow()
        if copying.open_restored(claimed=self.phase is TaskPhase.RESTORING):
            self._observing.observe_opened()  # the report of Running names them
            if self.phase is TaskPhase.RESTORING:
                self._enter(TaskPhase.RUNNING)
                self.pause(self._paused)
        copying.restore_missing()
        if self._committing.close_leaving():
            self._observing.observe()  # at once, because another task waits for this report
            self._life.changed()
        return self.phase is TaskPhase.RUNNING and copying.complete

    # Run

    def process(self) -> int:
        return self._copying.run_once()

    @property
    def commit_requested(self) -> bool:
        return self._task.progress.commit_requested

    def commit(self) -> bool:
        """Store acknowledged offsets, without waiting for the target."""
        return self._committing.commit()

    def punctuate(self, now_s: float) -> bool:
        """Run due observations."""
        return self._observing.punctuate(now_s)

    # Pause

    def pause(self, paused: bool) -> None:
        self._paused = paused
        if paused and self.phase is TaskPhase.RUNNING:
            self._copying.rest()
            self._enter(TaskPhase.PAUSED)
        elif not paused and self.phase is TaskPhase.PAUSED:
            self._enter(TaskPhase.RUNNING)

    def suspend(self) -> None:
        self._releasing.suspend()
        self._enter(TaskPhase.SUSPENDED)

    def resume(self) -> None:
        """Resume after the task is assigned again, without restoring open partitions."""
        if not self._copying.opened:
            self._enter(TaskPhase.RESTORING)
        else:
            self._enter(TaskPhase.PAUSED if self._paused else TaskPhase.RUNNING)

    # End

    def close(self) -> bool:
        """Store what is in flight, then close the clients and release the unit.

        Call it again until it returns True.
        """
        releasing, owner = self._releasing, self.role is Role.ACTIVE
        if not releasing.begun and owner and not self._committing.finish(late=releasing.late):
            return False
        if done := releasing.release(*self._copying.end()):
            self._life.phase = TaskPhase.CLOSED
        return done

    def fail(self, error: HeadraceError) -> None:
        """Stop and keep the error. After ``OwnershipLost``, the task is closed without an error."""
        self._task.reported.lost(self._task.progress.losses)
        self._copying.follow_flow()  # later changes supersede the failure
        if (lane := self._copying.give_up()) is not None:
            self._releasing.free(lane)
        self._life.end(error)

    def _enter(self, phase: TaskPhase) -> None:
        self._life.enter(phase, role=str(self.role))
