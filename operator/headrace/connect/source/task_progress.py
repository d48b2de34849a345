"""Progress of a source task: offsets, transactions, and one write at a time."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from math import inf
from types import MappingProxyType

from headrace.api import Condition, LossCause, Resets, TopicPartition
from headrace.connect.runtime.contested_partitions import not_stored
from headrace.connect.runtime.context import FlowContext
from headrace.connect.runtime.figures import CommitCounts
from headrace.connect.runtime.ownership import Ownership, OwnershipLost
from headrace.connect.takeover.offset_syncing import OffsetSyncing, new_contiguity_id
from headrace.connect.takeover.starts import Start, Starts, records
from headrace.datapath import (
    ANSWER_S,
    CopiedCounts,
    Lane,
    OffsetGone,
    Reached,
    Storing,
    TargetLoss,
    Transactional,
)
from headrace.errors import HeadraceError, Retriable
from headrace.logs import get_logger
from headrace.replication import (
    ContiguousRange,
    Loss,
    Progress,
    ProgressKey,
    with_runs,
    with_skipped,
)
from headrace.timing import Clock


class StoringOutcomes:
    """Outcomes of writes of progress, one write at a time."""

    def __init__(self, clock: Clock, target: str) -> None:
        self._clock, self._target = clock, target
        self.commits = CommitCounts()
        self._unstored_since: tuple[float, float] | None = None
        """Monotonic and Unix time, in seconds, at which the oldest unstored progress was sent."""

    def sent(self) -> None:
        """Record that progress was sent."""
        if self._unstored_since is None:
            self._unstored_since = self._clock.monotonic(), self._clock.time()

    def succeeded(self) -> None:
        """Record that the target has stored the sent progress."""
        self.forget()
        self.commits.succeed(self._clock.time())

    def forget(self) -> None:
        """Forget sent progress, because a restore has determined what is stored."""
        self._unstored_since = None

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Condition ``ProgressNotStored`` if progress is unstored for longer than ``ANSWER_S``."""
        since = self._unstored_since
        if since is None or self._clock.monotonic() - since[0] <= ANSWER_S:
            return ()
        return (not_stored(self._target, since[1]),)


class TaskPositions:
    """Offsets of a task's partitions, as stored and as acknowledged.

    This class stores nothing. ``TaskProgress`` does.
    """

    def __init__(self, context: FlowContext, ownership: Ownership, syncing: OffsetSyncing) -> None:
        self._context, self.ownership, self._syncing = context, ownership, syncing
        self._starts: Starts = {}
        self.settled: Starts = {}
        """Results of closed lanes, until they are stored."""
        self.losses: dict[TopicPartition, Loss] = {}
        """Last stored loss of each partition that had one."""
        self._noticed: dict[TopicPartition, Loss] = {}
        """Losses that were noticed while a lane ran, until the lane is settled."""
        self._resetting: frozenset[TopicPartition] = frozenset()
        self._resetting_by: Resets | None = None
        self._confirmed: set[TopicPartition] = set()
        """Partitions with a newer confirmed offset than the stored one."""

    @property
    def starts(self) -> Mapping[TopicPartition, Start]:
        """Offsets at which each partition would resume, as stored last."""
        return self._starts

    def restored(self, starts: Starts) -> None:
        """Record the result of a restore. Partitions with an unresolved loss are not opened."""
        for at, start in starts.items():
            self.losses.pop(at, None)
            if start.loss is not None:
                self.losses[at] = start.loss
        self._starts |= {at: start for at, start in starts.items() if not start.waits}
        self._syncing.opened(starts)
        self.settled = {at: start for at, start in self.settled.items() if at not in starts}
        self._resetting_by = None

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget partitions that the task no longer has."""
        for at in partitions:
            self._starts.pop(at, None)
            self._confirmed.discard(at)
        self._resetting_by = None

    def keep_settled(self, partitions: Set[TopicPartition]) -> None:
        """Forget the settled offsets of all other partitions, which belong to other tasks."""
        self.settled = {at: start for at, start in self.settled.items() if at in partitions}

    def leave(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget partitions that left the task while they were closed.

        Another task may have them. Losses are kept until they are stored.
        """
        left = frozenset(partitions)
        self.forget(left)
        kept = {at: start for at, start in self.settled.items() if at not in left or start.waits}
        self.settled = kept

    @property
    def resetting(self) -> frozenset[TopicPartition]:
        """Open partitions for which a user has requested a reset that was not done yet."""
        resets = self._context.resets
        if self._resetting_by is not resets:
            self._resetting = frozenset(
                at for at, start in self._starts.items() if resets.time_ms(at) > start.reset_ms
            )
            self._resetting_by = resets
        return self._resetting

    def confirm(self, starts: Starts) -> None:
        """Mark these offsets as confirmed.

        After their acknowledgement, the topics still had the same ids.
        """
        for at, start in starts.items():
            known = self._starts.get(at)
            # A partition that was restored in between has another offset or topic.
            if known and known.confirmed == start.confirmed != start.here:
                self._starts[at] = known._replace(confirmed=start.here)
                self._confirmed.add(at)

    def check_owner(self, partitions: Iterable[TopicPartition]) -> None:
        """Raise ``OwnershipLost`` if progress names a later owner of a partition.

        A partition that was not restored yet has an earlier owner, whose epoch may be higher.
        """
        for at in partitions:
            stored = self._context.stored(at)
            if stored is None or not (at in self._starts or at in self.settled):
                continue
            # Without a common herder, two owners that claim at the same time may choose the same
            # epoch.
            other = at in self._starts and stored.owner != self.ownership.signature
            if stored.epoch >= self.ownership.epoch + (not other):
                raise OwnershipLost(f"{stored.owner} took {at} with epoch {stored.epoch}")

    @property
    def to_store(self) -> Starts:
        """Results of closed lanes to store.

        Partitions that another owner took, or whose progress was deleted, are left out. With
        transactions, only results with a new loss are included. The last transaction has stored all
        other results.
        """
        ours = {at: start for at, start in self.settled.items() if self._is_ours(at)}
        if not self._context.exactly_once:
            return ours
        return {
            at: start
            for at, start in ours.items()
            if start.loss is not None and start.loss != self.losses.get(at)
        }

    def _is_ours(self, at: TopicPartition) -> bool:
        stored = self._context.stored(at)
        return stored is not None and stored.owner == self.ownership.signature

    @property
    def unstored_loss(self) -> bool:
        """Whether a loss must be stored before the next restore, which would hide it."""
        return any(start.waits for start in self.settled.values())

    def noticed(self, losses: Mapping[TopicPartition, Loss]) -> None:
        """Record losses. They are stored when the lane is settled."""
        self._noticed |= losses

    def keep(self, lane: Lane) -> None:
        """Keep the acknowledged offsets and the losses of a lane that is closed."""
        settled = self.acknowledged(lane)
        self._syncing.take(lane, final=True)
        for at, error in lane.problems():
            if at not in self._noticed and (loss := self._loss(error, settled[at])):
                self._noticed[at] = loss
        losses, self._noticed = self._noticed, {}
        self.settled |= {
            at: (start.with_loss(losses[at]) if at in losses else start)._replace(
                pairs=self._syncing.unsafe(at)
            )
            for at, start in settled.items()
        }

    def _loss(self, error: HeadraceError, settled: Start) -> Loss | None:
        """Return the loss that an error proves, or None.

        The clusters may not show the loss any more when a restore examines them.
        """
        now_ms = self._context.now_ms
        if isinstance(error, TargetLoss):
            return Loss(LossCause.TARGET_TRUNCATED, error.offset, error.expected - 1, now_ms)
        if isinstance(error, OffsetGone) and error.diverged_at is not None:
            last = settled.source_offset - 1
            if error.diverged_at <= last:
                return Loss(LossCause.SOURCE_DIVERGED, error.diverged_at, last, now_ms)
        return None

    def unstored(self, lane: Lane, state: Mapping[TopicPartition, Reached] | None = None) -> Starts:
        """Return the offsets that are acknowledged or confirmed, and not stored.

        ``state`` replaces the lane's committed state if it is given.
        """
        return {
            at: start
            for at, start in self.acknowledged(lane, state).items()
            if start.source_offset != self._starts[at].source_offset
            or start.target_seen != self._starts[at].target_seen
            or at in self._confirmed
            or self._overtaken(at)
        }

    def _overtaken(self, at: TopicPartition) -> bool:
        return self._context.progress.overtaken(self._context.progress_key(at))

    def acknowledged(
        self, lane: Lane, state: Mapping[TopicPartition, Reached] | None = None
    ) -> Starts:
        """Return where each partition of a lane would resume.

        ``state`` replaces the lane's committed state if it is given.
        """
        return {
            at: self._starts[at]._replace(
                source_offset=reached.acknowledged,
                target_offset=reached.target_offset or self._starts[at].target_offset,
                leader_epoch=max(reached.leader_epoch, self._starts[at].leader_epoch),
                seen_end=max(reached.end or 0, self._starts[at].seen_end),
                target_seen=reached.target_seen or self._starts[at].target_seen,
            )
            for at, reached in (lane.state() if state is None else state).items()
        }


STORE_TIMEOUT_S = 60.0
"""Time in seconds for which a task waits until stored progress is acknowledged or committed. A new
lane copies records in flight again, so an election or a broker restart should not cause one."""

Entries = Callable[[Mapping[TopicPartition, Reached]], Mapping[ProgressKey, Progress]]


class TaskTransactions:
    """Transactions of a task. Not thread-safe.

    In a flow without transactions, no transaction is ever due.
    """

    def __init__(self, context: FlowContext) -> None:
        self._context = context
        self.cutting = False
        """Whether the lane waits for the acknowledgement of a transaction's records."""
        self._cut_at = -inf

    @property
    def due(self) -> bool:
        """Whether a new transaction should be committed."""
        if not self._context.exactly_once:
            return False
        interval_s = self._context.spec.delivery.commit_interval_ms / 1000
        return self._context.clock.monotonic() - self._cut_at >= interval_s

    def commit(self, lane: Transactional, entries: Entries) -> Storing | None:
        """Commit the open transaction step by step; return the write, or None.

        None means that the lane is still ``cutting``, or that ``entries`` returned no progress to
        store. In the second case, the lane continues.

        ``entries`` returns the progress for a state of the lane.
        """
        if not self.cutting:
            self._cut_at = self._context.clock.monotonic()
        reached = lane.cut()
        self.cutting = reached is None
        if reached is None:
            return None
        if not (stored := entries(reached)):
            lane.go_on()
            return None
        ended = threading.Event()

        def poll(seconds: float) -> None:
            ended.wait(seconds)

        tried = f"commit a transaction on {self._context.target.name}"
        storing = Storing(poll, self._context.clock, tried, 1, STORE_TIMEOUT_S)

        def committed(error: HeadraceError | None) -> None:
            storing.ended(error)
            ended.set()

        lane.commit(self._context.progress.in_transaction(stored), committed)
        return storing


log = get_logger(__name__)

_NONE: Mapping[TopicPartition, Sequence[ContiguousRange]] = MappingProxyType({})
_IDLE_AFTER_S = 0.2
_POLL_S = 0.005
_MAX_BYTES = 64 << 20
"""Maximum size in bytes of the data that are copied before progress must be stored. A new owner
reads data after the stored progress again. ``TaskLoop`` also stores progress every second."""
_UNANSWERED_S = 2.0
"""Time in seconds for which a task continues to copy while stored progress is not acknowledged. A
new owner reads these data again."""


class TaskProgress(TaskPositions):
    """Stored progress of a source task.

    Not thread-safe, except for ``check_owner`` and ``write``.
    """

    def __init__(
        self,
        context: FlowContext,
        ownership: Ownership,
        syncing: OffsetSyncing,
        copied: CopiedCounts,
    ) -> None:
        """Create the object; ``copied`` counts the records of all lanes of the task."""
        super().__init__(context, ownership, syncing)
        self._copied, self._sent_at_bytes = copied, 0
        """Number of copied bytes when progress was sent last."""
        self._storing: Storing | None = None
        """Write that the target has not acknowledged yet, or None."""
        self.outcomes = StoringOutcomes(context.clock, context.target.name)
        self._moved_at: float | None = None
        """Monotonic time at which the last unstored record was moved, or None."""
        self.transactions = TaskTransactions(context)

    def restored(self, starts: Starts) -> None:
        super().restored(starts)
        if starts:
            self.outcomes.forget()

    def keep(self, lane: Lane) -> None:
        if lane.transactions is not None:
            self._storing, self.transactions.cutting = None, False
        super().keep(lane)

    def moved(self) -> None:
        """Record that records were moved just now."""
        self._moved_at = self._context.clock.monotonic()

    @property
    def commit_requested(self) -> bool:
        """Whether progress should be stored before the next regular time.

        That is the case if the source is idle, so that a kill repeats nothing, if much was copied
        since progress was sent last, or if a transaction is due.
        """
        if self.transactions.cutting:
            return True
        since = self._moved_at
        if since is None:
            return False
        if self._copied.bytes - self._sent_at_bytes >= _MAX_BYTES and self._answered:
            return True
        silent = self._context.clock.monotonic() - since > _IDLE_AFTER_S
        return silent or self.transactions.due

    @property
    def unanswered(self) -> bool:
        """Whether copying must wait until the sent progress is stored."""
        late = self._storing is not None and self._storing.unanswered_for(_UNANSWERED_S)
        return late and not self._answered

    @property
    def _answered(self) -> bool:
        """Whether every acknowledgement has arrived. The last one may not be processed yet."""
        return self._storing is None or self._storing.answered

    def commit(
        self,
        lane: Lane,
        refresh: Set[TopicPartition] = frozenset(),
        *,
        at_once: bool = True,
    ) -> bool:
        """Store acknowledged offsets without waiting; return whether there was anything to store.

        Call ``stored`` first: a new write must not follow an unacknowledged one.

        Args:
            lane: Lane of the task.
            refresh: Partitions that are stored even if nothing was copied.
            at_once: Whether a transaction that is not due is also committed.
        """
        if lane.transactions is not None:
            refresh &= lane.partitions
            return self._commit_transaction(lane, lane.transactions, refresh, at_once=at_once)
        unstored = self.unstored(lane)
        unstored |= {at: self._starts[at] for at in refresh & lane.partitions - unstored.keys()}
        if unstored:
            self._syncing.take(lane)  # after ``unstored``: pairs may be ahead of the offsets
            entries = self._entries(unstored)
            with self.outcomes.commits.counting_failure():
                self._storing = self._context.progress.send(entries, STORE_TIMEOUT_S)
        elif not lane.in_flight:
            self._moved_at = None
        return bool(unstored)

    def _entries(
        self, unstored: Starts, runs: Mapping[TopicPartition, Sequence[ContiguousRange]] = _NONE
    ) -> dict[ProgressKey, Progress]:
        """Return the progress to store, and mark it as sent.

        ``runs`` are added to the pairs, because syncing receives them only after the commit.
        """
        unstored = {
            at: start._replace(
                pairs=with_runs(self._syncing.unsafe(at), runs.get(at, ()), new_contiguity_id)
            )
            for at, start in unstored.items()
        }
        self._starts |= unstored
        self._confirmed -= unstored.keys()
        entries = records(self._context, self.ownership, unstored)
        self.outcomes.sent()
        self._sent_at_bytes = self._copied.bytes
        return entries

    def _commit_transaction(
        self,
        lane: Lane,
        transactions: Transactional,
        refresh: Set[TopicPartition],
        *,
        at_once: bool,
    ) -> bool:
        """Commit step by step; return True also while sent records are not acknowledged."""
        if not self.transactions.cutting:
            if not (transactions.uncommitted or refresh or self.unstored(lane)):
                self._moved_at = None
                return False
            if not (at_once or self._moved_at is None or self.commit_requested):
                return False

        def entries(reached: Mapping[TopicPartition, Reached]) -> dict[ProgressKey, Progress]:
            unstored = self.unstored(lane, reached)
            unstored |= {at: self._starts[at] for at in refresh - unstored.keys()}
            if not unstored:
                return {}
            self._syncing.take(lane)
            return self._entries(
                unstored, transactions.cut_runs() if self._syncing.enabled else _NONE
            )

        self._storing = self.transactions.commit(transactions, entries)
        return self._storing is not None or self.transactions.cutting

    def commit_settled(self, lane: Lane, within_s: float) -> None:
        """Commit the last transaction of a lane that has nothing in flight, and wait for it.

        If it fails, the next owner, which may be this one, aborts uncommitted data. If the outcome
        of a commit is unknown, the next owner determines it.
        """
        deadline_s = time.monotonic() + within_s
        try:
            self._wait_stored(deadline_s)
            while self.commit(lane) and self._storing is None:
                _wait(deadline_s)
            self._wait_stored(deadline_s)
        except Retriable as error:
            log.info("not committed: it is copied again", why=str(error))
        finally:
            self._storing, self.transactions.cutting = None, False

    def _wait_stored(self, deadline_s: float) -> None:
        while not self.stored():
            _wait(deadline_s)

    def stored(self) -> bool:
        """Return whether the last write is acknowledged; raise ``Retriable`` once if it failed."""
        if (storing := self._storing) is None:
            return True
        try:
            with self.outcomes.commits.counting_failure():
                done = storing.done()
        except Retriable:
            self._storing = None
            raise
        if done:
            self._storing = None
            self.outcomes.succeeded()
        return done

    @property
    def late(self) -> str:
        """Message about a late acknowledgement; empty if none is late."""
        return self._storing.late if self._storing is not None else ""

    def write(self, starts: Starts) -> None:
        """Store these offsets, and wait for the acknowledgement.

        Raises:
            Retriable: The acknowledgement does not arrive in time.
        """
        entries = records(self._context, self.ownership, starts)
        if not entries:
            return
        self.outcomes.sent()
        with self.outcomes.commits.counting_failure():
            self._context.progress.write(entries)
        self.outcomes.succeeded()

    def leave_out(self, at: TopicPartition, offset: int, *, is_skipped: bool) -> None:
        """Store that a partition resumes after a record that is not copied, and wait for that.

        The offset of a skipped record is also stored, because no dead-letter topic has the record.
        """
        known = self.settled[at]
        # The record may be the first one of another leader epoch.
        after = known._replace(source_offset=offset + 1, leader_epoch=-1)
        if is_skipped:
            skipped = with_skipped(known.skipped, known.source_topic_id, offset)
            after = after._replace(skipped=skipped)
        self.write({at: after})
        self.settled = {**self.settled, at: after}


def _wait(deadline_s: float) -> None:
    if time.monotonic() > deadline_s:
        raise Retriable("no answer in time")
    time.sleep(_POLL_S)
