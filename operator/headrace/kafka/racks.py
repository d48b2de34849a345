"""In which racks the partitions of a cluster can be read, by what its brokers say."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from confluent_kafka.admin import ConfigResource, ResourceType

from headrace.api import TopicPartition
from headrace.errors import HeadraceError
from headrace.kafka.admin_requests import Requests

_SELECTOR = "replica.selector.class"
_BY_RACK = "RackAwareReplicaSelector"
"""Kafka's own, with which brokers name a consumer a replica of its ``client.rack`` (KIP-392)."""


def read_racks(
    requests: Requests, timeout_s: float, name: str, topics: Collection[str]
) -> Mapping[TopicPartition, frozenset[str]]:
    """The racks of each partition of ``topics``; empty where brokers have none.

    With follower fetching those of all its replicas, else, or if we may not read that setting, that
    of its preferred leader. Who leads at the moment does not count: a broker that restarts gives
    its partitions away, and gets them back.
    """
    client = requests.client
    racks = _racks(requests, timeout_s, name)
    if not racks:
        return {}
    tried = f"read the replicas of the topics of {name}"
    metadata = requests.call(tried, lambda: client.list_topics(timeout=timeout_s))
    kept = slice(None) if _fetch_from_followers(requests, timeout_s, name, min(racks)) else slice(1)
    return {
        TopicPartition(topic, number): frozenset(
            racks[broker] for broker in partition.replicas[kept] if broker in racks
        )
        for topic in topics
        if topic in metadata.topics
        for number, partition in metadata.topics[topic].partitions.items()
    }


def _racks(requests: Requests, timeout_s: float, name: str) -> dict[int, str]:
    """By broker."""
    tried = f"read the racks of the brokers of {name}"
    cluster = _result(
        requests, tried, lambda: requests.client.describe_cluster(request_timeout=timeout_s)
    )
    return {node.id: node.rack for node in cluster.nodes if node.rack}


def _fetch_from_followers(requests: Requests, timeout_s: float, name: str, broker: int) -> bool:
    """Whether brokers serve consumers from a replica of their rack; needs DescribeConfigs."""
    client, resource = requests.client, ConfigResource(ResourceType.BROKER, str(broker))
    tried = f"read {_SELECTOR} of broker {broker} of {name}"
    try:
        settings = _result(
            requests,
            tried,
            lambda: client.describe_configs([resource], request_timeout=timeout_s)[resource],
        )
    except HeadraceError:
        return False
    selector = settings.get(_SELECTOR)
    return selector is not None and (selector.value or "").endswith(f".{_BY_RACK}")


def _result(requests: Requests, tried: str, ask: Callable[[], Any]) -> Any:
    return requests.result(tried, requests.call(tried, ask))
