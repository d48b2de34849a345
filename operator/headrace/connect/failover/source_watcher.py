"""Watch of the source after a planned fail-over, for producers that were forgotten.

The watch reads end offsets and no records. If a log has grown since the fail-over, another client
has written to it, because the flow is stopped. A reverse flow also writes to the source. The watch
recognises it by the claim that it stores on the source before it appends.
"""

from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from headrace.api import (
    HEARTBEATS,
    MAX_MESSAGE_LENGTH,
    Condition,
    ConditionStatus,
    ConditionType,
    Reason,
    SourceProducer,
    SourceWrites,
    TopicPartition,
    time_text,
)
from headrace.connect.failover.switch import is_of_command
from headrace.connect.runtime.threaded_unit import ThreadedUnit
from headrace.datapath import ProgressLog
from headrace.errors import HeadraceError, Retriable
from headrace.kafka import AccessDenied, ActiveProducer, replaced
from headrace.replication import Progress

_ENDED_S = 60.0
"""Time in seconds between two calls of ``run_once`` after the watch has ended.

The calls continue until the herder takes the unit from its driver.
"""
_MAX_WRITES = 100
_MAX_PRODUCERS = 16
_MAX_NAMED = 5
_LAST_S = 253_402_300_799
"""Last second of the year 9999. Producers can write any timestamp."""


class SourceWatcher(ThreadedUnit):
    """Unit that compares the source's end offsets with the end offsets at the fail-over.

    The unit ends when a flow copies from the target into topics that the unit watches.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        context = self.context
        self._reverse = ProgressLog(
            context.source_access, context.spec.target.alias, context.clients, self.clock
        )
        self._stored: Mapping[TopicPartition, Progress] = {}
        """Progress at the fail-over, by source partition."""
        self._switched_ms = 0
        """Unix time of the fail-over in ms, or 0 if the flow is not failed over."""
        self._writes = {
            TopicPartition(one.topic, one.partition): one
            for one in self.ownership.task.status.source_writes
        }
        self._target_id = ""
        self._seen: dict[TopicPartition, Mapping[int, int]] = {}
        """Producer ids in the last answer about a partition, with their last sequences."""
        self._unnamed: Set[TopicPartition] = frozenset()
        """Partitions that have grown, and whose producers could not be read after that."""
        self._why_unnamed = ""
        self._ended = False

    def restore(self) -> None:
        """Read the offsets of the fail-over from progress, unless they are known."""
        with self._asking(Reason.SOURCE_UNREACHABLE):
            source_id = self.context.source_cluster_id
        with self._asking(Reason.TARGET_UNREACHABLE):
            self._target_id = self.context.target_cluster_id
            progress = self.context.progress
            if self._switched_ms or not progress.exists():  # reading it would create the topic
                return
            progress.start()
            progress.read_to_end()
            self._stored = {
                at: one
                for key, one in progress.stored(source_id).items()
                if key == self.context.progress_key(at := TopicPartition(key.topic, key.partition))
            }
        switches = (one.switch for one in self._stored.values())
        self._switched_ms = max((one.time_ms for one in switches if one), default=0)

    def run_once(self) -> float:
        """Read the end offsets, and report partitions that were written to."""
        if self._ended:
            return _ENDED_S
        interval_s = float(self.context.spec.source_watch.interval_seconds)
        if not self._switched_ms:
            self.restore()
        if not self._switched_ms:
            why = "the source is not watched, because the flow is not failed over"
            self.report_ready(ConditionStatus.TRUE, Reason.RUNNING, why)
            return interval_s
        with self._asking(Reason.SOURCE_UNREACHABLE):
            watched = {
                TopicPartition(topic, number)
                for topic, count in self.context.source.topics().items()
                if topic != HEARTBEATS and self.context.topics.matches(topic)
                for number in range(count)
            }
            self._producers(watched - self._seen.keys())  # first answers, read before the ends
            ends = self.context.source.known_ends(watched)
            written = self._written(ends)
            if self._reverse_runs():  # read after the ends, because claims precede records
                self._end()
                return _ENDED_S
            silent = watched - ends.keys()
            self._note(written, silent)
        self._report(len(watched), silent)
        return interval_s

    def close(self) -> None:
        """Stop reading the progress of a reverse flow."""
        self._reverse.close()

    def _written(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the number of offsets after the fail-over, for each partition that has any.

        If the topic was created, or created again, after the fail-over, all its offsets count.
        """
        begins = {at: _begin(self._stored.get(at)) for at in ends}
        differs = {at.topic for at, end in ends.items() if end != begins[at]}
        for topic, there in self.context.source.describe(differs).items():
            for at, one in self._stored.items():
                if at.topic == topic and replaced(one.source_topic_id, there.topic_id):
                    begins[at] = 0
        return {at: more for at, end in ends.items() if (more := end - begins[at]) > 0}

    def _reverse_runs(self) -> bool:
        """Return True if a flow copied from the target into watched topics after the fail-over."""
        if not self._reverse.exists():
            return False
        self._reverse.start()
        self._reverse.read_to_end()
        return any(
            key.topic != HEARTBEATS
            and self.context.topics.matches(key.target_topic)
            and one.switch is None
            and not is_of_command(one.owner)
            and self._reverse.stored_ms(key) > self._switched_ms
            for key, one in self._reverse.stored(self._target_id).items()
        )

    def _note(self, written: Mapping[TopicPartition, int], silent: Set[TopicPartition]) -> None:
        """Store the writes that were found.

        Earlier writes of partitions that did not answer now are kept.
        """
        grown = {
            at
            for at, offsets in written.items()
            if at not in self._writes or self._writes[at].offsets != offsets
        }
        if grown - self._writes.keys():
            self.context.source.check_brokers()  # librdkafka does not compare cluster ids
        self._unnamed = (self._unnamed | grown) & written.keys()
        producers = self._producers(self._unnamed)
        self._unnamed -= producers.keys()
        now = datetime.fromtimestamp(int(self.clock.time()), UTC)
        self._writes = {at: one for at, one in self._writes.items() if at in silent} | {
            at: SourceWrites(
                topic=at.topic,
                partition=at.partition,
                offsets=offsets,
                since=known.since if (known := self._writes.get(at)) else now,
                producers=_joined(known.producers if known else (), producers.get(at, ())),
            )
            for at, offsets in written.items()
        }

    def _producers(
        self, partitions: Set[TopicPartition]
    ) -> dict[TopicPartition, tuple[ActiveProducer, ...]]:
        """Return the producers that wrote to these partitions since the fail-over.

        Timestamps of records may be of any time. Therefore the first answer about a partition has
        the sequences with which later answers are compared.
        """
        if not partitions:
            return {}
        try:
            found = self.context.source.active_producers(partitions)
        except HeadraceError as error:
            self._why_unnamed = str(error)
            return {}
        wrote = {
            at: tuple(one for one in those if self._has_written(at, one))
            for at, those in found.items()
        }
        self._seen |= {
            at: {one.producer_id: one.last_sequence for one in those} for at, those in found.items()
        }
        return wrote

    def _has_written(self, at: TopicPartition, one: ActiveProducer) -> bool:
        if at not in self._stored or one.last_ms > self._switched_ms:
            return True
        before = self._seen.get(at)
        return before is not None and before.get(one.producer_id) != one.last_sequence

    def _end(self) -> None:
        self._ended = True
        why = (
            f"a flow copies from {self.context.target.name} to {self.context.source.name}: the "
            "watch has ended"
        )
        self.log.info("watch of the source ended", why=why)
        self.beside_ready = (_about_writes(ConditionStatus.FALSE, Reason.REVERSE_FLOW_RUNS, why),)
        self.observe(source_writes=())
        self.report_ready(ConditionStatus.TRUE, Reason.REVERSE_FLOW_RUNS, why)

    def _report(self, watched: int, silent: Set[TopicPartition]) -> None:
        name, interval_s = self.context.source.name, self.context.spec.source_watch.interval_seconds
        self.beside_ready = ()
        if self._writes:
            self.beside_ready = (
                _about_writes(
                    ConditionStatus.TRUE, Reason.WRITTEN_AFTER_FAIL_OVER, self._sentence()
                ),
            )
        largest = sorted(self._writes.values(), key=lambda one: -one.offsets)
        self.observe(source_writes=tuple(largest[:_MAX_WRITES]))
        if silent:
            self.report_ready(
                ConditionStatus.FALSE,
                Reason.SOURCE_UNREACHABLE,
                f"{len(silent)} of {watched} partitions of {name} did not answer "
                f"({min(silent)}): it is not known whether they are written to",
            )
        else:
            self.report_ready(
                ConditionStatus.TRUE,
                Reason.RUNNING,
                f"the ends of {watched} partitions of {name} are watched every {interval_s} s",
            )

    def _sentence(self) -> str:
        largest = sorted(self._writes.items(), key=lambda one: (-one[1].offsets, one[0]))
        named = [
            f"{at} has {one.offsets:,} new offsets since {_time(one.since)}, {self._by(at, one)}"
            for at, one in largest[:_MAX_NAMED]
        ]
        more = len(largest) - _MAX_NAMED
        others = f"; and {more} more partitions" if more > 0 else ""
        return (
            f"{self.context.source.name} is written to after the fail-over at "
            f"{time_text(self._switched_ms)}, and nothing copies these records: "
            f"{'; '.join(named)}{others}. "
            f"Stop these producers. `headrace failover {self.context.name} --end-watch` ends the "
            "watch"
        )[:MAX_MESSAGE_LENGTH]

    def _by(self, at: TopicPartition, one: SourceWrites) -> str:
        if one.producers:
            return f"by {' and '.join(map(_producer, one.producers))}"
        if at in self._unnamed:
            return f"by producers that are not known ({self._why_unnamed})"
        return "by a producer without a producer id: brokers do not know who wrote them"

    @contextmanager
    def _asking(self, unreachable: Reason) -> Iterator[None]:
        try:
            yield
        except Retriable as error:
            reason = error.reason if isinstance(error, AccessDenied) else unreachable
            self.report_ready(
                ConditionStatus.FALSE,
                reason,
                f"the source is not watched: {error}"[:MAX_MESSAGE_LENGTH],
            )
            raise


def _begin(stored: Progress | None) -> int:
    """Return the end offset at the fail-over. Without one, return the end of the copied records."""
    if stored is None:
        return 0
    return stored.switch.source_end if stored.switch else stored.source_offset


def _about_writes(status: ConditionStatus, reason: Reason, message: str) -> Condition:
    return Condition(
        type=ConditionType.SOURCE_STILL_WRITTEN, status=status, reason=reason, message=message
    )


def _joined(
    known: tuple[SourceProducer, ...], found: tuple[ActiveProducer, ...]
) -> tuple[SourceProducer, ...]:
    producers = {one.producer_id: one for one in known}
    producers |= {
        one.producer_id: SourceProducer(
            producer_id=one.producer_id,
            transactional_id=one.transactional_id,
            last_timestamp=datetime.fromtimestamp(min(max(0, one.last_ms // 1000), _LAST_S), UTC),
        )
        for one in found
    }
    latest = sorted(producers.values(), key=lambda one: one.last_timestamp, reverse=True)
    return tuple(latest[:_MAX_PRODUCERS])


def _producer(one: SourceProducer) -> str:
    of = f" of transactional id {one.transactional_id}" if one.transactional_id else ""
    return f"producer id {one.producer_id}{of} (last timestamp {_time(one.last_timestamp)})"


def _time(at: datetime) -> str:
    return time_text(int(at.timestamp() * 1000))
