"""Groups of other kinds than consumer groups: share groups and Streams groups.

Share groups are made by Kafka's own client, Streams groups by the first heartbeat of a member,
because no library here has one.
"""

import io
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from kio.schema.streams_group_heartbeat.v0 import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from kio.schema.streams_group_heartbeat.v0.request import Subtopology, Topology
from kio.schema.types import GroupId, TopicName
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32, i32Timedelta
from support.mirror_client import java_gateway
from support.patience import WITHIN_S

from headrace.api import ClusterAccess, ClusterSpec
from headrace.kafka import Admin
from headrace.kafka.wire import ClusterClient as WireCluster
from headrace.kafka.wire import EventLoop, start
from headrace.kafka.wire.protocol import Call, Encoded, Released
from headrace.sandbox import SandboxCluster

_BYTES = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
_JOIN, _LEAVE = 0, -1


@contextmanager
def share_consumer(cluster: SandboxCluster, group: str, topic: str) -> Iterator[Any]:
    """Yield a subscribed ``KafkaShareConsumer`` that is a member, in a JVM of its own."""
    with _share_consumer(cluster, group, topic) as (jvm, consumer):
        access = ClusterAccess(ClusterSpec(alias="g", bootstrap_servers=cluster.bootstrap_servers))
        deadline_s = time.monotonic() + WITHIN_S
        while True:
            consumer.poll(jvm.java.time.Duration.ofSeconds(1))
            used, failed = Admin(access).used_share_groups([group])
            if group in used:
                break
            assert time.monotonic() < deadline_s, f"no member of {group} joined: {failed}"
        yield consumer


def finish_records(cluster: SandboxCluster, group: str, topic: str, count: int) -> list[bytes]:
    """Finish a number of the first records of a share group, and return all that were received.

    The consumer gives the other records back and leaves the group.
    """
    explicit = {"share.acknowledgement.mode": "explicit"}
    with _share_consumer(cluster, group, topic, explicit) as (jvm, consumer):
        found = _acknowledge(jvm, consumer, count)
        # Brokers store a start offset that has moved with the next acknowledgement.
        _acknowledge(jvm, consumer, 0)
        return found


def _acknowledge(jvm: Any, consumer: Any, count: int) -> list[bytes]:
    types = jvm.org.apache.kafka.clients.consumer.AcknowledgeType
    deadline_s = time.monotonic() + WITHIN_S
    values: list[bytes] = []
    while not values:
        assert time.monotonic() < deadline_s, "no record came"
        found = consumer.poll(jvm.java.time.Duration.ofSeconds(1)).iterator()
        while found.hasNext():
            record = found.next()
            consumer.acknowledge(record, types.ACCEPT if len(values) < count else types.RELEASE)
            values.append(bytes(record.value()))
    consumer.commitSync()
    return values


@contextmanager
def _share_consumer(
    cluster: SandboxCluster, group: str, topic: str, more: dict[str, str] | None = None
) -> Iterator[tuple[Any, Any]]:
    with java_gateway() as jvm:
        settings = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": group,
            "key.deserializer": _BYTES,
            "value.deserializer": _BYTES,
            **(more or {}),
        }
        consumer = jvm.org.apache.kafka.clients.consumer.KafkaShareConsumer(settings)
        try:
            consumer.subscribe([topic])
            yield jvm, consumer
        finally:
            consumer.close()


def make_streams_group(cluster: SandboxCluster, group: str, topic: str) -> None:
    """Let a member join, which creates the group, and leave."""
    loop = EventLoop()
    access = ClusterAccess(ClusterSpec(alias="g", bootstrap_servers=cluster.bootstrap_servers))
    brokers = WireCluster(loop, access)
    try:
        for epoch in (_JOIN, _LEAVE):
            beat = _heartbeat(group, topic, epoch)
            until_s = time.monotonic() + WITHIN_S
            answer = loop.wait(start(_ask(brokers, beat)), WITHIN_S)
            while answer.error_code.retriable and time.monotonic() < until_s:
                time.sleep(0.1)  # the group's coordinator loads
                answer = loop.wait(start(_ask(brokers, beat)), WITHIN_S)
            assert not answer.error_code.value, (answer.error_code, answer.error_message)
    finally:
        brokers.close()
        loop.close()


def _heartbeat(group: str, topic: str, epoch: int) -> StreamsGroupHeartbeatRequest:
    part = Subtopology(
        subtopology_id="0",
        source_topics=(TopicName(topic),),
        state_changelog_topics=(),
        repartition_source_topics=(),
        copartition_groups=(),
    )
    joins = epoch == _JOIN
    return StreamsGroupHeartbeatRequest(
        group_id=GroupId(group),
        member_id="member",
        member_epoch=i32(epoch),
        endpoint_information_epoch=i32(0),
        rebalance_timeout=i32Timedelta.parse(timedelta(seconds=30)),
        topology=Topology(epoch=i32(0), subtopologies=(part,)) if joins else None,
        active_tasks=() if joins else None,
        standby_tasks=() if joins else None,
        warmup_tasks=() if joins else None,
        process_id="process" if joins else None,
        client_tags=() if joins else None,
        task_offsets=None,
        task_end_offsets=None,
    )


async def _ask(
    cluster: WireCluster, request: StreamsGroupHeartbeatRequest
) -> StreamsGroupHeartbeatResponse:
    """Send a heartbeat to the one broker, which coordinates all groups."""
    body = io.BytesIO()
    entity_writer(StreamsGroupHeartbeatRequest)(body, request)

    def read(frame: Released, place: int) -> StreamsGroupHeartbeatResponse:
        content = bytes(frame.view[place:])
        frame.release()
        return entity_reader(StreamsGroupHeartbeatResponse)(content, 0)[0]

    call = Call(
        request.__api_key__,
        request.__version__,
        lambda version: Encoded(version, (body.getvalue(),), read),
    )
    connection = await cluster.any_connection()
    return await connection.send(call)
