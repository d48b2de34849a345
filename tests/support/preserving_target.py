"""A target in memory with a coordinator of transactions.

It answers the requests of ``offsets.mode: Preserved`` by the rules of brokers.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kio.schema.add_partitions_to_txn.v3 import response as additions
from kio.schema.delete_records.v2 import response as deletions
from kio.schema.describe_producers.v0 import response as producers
from kio.schema.end_txn.v3 import EndTxnResponse
from kio.schema.errors import ErrorCode
from kio.schema.init_producer_id.v4 import InitProducerIdResponse
from kio.schema.types import ProducerId, TopicName
from kio.static.primitive import i16, i32
from support.fake_broker import (
    FIND_COORDINATOR,
    NOT_THROTTLED,
    Raw,
    Request,
    Script,
    Serve,
    coordinated_by_first,
)
from support.fake_kafka import MARKER, FakeCluster
from support.producer_state import ProducerState
from support.stored import marker
from support.wire_kafka import EARLIEST, EPOCH_ENDS, Lost, WireCluster

from headrace.api import TopicPartition
from headrace.kafka.wire import Batch, split_batches

ADD_PARTITIONS, END_TXN = 24, 26
DELETE_RECORDS, DESCRIBE_PRODUCERS = 21, 61


@dataclass(frozen=True)
class Late(Lost):
    """The connection is closed. The test delivers the request later."""


LATE = Late(appended=False)


@dataclass
class _Id:
    producer_id: int
    epoch: int
    partitions: set[TopicPartition] = field(default_factory=set)
    """Partitions of the open transaction."""


class PreservingTarget(WireCluster):
    """A cluster of one broker, which is also the coordinator."""

    def __init__(self, serve: Serve, cluster: FakeCluster, topic: str, partitions: int) -> None:
        super().__init__(serve, cluster, topic, partitions)
        self.transactional: dict[str, _Id] = {}
        self.meanwhile: Callable[[], None] = lambda: None
        """Callback that runs once, after an answer about a partition's end or its writers."""
        self.after_start: Callable[[], None] = lambda: None
        """Callback that runs once, after the first offset of a partition was determined."""
        self.markers: dict[tuple[TopicPartition, int], tuple[int, int]] = {}
        """Producer id and epoch of the target's own markers."""
        self.verifies = True
        """Whether a batch is refused if its coordinator has no such transaction.

        Brokers do that since Kafka 3.6 (KIP-890).
        """
        self.commits = False
        """Whether batches in transactions are kept. Otherwise they are aborted."""
        self.oldest_ms = 0
        """A record with an older time is refused."""
        self.forbids: set[TopicPartition] = set()
        """Partitions that may not be part of a transaction."""
        self.late: list[Any] = []
        """Requests still in flight after the fault ``LATE``, which ended their connection."""
        self.end_is_lost: Callable[[], bool] = lambda: False
        """Whether the connection ends instead of an answer to the next end of a transaction."""
        self.holds_markers = False
        """Whether transactions do not end for now."""
        self.lagging: list[int] = []
        """High watermarks of the next answers, while followers lag."""

    def _script(self, node: int) -> Script:
        return {
            **super()._script(node),
            FIND_COORDINATOR: coordinated_by_first,
            ADD_PARTITIONS: self._add,
            END_TXN: self._end,
            DESCRIBE_PRODUCERS: self._then_meanwhile(self._describe),
            EPOCH_ENDS: self._then_meanwhile(partial(self._epoch_ends, node)),
            DELETE_RECORDS: self._delete,
        }

    def _then_meanwhile(self, answer: Callable[[Request], Any]) -> Callable[[Request], Any]:
        def answered(request: Request) -> Any:
            found = answer(request)
            meanwhile, self.meanwhile = self.meanwhile, lambda: None
            meanwhile()
            return found

        return answered

    def _identify(self, request: Request) -> InitProducerIdResponse:
        name = request.message.transactional_id
        with self.lock:
            known = self.transactional.setdefault(name, _Id(self.next_id(), -1))
            known.epoch += 1
            self.epochs[known.producer_id].add(known.epoch)
            self._write_markers(known)
            return InitProducerIdResponse(
                throttle_time=NOT_THROTTLED,
                error_code=ErrorCode.none,
                producer_id=ProducerId(known.producer_id),
                producer_epoch=i16(known.epoch),
            )

    def _write_markers(self, one: _Id) -> None:
        for at in sorted(one.partitions):
            offset = self.cluster.write(at, MARKER)
            self.markers[at, offset] = one.producer_id, one.epoch
            state = self.producer_states.get((at, one.producer_id))
            if state is None or state.epoch < one.epoch:
                state = ProducerState(one.epoch, next_sequence=0)
                self.producer_states[at, one.producer_id] = state
        one.partitions.clear()

    def _add(self, request: Request) -> Any:
        message = request.message
        with self.lock:
            one = self.transactional[message.v3_and_below_transactional_id]
            fenced = message.v3_and_below_producer_epoch < one.epoch
            asked = {
                TopicPartition(topic.name, n)
                for topic in message.v3_and_below_topics
                for n in topic.partitions
            }
            forbidden = asked & self.forbids
            code = ErrorCode.producer_fenced if fenced else ErrorCode.none
            if forbidden:
                code = ErrorCode.operation_not_attempted
            results = []
            for topic in message.v3_and_below_topics:
                if not (fenced or forbidden):
                    one.partitions |= {TopicPartition(topic.name, n) for n in topic.partitions}
                partitions = tuple(
                    additions.AddPartitionsToTxnPartitionResult(
                        partition_index=n,
                        partition_error_code=(
                            ErrorCode.topic_authorization_failed
                            if TopicPartition(topic.name, n) in forbidden
                            else code
                        ),
                    )
                    for n in topic.partitions
                )
                results.append(
                    additions.AddPartitionsToTxnTopicResult(
                        name=topic.name, results_by_partition=partitions
                    )
                )
        return additions.AddPartitionsToTxnResponse(
            throttle_time=NOT_THROTTLED, results_by_topic_v3_and_below=tuple(results)
        )

    def _end(self, request: Request) -> Any:
        with self.lock:
            one = self.transactional[request.message.transactional_id]
            if request.message.producer_epoch < one.epoch:
                code = ErrorCode.producer_fenced
            elif self.holds_markers:
                code = ErrorCode.concurrent_transactions
            else:
                code = ErrorCode.none
                self._write_markers(one)
            if code is ErrorCode.none and self.end_is_lost():
                return Raw(b"", close=True)
        return EndTxnResponse(throttle_time=NOT_THROTTLED, error_code=code)

    def _offset(self, partition: int, time: int) -> int:
        if time != EARLIEST and self.lagging:
            return self.lagging.pop(0)
        found = super()._offset(partition, time)
        if time == EARLIEST:
            after_start, self.after_start = self.after_start, lambda: None
            after_start()
        return found

    def _describe(self, request: Request) -> Any:
        with self.lock:
            topics = tuple(
                producers.TopicResponse(
                    name=TopicName(topic.name),
                    partitions=tuple(
                        producers.PartitionResponse(
                            partition_index=n,
                            error_code=ErrorCode.none,
                            active_producers=self._states(TopicPartition(topic.name, n)),
                        )
                        for n in topic.partition_indexes
                    ),
                )
                for topic in request.message.topics
            )
        return producers.DescribeProducersResponse(throttle_time=NOT_THROTTLED, topics=topics)

    def _states(self, at: TopicPartition) -> tuple[producers.ProducerState, ...]:
        return tuple(
            producers.ProducerState(
                producer_id=ProducerId(id_),
                producer_epoch=i32(state.epoch),
                last_sequence=i32((state.next_sequence or 0) - 1),
                coordinator_epoch=i32(0),
            )
            for (where, id_), state in self.producer_states.items()
            if where == at
        )

    def _delete(self, request: Request) -> Any:
        topics = []
        for topic in request.message.topics:
            results = []
            for one in topic.partitions:
                with self.cluster.changed:  # no reader runs during this time
                    self._log(one.partition_index).delete_before(one.offset)
                results.append(
                    deletions.DeleteRecordsPartitionResult(
                        partition_index=one.partition_index,
                        low_watermark=one.offset,
                        error_code=ErrorCode.none,
                    )
                )
            topics.append(
                deletions.DeleteRecordsTopicResult(name=topic.name, partitions=tuple(results))
            )
        return deletions.DeleteRecordsResponse(throttle_time=NOT_THROTTLED, topics=tuple(topics))

    def _append(self, node: int, data: Any, transactional: bool) -> Any:
        found = super()._append(node, data, transactional)
        if isinstance(found, Late):
            self.late.append(data)
        return found

    def arrive(self, number: int) -> None:
        """Deliver one of the late requests; its outcome is reported to nobody."""
        with self.lock:
            data = self.late.pop(number)
            (batch,) = split_batches(memoryview(bytearray(data.records))).batches
            self.decide(TopicPartition(self.topic, data.index), batch)

    def decide(self, at: TopicPartition, batch: Batch) -> tuple[ErrorCode, int]:
        """Decide on a batch. A batch in a transaction is aborted at once, unless it ``commits``."""
        if batch.base_timestamp < self.oldest_ms:
            return ErrorCode.invalid_timestamp, -1
        if batch.transactional and self.verifies and not self._in_transaction(at, batch):
            return ErrorCode.invalid_txn_state, -1
        with self.cluster.changed:
            log = self.cluster.logs[at]
            before = log.end
            decided = super().decide(at, batch)
            if batch.transactional and not self.commits:
                log.entries[before - log.start :] = [MARKER] * (log.end - before)
                log.batches.pop(before, None)
        return decided

    def _in_transaction(self, at: TopicPartition, batch: Batch) -> bool:
        return any(
            one.producer_id == batch.producer_id
            and one.epoch == batch.producer_epoch
            and at in one.partitions
            for one in self.transactional.values()
        )

    def _batch(self, partition: int, offset: int) -> bytes:
        log, at = self._log(partition), TopicPartition(self.topic, partition)
        if log.at(offset) is MARKER:
            producer_id, epoch = self.markers.get((at, offset), (1, 0))
            return bytes(marker(offset, producer_id, commit=False, epoch=epoch))
        return super()._batch(partition, offset)
