"""Offsets at which one source task's partitions would resume: stored, acknowledged, settled."""

from collections.abc import Iterable, Mapping

from headrace.api import LossCause, Resets, TopicPartition
from headrace.connect.runtime.context import FlowContext
from headrace.connect.runtime.ownership import Ownership, OwnershipLost
from headrace.connect.takeover.offset_syncing import OffsetSyncing
from headrace.connect.takeover.starts import Start, Starts
from headrace.errors import HeadraceError
from headrace.movers import Lane, OffsetGone, Reached, TargetLoss
from headrace.replication import Loss


class TaskPositions:
    """It writes nothing: ``TaskProgress`` does."""

    def __init__(self, context: FlowContext, ownership: Ownership, syncing: OffsetSyncing) -> None:
        self._context, self.ownership, self._syncing = context, ownership, syncing
        self._starts: Starts = {}
        self.settled: Starts = {}
        """Results of closed lanes, until they are stored."""
        self.losses: dict[TopicPartition, Loss] = {}
        """The last of each partition that had one, as stored."""
        self._noticed: dict[TopicPartition, Loss] = {}
        """While a lane ran."""
        self._resetting: frozenset[TopicPartition] = frozenset()
        self._resetting_by: Resets | None = None
        self._confirmed: set[TopicPartition] = set()
        """Partitions of which more was confirmed than is stored."""

    @property
    def starts(self) -> Mapping[TopicPartition, Start]:
        """Offsets at which each partition would resume, as stored last."""
        return self._starts

    def restored(self, starts: Starts) -> None:
        """Record what a restore has stored; partitions with an unresolved loss are not opened."""
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

    @property
    def resetting(self) -> frozenset[TopicPartition]:
        """Partitions that resumed at their old offset and are to be reset, by another restore."""
        resets = self._context.resets
        if self._resetting_by is not resets:
            self._resetting = frozenset(
                at for at, start in self._starts.items() if resets.time_ms(at) > start.reset_ms
            )
            self._resetting_by = resets
        return self._resetting

    def confirm(self, starts: Starts) -> None:
        """Record that topics still had their ids after these offsets were acknowledged."""
        for at, start in starts.items():
            known = self._starts.get(at)
            # One that was restored meanwhile has other positions, or another topic.
            if known and known.confirmed == start.confirmed != start.here:
                self._starts[at] = known._replace(confirmed=start.here)
                self._confirmed.add(at)

    def check_owner(self, partitions: Iterable[TopicPartition]) -> None:
        """``OwnershipLost`` when progress names a later owner of a partition."""
        for at in partitions:
            stored = self._context.stored(at)
            if stored is None:
                continue
            # Two who claim at the same time, without a common herder, may choose the same epoch.
            other = at in self._starts and stored.owner != self.ownership.signature
            if stored.epoch >= self.ownership.epoch + (not other):
                raise OwnershipLost(f"{stored.owner} took {at} with epoch {stored.epoch}")

    @property
    def to_store(self) -> Starts:
        """Settled offsets to store.

        With transactions the last one has stored them, except for losses: otherwise an older offset
        would count again after a loss.
        """
        if not self._context.exactly_once:
            return self.settled
        return {
            at: start
            for at, start in self.settled.items()
            if start.loss is not None and start.loss != self.losses.get(at)
        }

    @property
    def unstored_loss(self) -> bool:
        """Whether a loss is to be stored first: what is appended later would hide it."""
        return any(start.waits for start in self.settled.values())

    def noticed(self, losses: Mapping[TopicPartition, Loss]) -> None:
        """Record losses, which are stored when the lane is settled."""
        self._noticed |= losses

    def keep(self, lane: Lane) -> None:
        """Keep what a lane has acknowledged and found out; it is settled as far as possible."""
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
        """Evidence that the clusters may not show any more when they are asked."""
        now_ms = self._context.now_ms
        if isinstance(error, TargetLoss):
            return Loss(LossCause.TARGET_TRUNCATED, error.offset, error.expected - 1, now_ms)
        if isinstance(error, OffsetGone) and error.diverged_at is not None:
            last = settled.source_offset - 1
            if error.diverged_at <= last:
                return Loss(LossCause.SOURCE_DIVERGED, error.diverged_at, last, now_ms)
        return None

    def unstored(self, lane: Lane, state: Mapping[TopicPartition, Reached] | None = None) -> Starts:
        """Return what is acknowledged or confirmed, and not stored.

        ``state`` is given if it is later than the committed one.
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
        """Return where each partition of a lane would resume now."""
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
