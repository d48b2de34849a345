"""What is on a cluster: its id, topics, partitions and offsets; and making more of them."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from enum import Enum
from functools import partial
from typing import Any, NamedTuple

import confluent_kafka
from confluent_kafka import (
    OFFSET_INVALID,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from headrace.api import ClusterAccess, TopicPartition
from headrace.errors import HeadraceError, Retriable
from headrace.kafka.admin_requests import Requests
from headrace.kafka.errors import translate
from headrace.kafka.racks import read_racks

_READ, _SET = "read the committed offsets", "set the committed offsets"
_WITH_MEMBERS = {
    ConsumerGroupState.STABLE,
    ConsumerGroupState.PREPARING_REBALANCING,
    ConsumerGroupState.COMPLETING_REBALANCING,
}


class Topic(NamedTuple):
    """A topic as a cluster knows it; ``topic_id`` changes when it is deleted and made again."""

    name: str
    partitions: int
    topic_id: str
    leaderless: frozenset[int] = frozenset()
    """Its partitions that have no leader at the moment."""


class TopicConfig(NamedTuple):
    """A topic's settings that may be read, by name."""

    own: Mapping[str, str]
    """Set on the topic itself."""
    in_effect: Mapping[str, str]
    """These, and the broker's defaults."""


class Committed(NamedTuple):
    """What a consumer group has committed for a partition."""

    offset: int
    metadata: str


class Position(Enum):
    """Named offsets of a partition. The last stable offset bounds what read_committed may see."""

    EARLIEST = "earliest"
    LATEST = "latest"
    LAST_STABLE = "last stable"


class Admin:
    """Blocking calls, each of at most ``timeout_s``; they raise ``Retriable`` or ``Fatal``."""

    def __init__(self, cluster: ClusterAccess, timeout_s: float = 10.0) -> None:
        self.name = cluster.name
        """Alias and address, for messages."""
        self._timeout_s = timeout_s
        self._requests = Requests(cluster, timeout_s)

    def cluster_id(self) -> str:
        """The id that the cluster was formatted with: equal ids are one cluster."""
        client = self._requests.client
        tried = f"read the cluster id of {self.name}"
        future = self._requests.call(
            tried, lambda: client.describe_cluster(request_timeout=self._timeout_s)
        )
        return str(self._requests.result(tried, future).cluster_id)

    def topics(self) -> dict[str, int]:
        """Number of partitions by topic, of every topic, in one metadata request."""
        client = self._requests.client
        tried = f"list the topics of {self.name}"
        metadata = self._requests.call(tried, lambda: client.list_topics(timeout=self._timeout_s))
        return {name: len(t.partitions) for name, t in metadata.topics.items() if not t.error}

    def describe(self, names: Iterable[str]) -> dict[str, Topic]:
        """Those of the named topics that exist, with their ids."""
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
        """In which racks each partition of ``topics`` can be read (``read_racks``)."""
        return read_racks(self._requests, self._timeout_s, self.name, topics)

    def topic_config(self, name: str) -> dict[str, str]:
        """A topic's settings as they are in effect; ``Fatal`` without the right DescribeConfigs."""
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
        """The settings of these topics, and why those of some cannot be read; a topic that is not
        there is in neither."""
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
        """Set these settings of these topics, or restore the broker's default (``None``), and leave
        all others; why some topics' cannot be changed."""
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
        client = self._requests.client
        futures = self._requests.call(
            f"change settings of topics of {self.name}",
            lambda: client.incremental_alter_configs(resources, request_timeout=self._timeout_s),
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

    def create_topic(
        self,
        name: str,
        partitions: int,
        replication_factor: int = -1,
        config: Mapping[str, str] | None = None,
    ) -> bool:
        """Make a topic; ``False`` when it was there already. -1 is the broker's default factor."""
        client = self._requests.client
        tried = f"create topic {name} with {partitions} partitions on {self.name}"
        new = NewTopic(name, partitions, replication_factor, config=dict(config or {}))
        return self._created(tried, name, lambda: client.create_topics([new], **self._timeouts()))

    def add_partitions(self, name: str, total: int) -> None:
        """Grow a topic to ``total`` partitions."""
        client = self._requests.client
        tried = f"grow topic {name} to {total} partitions on {self.name}"
        self._created(
            tried,
            name,
            lambda: client.create_partitions([NewPartitions(name, total)], **self._timeouts()),
        )

    def delete_topic(self, name: str) -> None:
        """Delete a topic (a flow only with ``spec.topicDeletion``)."""
        client = self._requests.client
        tried = f"delete topic {name} on {self.name}"
        futures = self._requests.call(
            tried, lambda: client.delete_topics([name], **self._timeouts())
        )
        self._requests.result(tried, futures[name])

    def offsets(
        self, partitions: Iterable[TopicPartition], position: Position
    ) -> dict[TopicPartition, int]:
        """The named offset of each partition; waits out the moment after a topic was made."""
        return _all(*self.found_offsets(partitions, position))

    def found_offsets(
        self, partitions: Iterable[TopicPartition], position: Position
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, Retriable]]:
        """The same of each partition that answers in time; and why the others have none."""
        return self._list_offsets(partitions, *_question(position))

    def known_ends(
        self, partitions: Iterable[TopicPartition], position: Position = Position.LATEST
    ) -> dict[TopicPartition, int]:
        """The end of each partition that answers now, asked for once; the others are left out."""
        return self._ask_offsets(partitions, *_question(position))[0]

    def offsets_at(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int
    ) -> dict[TopicPartition, int]:
        """The first offset at or after a time in ms; -1 where there is no such record."""
        spec = OffsetSpec.for_timestamp(timestamp_ms)
        what = f"read offsets at {timestamp_ms} ms"
        return _all(*self._list_offsets(partitions, spec, False, what))

    def groups(self, *, active: bool = False) -> set[str]:
        """The consumer groups that the principal may describe; ``active``: those with members."""
        client = self._requests.client
        tried = f"list the consumer groups of {self.name}"
        states = {"states": _WITH_MEMBERS} if active else {}
        future = self._requests.call(
            tried, lambda: client.list_consumer_groups(request_timeout=self._timeout_s, **states)
        )
        found = self._requests.result(tried, future)
        if found.errors:
            raise self._requests.failed(found.errors[0], tried)
        return {group.group_id for group in found.valid}

    def has_members(self, group: str) -> bool:
        """Whether a group of any kind, as one of Connect's workers, has members; ``False`` of one
        that is not there, or that the principal may not describe."""
        client = self._requests.client
        tried = f"describe group {group} of {self.name}"
        found = self._requests.call(
            tried, lambda: client.list_groups(group, timeout=self._timeout_s)
        )
        return any(one.members for one in found)

    def committed(
        self, groups: Iterable[str]
    ) -> tuple[dict[str, dict[TopicPartition, Committed]], dict[str, HeadraceError]]:
        """What these groups have committed, of each topic that the principal may describe; and why
        that of some groups cannot be read."""
        client = self._requests.client
        wanted = map(ConsumerGroupTopicPartitions, sorted(set(groups)))
        answers, refused = self._of_groups(_READ, client.list_consumer_group_offsets, wanted)
        found = {
            group: {
                TopicPartition(at.topic, at.partition): Committed(at.offset, at.metadata or "")
                for at in answer.topic_partitions
                if at.error is None and at.offset >= 0
            }
            for group, answer in answers.items()
        }
        return found, refused

    def commit(
        self, offsets: Mapping[str, Mapping[TopicPartition, Committed]]
    ) -> dict[str, HeadraceError]:
        """Set what these groups have committed; why some could not be set, all of it or a part:
        ``GroupActive`` of those that have members."""
        client = self._requests.client
        wanted = [
            ConsumerGroupTopicPartitions(
                group,
                [
                    confluent_kafka.TopicPartition(*at, one.offset, metadata=one.metadata)
                    for at, one in positions.items()
                ],
            )
            for group, positions in sorted(offsets.items())
        ]
        answers, failed = self._of_groups(_SET, client.alter_consumer_group_offsets, wanted)
        for group, answer in answers.items():
            for at in answer.topic_partitions:
                if at.error is not None:
                    tried = f"{self._of_group(_SET, group)} for {at.topic}/{at.partition}"
                    failed[group] = translate(at.error, tried)
        return failed

    def _of_groups(
        self,
        what: str,
        request: Callable[..., Mapping[str, "Future[Any]"]],
        groups: Iterable[ConsumerGroupTopicPartitions],
    ) -> tuple[dict[str, Any], dict[str, HeadraceError]]:
        """The answer about each group, and why there is none about some. The client takes one
        group a request; all requests are sent before the first answer is awaited."""
        asked = {}
        for group in groups:
            id = group.group_id
            call = partial(request, [group], request_timeout=self._timeout_s)
            asked[id] = self._requests.call(self._of_group(what, id), call)[id]
        answers: dict[str, Any] = {}
        failed: dict[str, HeadraceError] = {}
        for id, future in asked.items():
            try:
                answers[id] = self._requests.result(self._of_group(what, id), future)
            except HeadraceError as error:
                failed[id] = error
        return answers, failed

    def _of_group(self, what: str, group: str) -> str:
        return f"{what} of group {group} of {self.name}"

    def _list_offsets(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec, committed: bool, what: str
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, Retriable]]:
        missing = set(partitions)
        found: dict[TopicPartition, int] = {}
        deadline = time.monotonic() + self._timeout_s
        while True:
            answered, failed = self._ask_offsets(missing, spec, committed, what)
            found |= answered
            missing -= answered.keys()
            # Right after a topic was made or a leader moved, brokers disagree for a moment.
            if not missing or time.monotonic() > deadline:
                return found, failed
            time.sleep(0.1)
            # A client that saw a topic before its leaders keeps to that; asked for all topics,
            # it learns of them.
            self.topics()

    def _ask_offsets(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec, committed: bool, what: str
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, Retriable]]:
        """One request to each broker; what came, and why the others did not."""
        asked = {confluent_kafka.TopicPartition(*at): spec for at in partitions}
        isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        found: dict[TopicPartition, int] = {}
        failed: dict[TopicPartition, Retriable] = {}
        if asked:
            client = self._requests.client
            futures = self._requests.call(
                f"{what} on {self.name}",
                lambda: client.list_offsets(
                    asked, isolation_level=isolation, request_timeout=self._timeout_s
                ),
            )
            for at, future in futures.items():
                ours = TopicPartition(at.topic, at.partition)
                try:
                    found[ours] = self._offset(f"{what} of {ours} on {self.name}", future)
                except Retriable as error:
                    failed[ours] = error
        return found, failed

    def _offset(self, tried: str, future: "Future[Any]") -> int:
        """A broker that is frozen or killed while it is asked leaves the client's mark for "none"
        in the result, without an error. Taken for an offset it would read as a loss of all records.
        The client keeps to that leader for as long as its metadata lasts, 15 minutes, also when
        another one leads: a new client asks who leads.
        """
        offset: int = self._requests.result(tried, future).offset
        self._requests.served = True
        if offset == OFFSET_INVALID:
            self._requests.renew()
            raise Retriable(f"could not {tried}: no answer from the partition's leader")
        return offset

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


def _all(
    found: dict[TopicPartition, int], failed: Mapping[TopicPartition, Retriable]
) -> dict[TopicPartition, int]:
    for error in failed.values():
        raise error
    return found


def _of_topic(entry: ConfigEntry) -> bool:
    return ConfigSource(entry.source) is ConfigSource.DYNAMIC_TOPIC_CONFIG


def _changed(name: str, value: str | None) -> ConfigEntry:
    kind = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    return ConfigEntry(name, value, incremental_operation=kind)


def code_of(error: HeadraceError | None) -> int | None:
    """Kafka's, of an error that the client gave; ``None`` for any other."""
    cause = error.__cause__ if error else None
    return cause.args[0].code() if isinstance(cause, KafkaException) else None


def _question(position: Position) -> tuple[OffsetSpec, bool, str]:
    """What to list, whether of committed records, and what that tries."""
    earliest = position is Position.EARLIEST
    spec = OffsetSpec.earliest() if earliest else OffsetSpec.latest()  # type: ignore[no-untyped-call]
    return spec, position is Position.LAST_STABLE, f"read {position.value} offsets"
