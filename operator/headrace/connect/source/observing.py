"""Observations of a task's partitions: ends, pauses, stuck offsets and topic ids."""

from collections.abc import Callable, Mapping, Set
from concurrent.futures import Executor
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple

from headrace.api import (
    Condition,
    ConditionType,
    Lag,
    Reason,
    TaskPhase,
    TopicPartition,
    TopicPartitions,
)
from headrace.connect.runtime.background import BackgroundStep
from headrace.connect.runtime.both_clusters import known_topic_ids, source_topic_ids
from headrace.connect.runtime.contested_partitions import bandwidth_used_up, observation
from headrace.connect.runtime.context import FlowContext
from headrace.connect.source.causes import CauseCheck
from headrace.connect.source.copying import Copying
from headrace.connect.source.source_status import Partitions, UnreadLag
from headrace.connect.source.task_context import TaskContext
from headrace.connect.takeover.starts import Start, Starts, resets_done
from headrace.connect.topics.copy_starts import follow_starts
from headrace.connect.topics.losses import recreated_on_source, recreated_on_target
from headrace.datapath import Lane, Reached
from headrace.errors import Fatal, HeadraceError, Retriable
from headrace.kafka import Position, replaced
from headrace.replication import Loss


class Pausing:
    """Pauses partitions of a lane as ``spec.pausedPartitions`` requires. Not thread-safe."""

    def __init__(self, context: FlowContext) -> None:
        self._context = context
        self.partitions: frozenset[TopicPartition] = frozenset()
        """Partitions of the task that ``spec.pausedPartitions`` names."""

    def apply(self, lane: Lane, assigned: Set[TopicPartition]) -> None:
        """Pause the lane's partitions named by the spec. ``assigned`` are the task's partitions."""
        self.partitions = self._context.pauses.among(assigned | lane.partitions)
        lane.pause(self.partitions)


# Ends of open partitions that the lane does not read, because they are paused, or because the
# target accepts none of their records. Their ends are requested from the source, so that their lag
# continues to grow.

_ENDS_INTERVAL_S = 5.0
_HELD_UP_S = 1.0

State = Mapping[TopicPartition, Reached]


class _Position(NamedTuple):
    acknowledged: int
    since_s: float
    """Monotonic time in seconds."""


class SourceEnds:
    """Ends of unread partitions, requested from the source. Not thread-safe."""

    def __init__(self, context: FlowContext, pool: Executor) -> None:
        self._context = context
        self._asking = BackgroundStep[dict[TopicPartition, int]](pool, context.clock)
        self._ends: Mapping[TopicPartition, int] = {}
        self._read_s: dict[TopicPartition, float] = {}
        """Monotonic time of the last answer about each unread partition, or of the first
        request."""
        self._positions: dict[TopicPartition, _Position] = {}
        """Acknowledged offsets of partitions with records in flight."""
        self._behind_since_ms: dict[TopicPartition, int] = {}
        """Latest known Unix time in ms at which an unread partition had no lag."""

    def observe(self, state: State, paused: Set[TopicPartition]) -> State:
        """Return the state with the lag of unread partitions; request ends if that is due.

        The state also contains the time for which the target has acknowledged nothing.
        """
        held_up = self._held_up(state)
        state = {
            at: one._replace(held_up_s=held_up[at]) if at in held_up else one
            for at, one in state.items()
        }
        unread = {at: state[at] for at in state if at in paused or at in held_up}
        self._behind_since_ms = {at: ms for at, ms in self._behind_since_ms.items() if at in unread}
        now_s = self._context.clock.monotonic()
        self._read_s = {at: self._read_s.get(at, now_s) for at in unread}
        if not unread:
            self._ends = {}
            return state
        if self._asking.due:
            self._asking.start(partial(self._context.source.known_ends, set(unread)))
        if self._asking.done:
            self._asking.put_off(_ENDS_INTERVAL_S)
            with suppress(HeadraceError):  # brokers that are unreachable are reported where needed
                self._ends = self._asking.take()
                self._read_s |= dict.fromkeys(self._ends.keys() & unread.keys(), now_s)
        return {**state, **{at: self._waiting(at, reached) for at, reached in unread.items()}}

    def _held_up(self, state: State) -> Mapping[TopicPartition, float]:
        """Return seconds since the last acknowledgement of partitions with records in flight."""
        now_s = self._context.clock.monotonic()
        self._positions = {
            at: known
            if (known := self._positions.get(at)) and known.acknowledged == one.acknowledged
            else _Position(one.acknowledged, now_s)
            for at, one in state.items()
            if one.in_flight
        }
        waits = {at: now_s - one.since_s for at, one in self._positions.items()}
        return {at: waited_s for at, waited_s in waits.items() if waited_s > _HELD_UP_S}

    def _waiting(self, at: TopicPartition, reached: Reached) -> Reached:
        """Return the state of an unread partition.

        It contains the latest known end, the time at which the lag began, and the time since the
        source's last answer.
        """
        now_ms = self._context.now_ms
        ends = [end for end in (reached.end, self._ends.get(at)) if end is not None]
        reached = reached._replace(end=max(ends, default=None))
        if not reached.lag_records:
            self._behind_since_ms[at] = now_ms
        since_ms = self._behind_since_ms.setdefault(at, reached.oldest_timestamp_ms or now_ms)
        silent_s = self._context.clock.monotonic() - self._read_s[at]
        return reached._replace(oldest_timestamp_ms=since_ms, silent_s=silent_s)


# A coordinator aborts a transaction that is open for longer than the producer's
# transaction.timeout.ms, 60 s by default. It checks every 10 s
# (transaction.abort.timed.out.transaction.cleanup.interval.ms). A transaction that is open for
# longer has a producer with a longer timeout, or it hangs (KIP-664).
_MAX_INTERVAL_S = 70.0
_STUCK_INTERVAL_S = 30.0

Offsets = Mapping[TopicPartition, int]


class _Wait(NamedTuple):
    """Partition with a lag whose acknowledged offset does not change."""

    offset: int
    """Next source offset to copy."""
    since_s: float
    """Monotonic time in seconds."""
    since: datetime


class StuckPositions:
    """Detection of acknowledged offsets that do not change. Not thread-safe.

    The source's last stable offsets are requested only if an offset has not changed for
    ``_MAX_INTERVAL_S`` although there are later records. An acknowledged offset is never above the
    last stable offset, which never decreases. If both are equal, the last stable offset has not
    moved either: one open transaction has blocked it all the time. If the last stable offset is
    higher, the client did not read available records.
    """

    def __init__(self, context: FlowContext, pool: Executor) -> None:
        self.conditions: tuple[Condition, ...] = ()
        """Condition ``TransactionHanging`` while a transaction hangs; otherwise empty."""
        self._context = context
        self._asking = BackgroundStep[Offsets](pool, context.clock)
        self._waits: dict[TopicPartition, _Wait] = {}
        self._stable_ends: Offsets = {}
        """Last stable offsets of stuck partitions at the last request."""
        self._unread: dict[TopicPartition, int] = {}
        """Offsets from which nothing could be read."""

    def observe(self, state: State) -> Mapping[TopicPartition, HeadraceError]:
        """Update the conditions, and request offsets if that is due.

        ``state`` contains the partitions to copy. Return the errors of partitions that cannot be
        read; they must be opened again.
        """
        clock = self._context.clock
        now_s = clock.monotonic()
        starts = _Wait(0, now_s, datetime.fromtimestamp(int(clock.time()), UTC))
        behind = {at: one.acknowledged for at, one in state.items() if one.lag_records}
        self._waits = {
            at: known
            if (known := self._waits.get(at)) and known.offset == offset
            else starts._replace(offset=offset)
            for at, offset in behind.items()
        }
        long = {at for at, wait in self._waits.items() if now_s - wait.since_s > _MAX_INTERVAL_S}
        if long and self._asking.due:
            ask = self._context.source.known_ends
            self._asking.start(partial(ask, long, Position.LAST_STABLE))
        if answered := self._asking.done:
            self._asking.put_off(_STUCK_INTERVAL_S)
            try:
                self._stable_ends = self._asking.take()
            except HeadraceError:  # brokers that are unreachable are reported where needed
                return {}
        stable = {at: self._stable_ends[at] for at in sorted(long & self._stable_ends.keys())}
        self.conditions = self._hanging(
            {at: state[at] for at, end in stable.items() if end == behind[at]}
        )
        # Unacknowledged records of any partition may be the reason why nothing more is read. With
        # spec.bandwidth, reads of other partitions may be the reason.
        in_flight = any(one.in_flight for one in state.values())
        if not answered or in_flight or self._context.bandwidth.waited_within(_MAX_INTERVAL_S):
            return {}
        return {at: self._not_read(at, end) for at, end in stable.items() if end > behind[at]}

    def _not_read(self, at: TopicPartition, end: int) -> HeadraceError:
        """Return the error of an unread offset: ``Retriable`` at first, then ``Fatal``."""
        offset = self._waits.pop(at).offset
        again = self._unread.get(at) == offset
        self._unread[at] = offset
        kind = Fatal if again else Retriable
        return kind(
            f"could not read {at} offset {offset} of {self._context.source.name}: the client "
            f"returned nothing for {_MAX_INTERVAL_S:.0f} s, though committed records go on to "
            f"offset {end - 1}; its log may be damaged there, or in a form that this client cannot "
            "read: compare with kafka-dump-log on the partition's brokers"
        )

    def _hanging(self, hanging: State) -> tuple[Condition, ...]:
        if not hanging:
            return ()
        each = [
            f"{at} from offset {one.acknowledged} on, {one.lag_records} offsets wait since "
            f"{self._waits[at].since:%Y-%m-%dT%H:%M:%SZ} or earlier"
            for at, one in hanging.items()
        ]
        return (
            observation(
                ConditionType.TRANSACTION_HANGING,
                Reason.TRANSACTION_OPEN,
                f"transactions on {self._context.source.name} stay open, and nothing behind their "
                "first record is copied until they end: end their producers, or abort them with "
                f"kafka-transactions.sh: {'; '.join(each)}",
            ),
        )


_SHORTEST_S = 1.0
"""Minimum interval between checks in seconds. Progress is stored at the same interval."""
_SHARE = 0.05
"""Maximum share of time that is spent on requests, because a task may have a thousand topics."""

Ids = Mapping[str, tuple[str, str]]


class Checked(NamedTuple):
    """Results of requests since the last call."""

    losses: dict[TopicPartition, Loss]
    confirmed: Starts
    """Offsets that belong to the topics with which the task began. They were acknowledged before
    the topics were described."""


_NOTHING = Checked({}, {})


class TopicCheck:
    """Check of topic ids on both clusters every ``discovery.topicsSeconds``. Not thread-safe.

    The source's ids are also compared after records of a topic were acknowledged. Nothing else
    reveals that a topic was created again: the client continues at the same offset in the new
    topic. With preserved offsets, the starts of copies are updated after a check of all topics.
    """

    def __init__(self, context: FlowContext, pool: Executor) -> None:
        self._context, self._clock = context, context.clock
        self._describing = BackgroundStep[tuple[Ids, float]](pool, context.clock)
        # A restore has also compared all topics.
        self._next_of_all_s = self._clock.monotonic() + context.spec.discovery.topics_seconds
        self._asked: Starts = {}

    def check(self, starts: Starts) -> Checked:
        """Compare the current topic ids with the ids for which the copies began.

        The topics are described in the background. Most calls therefore return no results.

        Args:
            starts: Acknowledged offset of each partition, with the topic ids of its copy.
        """
        if self._describing.due:
            self._describe(starts)
        if not self._describing.done:
            return _NOTHING
        interval_s = self._context.spec.discovery.topics_seconds
        try:
            ids, took_s = self._describing.take()
        except HeadraceError:  # brokers that are unreachable are reported where needed
            self._describing.put_off(interval_s)
            return _NOTHING
        self._describing.put_off(max(_SHORTEST_S, took_s / _SHARE))
        asked = {at: start for at, start in self._asked.items() if at in starts}
        losses = {
            at: loss for at, start in asked.items() if (loss := self._compare(start, ids[at.topic]))
        }
        confirmed = {
            at: start
            for at, start in asked.items()
            if ids[at.topic][0]
            and not replaced(start.source_topic_id, ids[at.topic][0])
            and at not in losses
        }
        return Checked(losses, confirmed)

    def _describe(self, starts: Starts) -> None:
        now_s = self._clock.monotonic()
        of_all = now_s >= self._next_of_all_s
        topics = {
            at.topic
            for at, start in starts.items()
            if of_all or start.source_offset != start.confirmed.source_offset
        }
        if not topics:
            return
        if of_all:
            self._next_of_all_s = now_s + self._context.spec.discovery.topics_seconds
        self._asked = {at: start for at, start in starts.items() if at.topic in topics}
        ids_of = known_topic_ids if of_all else source_topic_ids
        describe = partial(ids_of, self._context, topics)
        self._describing.start(partial(self._measured, describe, dict(self._asked), of_all))

    def _measured(
        self, describe: Callable[[], Ids], asked: Starts, of_all: bool
    ) -> tuple[Ids, float]:
        """Describe topics; if an id changed, check the brokers and describe the topics again."""
        began_s = self._clock.monotonic()
        ids = describe()
        if any(self._compare(start, ids[at.topic]) for at, start in asked.items()):
            self._context.check_brokers()
            ids = describe()
        if of_all and self._context.preserved:
            with suppress(HeadraceError):  # brokers that are unreachable are reported where needed
                follow_starts(
                    self._context,
                    {
                        at: start.source_offset
                        for at, start in asked.items()
                        if all(ids[at.topic]) and not self._compare(start, ids[at.topic])
                    },
                )
        return ids, self._clock.monotonic() - began_s

    def _compare(self, start: Start, ids: tuple[str, str]) -> Loss | None:
        """Return the loss if a topic was created again. Discovery handles a missing topic."""
        source_id, target_id = ids
        now_ms = self._context.now_ms
        if source_id and replaced(start.source_topic_id, source_id):
            return recreated_on_source(start.confirmed, now_ms)
        if target_id and replaced(start.target_topic_id, target_id):
            return recreated_on_target(start.confirmed.target_offset, now_ms)
        return None


_INTERVAL_S = 0.25


class Observing:
    """Observations of a task's lane and partitions. Not thread-safe.

    Information that the lane does not have is requested in a pool.
    """

    def __init__(self, task: TaskContext, copying: Copying, pool: Executor) -> None:
        context = task.flow
        self._context, self._life, self._copying = context, task.life, copying
        self._progress, self._contested, self._syncing = task.progress, task.contested, task.syncing
        self._reported = task.reported
        self._topic_check = TopicCheck(context, pool)
        self._pausing = Pausing(context)
        self._source_ends = SourceEnds(context, pool)
        self._stuck = StuckPositions(context, pool)
        self._unread_lag = UnreadLag(context, task.life, pool)
        self._causes = CauseCheck(context, task.id.name, pool)
        self.remedied = False
        """Whether the cause of a failure may have been removed. Any thread may read it."""
        self._unsynced = False
        """Whether the reported error is a problem of offset syncs."""
        self._next_s = 0.0

    def punctuate(self, now_s: float) -> bool:
        """Update lag, rate and conditions four times a second; return whether they were updated."""
        copying, unread = self._copying, self._unread_lag
        if self._life.phase is TaskPhase.FAILED:
            self.remedied |= self._causes.observe(copying.partitions)
        lane = copying.lane
        if lane is None:
            return self._observe_without_lane()
        if now_s < self._next_s:
            return False
        self._syncing.prepare()
        self._pausing.apply(lane, copying.partitions)
        if self._causes.observe(copying.retries.stopped.keys()):
            copying.retries.at_once()
        unread.observe(copying.partitions - copying.opened - self._contested.given_way)
        not_read = self._stuck.observe(self._read(lane))
        self.observe()
        checked = self._topic_check.check(self._progress.acknowledged(lane))
        self._progress.confirm(checked.confirmed)
        if checked.losses:
            self._progress.noticed(checked.losses)
            changed = Retriable(
                "a topic has another topic id than before: looking for what is lost"
            )
            copying.retry(dict.fromkeys(checked.losses, changed))
        elif not_read:
            copying.retry(not_read)
        return True

    def _observe_without_lane(self) -> bool:
        """Update lag, rate and conditions of a task that failed, or copies nothing yet.

        The lag of an earlier instance is replaced by a new one, or becomes unknown.
        """
        failed = self._life.phase is TaskPhase.FAILED
        before = self._life.status
        if before.bytes_per_second:
            self._life.observe(bytes_per_second=0)
        if failed or before.lag is not None:
            unread = self._unread_lag
            if unread.observe(self._copying.partitions):
                self._life.observe(lag=Lag(records=unread.records, seconds=unread.seconds))
            elif self._reported.is_silent(unread.silent_s):
                self._life.observe(lag=None)
        new = not failed and self._reported.also(self._progress.outcomes.conditions)
        return new or self._life.status != before

    def _read(self, lane: Lane) -> Mapping[TopicPartition, Reached]:
        """Return the state of partitions that are not paused."""
        if self._life.phase is not TaskPhase.RUNNING:
            return {}
        paused = self._pausing.partitions
        return {at: reached for at, reached in lane.state().items() if at not in paused}

    def observe_opened(self) -> None:
        """Pause newly opened partitions that the spec names, and update the report."""
        if (lane := self._copying.lane) is not None:
            self._pausing.apply(lane, self._copying.partitions)
        self.observe()

    def observe(self) -> None:
        """Update the reported lag, rate and conditions."""
        if (lane := self._copying.lane) is None:
            return
        self._next_s = self._context.clock.monotonic() + _INTERVAL_S
        lane.poll()
        self._syncing.take(lane)
        state = lane.state()
        retries, progress = self._copying.retries, self._progress
        if retries.observe(state):
            self._life.recovered()
        if self._life.phase is TaskPhase.RUNNING and not (retries or progress.late):
            self._observe_syncs()
        known = Partitions(
            self._copying.partitions - self._contested.heartbeats_left,
            self._source_ends.observe(
                state,
                state.keys() if self._life.phase is TaskPhase.PAUSED else self._pausing.partitions,
            ),
            progress.starts,
            progress.losses,
            retries.stopped,
            self._pausing.partitions,
        )
        reset = resets_done(self._context.resets, progress.starts)
        more = (
            *self._contested.conditions,
            *self._stuck.conditions,
            *reset,
            *progress.outcomes.conditions,
            *bandwidth_used_up(self._context.spec, self._context.bandwidth),
        )
        self._reported.observe(known, self._unread_lag, more)
        self._acknowledge_assignment(lane)

    def _observe_syncs(self) -> None:
        """Report problems of offset syncs if the task has no other error."""
        if why := self._syncing.problem:
            self._life.note(Retriable(why))  # records are copied nevertheless
        elif self._unsynced:
            self._life.recovered()
        else:
            self._reported.forget_error()
        self._unsynced = bool(why)

    def _acknowledge_assignment(self, lane: Lane) -> None:
        """Report the generation of the spec if exactly its partitions are open now.

        The object may be newer than the assignment that this task follows. Its generation is not
        reported then.
        """
        task, copying = self._life.ownership.task, self._copying
        assigned = TopicPartitions.unpack(task.spec.partitions)
        held = lane.partitions | self._contested.given_way | copying.retries.failing
        if assigned == copying.partitions == held and not copying.preparing.pending:
            self._life.observe(observed_generation=task.metadata.generation)
