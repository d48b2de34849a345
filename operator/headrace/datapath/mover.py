"""Mover of one flow, and the lanes of its source tasks."""

import threading
from collections.abc import Callable, Mapping, Set
from functools import partial

from headrace.api import ClusterAccess, TopicPartition
from headrace.api.client_settings import AS_ON_SOURCE, Compression
from headrace.api.flow import BatchVerification
from headrace.api.offsets import GapPolicy
from headrace.assign import TaskId
from headrace.datapath.bandwidth import TokenBucket
from headrace.datapath.delivery import AtLeastOnce
from headrace.datapath.fence import MarkerFencing
from headrace.datapath.lane import (
    CopiedCounts,
    CopyFrom,
    Fencing,
    Problem,
    Reached,
    Transactional,
)
from headrace.datapath.lane_state import LaneState
from headrace.datapath.partition import CopyState, OpenPartition
from headrace.datapath.pipeline import MakeDelivery, Pipeline
from headrace.datapath.resources import (
    DEFAULT_LANE_SETTINGS,
    LaneResources,
    LaneSettings,
    LoopThread,
    run_in,
    shared_loop,
)
from headrace.datapath.transactional import InTransactions
from headrace.datapath.transactions import ABORT_S
from headrace.errors import Retriable
from headrace.kafka import Renewal
from headrace.kafka.wire import start
from headrace.replication import ContiguousRange, RecordChanges

_CLOSE_S = 1.0


class BatchLane:
    """Lane of the batch mover.

    Each lane has its own connections to the source and its own producer id, so that its queue can
    be dropped without an effect on other tasks.
    """

    def __init__(
        self,
        resources: LaneResources,
        deliver: MakeDelivery,
        on_error: Callable[[str], None],
        copied: CopiedCounts,
    ) -> None:
        """Create a lane. ``Mover.lane`` describes the last arguments."""
        self._resources, self._on_error = resources, on_error
        self.closed = threading.Event()
        self._renewal = Renewal(resources.source, resources.target)
        self._state = LaneState(copied)
        thread = resources.thread()
        self._loop = thread.loop
        self._pipeline = Pipeline(resources, self._state, thread, deliver)
        self._delivery = self._pipeline.delivery
        self._made_s = self._loop.now_s()
        self._fenced = False
        """Whether the lane writes with a producer identity that later owners can fence."""
        self._failed: set[TopicPartition] = set()
        """Closed partitions that had failed. The appender sends nothing more to them."""
        self._counted = 0
        """Number of records that ``run_once`` has returned so far."""
        run_in(self._loop, self._delivery.begin())

    @property
    def partitions(self) -> Set[TopicPartition]:
        with self._state.lock:
            return frozenset(self._state.partitions)

    @property
    def in_flight(self) -> int:
        """Number of records that are read but not acknowledged, or not committed."""
        with self._state.lock:
            return sum(ledger.unfinished for ledger in self._state.ledgers.values())

    @property
    def polled(self) -> bool:
        """Always False: a thread of the mover copies."""
        return False

    @property
    def transactions(self) -> Transactional | None:
        return self._delivery.transactions

    @property
    def outdated(self) -> bool:
        """Whether credentials have changed, or a fenceable lane has reached its maximum age."""
        old = self._loop.now_s() - self._made_s > self._resources.settings.max_age_s
        return self._renewal.due or (old and self._fenced)

    def open(self, positions: Mapping[TopicPartition, CopyFrom]) -> None:
        reader, transactional = self._pipeline.reader, self.transactions is not None
        with self._state.lock:
            for at, position in positions.items():
                target = TopicPartition(self._resources.target_topic(at.topic), at.partition)
                self._post(self._delivery.open(target, position))
                self._state.open(at, target, position, transactional=transactional)
                self._fenced |= position.writer is not None
                if at in self._failed:
                    self._state.stop(at, Retriable(f"{at} failed before: it needs another lane"))
                self._post(partial(reader.open, at, position.offset, position.leader_epoch))

    def leave(self, partitions: Set[TopicPartition]) -> None:
        with self._state.lock:
            for partition in self._opened(partitions):
                if partition.state in {CopyState.COPYING, CopyState.PAUSED}:
                    self._post(partial(self._delivery.drain, partition.at))
                    self._drop_waiting(partition)
                    partition.drain()

    def keep(self, partitions: Set[TopicPartition]) -> None:
        with self._state.lock:
            leaving = [one for one in self._opened(partitions) if one.state is CopyState.DRAINING]
            for partition in leaving:
                partition.keep()
            if leaving:
                self._post(self._pipeline.reader.wake)

    def pause(self, partitions: Set[TopicPartition]) -> None:
        with self._state.lock:
            paused, resumed = self._state.pause(partitions)
            for partition in paused:
                self._drop_waiting(partition)
            if resumed:
                self._post(self._pipeline.reader.wake)

    def forget(self, partitions: Set[TopicPartition]) -> None:
        with self._state.lock:
            for partition in self._opened(partitions):
                self._drop_waiting(partition)
                if partition.state is CopyState.STOPPED:
                    self._failed.add(partition.at)
                self._state.forget(partition.at)
                self._post(partial(self._delivery.forget, partition.ledger.target))
                self._post(partial(self._pipeline.reader.close_partition, partition.at))

    def rest(self) -> None:
        with self._state.lock:
            self._state.end_lease()

    def run_once(self) -> int:
        """Let the loop's thread copy for ``LEASE_S`` from now on.

        Return the number of records that were sent since the last call.
        """
        self.poll()
        if self._state.lease(self._loop.now_s()):
            self._post(self._pipeline.reader.wake)
        with self._state.lock:
            if self._state.stopped:
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
        reached = self._pipeline.reached
        with self._state.lock:
            return {at: reached(one, one.ledger.done) for at, one in self._state.partitions.items()}

    def take_runs(self) -> dict[TopicPartition, list[ContiguousRange]]:
        with self._state.lock:
            taken = {at: one.ledger.take_runs() for at, one in self._state.partitions.items()}
        return {at: runs for at, runs in taken.items() if runs}

    def problems(self) -> list[Problem]:
        with self._state.lock:
            return [one.problem for one in self._state.stopped if one.problem is not None]

    def drop_unsent(self) -> None:
        self._delivery.retire()
        with self._state.lock:
            self._state.ended = True
            for partition in self._state.partitions.values():
                self._drop_waiting(partition)
        self._post(self._pipeline.drop_unsent)

    def settle(self, timeout_s: float) -> None:
        self.drop_unsent()
        if not self._drained(timeout_s):
            raise Retriable(
                f"{self._resources.target.alias} did not acknowledge {self.in_flight} records that "
                "were on their way"
            )
        with self._state.lock:
            for ledger in self._state.ledgers.values():
                ledger.rewind()

    def close(self) -> None:
        """Close the lane. An open transaction is aborted, which takes ``ABORT_S`` at most."""
        try:
            self.drop_unsent()
            self._drained(_CLOSE_S)
            aborted = threading.Event()
            self._post(lambda: start(self._delivery.abort()).then(lambda _: aborted.set()))
            aborted.wait(ABORT_S)
            self.abandon(_CLOSE_S)
        finally:
            self.closed.set()

    def abandon(self, timeout_s: float) -> bool:
        """Close the connections at once, and return whether that was done in time.

        The outcome of records in flight remains unknown.
        """
        ended = threading.Event()
        self._post(self._pipeline.close)
        self._post(ended.set)
        return ended.wait(timeout_s)

    def _drained(self, timeout_s: float) -> bool:
        """Return whether the outcome of all sent records became known in time."""
        drained = threading.Event()
        run_in(self._loop, self._pipeline.drain(drained, timeout_s))
        return drained.wait(timeout_s)

    def _opened(self, partitions: Set[TopicPartition]) -> list[OpenPartition]:
        known = self._state.partitions
        return [known[at] for at in partitions if at in known]

    def _drop_waiting(self, partition: OpenPartition) -> None:
        """Drop the queued suspect records of a partition; they are read again if needed."""
        if partition.suspects is not None and partition.searching:
            partition.suspects.drop()
            ledger, reader = partition.ledger, self._pipeline.reader
            rewind = partial(reader.rewind, ledger.at, ledger.position, ledger.leader_epoch)
            self._post(rewind)

    def _post(self, call: Callable[[], None]) -> None:
        self._loop.call_from_thread(call)


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
        settings: LaneSettings = DEFAULT_LANE_SETTINGS,
    ) -> None:
        """Create a mover. Most arguments are those of ``LaneResources``.

        ``exactly_once`` states whether lanes copy in transactions. ``fences_impossible`` is the
        reason why the target cannot fence writers, or empty.
        """
        self._resources = LaneResources(
            source,
            target,
            target_topic,
            thread,
            verification,
            bandwidth=bandwidth or TokenBucket(),
            holes=holes,
            records=records,
            compression=compression,
            settings=settings,
        )
        self._deliver: MakeDelivery = InTransactions if exactly_once else AtLeastOnce
        self.fencing: Fencing = MarkerFencing(source, target, records, fences_impossible)

    def lane(
        self, task: TaskId, on_error: Callable[[str], None], copied: CopiedCounts
    ) -> BatchLane:
        return BatchLane(self._resources, self._deliver, on_error, copied)
