"""The progress of one source task: what is acknowledged is stored, one write at a time."""

import time
from collections.abc import Mapping, Sequence, Set
from types import MappingProxyType

from headrace.api import TopicPartition
from headrace.connect.runtime.context import FlowContext
from headrace.connect.runtime.ownership import Ownership
from headrace.connect.source.storing_outcomes import StoringOutcomes
from headrace.connect.source.task_positions import TaskPositions
from headrace.connect.source.task_transactions import LONGEST_S, TaskTransactions
from headrace.connect.takeover.offset_syncing import OffsetSyncing, new_stretch
from headrace.connect.takeover.starts import Starts, records
from headrace.errors import Retriable
from headrace.logs import get_logger
from headrace.movers import CopiedCounts, Lane, Reached, Storing, Transactional
from headrace.replication import ContiguousRange, Progress, ProgressKey, with_runs

log = get_logger(__name__)

_NONE: Mapping[TopicPartition, Sequence[ContiguousRange]] = MappingProxyType({})
_SILENCE_S = 0.2
_POLL_S = 0.005
_MOST_BYTES = 64 << 20
"""Maximum size that is copied before progress is due: a new owner reads it again, to compare or to
copy it. (Progress is also due after a second: see ``TaskLoop``.)
"""
_UNANSWERED_S = 2.0
"""Time for which a task continues to copy without a response to stored progress, for the same
reason.
"""


class TaskProgress(TaskPositions):
    """Not thread-safe, except for ``check_owner`` and ``write``."""

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
        """How much was copied when progress was sent last."""
        self._storing: Storing | None = None
        """Write that the target has not acknowledged yet."""
        self.outcomes = StoringOutcomes(context.clock, context.target.name)
        self._moved_at: float | None = None
        """When the last record was moved, of those that are not stored yet."""
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
        """Whether progress should be stored.

        It should when the source is idle, so that a kill repeats nothing, and when much was copied
        since the last stored progress was sent. It also should when a transaction is due.
        """
        if self.transactions.cutting:
            return True
        since = self._moved_at
        if since is None:
            return False
        if self._copied.bytes - self._sent_at_bytes >= _MOST_BYTES and self._answered:
            return True
        silent = self._context.clock.monotonic() - since > _SILENCE_S
        return silent or self.transactions.due

    @property
    def unanswered(self) -> bool:
        """Whether nothing more should be copied until what was sent is stored."""
        late = self._storing is not None and self._storing.unanswered_for(_UNANSWERED_S)
        return late and not self._answered

    @property
    def _answered(self) -> bool:
        """Whether no answer is to come; the last one may not be taken yet."""
        return self._storing is None or self._storing.answered

    def commit(
        self,
        lane: Lane,
        refresh: Set[TopicPartition] = frozenset(),
        *,
        at_once: bool = True,
    ) -> bool:
        """Store what is acknowledged, without waiting; whether there was anything to store.

        ``refresh``: partitions to store also when nothing of them was moved. ``at_once``: also a
        transaction that is not due.

        Call ``stored`` first: a write that is not answered yet must not be followed by another.
        """
        if lane.transactions is not None:
            refresh &= lane.partitions
            return self._commit_transaction(lane, lane.transactions, refresh, at_once=at_once)
        unstored = self.unstored(lane)
        unstored |= {at: self._starts[at] for at in refresh & lane.partitions - unstored.keys()}
        if unstored:
            self._syncing.take(lane)  # behind its state: pairs may lie ahead of it, never behind
            entries = self._entries(unstored)
            with self.outcomes.commits.counting_failure():
                self._storing = self._context.progress.send(entries, LONGEST_S)
        elif not lane.in_flight:
            self._moved_at = None
        return bool(unstored)

    def _entries(
        self, unstored: Starts, runs: Mapping[TopicPartition, Sequence[ContiguousRange]] = _NONE
    ) -> dict[ProgressKey, Progress]:
        """Return the progress to store, and mark it as sent.

        ``runs`` are added to the pairs: syncing does not have them before they are committed.
        """
        unstored = {
            at: start._replace(
                pairs=with_runs(self._syncing.unsafe(at), runs.get(at, ()), new_stretch)
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
        """Commit step by step; return True also while the target acknowledges sent records."""
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
        """Wait for the last transaction of a lane that has nothing in flight.

        If it fails, the next owner, which may be this one, aborts uncommitted data. That owner also
        determines the outcome of a commit if it is unknown.
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
        """Whether the target has what was stored last; raises ``Retriable`` once for a refusal."""
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
        """A sentence when the target has not answered for a while."""
        return self._storing.late if self._storing is not None else ""

    def write(self, starts: Starts) -> None:
        """Store these and wait; ``Retriable`` when they are not acknowledged in time."""
        entries = records(self._context, self.ownership, starts)
        if not entries:
            return
        self.outcomes.sent()
        with self.outcomes.commits.counting_failure():
            self._context.progress.write(entries)
        self.outcomes.succeeded()

    def leave_out(self, at: TopicPartition, offset: int) -> None:
        """Store that a partition resumes after this record, which is not copied; wait for it."""
        after = self.settled[at]._replace(source_offset=offset + 1)
        self.write({at: after})
        self.settled = {**self.settled, at: after}


def _wait(deadline_s: float) -> None:
    if time.monotonic() > deadline_s:
        raise Retriable("no answer in time")
    time.sleep(_POLL_S)
