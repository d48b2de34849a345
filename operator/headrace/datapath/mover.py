"""Mover of one flow, and the lanes of its source tasks."""

import threading
from collections.abc import Callable, Coroutine, Mapping, Set
from functools import partial
from typing import Any

from headrace.api import ClusterAccess, TopicPartition
from headrace.api.client_settings import AS_ON_SOURCE, Compression
from headrace.api.flow import BatchVerification
from headrace.api.offsets import GapPolicy
from headrace.assign import TaskId
from headrace.datapath.bandwidth import TokenBucket
from headrace.datapath.fence import MarkerFencing
from headrace.datapath.lane import CopiedCounts, CopyFrom, Problem, Reached, Transactional
from headrace.datapath.ledger import BatchWindow, LaneState
from headrace.datapath.pipeline import Pipeline
from headrace.datapath.resources import LaneResources, LoopThread, shared_loop
from headrace.datapath.transactions import ABORT_S, LANE_AGE_S, Mark, Records, TransactionStage
from headrace.errors import Fatal, HeadraceError, Retriable
from headrace.kafka import Renewal
from headrace.kafka.wire import ProducerIdentity, Reply, start
from headrace.replication import ContiguousRange, OwnerProducer, RecordChanges

_CLOSE_S = 1.0


class BatchLane:
    """Lane of the batch mover.

    Each lane has its own connections to the source and its own producer id, so that its queue can
    be dropped without an effect on other tasks.
    """

    def __init__(
        self,
        resources: LaneResources,
        task: TaskId,
        on_error: Callable[[str], None],
        copied: CopiedCounts,
    ) -> None:
        """Create a lane. ``Mover.lane`` describes the arguments."""
        self._resources, self._on_error = resources, on_error
        self.closed = threading.Event()
        self._renewal = Renewal(resources.source, resources.target)
        self._state = LaneState(copied)
        thread = resources.thread()
        self._loop = thread.loop
        self._pipeline = self._make_pipeline(thread)
        self._made_s = self._loop.now_s()
        self._fenced = False
        """Whether the lane writes with a producer identity that later owners can fence."""
        self._counted = 0
        """Number of records that ``run_once`` has returned so far."""
        self._run(self._pipeline.begin())

    def _make_pipeline(self, thread: LoopThread) -> Pipeline:
        return Pipeline(self._resources, self._state, thread)

    @property
    def partitions(self) -> Set[TopicPartition]:
        with self._state.lock:
            return frozenset(self._state.windows)

    @property
    def in_flight(self) -> int:
        """Number of records that are read but not acknowledged, or not committed."""
        with self._state.lock:
            return sum(window.unfinished for window in self._state.windows.values())

    @property
    def polled(self) -> bool:
        """Always False: a thread of the mover copies."""
        return False

    @property
    def outdated(self) -> bool:
        """Whether credentials have changed, or a fenceable lane has reached its maximum age."""
        old = self._loop.now_s() - self._made_s > LANE_AGE_S
        return self._renewal.due or (old and self._fenced)

    def open(self, positions: Mapping[TopicPartition, CopyFrom]) -> None:
        reader = self._pipeline.reader
        with self._state.lock:
            for at, position in positions.items():
                target = TopicPartition(self._resources.target_topic(at.topic), at.partition)
                self._open(at, target, position)
                if (writer := position.writer) is not None:
                    self._fenced = True
                    self._write_as(target, writer)
                self._post(partial(reader.open, at, position.offset, position.leader_epoch))

    def _open(self, at: TopicPartition, target: TopicPartition, position: CopyFrom) -> None:
        self._state.open(at, target, position)

    def _write_as(self, target: TopicPartition, writer: OwnerProducer) -> None:
        self._post(partial(self._pipeline.write_as, target, self._begin(target, writer)))

    def _begin(self, target: TopicPartition, writer: OwnerProducer) -> ProducerIdentity:
        identity = ProducerIdentity(writer.producer_id, writer.producer_epoch)
        self._resources.begin(target, identity)
        return identity

    @property
    def transactions(self) -> Transactional | None:
        """Always None: this lane copies without transactions."""
        return None

    def leave(self, partitions: Set[TopicPartition]) -> None:
        with self._state.lock:
            for at in partitions - self._state.leaving:
                self._drop_waiting(at)
            self._state.leaving |= partitions

    def keep(self, partitions: Set[TopicPartition]) -> None:
        with self._state.lock:
            if back := self._state.leaving & partitions:
                self._state.leaving -= back
                self._post(self._pipeline.reader.wake)

    def pause(self, partitions: Set[TopicPartition]) -> None:
        with self._state.lock:
            before = self._state.paused
            if before == partitions:
                return
            for at in partitions - before:
                self._drop_waiting(at)
            self._state.paused = frozenset(partitions)
            if before - partitions:
                self._post(self._pipeline.reader.wake)

    def forget(self, partitions: Set[TopicPartition]) -> None:
        with self._state.lock:
            for at in partitions:
                self._drop_waiting(at)
                self._state.forget(at)
                self._post(partial(self._pipeline.reader.close_partition, at))

    def rest(self) -> None:
        with self._state.lock:
            self._state.end_lease()

    def run_once(self) -> int:
        """Copy in the loop's thread for ``LEASE_S``; return the number of records sent since."""
        self.poll()
        if self._state.lease(self._loop.now_s()):
            self._post(self._pipeline.reader.wake)
        with self._state.lock:
            if self._state.problems:
                return 0
            if self._state.broken is not None:
                raise self._state.broken
            moved = self._state.handed - self._counted
            self._counted += moved
            return moved

    def poll(self) -> None:
        with self._state.lock:
            sentences, self._state.away = self._state.away, {}
        for sentence in sentences:
            self._on_error(sentence)

    def state(self) -> dict[TopicPartition, Reached]:
        with self._state.lock:
            return {
                at: self._reached(at, window, window.done)
                for at, window in self._state.windows.items()
            }

    def _reached(self, at: TopicPartition, window: BatchWindow, mark: Mark) -> Reached:
        since_s = self._pipeline.reader.silence.since_s.get(at)
        return Reached(
            acknowledged=mark.acknowledged,
            target_offset=mark.target_offset,
            leader_epoch=mark.leader_epoch,
            in_flight=window.unfinished,
            end=self._state.ends.get(at),
            oldest_timestamp_ms=window.oldest_timestamp_ms,
            unexpected_offsets=window.unexpected_offsets,
            target_seen=mark.target_seen,
            silent_s=self._loop.now_s() - since_s if since_s is not None else 0.0,
        )

    def take_runs(self) -> dict[TopicPartition, list[ContiguousRange]]:
        with self._state.lock:
            taken = {at: window.take_runs() for at, window in self._state.windows.items()}
        return {at: runs for at, runs in taken.items() if runs}

    def problems(self) -> list[Problem]:
        with self._state.lock:
            return list(self._state.problems.values())

    def drop_unsent(self) -> None:
        with self._state.lock:
            self._state.ended = True
            for at in self._state.suspects:
                self._drop_waiting(at)
        self._post(self._pipeline.drop_unsent)

    def settle(self, timeout_s: float) -> None:
        self.drop_unsent()
        if not self._drained(timeout_s):
            raise Retriable(
                f"{self._resources.target.alias} did not acknowledge {self.in_flight} records that "
                "were on their way"
            )
        with self._state.lock:
            for window in self._state.windows.values():
                window.rewind()

    def close(self) -> None:
        try:
            self.drop_unsent()
            self._drained(_CLOSE_S)
            self._end()
            ended = threading.Event()
            self._post(self._pipeline.close)
            self._post(ended.set)
            ended.wait(_CLOSE_S)
        finally:
            self.closed.set()

    def _end(self) -> None:
        """Release the resources that only a subclass has."""

    def _drained(self, timeout_s: float) -> bool:
        """Return whether the outcome of all sent records became known in time."""
        drained = threading.Event()
        self._run(self._pipeline.drain(drained, timeout_s))
        return drained.wait(timeout_s)

    def _drop_waiting(self, at: TopicPartition) -> None:
        """Drop the queued suspect records of a partition; they are read again if needed."""
        suspects, window = self._state.suspects.get(at), self._state.windows.get(at)
        if suspects is not None and window is not None and suspects.waiting:
            suspects.drop()
            self._post(partial(self._pipeline.reader.rewind, at, window.position))

    def _post(self, call: Callable[[], None]) -> None:
        self._loop.call_from_thread(call)

    def _run(self, coroutine: Coroutine[Reply[Any], None, None]) -> None:
        """Run a coroutine in the loop; an error of the coroutine ends the driver."""
        self._post(lambda: start(coroutine).then(lambda reply: reply.result()))


class TransactionalLane(BatchLane):
    """Lane that copies in transactions. All its partitions have the same writer."""

    @property
    def transactions(self) -> "TransactionalLane":
        return self

    @property
    def uncommitted(self) -> bool:
        """Whether there are data that are not committed."""
        with self._state.lock:
            return any(window.changed for window in self._state.windows.values())

    def cut(self) -> dict[TopicPartition, Reached] | None:
        state = self._state
        with state.lock:
            if state.broken is not None:
                raise state.broken
            if state.stage is TransactionStage.COPYING:
                state.stage = TransactionStage.CUTTING
                self._run(self._pipeline.cut())
            if state.stage is not TransactionStage.CUT:
                return None
            return {
                at: self._reached(at, window, window.mark()) for at, window in state.windows.items()
            }

    def cut_runs(self) -> dict[TopicPartition, list[ContiguousRange]]:
        with self._state.lock:
            return {at: list(one.cut_runs()) for at, one in self._state.windows.items()}

    def commit(
        self,
        progress: Mapping[TopicPartition, Records],
        committed: Callable[[HeadraceError | None], None],
    ) -> None:
        with self._state.lock:
            assert self._state.stage is TransactionStage.CUT
            self._state.stage = TransactionStage.COMMITTING
        self._run(self._pipeline.commit(progress, committed))

    def go_on(self) -> None:
        with self._state.lock:
            self._state.stage = TransactionStage.COPYING
        self._post(self._pipeline.reader.wake)

    def _open(self, at: TopicPartition, target: TopicPartition, position: CopyFrom) -> None:
        if position.writer is None:
            raise Fatal(f"internal error: {at} would be copied without a transactional id")
        self._state.open(at, target, position, transactional=True)

    def _write_as(self, target: TopicPartition, writer: OwnerProducer) -> None:
        self._begin(target, writer)
        self._post(partial(self._pipeline.write_in_transactions, writer))

    def _end(self) -> None:
        """Abort the open transaction, and wait for ``ABORT_S`` at most."""
        ended = threading.Event()
        self._post(lambda: start(self._pipeline.abort()).then(lambda _: ended.set()))
        ended.wait(ABORT_S)


class BatchMover:
    """Mover that copies batches. All its lanes in a process share one thread."""

    def __init__(
        self,
        source: ClusterAccess,
        target: ClusterAccess,
        target_topic: Callable[[str], str],
        thread: Callable[[], LoopThread] = shared_loop,
        verification: Callable[[], BatchVerification] = lambda: BatchVerification.DISABLED,
        *,
        bandwidth: TokenBucket | None = None,
        exactly_once: bool = False,
        holes: GapPolicy = GapPolicy.MARKERS,
        records: RecordChanges | None = None,
        compression: Compression = AS_ON_SOURCE,
        fences_impossible: str = "",
    ) -> None:
        """Create a mover. Most arguments are those of ``LaneResources``.

        ``fences_impossible`` is the reason why the target cannot fence writers, or empty.
        """
        self._resources = LaneResources(
            source,
            target,
            target_topic,
            thread,
            verification,
            bandwidth=bandwidth or TokenBucket(),
            exactly_once=exactly_once,
            holes=holes,
            records=records,
            compression=compression,
        )
        self.fencing = MarkerFencing(source, target, records, fences_impossible)

    def lane(
        self, task: TaskId, on_error: Callable[[str], None], copied: CopiedCounts
    ) -> BatchLane:
        make = TransactionalLane if self._resources.exactly_once else BatchLane
        return make(self._resources, task, on_error, copied)
