"""Requests to partition leaders: offsets, epochs, producers, and deletion of records."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from kio.schema.delete_records.v2.request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kio.schema.delete_records.v2.response import DeleteRecordsResponse
from kio.schema.describe_producers.v0.request import DescribeProducersRequest, TopicRequest
from kio.schema.describe_producers.v0.response import DescribeProducersResponse, ProducerState
from kio.schema.list_offsets.v7.request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kio.schema.list_offsets.v7.response import ListOffsetsResponse
from kio.schema.offset_for_leader_epoch.v4.request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kio.schema.offset_for_leader_epoch.v4.response import OffsetForLeaderEpochResponse
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i32Timedelta, i64

from headrace.api import TopicPartition
from headrace.kafka.wire.cluster import ClusterClient
from headrace.kafka.wire.protocol import Call, call
from headrace.kafka.wire.routing import Answers, Group, Results, ask_leaders

EARLIEST, LATEST = -2, -1
TIMEOUT_S = 30.0
_CONSUMER = BrokerId(-1)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Listed:
    """Result of ListOffsets. The offset is -1 if no record matches."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """End of a leader epoch in the leader's log: the next epoch's first offset, or the log end.

    Epoch -1 means that the leader's log has neither the requested epoch nor a later one.
    """

    leader_epoch: int
    end_offset: int


async def list_offsets(
    cluster: ClusterClient,
    partitions: Iterable[TopicPartition],
    timestamp_ms: int,
    *,
    read_committed: bool = False,
    timeout_s: float = TIMEOUT_S,
) -> Answers[Listed]:
    """Return the first offset of each partition at or after a Unix time in ms.

    ``timestamp_ms`` may also be ``EARLIEST`` or ``LATEST``. ``LATEST`` returns the high watermark,
    or with ``read_committed`` the last stable offset.
    """

    def request(group: Group) -> Call[ListOffsetsResponse]:
        topics = tuple(
            ListOffsetsTopic(
                name=TopicName(topic),
                partitions=tuple(
                    ListOffsetsPartition(
                        partition_index=i32(at.partition),
                        current_leader_epoch=i32(led.epoch),
                        timestamp=i64(timestamp_ms),
                    )
                    for at, led in those
                ),
            )
            for topic, those in by_topic(group)
        )
        asked = ListOffsetsRequest(
            replica_id=_CONSUMER, isolation_level=i8(read_committed), topics=topics
        )
        return call(asked, ListOffsetsResponse)

    def results(response: ListOffsetsResponse) -> Results[Listed]:
        for topic in response.topics:
            for one in topic.partitions:
                listed = Listed(one.offset, one.timestamp, one.leader_epoch)
                yield TopicPartition(topic.name, one.partition_index), one.error_code, listed

    return await ask_leaders(
        cluster,
        partitions,
        f"list offsets of {cluster.name}:",
        request,
        results,
        timeout_s=timeout_s,
    )


async def epoch_ends(
    cluster: ClusterClient, epochs: Mapping[TopicPartition, int], *, timeout_s: float = TIMEOUT_S
) -> Answers[EpochEnd]:
    """Return the end of a leader epoch in each leader's log (KIP-320).

    If it is below an offset that was already read in that epoch, the logs have diverged.
    """
    return await _epoch_ends(cluster, epochs, epochs, timeout_s)


async def log_ends(
    cluster: ClusterClient, partitions: Iterable[TopicPartition], *, timeout_s: float = TIMEOUT_S
) -> Answers[EpochEnd]:
    """Return the end of each leader's log, including records that followers lack.

    The high watermark, which ``list_offsets`` returns, may be lower, because consumers see a record
    only when it is replicated. The request contains the current epoch, so that followers and former
    leaders reject it.
    """
    return await _epoch_ends(cluster, partitions, {}, timeout_s)


async def _epoch_ends(
    cluster: ClusterClient,
    partitions: Iterable[TopicPartition],
    epochs: Mapping[TopicPartition, int],
    timeout_s: float,
) -> Answers[EpochEnd]:
    def request(group: Group) -> Call[OffsetForLeaderEpochResponse]:
        topics = tuple(
            OffsetForLeaderTopic(
                topic=TopicName(topic),
                partitions=tuple(
                    OffsetForLeaderPartition(
                        partition=i32(at.partition),
                        current_leader_epoch=i32(led.epoch),
                        leader_epoch=i32(epochs.get(at, led.epoch)),
                    )
                    for at, led in those
                ),
            )
            for topic, those in by_topic(group)
        )
        asked = OffsetForLeaderEpochRequest(replica_id=_CONSUMER, topics=topics)
        return call(asked, OffsetForLeaderEpochResponse)

    def results(response: OffsetForLeaderEpochResponse) -> Results[EpochEnd]:
        for topic in response.topics:
            for one in topic.partitions:
                end = EpochEnd(one.leader_epoch, one.end_offset)
                yield TopicPartition(topic.topic, one.partition), one.error_code, end

    return await ask_leaders(
        cluster, partitions, f"find the log's end in {cluster.name}:", request, results,
        timeout_s=timeout_s,
    )  # fmt: skip


async def describe_producers(
    cluster: ClusterClient, partitions: Iterable[TopicPartition], *, timeout_s: float = TIMEOUT_S
) -> Answers[tuple[ProducerState, ...]]:
    """Return the state of each producer in each leader's log: epoch, sequence, open transaction.

    Requires permission to read the topic.
    """

    def request(group: Group) -> Call[DescribeProducersResponse]:
        topics = tuple(
            TopicRequest(
                name=TopicName(topic),
                partition_indexes=tuple(i32(at.partition) for at, _ in those),
            )
            for topic, those in by_topic(group)
        )
        return call(DescribeProducersRequest(topics=topics), DescribeProducersResponse)

    def results(response: DescribeProducersResponse) -> Results[tuple[ProducerState, ...]]:
        for topic in response.topics:
            for one in topic.partitions:
                at = TopicPartition(topic.name, one.partition_index)
                yield at, one.error_code, one.active_producers

    return await ask_leaders(
        cluster, partitions, f"describe producers of {cluster.name}:", request, results,
        timeout_s=timeout_s,
    )  # fmt: skip


def by_topic(
    group: Sequence[tuple[TopicPartition, T]],
) -> Iterator[tuple[str, list[tuple[TopicPartition, T]]]]:
    """Group the entries by topic."""
    topics: dict[str, list[tuple[TopicPartition, T]]] = {}
    for at, one in group:
        topics.setdefault(at.topic, []).append((at, one))
    yield from topics.items()


_REPLICAS_S = 20


async def delete_records(
    cluster: ClusterClient, before: Mapping[TopicPartition, int], *, timeout_s: float = TIMEOUT_S
) -> Answers[int]:
    """Delete the records before these offsets. No offset may be above the high watermark.

    Return the first offset of each log afterwards. Repeating the call changes nothing. It requires
    permission to delete records, and a topic whose ``cleanup.policy`` contains ``delete``.
    Otherwise the error is 44, ``policy_violation``.
    """

    def request(group: Group) -> Call[DeleteRecordsResponse]:
        topics = tuple(
            DeleteRecordsTopic(
                name=TopicName(topic),
                partitions=tuple(
                    DeleteRecordsPartition(
                        partition_index=i32(at.partition), offset=i64(before[at])
                    )
                    for at, _ in those
                ),
            )
            for topic, those in by_topic(group)
        )
        timeout = i32Timedelta.parse(timedelta(seconds=_REPLICAS_S))
        return call(DeleteRecordsRequest(topics=topics, timeout=timeout), DeleteRecordsResponse)

    def results(response: DeleteRecordsResponse) -> Results[int]:
        for topic in response.topics:
            for one in topic.partitions:
                at = TopicPartition(topic.name, one.partition_index)
                yield at, one.error_code, one.low_watermark

    return await ask_leaders(
        cluster, before, f"delete records of {cluster.name}:", request, results,
        timeout_s=timeout_s,
    )  # fmt: skip
