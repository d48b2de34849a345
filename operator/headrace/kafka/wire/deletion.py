"""Deletes the beginning of logs."""

from collections.abc import Mapping
from datetime import timedelta

from kio.schema.delete_records.v2.request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kio.schema.delete_records.v2.response import DeleteRecordsResponse
from kio.schema.types import TopicName
from kio.static.primitive import i32, i32Timedelta, i64

from headrace.api import TopicPartition
from headrace.kafka.wire.cluster import ClusterClient
from headrace.kafka.wire.leaders import Answers, Group, Results, ask_leaders
from headrace.kafka.wire.offsets import by_topic
from headrace.kafka.wire.protocol import Call, call

TIMEOUT_S = 30.0
_REPLICAS_S = 20


async def delete_records(
    cluster: ClusterClient, before: Mapping[TopicPartition, int], *, timeout_s: float = TIMEOUT_S
) -> Answers[int]:
    """Delete records before these offsets, each at most the high watermark.

    The results are the first offsets of the logs afterwards. A second call changes nothing. The
    call needs permission to delete records, and a topic whose ``cleanup.policy`` has ``delete``
    (otherwise the error is 44, ``policy_violation``).
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
