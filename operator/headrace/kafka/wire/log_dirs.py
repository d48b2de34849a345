"""Free disk of brokers, and sizes of replicas, which librdkafka cannot read."""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from kio.schema.describe_log_dirs.v4 import DescribeLogDirsRequest, DescribeLogDirsResponse
from kio.schema.describe_log_dirs.v4.request import DescribableLogDirTopic
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName
from kio.static.primitive import i32

from headrace.api import TopicPartition
from headrace.kafka.wire.cluster import ClusterClient
from headrace.kafka.wire.errors import check
from headrace.kafka.wire.protocol import call


class BrokerDisk(NamedTuple):
    """Disk of one broker."""

    free_bytes: int | None
    """Usable bytes of the volumes with log directories. None before Kafka 3.3 (KIP-827)."""
    sizes_bytes: Mapping[TopicPartition, int]
    """Sizes of the broker's replicas of the requested topics, without tiered storage."""


async def broker_disks(cluster: ClusterClient, topics: Mapping[str, int]) -> dict[int, BrokerDisk]:
    """Return the disk of each live broker.

    ``topics`` contains topics with their number of partitions. The request needs Describe on the
    cluster. Raise ``RequestRefused`` or ``Unreachable``.
    """
    request = DescribeLogDirsRequest(
        topics=tuple(
            DescribableLogDirTopic(topic=TopicName(one), partitions=tuple(map(i32, range(count))))
            for one, count in topics.items()
        )
    )
    found = {}
    view = await cluster.refresh()
    for node in view.brokers:
        connection = await cluster.connection(node)
        response = await connection.send(call(request, DescribeLogDirsResponse))
        check(response.error_code, f"read the disk of broker {node} of {cluster.name}")
        found[node] = _disk(response)
    return found


def _disk(response: DescribeLogDirsResponse) -> BrokerDisk:
    volumes = set[tuple[int, int]]()
    sizes = Counter[TopicPartition]()
    for directory in response.results:
        if directory.error_code is not ErrorCode.none:  # the disk failed
            continue
        # Two directories with the same total and usable size are on the same volume.
        volumes.add((directory.total_bytes, directory.usable_bytes))
        for topic in directory.topics:
            for one in topic.partitions:
                sizes[TopicPartition(topic.name, one.partition_index)] += one.partition_size
    free = [usable for _, usable in volumes if usable >= 0]
    return BrokerDisk(sum(free) if free else None, sizes)
