"""Selection of a source task's pairs of offsets that are written as offset syncs.

They are the first and the last pair of each run of records with consecutive offsets on both
clusters. Between two syncs, a reader therefore knows the target offset of each record. While a run
continues, its last pair is written every ten seconds, and when the source is idle. If a task has
more than ``_SYNCS_PER_S`` pairs per second for long, some are not written. Offsets between the
written pairs are then translated conservatively.

Pairs that may not be in the topic yet are kept in progress, and a new owner writes them.
"""

import secrets
import threading
from collections import defaultdict
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass

from headrace.api import TopicPartition
from headrace.connect.runtime.background import BackgroundStep
from headrace.connect.runtime.context import FlowContext
from headrace.connect.takeover.starts import Start
from headrace.datapath import Lane
from headrace.errors import HeadraceError
from headrace.replication import MAX_PAIRS, ContiguousRange, OffsetPair, thin_out

SYNC_INTERVAL_S = 10.0
_REST_S = 0.5
_MAX_SYNCS, _SYNCS_PER_S = 1_000, 50.0
"""Maximum number of syncs of a task for beginning and ending runs: in a burst, and per second."""
_SYNCS_OF_A_HOLE = 2
_RETRY_INTERVAL_S = 10.0
"""Delay in seconds after the topic could not be created, or syncs were rejected."""


def new_contiguity_id() -> str:
    """Return a random id that no other instance or lane uses."""
    return secrets.token_hex(4)


@dataclass
class _Partition:
    contiguity_id: int
    """Contiguity id of the current run."""
    begins: OffsetPair
    """Pair of the first record of the current run."""
    last: OffsetPair
    """Pair of the last acknowledged record."""
    last_s: float
    synced: OffsetPair | None = None
    synced_s: float = 0.0


class OffsetSyncing:
    """Offset syncs of one task.

    Several threads may call ``take``, for one lane at a time.
    """

    def __init__(self, context: FlowContext, pool: Executor) -> None:
        self._context = context
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._unsafe: dict[TopicPartition, list[tuple[int, OffsetPair]]] = defaultdict(list)
        """Pairs that were passed to the writer but are not known to be stored, each with the
        writer's count ``sent`` for it."""
        self._preparing = BackgroundStep[None](pool, context.clock)
        self._taking = threading.Lock()
        self._refused, self._again_s = 0, 0.0
        self._allowance, self._allowed_s = float(_MAX_SYNCS), context.clock.monotonic()

    @property
    def enabled(self) -> bool:
        """Whether the flow writes offset syncs.

        Offset syncs are needed only for checkpoints of copies whose offsets differ from the source.
        """
        return self._context.spec.checkpoints.enabled and not self._context.preserved

    @property
    def problem(self) -> str:
        """Reason why syncs are not written; empty if they are."""
        return self._context.offset_syncs.problem if self.enabled else ""

    def opened(self, starts: Mapping[TopicPartition, Start]) -> None:
        """Record that a lane now copies these partitions.

        The new lane's pairs do not continue the partitions' earlier pairs, because the offsets
        between them are unknown. The earlier pairs are written unless this instance has written
        them.
        """
        with self._taking:
            for at, start in starts.items():
                known = self._partitions.pop(at, None)
                written = {pair for _, pair in self._unsafe[at]} | {known and known.synced}
                for pair in start.pairs if self.enabled else ():
                    if pair not in written:
                        self._send(at, pair)

    def unsafe(self, at: TopicPartition) -> tuple[OffsetPair, ...]:
        """Return the pairs that may not be in the topic yet, in order, for ``Progress.pairs``."""
        if not self.enabled:
            return ()
        with self._taking:
            answered, known = self._context.offset_syncs.answered, self._partitions.get(at)
            unsafe = [one for one in self._unsafe[at] if one[0] > answered]
            self._unsafe[at] = unsafe
            pairs = tuple(pair for _, pair in unsafe)
            return pairs if known is None or known.last == known.synced else (*pairs, known.last)

    def prepare(self) -> None:
        """Create the topic in the pool, and repeat that until it exists."""
        if not self.enabled or self._context.offset_syncs.ready:
            return
        if self._preparing.done:
            try:
                self._preparing.take()
            except HeadraceError:  # the writer keeps the message
                self._preparing.put_off(_RETRY_INTERVAL_S)
        if self._preparing.due:
            self._preparing.start(self._context.offset_syncs.prepare)

    def take(self, lane: Lane, *, final: bool = False) -> None:
        """Write the pairs that the lane acknowledged since the last call.

        ``final`` states that it is the last call for the lane.
        """
        runs = lane.take_runs()  # also without checkpoints, or runs would accumulate
        if not self.enabled:
            return
        now_s = self._context.clock.monotonic()
        with self._taking:
            self._allowance += (now_s - self._allowed_s) * _SYNCS_PER_S
            self._allowance, self._allowed_s = min(self._allowance, _MAX_SYNCS), now_s
            for at, new in runs.items():
                for run in new:
                    self._follow(at, run, now_s)
            self._repeat_refused(now_s)
            for at, known in self._partitions.items():
                rests = now_s - known.last_s > _REST_S
                due = now_s - known.synced_s >= SYNC_INTERVAL_S
                if known.last != known.synced and (final or rests or due):
                    self._sync(at, known, known.last, now_s)
        self._context.offset_syncs.poll()

    def _repeat_refused(self, now_s: float) -> None:
        """Write each current run again, because it is unknown which syncs were rejected."""
        refused = self._context.offset_syncs.refused
        if refused != self._refused and now_s >= self._again_s:
            self._refused, self._again_s = refused, now_s + _RETRY_INTERVAL_S
            for at, known in self._partitions.items():
                self._sync(at, known, known.begins, now_s)

    def _follow(self, at: TopicPartition, run: ContiguousRange, now_s: float) -> None:
        known = self._partitions.get(at)
        same = known is not None and known.contiguity_id == run.contiguity_id
        id = known.last.stretch if known is not None and same else new_contiguity_id()
        first, last = OffsetPair(id, run.source, run.target), OffsetPair(id, *run.last)
        if known is None or not same:
            fresh = _Partition(run.contiguity_id, first, last, now_s)
            self._partitions[at] = fresh
            if known is not None and known.last != known.synced:
                self._sync(at, known, known.last, now_s)
            self._sync(at, fresh, first, now_s)
        else:
            if not run.continues(known.last.offsets):
                known.begins = first
                if self._allowance >= _SYNCS_OF_A_HOLE:
                    self._allowance -= _SYNCS_OF_A_HOLE
                    if known.last != known.synced:
                        self._sync(at, known, known.last, now_s)
                    self._sync(at, known, first, now_s)
            known.last, known.last_s = last, now_s

    def _sync(self, at: TopicPartition, of: _Partition, pair: OffsetPair, now_s: float) -> None:
        of.synced, of.synced_s = pair, now_s
        self._send(at, pair)

    def _send(self, at: TopicPartition, pair: OffsetPair) -> None:
        writer = self._context.offset_syncs
        writer.send(at, pair)
        thin_out(self._unsafe[at], MAX_PAIRS).append((writer.sent, pair))
