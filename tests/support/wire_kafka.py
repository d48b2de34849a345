"""A cluster in memory for the batch mover: a broker on a socket that serves its logs.

It follows the rules for producers' epochs and sequences, and makes fences by the real comparison.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.fetch.v13 import response as fetch
from kio.schema.init_producer_id.v4 import InitProducerIdResponse
from kio.schema.offset_for_leader_epoch.v4 import OffsetForLeaderEpochResponse
from kio.schema.offset_for_leader_epoch.v4 import response as ends
from kio.schema.produce.v9 import response as produce
from kio.schema.types import ProducerId, TopicName
from kio.static.primitive import Records, i16, i32, i32Timedelta, i64
from support.batches import record_batch
from support.fake_broker import NOT_THROTTLED, FakeBroker, Raw, Request, Serve, metadata_of
from support.fake_kafka import MARKER, FakeCluster, FakeRecord
from support.producer_state import ProducerState

from headrace.api import ClusterAccess, ClusterSpec
from headrace.api.partitions import TopicPartition
from headrace.datapath import Before, Resumed
from headrace.errors import Retriable
from headrace.kafka.wire import Batch, decoded, split_batches, stored_records
from headrace.replication import OwnerProducer
from headrace.replication.reconcile import Dropped, Marker, Record, StoredProgress, reconcile

PRODUCE, FETCH, METADATA, INIT_PRODUCER_ID, EPOCH_ENDS = 0, 1, 3, 22, 23
_DELETE_HORIZON = 0x40
_BATCH_RECORDS = 2


class WireCluster:
    """A broker with one topic of a cluster in memory."""

    def __init__(self, serve: Serve, cluster: FakeCluster, topic: str, partitions: int) -> None:
        self.cluster, self.topic = cluster, topic
        self.fault: Callable[[], str] = lambda: ""
        """Fault of the next batch, or none.

        The connection ends before (``lost``) or after (``unanswered``) the batch is appended, or
        the batch is ``refused`` for now.
        """
        self.writers: dict[tuple[TopicPartition, int], int] = {}
        """Producer id, by partition and offset."""
        self.producers: dict[tuple[TopicPartition, int], ProducerState] = {}
        self.lock = threading.RLock()
        self._ids = 100
        self._topic_id = UUID(int=len(topic))
        self._led = dict.fromkeys(range(partitions), (1, 0))
        self._broker: FakeBroker = serve(
            {
                METADATA: lambda _: metadata_of(
                    {1: self._broker.port},
                    self._led,
                    self._topic_id,
                    topic,
                    cluster_id=f"id-of-{cluster.name}",
                ),
                FETCH: self._fetch,
                PRODUCE: self._produce,
                INIT_PRODUCER_ID: self._identify,
                EPOCH_ENDS: lambda asked: epoch_ends(asked, lambda at, _: cluster.logs[at].end),
            }
        )

    @property
    def access(self) -> ClusterAccess:
        servers = f"127.0.0.1:{self._broker.port}"
        return ClusterAccess(ClusterSpec(alias=self.cluster.name, bootstrap_servers=servers))

    def next_id(self) -> int:
        with self.lock:
            self._ids += 1
            return self._ids

    def _identify(self, _: Request) -> InitProducerIdResponse:
        return InitProducerIdResponse(
            throttle_time=i32Timedelta.parse(timedelta()),
            error_code=ErrorCode.none,
            producer_id=ProducerId(self.next_id()),
            producer_epoch=i16(0),
        )

    # Read.

    def _fetch(self, request: Request) -> Any:
        (topic,) = request.message.topics or [None]
        asked = topic.partitions if topic is not None else ()

        def news() -> bool:
            return any(one.fetch_offset < self._log(one.partition).end for one in asked)

        with self.cluster.changed:
            self.cluster.changed.wait_for(news, 0.02)
            answers = tuple(self._records(one) for one in asked)
        found = fetch.FetchableTopicResponse(topic_id=self._topic_id, partitions=answers)
        return fetch.FetchResponse(
            throttle_time=NOT_THROTTLED,
            error_code=ErrorCode.none,
            session_id=i32(0),
            responses=(found,) if answers else (),
        )

    def _log(self, partition: int) -> Any:
        return self.cluster.logs[TopicPartition(self.topic, partition)]

    def _records(self, asked: Any) -> Any:
        log, content, offset = self._log(asked.partition), b"", asked.fetch_offset
        while offset < log.end and len(content) < 1000:
            values: list[bytes] = []
            while offset < log.end and len(values) < _BATCH_RECORDS:
                if (record := log.at(offset)) is MARKER:
                    break
                values.append(record.value or b"")
                offset += 1
            if values:
                # Batches with a flag, here the delete horizon, are copied as spans; others are not.
                first = offset - len(values)
                flags = _DELETE_HORIZON * (first // _BATCH_RECORDS % 2)
                content += record_batch(values, base_offset=first, attributes=flags)
            else:
                offset += 1
        return fetch.PartitionData(
            partition_index=asked.partition,
            error_code=ErrorCode.none,
            high_watermark=i64(log.end),
            last_stable_offset=i64(log.end),
            aborted_transactions=(),
            records=Records(content),
        )

    # Append.

    def _produce(self, request: Request) -> Any:
        with self.lock:
            if self.cluster.away:
                return Raw(b"", close=True)
            (topic,) = request.message.topic_data
            answers = [self._append(one) for one in topic.partition_data]
        if None in answers:
            return Raw(b"", close=True)
        return produce.ProduceResponse(
            responses=(
                produce.TopicProduceResponse(
                    name=TopicName(self.topic), partition_responses=tuple(answers)
                ),
            ),
            throttle_time=NOT_THROTTLED,
        )

    def _append(self, data: Any) -> Any:
        (batch,) = split_batches(memoryview(bytearray(data.records))).batches
        fault = self.fault()
        if fault == "lost":
            return None
        code, base_offset = ErrorCode.not_enough_replicas, -1
        if fault != "refused":
            code, base_offset = self.decide(TopicPartition(self.topic, data.index), batch)
        if fault == "unanswered":
            return None
        return produce.PartitionProduceResponse(
            index=i32(data.index), error_code=code, base_offset=i64(base_offset), record_errors=()
        )

    def decide(self, at: TopicPartition, batch: Batch) -> tuple[ErrorCode, int]:
        """Decide on a batch by the rules of Kafka's ``ProducerStateManager``."""
        key = at, batch.producer_id
        known = self.producers.get(key)
        if known is not None and batch.producer_epoch < known.epoch:
            return ErrorCode.invalid_producer_epoch, -1
        if known is None or batch.producer_epoch > known.epoch:
            if known is not None and batch.base_sequence:
                return ErrorCode.out_of_order_sequence_number, -1
            known = self.producers[key] = ProducerState(batch.producer_epoch)
        return known.decide(batch, lambda: self._write(at, batch))

    def _write(self, at: TopicPartition, batch: Batch) -> int:
        base_offset = self.cluster.logs[at].end
        for record in stored_records(batch):
            found = decoded(record)
            offset = self.cluster.write(at, FakeRecord(found.key, found.value, found.timestamp_ms))
            self.writers[at, offset] = batch.producer_id
        return base_offset


def epoch_ends(request: Request, end: Callable[[TopicPartition, int], int]) -> Any:
    """Return the ``end`` of each requested partition and epoch."""
    return OffsetForLeaderEpochResponse(
        throttle_time=NOT_THROTTLED,
        topics=tuple(
            ends.OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=tuple(
                    ends.EpochEndOffset(
                        error_code=ErrorCode.none,
                        partition=one.partition,
                        leader_epoch=one.leader_epoch,
                        end_offset=i64(
                            end(TopicPartition(topic.topic, one.partition), one.leader_epoch)
                        ),
                    )
                    for one in topic.partitions
                ),
            )
            for topic in request.message.topics
        ),
    )


class WireFencing:
    """A ``Fencing`` for all drivers of a scene."""

    impossible = ""

    def __init__(self, source: WireCluster, target: WireCluster) -> None:
        self._source, self._target = source, target
        self._ids: dict[str, OwnerProducer] = {}

    def identify(self, transactional_id: str) -> OwnerProducer:
        with self._target.lock:
            if self._target.cluster.away:
                raise Retriable("no coordinator")
            known = self._ids.get(transactional_id)
            id_ = known.producer_id if known else self._target.next_id()
            epoch = known.producer_epoch + 1 if known else 0
            made = self._ids[transactional_id] = OwnerProducer(transactional_id, id_, epoch)
            return made

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        with self._target.lock:
            return {at: self._target.cluster.logs[at].end for at in epochs}

    def resume(
        self, own: OwnerProducer, partitions: Mapping[TopicPartition, Before]
    ) -> dict[TopicPartition, Resumed | Retriable]:
        with self._target.lock:
            return {at: self._resumed(own, at, before) for at, before in partitions.items()}

    def _resumed(self, own: OwnerProducer, at: TopicPartition, before: Before) -> Resumed:
        fences = {}
        for writer in before.writers:
            mine = writer.transactional_id == own.transactional_id
            new = own if mine else self.identify(writer.transactional_id)
            fences[new.producer_id] = new.producer_epoch
            self._target.producers[before.target, new.producer_id] = ProducerState(
                new.producer_epoch
            )
        entries: list[Record | Dropped | Marker] = list(self._tail(before))
        end = self._target.cluster.logs[before.target].end
        for offset, (id_, epoch) in enumerate(fences.items(), end):
            self._target.cluster.write(before.target, MARKER)
            entries.append(Marker(offset, id_, epoch))
        ids = frozenset(writer.producer_id for writer in before.writers)
        resume = reconcile(
            StoredProgress(before.source_offset, before.target_offset, ids | before.unfenced),
            entries,
            self._original(at, before.source_offset),
            fences,
            compare_timestamps=False,
            same_filter=before.compare,
        )
        return Resumed(resume, 0)

    def _tail(self, before: Before) -> Iterator[Record | Dropped]:
        log = self._target.cluster.logs[before.target]
        for offset in range(before.target_offset, log.end):
            if (record := log.at(offset)) is MARKER:
                yield Dropped(offset, offset)
            else:
                id_ = self._target.writers[before.target, offset]
                yield Record(offset, record.key, record.value, producer_id=id_)

    def _original(self, at: TopicPartition, first: int) -> Iterator[Record | Dropped]:
        log = self._source.cluster.logs[at]
        for offset in range(first, log.end):
            record = log.at(offset)
            if record is not MARKER:
                yield Record(offset, None, record.value)
