"""Deletes topics by their ids, which librdkafka does not support."""

from collections.abc import Collection
from datetime import timedelta
from uuid import UUID

from kio.schema.delete_topics.v6 import DeleteTopicsRequest, DeleteTopicsResponse
from kio.schema.delete_topics.v6.request import DeleteTopicState
from kio.schema.errors import ErrorCode
from kio.static.primitive import i32Timedelta

from headrace.errors import HeadraceError
from headrace.kafka.wire.cluster import ClusterClient
from headrace.kafka.wire.errors import RefusedForGood, refusal
from headrace.kafka.wire.protocol import DELETE_TOPICS, call

_DELETED_S = 20
"""Time for the controller to delete the topics, in seconds. Each deletion is one log record."""


async def delete_topics(
    cluster: ClusterClient, ids: Collection[UUID]
) -> dict[UUID, HeadraceError | None]:
    """Delete topics, and return None or an error for each id.

    A topic that was created again with the same name has another id and is not deleted. An id that
    does not exist counts as deleted. Any broker forwards the request to the controller. Requires
    Kafka 2.8.
    """
    connection = await cluster.any_connection()
    if not connection.serves(DELETE_TOPICS):
        why = f"{cluster.name} cannot delete topics by their ids: that takes Kafka 2.8 or newer"
        return dict.fromkeys(ids, RefusedForGood(why, ErrorCode.unsupported_version))
    request = DeleteTopicsRequest(
        topics=tuple(DeleteTopicState(name=None, topic_id=one) for one in ids),
        timeout=i32Timedelta.parse(timedelta(seconds=_DELETED_S)),
    )
    response = await connection.send(call(request, DeleteTopicsResponse))
    found: dict[UUID, HeadraceError | None] = {}
    for one in response.responses:
        if one.topic_id is not None:
            done = one.error_code in (ErrorCode.none, ErrorCode.unknown_topic_id)
            tried = f"delete topic {one.name or one.topic_id} on {cluster.name}"
            found[one.topic_id] = None if done else refusal(one.error_code, tried)
    return found
