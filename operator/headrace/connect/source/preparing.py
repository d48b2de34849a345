"""Preparation of a source task's partitions: a pool restores them, or settles their lane.

Both wait for brokers.
"""

from collections.abc import Callable, Set
from concurrent.futures import Executor
from functools import partial

from headrace.api import TopicPartition
from headrace.connect.runtime.background import BackgroundStep
from headrace.connect.source.lanes import Lanes
from headrace.connect.source.record_errors import RecordErrors
from headrace.connect.source.settling import settle, store_settled
from headrace.connect.source.task_context import TaskContext
from headrace.connect.takeover.restoring import epoch_floor, restore
from headrace.connect.takeover.starts import Restored
from headrace.errors import Retriable
from headrace.movers import Lane


class Preparing(BackgroundStep[Restored]):
    """One step at a time: claim and restore, settle a lane, or store what was settled."""

    def __init__(
        self, task: TaskContext, record_errors: RecordErrors, lanes: Lanes, pool: Executor
    ) -> None:
        super().__init__(pool, task.flow.clock)
        self._lanes = lanes
        self._context, self._ownership = task.flow, task.life.ownership
        self._progress, self._contested = task.progress, task.contested
        self._record_errors = record_errors
        self.settling: Lane | None = None
        """The lane that is settled, until partitions were opened on the next one."""

    def restore(
        self, missing: Set[TopicPartition], owned: frozenset[TopicPartition], *, lane: Lane | None
    ) -> None:
        """Claim the unit if need be, and restore what is ``missing``; ``lane``: to open it on."""
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
        """Settle a lane that is given up; all partitions except ``failed`` ones resume after it."""
        self.settling = lane
        settling = partial(settle, self._context, self._progress, self._record_errors)
        step = partial(settling, lane, owned, failed=failed)
        self.start(partial(self._with_lane, step))

    def settled_is_stored(self, owned: frozenset[TopicPartition]) -> bool:
        """Whether what closed lanes have acknowledged is stored; tries again when it was not."""
        if self.settling is not None and self.done:
            try:
                self.take()
                self.settling = None
            except Retriable:
                self.back_off()
        if self.settling is not None and self.due:
            self.start(partial(store_settled, self._context, self._progress, owned))
        return self.settling is None
