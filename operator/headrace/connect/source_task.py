"""A source task: copies the partitions of its share, and keeps their progress."""

import random
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future

from headrace.api import ReplicationTaskStatus, TaskPhase
from headrace.api.partitions import TopicPartition, TopicPartitions
from headrace.assign import TaskId
from headrace.connect.context import FlowContext
from headrace.connect.ownership import Ownership, OwnershipLost
from headrace.connect.restoring import (
    DataLoss,
    Start,
    check_source_range,
    epoch_floor,
    look,
    records,
    restore,
)
from headrace.connect.source_status import SourceStatus
from headrace.connect.states import check_transition
from headrace.connect.task import Role
from headrace.errors import HeadraceError, Retriable
from headrace.kafka import KafkaException, Position, translate
from headrace.logs import get_logger
from headrace.movers import Copied, InFlightWindow, OffsetGone, RecordMover, Storing

_SILENCE_S = 0.2
_OBSERVE_INTERVAL_S = 0.25
_DRAIN_TIMEOUT_S = 2.5
"""With storing and release it fits into the 5 s that a graceful stop may take."""
_FIRST_BACKOFF_S, _MAX_BACKOFF_S = 0.2, 5.0

_FIRST_WARM_S, _WARM_INTERVAL_S = 2.0, 60.0
"""A standby often comes with the loss of a driver, when others take over and must go first; later
it looks again and again: brokers hang up on who is silent for 10 minutes."""

_Beside = Future[dict[TopicPartition, Start]]


class SourceTask:
    """See ``Task``. Positions come from progress, else from ``startFrom``."""

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
        changed: Callable[[], None],
        restarts: int = 0,
    ) -> None:
        """``beside`` runs what waits for brokers, ``aside`` what lets go of them: one that hangs
        must not hold up the other. ``changed`` hears of what is to be reported."""
        self.id, self.role, self.partitions = id, role, partitions
        self.phase = TaskPhase.CREATED
        self.ownership = ownership
        self.restarts = restarts
        self.started_at = time.monotonic()
        self._context, self._changed = context, changed
        self._restore_pool, self._release_pool = restore_pool, release_pool
        self._log = get_logger(__name__).bind(flow=context.name, task=id.name)
        self._mover: RecordMover | None = None
        self._preparing: _Beside | None = None
        self._releasing: Future[None] | None = None
        self._storing: Storing | None = None
        self._starts: dict[TopicPartition, Start] = {}
        self._paused = False
        self._backoff_s, self._not_before = _FIRST_BACKOFF_S, 0.0
        self._drain_until = self._next_look = 0.0
        self._standstills = 0
        self._unstored_since: float | None = None
        """When the last record was moved, of those that progress does not know yet."""
        self._shown = SourceStatus(changed, self._log)
        if role is Role.STANDBY:
            self._enter(TaskPhase.RESTORING)
            self._not_before = self.started_at + _FIRST_WARM_S * random.uniform(0.5, 1.0)

    # Come.

    def activate(self) -> None:
        """Claim, restore, run."""
        self._shown.take_over(self.ownership.task.status.conditions)
        self.role = Role.ACTIVE
        self._preparing, self._not_before = None, 0.0  # what a standby looked at is of no use now
        if self.phase is TaskPhase.CREATED:
            self._enter(TaskPhase.RESTORING)
        self._prepare()

    def change(self, partitions: frozenset[TopicPartition]) -> None:
        """Those that stay are not touched; those that go are stored first."""
        self.partitions = partitions

    def advance(self) -> bool:
        """Take over what was prepared beside; prepare what is missing."""
        if self.phase not in (TaskPhase.RESTORING, TaskPhase.RUNNING, TaskPhase.PAUSED):
            return False
        if self.role is Role.STANDBY:
            return self._stand_by()
        if self._preparing is not None and self._preparing.done():
            self._take_over(self._preparing)
        if self._mover is not None:
            self._mover.keep(self.partitions)
        held = self._flights.keys()
        if self._preparing is None and not self.partitions <= held:
            self._prepare()
        if held - self.partitions:
            self._drop_drained()
        return self.phase is TaskPhase.RUNNING and self.partitions == self._flights.keys()

    def _prepare(self) -> None:
        if self._preparing is None and time.monotonic() >= self._not_before:
            self._preparing = self._restore_pool.submit(
                self._prepare_beside, self.partitions - self._flights.keys()
            )

    def _prepare_beside(self, partitions: frozenset[TopicPartition]) -> dict[TopicPartition, Start]:
        if not self.ownership.epoch:
            self.ownership.claim(epoch_floor(self._context, partitions))
        return restore(self._context, self.ownership, partitions) if partitions else {}

    def _take_over(self, prepared: _Beside) -> None:
        self._preparing = None
        try:
            starts = prepared.result()
            mover = self._mover or self._make_mover()
        except Retriable as error:
            self._shown.complain(error)
            self._back_off()
            return
        self._backoff_s, self._not_before, self._shown.error = _FIRST_BACKOFF_S, 0.0, None
        self._starts |= starts
        if self._mover is None:
            self._mover = mover
            self._go_on()
        mover.add({at: (start.source_offset, start.leader_epoch) for at, start in starts.items()})
        self._look(time.monotonic())  # first: who sees it Running sees what it holds, too
        if self.phase is TaskPhase.RESTORING:
            self._enter(TaskPhase.RUNNING)
            self.pause(self._paused)
        if starts:
            self._log.info("copying", partitions=len(starts), epoch=self.ownership.epoch)

    def _back_off(self) -> None:
        # Jitter: tasks that failed together must not come back together.
        self._not_before = time.monotonic() + self._backoff_s * random.uniform(0.5, 1.0)
        self._backoff_s = min(2 * self._backoff_s, _MAX_BACKOFF_S)

    def _go_on(self) -> None:
        """The claim is fresh: only what stands still from now on matters."""
        self._context.stall_detector.beat()
        self._standstills = self._context.stall_detector.stalls

    def _drop_drained(self) -> None:
        """Let go of partitions that are not wanted any more, once their progress is stored."""
        mover = self._mover
        if mover is None:
            return
        leaving = mover.windows.keys() - self.partitions
        mover.stop_reading(leaving)
        if any(mover.windows[at].in_flight for at in leaving):
            return
        if leaving & self._unstored(mover).keys():
            self.commit()
        elif self._stored():
            mover.remove(leaving)
            for at in leaving:
                del self._starts[at]
            self._look(time.monotonic())  # at once: another task waits to hear of it
            self._changed()

    def _stand_by(self) -> bool:
        """Have connections, metadata and progress before they are needed; whether that is so."""
        if self._preparing is None and time.monotonic() >= self._not_before:
            if self._mover is None:
                self._mover = self._make_mover()  # its clients connect by themselves
            self._preparing = self._restore_pool.submit(self._warm_up, self.partitions)
        elif self._preparing is not None and self._preparing.done():
            looked, self._preparing = self._preparing, None
            try:
                looked.result()
            except Retriable as error:
                self._shown.complain(error)
                self._back_off()
            else:
                self._shown.error, self._backoff_s = None, _FIRST_BACKOFF_S
                self._not_before = time.monotonic() + _WARM_INTERVAL_S
        return self._shown.error is None

    def _warm_up(self, partitions: frozenset[TopicPartition]) -> dict[TopicPartition, Start]:
        """Ask what a take-over asks; it decides nothing."""
        epoch_floor(self._context, partitions)
        look(self._context, partitions)
        return {}

    def _make_mover(self) -> RecordMover:
        return RecordMover(
            self._context.source_access,
            self._context.target_access,
            self._context.policy.target_topic,
            self._shown.note_broker,
            self._shown.copied,
        )

    @property
    def _flights(self) -> dict[TopicPartition, InFlightWindow]:
        return self._mover.windows if self._mover is not None else {}

    # Run.

    def process(self) -> int:
        """Move what is there."""
        if self._mover is None:
            return 0
        self._context.stall_detector.beat()
        if self._standstills != self._context.stall_detector.stalls:
            self._log.warning("stood still: checking the claim")
            self._restore_again()
            return 0
        if self._mover.outdated:
            self._log.info("secrets changed: new clients")
            self._restore_again()
            return 0
        try:
            moved = self._move(self._mover)
        except OffsetGone as gone:
            self._restore_again(gone)
            return 0
        except Retriable as error:
            self._shown.complain(error)
            self._restore_again()
            return 0
        if moved:
            self._unstored_since = time.monotonic()
        return moved

    def _move(self, mover: RecordMover) -> int:
        try:
            return mover.move(0)
        except KafkaException as error:
            raise translate(error, f"run {self.id.name}") from error

    def _restore_again(self, gone: OffsetGone | None = None) -> None:
        """Drop what is queued, hear of what was sent, and go on from there: beside the loop.

        Others may have taken the partitions meanwhile; then progress says so. An offset that is
        ``gone`` from the source is explained, or read again when it is there after all.
        """
        mover, self._mover = self._mover, None
        if mover is None:
            return

        def settle() -> dict[TopicPartition, Start]:
            try:
                mover.drop_queued(_DRAIN_TIMEOUT_S)
                settled = self._acknowledged(mover)
            finally:
                mover.close()
            self._context.progress.read_to_end()
            self._check_epochs()
            self._context.progress.write(records(self._context, self.ownership, settled))
            if gone is not None:
                self._explain(gone)
            return settled

        self._preparing = self._restore_pool.submit(settle)

    def _explain(self, gone: OffsetGone) -> None:
        if gone.truncated:
            raise DataLoss(
                f"{gone}: the source lost records that were copied and holds others in their "
                "place (an unclean election)"
            ) from gone
        at, source = gone.at, self._context.source
        start = source.offsets([at], Position.EARLIEST)[at]
        end = source.offsets([at], Position.LATEST)[at]
        check_source_range(self._context, at, gone.offset, start, end)

    def _check_epochs(self) -> None:
        # Of those that leave, too: the time for that may be over.
        for at in self.partitions | self._starts.keys():
            stored = self._context.progress.get(self._context.progress_key(at))
            if stored is not None and stored.epoch > self.ownership.epoch:
                raise OwnershipLost(f"{stored.owner} took {at} with epoch {stored.epoch}")

    # Store.

    @property
    def commit_requested(self) -> bool:
        """When the source has fallen silent: a kill now should repeat nothing."""
        since = self._unstored_since
        return since is not None and time.monotonic() - since > _SILENCE_S

    def commit(self) -> bool:
        """Store what is acknowledged, without waiting for the target to have it."""
        if self._mover is None:
            return False
        self._check_epochs()
        if not self._stored():
            return False  # the target is slow: one at a time
        unstored = self._unstored(self._mover)
        if unstored:
            self._starts |= unstored
            stored = records(self._context, self.ownership, unstored)
            self._storing = self._context.progress.send(stored)
        elif not self._mover.in_flight:
            self._unstored_since = None
        return bool(unstored)

    def _stored(self) -> bool:
        """Whether the target has what was stored last; a refusal makes the task store anew."""
        try:
            return self._storing is None or self._storing.done()
        except Retriable as error:
            self._shown.complain(error)
            self._storing = None
            self._restore_again()
            return False

    def _unstored(self, mover: RecordMover) -> dict[TopicPartition, Start]:
        return {
            at: start
            for at, start in self._acknowledged(mover).items()
            if start.source_offset != self._starts[at].source_offset
        }

    def _acknowledged(self, mover: RecordMover) -> dict[TopicPartition, Start]:
        return {
            at: self._starts[at]._replace(
                source_offset=flight.acknowledged,
                target_offset=flight.target_offset or self._starts[at].target_offset,
                leader_epoch=max(flight.leader_epoch, self._starts[at].leader_epoch),
            )
            for at, flight in mover.windows.items()
        }

    # Rest.

    def pause(self, paused: bool) -> None:
        """Whether the user wants it to rest; what is in flight is still heard of."""
        self._paused = paused
        if paused and self.phase is TaskPhase.RUNNING:
            self._enter(TaskPhase.PAUSED)
        elif not paused and self.phase is TaskPhase.PAUSED:
            self._enter(TaskPhase.RUNNING)

    def suspend(self) -> None:
        """Stop reading; progress and hold stay."""
        self._drain_until = time.monotonic() + _DRAIN_TIMEOUT_S
        self._enter(TaskPhase.SUSPENDED)

    def resume(self) -> None:
        """It came back: nothing to restore."""
        if self._mover is None or not self._mover.windows:
            self._enter(TaskPhase.RESTORING)
        else:
            self._enter(TaskPhase.PAUSED if self._paused else TaskPhase.RUNNING)

    # Go.

    @property
    def leaving(self) -> bool:
        """Whether it is letting go."""
        return self._releasing is not None

    def close(self, clean: bool) -> bool:
        """Hear what is in flight and store it, then free all and let go, beside the loop."""
        if self._releasing is None:
            if clean and not self._settled():
                return False
            # The loop uses the mover no more: it is closed on another thread.
            mover, self._mover = self._mover, None
            self._releasing = self._release_pool.submit(self._let_go, mover)
        if not self._releasing.done():
            return False
        self.phase = TaskPhase.CLOSED
        return True

    def fail(self, error: Exception) -> None:
        """Keep the reason; a task that another driver took is closed instead, without a word."""
        if isinstance(error, OwnershipLost):
            self._log.info("stopped: not ours any more", why=str(error))
            self.ownership.forget()
            self.phase = TaskPhase.CLOSED
        else:
            self._log.error("failed", why=str(error))
            self._shown.note(error)
            self.phase = TaskPhase.FAILED
        mover, self._mover = self._mover, None
        if mover is not None:
            self._release_pool.submit(mover.close)
        self._changed()

    def _settled(self) -> bool:
        """Whether nothing is left to hear of or to store, or the time for it is over."""
        late = time.monotonic() > self._drain_until
        if self.role is Role.STANDBY:
            return True
        if self._preparing is not None and not self._preparing.done():
            return late
        mover = self._mover
        if mover is None or self.phase is TaskPhase.FAILED:
            return True
        mover.listen()
        if mover.in_flight and not late:
            return False
        return not (self.commit() or not self._stored()) or late

    def _let_go(self, mover: RecordMover | None) -> None:
        """Never raises: whoever waits for it can do nothing about it."""
        if mover is not None:
            mover.close()
        try:
            self.ownership.release()
        except HeadraceError as error:
            # The herder takes this incarnation for lost, or the time for a release runs out.
            self._log.warning("could not release", why=str(error))

    # Show.

    @property
    def status(self) -> ReplicationTaskStatus:
        """What there is to report."""
        return self._shown.of(self.phase, self.restarts)

    @property
    def copied(self) -> Copied:
        """What it has copied."""
        return self._shown.copied

    def punctuate(self, now_s: float) -> bool:
        """Look at lag and rate, four times a second."""
        if self._mover is None or now_s < self._next_look:
            return False
        self._look(now_s)
        return True

    def _look(self, now_s: float) -> None:
        mover = self._mover
        if mover is None:
            return
        self._next_look = now_s + _OBSERVE_INTERVAL_S
        mover.listen()
        if self.phase is TaskPhase.RUNNING:
            self._shown.forget_error()
        self._shown.look(now_s, mover, self._starts, self.partitions)
        self._acknowledge(mover)

    def _acknowledge(self, mover: RecordMover) -> None:
        """Say of which generation of the spec the partitions, and no others, are held now.

        The object may be newer than what this task has heard: then it is no acknowledgement yet.
        """
        task, held = self.ownership.task, mover.windows.keys()
        told = TopicPartitions.unpack(task.spec.partitions)
        if told == self.partitions == held and self._preparing is None:
            self._shown.observe(observed_generation=task.metadata.generation)

    def _enter(self, phase: TaskPhase) -> None:
        check_transition(self.phase, phase)
        self.phase = phase
        self._log.debug("state", phase=str(phase), role=str(self.role), epoch=self.ownership.epoch)
        self._changed()
