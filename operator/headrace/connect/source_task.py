"""A source task: copies the partitions of its share, and keeps their progress."""

import time
from collections.abc import Iterable, Mapping, Set
from typing import Any, NamedTuple

from headrace.api import Condition, ConditionStatus, ConditionType, Reason, StartFrom
from headrace.api.partitions import TopicPartition, TopicPartitions
from headrace.connect.rate import Rate
from headrace.connect.unit import Lost, Unit
from headrace.errors import Fatal, Retriable
from headrace.kafka import Position
from headrace.movers import Flight, OffsetGone, RecordMover, Storing
from headrace.replication.progress import Progress, ProgressKey

_STANDSTILL_S = 1.0
"""A loop that stood still for longer may have been taken for lost, and its partitions taken."""
_STORE_INTERVAL_S = 1.0
"""At most this much work is repeated after a kill -9 (Connect: 60 s)."""
_OBSERVE_INTERVAL_S = 0.25
_IDLE_WAIT_S = 0.05
_DRAIN_TIMEOUT_S = 2.5
"""With storing (1 s) and release it fits into the 5 s that a graceful stop may take."""


class DataLoss(Fatal):
    """Records are gone that were not copied, or copies are gone; the message says which."""


class Stored(NamedTuple):
    """What progress says of a partition."""

    source_offset: int
    target_offset: int
    leader_epoch: int


class SourceTask(Unit):
    """Positions come from progress, else from ``startFrom``; both are written before data moves."""

    _mover: RecordMover | None = None
    _storing: Storing | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._stored: dict[TopicPartition, Stored] = {}
        self._topic_ids: dict[str, tuple[str, str]] = {}
        self._ends_at_start: dict[TopicPartition, int] = {}
        self._rate = Rate()
        self._next_store = self._next_look = self._last_turn = 0.0

    # Claim and restore.

    def epoch_floor(self) -> int:
        """The highest epoch in the progress of its partitions, read to the end."""
        progress = self.context.progress
        progress.start()
        progress.read_to_end()
        keys = map(self.context.progress_key, self._wanted())
        return max((stored.epoch for key in keys if (stored := progress.get(key))), default=0)

    def restore(self) -> None:
        """Behind the claim. (The fence at the broker has its place here, before progress is read:
        the record mover has none, so it resumes from the stored positions.)"""
        if self._mover is not None:
            self._forget_mover()
        spec = self.context.spec
        self._mover = RecordMover(
            spec.source, spec.target, self.context.policy.target_topic, self._broker_away
        )
        self._begin(self._wanted())

    def _begin(self, partitions: Set[TopicPartition]) -> None:
        """Find where to go on, write the claim to progress, and start to copy."""
        if not partitions:
            return
        self._identify({at.topic for at in partitions})
        stored = self._check_stored(partitions)
        fresh = partitions - stored.keys()
        positions = {at: progress.source_offset for at, progress in stored.items()}
        positions |= self._first_positions(fresh)
        if any(progress.epoch >= self.epoch for progress in stored.values()):
            self.claim(above=max(progress.epoch for progress in stored.values()))
        for at, position in positions.items():
            self._stored[at] = Stored(
                position,
                stored[at].target_offset if at in stored else 0,
                stored[at].leader_epoch if at in stored else -1,
            )
        self.context.progress.write(self._records(positions))
        self._ends_at_start |= self.context.source.offsets(partitions, Position.LAST_STABLE)
        self._running.add(positions)
        self.log.info("copying", partitions=len(partitions), epoch=self.epoch)
        self._last_turn = time.monotonic()
        self._look(self._last_turn)

    def _identify(self, topics: Set[str]) -> None:
        """Ids of the topics on both sides: they change when a topic is deleted and made again."""
        target_names = {topic: self.context.policy.target_topic(topic) for topic in topics}
        source = self.context.source.describe(topics)
        target = self.context.target.describe(target_names.values())
        for topic, target_topic in target_names.items():
            if topic not in source:
                raise Retriable(f"topic {topic} is not on {self.context.source.name} (any more)")
            if target_topic not in target:
                raise Retriable(f"topic {target_topic} is not on {self.context.target.name} (yet)")
            self._topic_ids[topic] = (source[topic].topic_id, target[target_topic].topic_id)

    def _check_stored(self, partitions: Set[TopicPartition]) -> dict[TopicPartition, Progress]:
        """What is stored for these; ``DataLoss`` when it does not fit what the clusters hold."""
        self.context.progress.read_to_end()
        stored = {
            at: progress
            for at in partitions
            if (progress := self.context.progress.get(self.context.progress_key(at)))
        }
        targets = {
            at: TopicPartition(self.context.policy.target_topic(at.topic), at.partition)
            for at in stored
        }
        earliest = self.context.source.offsets(stored, Position.EARLIEST)
        ends = self.context.source.offsets(stored, Position.LATEST)
        target_ends = self.context.target.offsets(targets.values(), Position.LATEST)
        for at, progress in sorted(stored.items()):
            source_id, target_id = self._topic_ids[at.topic]
            self._check_topic(at, progress, source_id, target_id)
            self._check_source_range(at, progress.source_offset, earliest[at], ends[at])
            if target_ends[targets[at]] < progress.target_offset:
                self._lose(
                    f"{targets[at]} on {self.context.target.name} ends at offset "
                    f"{target_ends[targets[at]]}, but {progress.target_offset} was acknowledged: "
                    f"offsets {target_ends[targets[at]]} to {progress.target_offset - 1} are gone "
                    "from the target (an unclean election, or the topic was truncated)"
                )
        return stored

    def _check_topic(
        self, at: TopicPartition, progress: Progress, source_id: str, target_id: str
    ) -> None:
        remedy = (
            "to copy it from its beginning under another name, or to go on with what is there, "
            "is yours to decide: delete the target topic and its progress, or restore the topic"
        )
        if progress.source_topic_id != source_id:
            self._lose(
                f"topic {at.topic} on {self.context.source.name} was deleted and made again: "
                f"what its old partition {at.partition} held from offset "
                f"{progress.source_offset} on is lost; {remedy}"
            )
        if progress.target_topic_id != target_id:
            self._lose(
                f"topic {self.context.policy.target_topic(at.topic)} on "
                f"{self.context.target.name} was deleted and made again: the copies of {at} "
                f"below source offset {progress.source_offset} are gone; {remedy}"
            )

    def _check_source_range(self, at: TopicPartition, position: int, start: int, end: int) -> None:
        where = f"{at} on {self.context.source.name}"
        if position < start:
            self._lose(
                f"{where} begins at offset {start}, the next to copy was {position}: offsets "
                f"{position} to {start - 1} are lost (retention was shorter than the flow's pause)"
            )
        if position > end:
            self._lose(
                f"{where} ends at offset {end}, but offsets up to {position - 1} were copied: the "
                "source lost them and may write others in their place (an unclean election)"
            )

    def _lose(self, message: str) -> None:
        self.observe(
            conditions=(
                Condition(
                    type=ConditionType.DATA_LOSS_DETECTED,
                    status=ConditionStatus.TRUE,
                    reason=Reason.DATA_LOST,
                    message=message,
                ),
            )
        )
        raise DataLoss(message)

    def _first_positions(self, partitions: Set[TopicPartition]) -> dict[TopicPartition, int]:
        """Where partitions without progress begin.

        ``Latest`` means: records since the flow was made. A topic that is found later has only
        such records, so that it is copied from its beginning and nothing is missed in between.
        """
        source, spec = self.context.source, self.context.spec
        if not partitions:
            return {}
        if spec.start_from is StartFrom.EARLIEST:
            return source.offsets(partitions, Position.EARLIEST)
        moment = spec.start_timestamp or self.context.flow.metadata.creation_timestamp
        found = source.offsets_at(partitions, int(moment.timestamp() * 1000)) if moment else {}
        ends = source.offsets(partitions, Position.LATEST)
        return {at: ends[at] if found.get(at, -1) < 0 else found[at] for at in partitions}

    # Run.

    def turn(self) -> float:
        """Move what is there; store progress once a second; look after the share."""
        now = time.monotonic()
        if now - self._last_turn > _STANDSTILL_S:
            self._check_claim_after_standstill(now - self._last_turn)
        self._take_up_changes()
        flights = self._running.flights
        try:
            self._running.move(_IDLE_WAIT_S)
        except OffsetGone as gone:
            at = gone.at
            self._check_source_range(
                at,
                gone.offset,
                self.context.source.offsets([at], Position.EARLIEST)[at],
                self.context.source.offsets([at], Position.LATEST)[at],
            )
            raise Retriable(str(gone)) from gone
        if now >= self._next_store:
            self._next_store = now + _STORE_INTERVAL_S
            self._check_epochs(flights)
            self._store(wait_s=0)
        if now >= self._next_look:
            self._next_look = now + _OBSERVE_INTERVAL_S
            self._look(now)
        self._last_turn = time.monotonic()
        return 0.0

    def _take_up_changes(self) -> None:
        wanted, held = self._wanted(), self._running.flights.keys()
        if wanted == held:
            return
        if gone := held - wanted:
            self._running.drain(_DRAIN_TIMEOUT_S)
            self._store(wait_s=1.0)
            self._running.remove(frozenset(gone))
        self._begin(wanted - held)
        self._last_turn = time.monotonic()

    def _check_claim_after_standstill(self, stood_s: float) -> None:
        self.log.warning("stood still, checking the claim", seconds=round(stood_s, 1))
        self._running.drop_queued(_DRAIN_TIMEOUT_S)
        self.context.progress.read_to_end()
        self._check_epochs(self._running.flights)

    def _check_epochs(self, partitions: Mapping[TopicPartition, Flight]) -> None:
        for at in partitions:
            stored = self.context.progress.get(self.context.progress_key(at))
            if stored is not None and stored.epoch > self.epoch:
                raise Lost(f"{stored.owner} took {at} with epoch {stored.epoch}")

    def _store(self, wait_s: float) -> None:
        """Store what is acknowledged; with ``wait_s`` wait for the target to have it."""
        if self._storing is not None and not self._storing.done():
            if not wait_s:
                return  # the target is slow: one at a time
            self._storing.wait(wait_s)
        changed = {
            at: Stored(
                flight.acknowledged,
                flight.target_offset or self._stored[at].target_offset,
                max(flight.leader_epoch, self._stored[at].leader_epoch),
            )
            for at, flight in self._running.flights.items()
            if flight.acknowledged != self._stored[at].source_offset
        }
        if changed:
            self._stored |= changed
            self._storing = self.context.progress.send(self._records(changed))
        if self._storing is not None and wait_s:
            self._storing.wait(wait_s)

    def _records(self, partitions: Iterable[TopicPartition]) -> dict[ProgressKey, Progress]:
        """What is to be stored of these, as records of this epoch."""
        driver = self.context.driver
        records = {}
        for at in partitions:
            source_id, target_id = self._topic_ids[at.topic]
            stored = self._stored[at]
            records[self.context.progress_key(at)] = Progress(
                source_topic_id=source_id,
                source_offset=stored.source_offset,
                leader_epoch=stored.leader_epoch,
                target_topic_id=target_id,
                target_offset=stored.target_offset,
                epoch=self.epoch,
                filter_generation=0,
                owner=f"{self.name} on {driver.name}/{driver.incarnation}",
            )
        return records

    # Show.

    def _look(self, now: float) -> None:
        mover, flights = self._running, self._running.flights
        self._rate.count(now, sum(flight.bytes_acked for flight in flights.values()))
        wall_s = time.time()
        self.observe(
            partitions=TopicPartitions.pack(flights),
            lag_records=sum(mover.lag_records(at) for at in flights),
            lag_seconds=int(max((mover.lag_s(at, wall_s) for at in flights), default=0)),
            bytes_per_second=round(self._rate.per_second),
            observed_generation=self.task.metadata.generation,
            conditions=self._conditions(flights),
        )

    def _conditions(self, flights: Mapping[TopicPartition, Flight]) -> tuple[Condition, ...]:
        behind = [at for at, end in self._ends_at_start.items() if self._reached(at) < end]
        caught_up = Condition(
            type=ConditionType.CAUGHT_UP,
            status=ConditionStatus.FALSE if behind else ConditionStatus.TRUE,
            reason=Reason.CATCHING_UP if behind else Reason.CAUGHT_UP,
        )
        if not any(flight.gaps for flight in flights.values()):
            return (caught_up,)
        gaps = {str(at): flight.gaps for at, flight in flights.items() if flight.gaps}
        return (
            caught_up,
            Condition(
                type=ConditionType.FOREIGN_WRITER,
                status=ConditionStatus.TRUE,
                reason=Reason.UNEXPECTED_OFFSET,
                message=f"unexpected target offsets, by partition: {gaps}; somebody else writes to "
                "the target topic, or an owner that was given up wrote late",
            ),
        )

    def _reached(self, at: TopicPartition) -> int:
        flight = self._running.flights.get(at)
        return flight.acknowledged if flight else self._ends_at_start[at]

    # Stop.

    def suspend(self) -> None:
        """Stop reading, wait for what is in flight, store."""
        if self._mover is None:
            return
        if not self._mover.drain(_DRAIN_TIMEOUT_S):
            self.log.warning("the target did not acknowledge in time; it will be copied again")
        try:
            self._store(wait_s=1.0)
        except Retriable as error:
            self.log.warning("progress not stored; some records will be copied again", why=error)

    def close(self) -> None:
        """Free the clients."""
        if self._mover is not None:
            self._mover.close()

    @property
    def _running(self) -> RecordMover:
        assert self._mover is not None, "restore() comes first"
        return self._mover

    def _wanted(self) -> frozenset[TopicPartition]:
        return TopicPartitions.unpack(self.task.spec.partitions)

    def _forget_mover(self) -> None:
        self.suspend()
        self.close()
        self._mover = None

    def _broker_away(self, message: str) -> None:
        self.note(Retriable(f"{message}; trying again"))
