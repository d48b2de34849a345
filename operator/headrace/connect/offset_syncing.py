"""Which pairs of offsets of a source task's partitions are written as offset syncs.

Of each run of records that follow each other on both sides, the first and the last pair: so each
reader finds every record between two syncs, or knows that there is none. A run that goes on is
written again every ten seconds, and when the source rests. What goes beyond the allowance is left
out: translation is conservative there.
"""

import secrets
import threading
from collections.abc import Iterable
from concurrent.futures import Executor
from dataclasses import dataclass

from headrace.api import TopicPartition
from headrace.connect.background import BackgroundStep
from headrace.connect.context import FlowContext
from headrace.errors import HeadraceError
from headrace.movers import Lane, Run
from headrace.replication import OffsetSync

SYNC_INTERVAL_S = 10.0
_REST_S = 0.5
_MOST_SYNCS, _SYNCS_PER_S = 1_000, 50.0
"""Of a task: so many at once, and so many a second for ever, for runs that begin and end."""
_SYNCS_OF_A_HOLE = 2
_AGAIN_S = 10.0
"""After the topic could not be made, or syncs were refused."""

Pair = tuple[int, int]
"""Source and target offset of one record."""


@dataclass
class _Partition:
    stretch: int
    """As in ``Run``."""
    name: bytes
    """The same, unlike that of any other instance or lane."""
    begins: Pair
    """Of the first record of the run that goes on."""
    last: Pair
    """Of the last record that was acknowledged."""
    last_s: float
    synced: Pair | None = None
    synced_s: float = 0.0


class OffsetSyncing:
    """Of one task. ``take`` may be called from several threads, of one lane after another."""

    def __init__(self, context: FlowContext, pool: Executor) -> None:
        self._context = context
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._preparing = BackgroundStep[None](pool, context.clock)
        self._taking = threading.Lock()
        self._refused, self._again_s = 0, 0.0
        self._allowance, self._allowed_s = float(_MOST_SYNCS), context.clock.monotonic()

    @property
    def enabled(self) -> bool:
        """Whether the flow has checkpoints."""
        return self._context.spec.checkpoints.enabled

    @property
    def problem(self) -> str:
        """Why syncs are not written; empty when they are."""
        return self._context.offset_syncs.problem if self.enabled else ""

    def opened(self, partitions: Iterable[TopicPartition]) -> None:
        """A lane copies these from now on: what lies between its pairs and earlier ones is not
        known."""
        with self._taking:
            for at in partitions:
                self._partitions.pop(at, None)

    def prepare(self) -> None:
        """Make the topic, in the pool, until it is there."""
        if not self.enabled or self._context.offset_syncs.ready:
            return
        if self._preparing.done:
            try:
                self._preparing.take()
            except HeadraceError:  # the writer keeps the sentence
                self._preparing.put_off(_AGAIN_S)
        if self._preparing.due:
            self._preparing.start(self._context.offset_syncs.prepare)

    def take(self, lane: Lane, *, final: bool = False) -> None:
        """Write what the lane has had acknowledged since the last call; ``final``: it is the last
        one."""
        runs = lane.take_runs()  # also of a flow without checkpoints: they would pile up
        if not self.enabled:
            return
        now_s = self._context.clock.monotonic()
        with self._taking:
            self._allowance += (now_s - self._allowed_s) * _SYNCS_PER_S
            self._allowance, self._allowed_s = min(self._allowance, _MOST_SYNCS), now_s
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
        """What was refused is not known one by one: each run that goes on is written again."""
        refused = self._context.offset_syncs.refused
        if refused != self._refused and now_s >= self._again_s:
            self._refused, self._again_s = refused, now_s + _AGAIN_S
            for at, known in self._partitions.items():
                self._sync(at, known, known.begins, now_s)

    def _follow(self, at: TopicPartition, run: Run, now_s: float) -> None:
        known = self._partitions.get(at)
        if known is None or known.stretch != run.stretch:
            name, first = secrets.token_hex(4).encode(), (run.source, run.target)
            fresh = _Partition(run.stretch, name, first, run.last, now_s)
            self._partitions[at] = fresh
            if known is not None and known.last != known.synced:
                self._sync(at, known, known.last, now_s)
            self._sync(at, fresh, first, now_s)
        else:
            if not run.continues(known.last):
                known.begins = (run.source, run.target)
                if self._allowance >= _SYNCS_OF_A_HOLE:
                    self._allowance -= _SYNCS_OF_A_HOLE
                    if known.last != known.synced:
                        self._sync(at, known, known.last, now_s)
                    self._sync(at, known, known.begins, now_s)
            known.last, known.last_s = run.last, now_s

    def _sync(self, at: TopicPartition, of: _Partition, pair: Pair, now_s: float) -> None:
        of.synced, of.synced_s = pair, now_s
        self._context.offset_syncs.send(OffsetSync(at.topic, at.partition, *pair), of.name)
