"""State of a cluster according to its brokers: brokers, topics, leaders and their epochs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.metadata.v12 import MetadataResponse
from kio.schema.metadata.v12.response import MetadataResponseTopic

from headrace.api import TopicPartition
from headrace.kafka.wire.opening import Server


@dataclass(frozen=True, slots=True)
class Broker:
    """One that is alive."""

    server: Server
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class Leadership:
    """Leadership of one partition."""

    leader: int
    """Node; -1: none."""
    epoch: int
    replicas: tuple[int, ...] = ()
    in_sync: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicView:
    """One topic, or why it is not known."""

    name: str
    id: UUID | None
    error: ErrorCode
    partitions: Mapping[int, Leadership]


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """The latest of all responses; it does not change."""

    cluster_id: str | None = None
    brokers: Mapping[int, Broker] = field(default_factory=dict)
    topics: Mapping[str, TopicView] = field(default_factory=dict)

    def leadership(self, at: TopicPartition) -> Leadership | None:
        """``None``: not known, or without a leader that is alive."""
        topic = self.topics.get(at.topic)
        found = None if topic is None else topic.partitions.get(at.partition)
        return found if found is not None and found.leader in self.brokers else None

    def ids(self, topics: Iterable[str]) -> dict[str, UUID | None]:
        """Return the ids of topics, or None where the cluster has none."""
        known = self.topics
        return {name: known[name].id if name in known else None for name in topics}


def updated(
    view: ClusterMetadata, response: MetadataResponse, asked: Iterable[str] | None
) -> ClusterMetadata:
    """Return the view updated by a response. ``asked`` is None if it names all topics.

    A leadership with a lower epoch than the known one comes from a broker that lags behind. It is
    ignored unless the topic is another one (KIP-320). Without topic ids (before Kafka 2.8) that
    cannot be determined, and the response counts.
    """
    brokers: dict[int, Broker] = {
        broker.node_id: Broker(Server(broker.host, broker.port), broker.rack)
        for broker in response.brokers
    }
    gone = set(view.topics) if asked is None else set(asked)
    topics = {name: one for name, one in view.topics.items() if name not in gone}
    for reported in response.topics:
        if reported.name is not None:
            topics[reported.name] = _topic(reported, view.topics.get(reported.name))
    return ClusterMetadata(response.cluster_id, MappingProxyType(brokers), MappingProxyType(topics))


def _topic(reported: MetadataResponseTopic, known: TopicView | None) -> TopicView:
    same = known is not None and known.id is not None and known.id == reported.topic_id
    partitions: dict[int, Leadership] = {}
    for one in reported.partitions:
        new = Leadership(one.leader_id, one.leader_epoch, one.replica_nodes, one.isr_nodes)
        old = known.partitions.get(one.partition_index, new) if known and same else new
        partitions[one.partition_index] = old if old.epoch > new.epoch else new
    name = reported.name or ""
    return TopicView(name, reported.topic_id, reported.error_code, MappingProxyType(partitions))


def led_by(view: ClusterMetadata, at: TopicPartition, leader: int, epoch: int) -> ClusterMetadata:
    """With a leader that a response to Fetch named (KIP-951), if its epoch is newer."""
    topic = view.topics.get(at.topic)
    if topic is None or at.partition not in topic.partitions:
        return view
    known = topic.partitions[at.partition]
    if known.epoch >= epoch:
        return view
    changed = {**topic.partitions, at.partition: replace(known, leader=leader, epoch=epoch)}
    topics = {**view.topics, at.topic: replace(topic, partitions=MappingProxyType(changed))}
    return replace(view, topics=MappingProxyType(topics))
