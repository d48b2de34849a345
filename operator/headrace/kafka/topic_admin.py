"""Topics, their settings and the racks of their replicas."""

from base64 import b64encode, urlsafe_b64decode
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from confluent_kafka import KafkaError
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from headrace.api import TopicPartition
from headrace.errors import Fatal, HeadraceError, Retriable
from headrace.kafka.admin_requests import ClusterAdmin
from headrace.kafka.errors import code_of
from headrace.kafka.wire import (
    ClusterClient,
    DescribedTopic,
    RequestRefused,
    Settings,
    broker_settings,
    delete_topics,
    describe_topics,
    topic_settings,
)


def is_missing(error: HeadraceError) -> bool:
    """Return whether a broker's error says that the topic does not exist."""
    missing = KafkaError.UNKNOWN_TOPIC_OR_PART
    return isinstance(error, RequestRefused) and error.code.value == missing


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
        (found,) = self._settings([name]).values()
        if isinstance(found, HeadraceError):
            raise found
        return {key: one.value for key, one in found.items() if one.value is not None}

    def topic_configs(
        self, names: Iterable[str]
    ) -> tuple[dict[str, TopicConfig], dict[str, HeadraceError]]:
        """Return the settings of each topic, and an error for each topic that cannot be read.

        A topic that does not exist is in neither result.
        """
        found: dict[str, TopicConfig] = {}
        refused: dict[str, HeadraceError] = {}
        for name, one in self._settings(sorted(set(names))).items():
            if isinstance(one, HeadraceError):
                if not is_missing(one):
                    refused[name] = one
                continue
            known = {key: value for key, (value, _) in one.items() if value is not None}
            own = {key: value for key, value in known.items() if one[key].of_topic}
            found[name] = TopicConfig(own, known)
        return found, refused

    def _settings(self, names: Collection[str]) -> Mapping[str, Settings | HeadraceError]:
        if not names:
            return {}
        tried = f"read the settings of topics of {self.name}"
        return self._retried_on_wire(tried, partial(topic_settings, topics=names))

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


def _changed(name: str, value: str | None) -> ConfigEntry:
    kind = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    return ConfigEntry(name, value, incremental_operation=kind)


_SELECTOR = "replica.selector.class"
_BY_RACK = "RackAwareReplicaSelector"
"""Kafka's selector that lets a consumer fetch from a replica in its ``client.rack`` (KIP-392)."""


async def read_racks(
    cluster: ClusterClient, topics: Collection[str]
) -> Mapping[TopicPartition, frozenset[str]]:
    """Return the racks from which each partition can be read. Empty if the brokers have no racks.

    With follower fetching, these are the racks of all replicas. Without it, or if the setting
    cannot be read, it is the rack of the preferred leader. The current leader is ignored, because a
    broker that restarts leads its partitions again later.
    """
    view = await cluster.refresh(topics)
    racks = {node: broker.rack for node, broker in view.brokers.items() if broker.rack}
    if not racks:
        return {}
    settings = await broker_settings(cluster, min(racks))
    from_followers = not isinstance(settings, HeadraceError) and (
        (setting := settings.get(_SELECTOR)) is not None
        and (setting.value or "").endswith(f".{_BY_RACK}")
    )
    kept = slice(None) if from_followers else slice(1)
    return {
        TopicPartition(topic, number): frozenset(
            racks[broker] for broker in partition.replicas[kept] if broker in racks
        )
        for topic in topics
        if topic in view.topics
        for number, partition in view.topics[topic].partitions.items()
    }


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


_MAX_ANSWERS = 3
"""Maximum number of answers about topics whose ids differ."""


class TopicAdmin(ClusterAdmin):
    """Describes, creates and deletes topics. Calls block as in ``ClusterAdmin``."""

    def describe(self, names: Iterable[str]) -> dict[str, Topic]:
        """Return the named topics that exist, with their ids."""
        wanted = sorted(set(names))
        if not wanted:
            return {}
        found: dict[str, Topic] = {}
        for name, one in self._confirmed(wanted).items():
            if isinstance(one, DescribedTopic):
                found[name] = Topic(name, len(one.partitions), _written(one.id), one.leaderless)
            elif not is_missing(one):
                raise one
        return found

    def _confirmed(self, names: Collection[str]) -> Mapping[str, DescribedTopic | HeadraceError]:
        """Return each topic, or the broker's error.

        No checksum covers a topic id. An id that differs from the last known one counts only if two
        consecutive answers contain it.
        """
        tried, before = f"describe topics of {self.name}", dict[str, UUID | None]()
        for _ in range(_MAX_ANSWERS):
            described = self._retried_on_wire(tried, partial(describe_topics, names=names))
            ids = {
                name: one.id for name, one in described.items() if isinstance(one, DescribedTopic)
            }
            if all(one in (self._ids.get(name), before.get(name)) for name, one in ids.items()):
                self._ids |= ids
                return described
            before = ids
        raise Retriable(
            f"could not {tried}: {_MAX_ANSWERS} answers have different topic ids; the broker's "
            "answers were damaged, or topics were created during this time"
        )

    def racks(self, topics: Collection[str]) -> Mapping[TopicPartition, frozenset[str]]:
        """Return the racks from which each partition of ``topics`` can be read.

        Calls ``read_racks``.
        """
        tried = f"read the replicas of the topics of {self.name}"
        return self._retried_on_wire(tried, partial(read_racks, topics=topics))

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


def _written(id_: UUID | None) -> str:
    """Return a topic id as librdkafka writes it: base64 without padding."""
    return b64encode(id_.bytes).decode().rstrip("=") if id_ else NO_TOPIC_ID


def _uuid(topic_id: str) -> UUID:
    """Return the UUID for a topic id that Kafka writes as base64 without padding."""
    return UUID(bytes=urlsafe_b64decode(topic_id + "=="))
