"""Topics, their settings and the racks of their replicas."""

from base64 import urlsafe_b64decode
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple
from uuid import UUID

from confluent_kafka import KafkaError, TopicCollection
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from headrace.api import TopicPartition
from headrace.errors import Fatal, HeadraceError, Retriable
from headrace.kafka.admin_requests import AdminRequests, ClusterAdmin
from headrace.kafka.errors import code_of
from headrace.kafka.wire import delete_topics


class TopicConfig(NamedTuple):
    """Settings of a topic that the principal may read, by name."""

    own: Mapping[str, str]
    """Settings of the topic itself."""
    in_effect: Mapping[str, str]
    """All settings, including the broker's defaults."""


class TopicConfigAdmin(ClusterAdmin):
    """Reads and changes settings of topics. Calls block as in ``ClusterAdmin``."""

    def topic_config(self, name: str) -> dict[str, str]:
        """Return the settings of a topic, including defaults.

        Raise ``Fatal`` if the principal may not read them.
        """
        client = self._requests.client
        tried = f"read the settings of topic {name} of {self.name}"
        resource = ConfigResource(ResourceType.TOPIC, name)
        futures = self._requests.call(
            tried,
            lambda: client.describe_configs([resource], request_timeout=self._timeout_s),
        )
        return {
            key: one.value for key, one in self._requests.result(tried, futures[resource]).items()
        }

    def topic_configs(
        self, names: Iterable[str]
    ) -> tuple[dict[str, TopicConfig], dict[str, HeadraceError]]:
        """Return the settings of each topic, and an error for each topic that cannot be read.

        A topic that does not exist is in neither result.
        """
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in sorted(set(names))]
        found: dict[str, TopicConfig] = {}
        refused: dict[str, HeadraceError] = {}
        if not resources:
            return found, refused
        client = self._requests.client
        futures = self._requests.call(
            f"read the settings of topics of {self.name}",
            lambda: client.describe_configs(resources, request_timeout=self._timeout_s),
        )
        for resource, future in futures.items():
            name = str(resource.name)
            try:
                entries = self._requests.result(
                    f"read the settings of topic {name} of {self.name}", future
                )
            except HeadraceError as error:
                if code_of(error) != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    refused[name] = error
                continue
            known = {key: one for key, one in entries.items() if one.value is not None}
            own = {key: one.value for key, one in known.items() if _of_topic(one)}
            found[name] = TopicConfig(own, {key: one.value for key, one in known.items()})
        return found, refused

    def change_topic_configs(
        self, changes: Mapping[str, Mapping[str, str | None]]
    ) -> dict[str, HeadraceError]:
        """Change settings of topics, and return an error for each topic that failed.

        A setting of ``None`` is reset to the broker's default. All other settings stay as they are.
        """
        return self._change(changes, only_validate=False)

    def validate_topic_configs(
        self, changes: Mapping[str, Mapping[str, str | None]]
    ) -> dict[str, HeadraceError]:
        """Return the errors that ``change_topic_configs`` would return, and change nothing."""
        return self._change(changes, only_validate=True)

    def _change(
        self, changes: Mapping[str, Mapping[str, str | None]], *, only_validate: bool
    ) -> dict[str, HeadraceError]:
        if not changes:
            return {}
        resources = [
            ConfigResource(
                ResourceType.TOPIC,
                name,
                incremental_configs=[_changed(key, value) for key, value in change.items()],
            )
            for name, change in changes.items()
        ]
        if not only_validate:
            self._check_before_write()
        client = self._requests.client
        futures = self._requests.call(
            f"change settings of topics of {self.name}",
            lambda: client.incremental_alter_configs(
                resources, validate_only=only_validate, request_timeout=self._timeout_s
            ),
        )
        refused: dict[str, HeadraceError] = {}
        for resource, future in futures.items():
            name = str(resource.name)
            tried = f"set {', '.join(changes[name])} of topic {name} of {self.name}"
            try:
                self._requests.result(tried, future)
            except HeadraceError as error:
                refused[name] = error
        return refused


def _of_topic(entry: ConfigEntry) -> bool:
    return ConfigSource(entry.source) is ConfigSource.DYNAMIC_TOPIC_CONFIG


def _changed(name: str, value: str | None) -> ConfigEntry:
    kind = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    return ConfigEntry(name, value, incremental_operation=kind)


_SELECTOR = "replica.selector.class"
_BY_RACK = "RackAwareReplicaSelector"
"""Kafka's selector that lets a consumer fetch from a replica in its ``client.rack`` (KIP-392)."""


def read_racks(
    requests: AdminRequests, timeout_s: float, name: str, topics: Collection[str]
) -> Mapping[TopicPartition, frozenset[str]]:
    """Return the racks from which each partition can be read. Empty if the brokers have no racks.

    With follower fetching, these are the racks of all replicas. Without it, or if the setting
    cannot be read, it is the rack of the preferred leader. The current leader is ignored, because a
    broker that restarts leads its partitions again later.
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


def _racks(requests: AdminRequests, timeout_s: float, name: str) -> dict[int, str]:
    """Return the rack of each broker that has one."""
    tried = f"read the racks of the brokers of {name}"
    cluster = _result(
        requests, tried, lambda: requests.client.describe_cluster(request_timeout=timeout_s)
    )
    return {node.id: node.rack for node in cluster.nodes if node.rack}


def _fetch_from_followers(
    requests: AdminRequests, timeout_s: float, name: str, broker: int
) -> bool:
    """Return True if brokers let consumers fetch from a replica in their rack.

    Return False if the principal may not read the broker's settings.
    """
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


def _result(requests: AdminRequests, tried: str, ask: Callable[[], Any]) -> Any:
    return requests.result(tried, requests.call(tried, ask))


NO_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""Topic id that the client returns on clusters without topic ids (before Kafka 2.8)."""


def replaced(known_id: str, found_id: str) -> bool:
    """Return True if two ids show that a topic was deleted and created again.

    Ids are not compared if one is missing: before Kafka 2.8, and for a topic whose cluster was
    upgraded.
    """
    return known_id != found_id and NO_TOPIC_ID not in (known_id, found_id)


class Topic(NamedTuple):
    """A topic of a cluster. ``topic_id`` changes when the topic is deleted and created again."""

    name: str
    partitions: int
    topic_id: str
    leaderless: frozenset[int] = frozenset()
    """Numbers of the partitions without a leader."""


class TopicAdmin(ClusterAdmin):
    """Describes, creates and deletes topics. Calls block as in ``ClusterAdmin``."""

    def describe(self, names: Iterable[str]) -> dict[str, Topic]:
        """Return the named topics that exist, with their ids."""
        wanted = sorted(set(names))
        if not wanted:
            return {}
        client = self._requests.client
        tried = f"describe topics of {self.name}"
        futures = self._requests.call(
            tried,
            lambda: client.describe_topics(
                TopicCollection(wanted), request_timeout=self._timeout_s
            ),
        )
        found = {}
        for name, future in futures.items():
            try:
                described = self._requests.result(f"describe topic {name} of {self.name}", future)
            except Retriable as error:
                if code_of(error) == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    continue
                raise
            there = described.partitions
            leaderless = frozenset(one.id for one in there if one.leader is None)
            found[name] = Topic(name, len(there), str(described.topic_id), leaderless)
        return found

    def racks(self, topics: Collection[str]) -> Mapping[TopicPartition, frozenset[str]]:
        """Return the racks from which each partition of ``topics`` can be read.

        Calls ``read_racks``.
        """
        return read_racks(self._requests, self._timeout_s, self.name, topics)

    def create_topic(
        self,
        name: str,
        partitions: int,
        replication_factor: int = -1,
        config: Mapping[str, str] | None = None,
    ) -> bool:
        """Create a topic, and return False if it exists already.

        A ``replication_factor`` of -1 is the broker's default.
        """
        self._check_before_write()
        client = self._requests.client
        tried = f"create topic {name} with {partitions} partitions on {self.name}"
        new = NewTopic(name, partitions, replication_factor, config=dict(config or {}))
        return self._created(tried, name, lambda: client.create_topics([new], **self._timeouts()))

    def add_partitions(self, name: str, total: int) -> None:
        """Increase the number of partitions of a topic to ``total``."""
        self._check_before_write()
        client = self._requests.client
        tried = f"grow topic {name} to {total} partitions on {self.name}"
        self._created(
            tried,
            name,
            lambda: client.create_partitions([NewPartitions(name, total)], **self._timeouts()),
        )

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        self._check_before_write()
        client = self._requests.client
        tried = f"delete topic {name} on {self.name}"
        futures = self._requests.call(
            tried, lambda: client.delete_topics([name], **self._timeouts())
        )
        self._requests.result(tried, futures[name])

    def delete_topics_by_id(self, ids: Mapping[str, str]) -> dict[str, HeadraceError]:
        """Delete topics by name and id, and return an error for each topic that was not deleted.

        A topic with the given name and another id is kept. A topic that does not exist is no error.
        """
        if not ids:
            return {}
        uuids = {name: _uuid(one) for name, one in ids.items() if one != NO_TOPIC_ID}
        failed = self._on_wire(lambda cluster: delete_topics(cluster, uuids.values()))
        found = {name: error for name, one in uuids.items() if (error := failed.get(one))}
        for name in ids.keys() - uuids.keys():
            found[name] = Fatal(f"topic {name} on {self.name} has no id, so it is not deleted")
        return found

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        """Delete the records before the given offsets.

        No offset may be above the high watermark.
        """
        self._check_before_write()
        client = self._requests.client
        tried = f"delete records of {self.name}"
        wanted = [KafkaPartition(at.topic, at.partition, offset) for at, offset in before.items()]
        futures = self._requests.call(
            tried, lambda: client.delete_records(wanted, **self._timeouts())
        )
        for at, future in futures.items():
            what = f"delete the records of {at.topic}-{at.partition} on {self.name}"
            self._requests.result(what, future)

    def _created(
        self, tried: str, name: str, call: Callable[[], Mapping[str, "Future[Any]"]]
    ) -> bool:
        try:
            self._requests.result(tried, self._requests.call(tried, call)[name])
            self._requests.served = True
        except Retriable as error:
            if code_of(error) == KafkaError.TOPIC_ALREADY_EXISTS:
                return False
            raise
        return True

    def _timeouts(self) -> dict[str, float]:
        return {"operation_timeout": self._timeout_s, "request_timeout": self._timeout_s}


def _uuid(topic_id: str) -> UUID:
    """Return the UUID for a topic id that Kafka writes as base64 without padding."""
    return UUID(bytes=urlsafe_b64decode(topic_id + "=="))
