"""What is on a cluster: its id, topics, partitions and offsets; and making more of them."""

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from enum import Enum
from functools import partial
from typing import Any, NamedTuple, TypeVar

import confluent_kafka
from confluent_kafka import (
    OFFSET_INVALID,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka.admin import (
    AdminClient,
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
from headrace.kafka.clients import client_config, construct
from headrace.kafka.diagnosis import diagnose, is_advertised
from headrace.kafka.errors import translate
from headrace.kafka.renewal import Renewed

T = TypeVar("T")

GRACE_S = 5.0
"""The client's own time-outs come first, unless this process was frozen meanwhile."""
_POLL_S = 0.2
_BELIEVED_S = 1.0
"""So long no broker can be reached before that is an answer: a name has several addresses, which
are tried in turn, and the client tries a refused one again after 0.1 s."""

_UNANSWERED = {KafkaError._TIMED_OUT, KafkaError._TRANSPORT}


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
        self._cluster = cluster
        self._timeout_s = timeout_s
        self._client_error: KafkaError | None = None
        """What the client reported last of its connections, other than that there are none."""
        self._advertised: KafkaError | None = None
        """The last of them of a broker at the address that it gives itself. The client repeats the
        same error after 30 s only, and requests fail more often: it counts until an answer."""
        self._all_down: KafkaError | None = None
        """That no broker can be reached, as the client reported since the last request began."""
        self._served = False
        """Whether the leader of a partition, or the controller, ever answered: then a broker that
        cannot be reached is down, and its partitions get another leader."""
        self._renewed = Renewed(cluster, self._make)

    @property
    def name(self) -> str:
        """Alias and address, for messages."""
        return self._cluster.name

    @property
    def _client(self) -> AdminClient:
        """Hold it until the answer is there: when Secrets have changed, another thread has it
        replaced, and a client that nobody holds is destroyed with the requests on their way."""
        return self._renewed.get()

    def _make(self) -> AdminClient:
        # The address family of a name is tried in turn; a dead one must not eat the whole time-out.
        tuning = {"socket.connection.setup.timeout.ms": 5_000}
        config = tuning | client_config(self._cluster) | {"error_cb": self._on_error}
        return construct(AdminClient, self._cluster, config)

    def _on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._all_down = error
        else:
            self._client_error = error
            if is_advertised(self._cluster, error):
                self._advertised = error

    def cluster_id(self) -> str:
        """The id that the cluster was formatted with: equal ids are one cluster."""
        client = self._client
        tried = f"read the cluster id of {self.name}"
        future = self._call(tried, lambda: client.describe_cluster(request_timeout=self._timeout_s))
        return str(self._result(tried, future).cluster_id)

    def topics(self) -> dict[str, int]:
        """Number of partitions by topic, of every topic, in one metadata request."""
        client = self._client
        tried = f"list the topics of {self.name}"
        metadata = self._call(tried, lambda: client.list_topics(timeout=self._timeout_s))
        return {name: len(t.partitions) for name, t in metadata.topics.items() if not t.error}

    def describe(self, names: Iterable[str]) -> dict[str, Topic]:
        """Those of the named topics that exist, with their ids."""
        wanted = sorted(set(names))
        if not wanted:
            return {}
        client = self._client
        tried = f"describe topics of {self.name}"
        futures = self._call(
            tried,
            lambda: client.describe_topics(
                TopicCollection(wanted), request_timeout=self._timeout_s
            ),
        )
        found = {}
        for name, future in futures.items():
            try:
                described = self._result(f"describe topic {name} of {self.name}", future)
            except Retriable as error:
                if _code(error) == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    continue
                raise
            there = described.partitions
            leaderless = frozenset(one.id for one in there if one.leader is None)
            found[name] = Topic(name, len(there), str(described.topic_id), leaderless)
        return found

    def topic_config(self, name: str) -> dict[str, str]:
        """A topic's settings as they are in effect; ``Fatal`` without the right DescribeConfigs."""
        client = self._client
        tried = f"read the settings of topic {name} of {self.name}"
        resource = ConfigResource(ResourceType.TOPIC, name)
        futures = self._call(
            tried,
            lambda: client.describe_configs([resource], request_timeout=self._timeout_s),
        )
        return {key: one.value for key, one in self._result(tried, futures[resource]).items()}

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
        client = self._client
        futures = self._call(
            f"read the settings of topics of {self.name}",
            lambda: client.describe_configs(resources, request_timeout=self._timeout_s),
        )
        for resource, future in futures.items():
            name = str(resource.name)
            try:
                entries = self._result(f"read the settings of topic {name} of {self.name}", future)
            except HeadraceError as error:
                if _code(error) != KafkaError.UNKNOWN_TOPIC_OR_PART:
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
        client = self._client
        futures = self._call(
            f"change settings of topics of {self.name}",
            lambda: client.incremental_alter_configs(resources, request_timeout=self._timeout_s),
        )
        refused: dict[str, HeadraceError] = {}
        for resource, future in futures.items():
            name = str(resource.name)
            tried = f"set {', '.join(changes[name])} of topic {name} of {self.name}"
            try:
                self._result(tried, future)
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
        client = self._client
        tried = f"create topic {name} with {partitions} partitions on {self.name}"
        new = NewTopic(name, partitions, replication_factor, config=dict(config or {}))
        return self._created(tried, name, lambda: client.create_topics([new], **self._timeouts()))

    def add_partitions(self, name: str, total: int) -> None:
        """Grow a topic to ``total`` partitions."""
        client = self._client
        tried = f"grow topic {name} to {total} partitions on {self.name}"
        self._created(
            tried,
            name,
            lambda: client.create_partitions([NewPartitions(name, total)], **self._timeouts()),
        )

    def delete_topic(self, name: str) -> None:
        """Delete a topic (the sandbox and the tests do; a flow never does)."""
        client = self._client
        tried = f"delete topic {name} on {self.name}"
        futures = self._call(tried, lambda: client.delete_topics([name], **self._timeouts()))
        self._result(tried, futures[name])

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

    def groups(self) -> set[str]:
        """The consumer groups that the principal may describe."""
        client = self._client
        tried = f"list the consumer groups of {self.name}"
        future = self._call(
            tried, lambda: client.list_consumer_groups(request_timeout=self._timeout_s)
        )
        found = self._result(tried, future)
        if found.errors:
            raise self._failed(found.errors[0], tried)
        return {group.group_id for group in found.valid}

    def committed(
        self, groups: Iterable[str]
    ) -> tuple[dict[str, dict[TopicPartition, Committed]], dict[str, HeadraceError]]:
        """What these groups have committed, of each topic that the principal may describe; and why
        that of some groups cannot be read."""
        client = self._client
        asked = {}
        for group in sorted(set(groups)):
            tried = f"read the committed offsets of group {group} of {self.name}"
            request = [ConsumerGroupTopicPartitions(group)]
            asked[group, tried] = self._call(
                tried,
                partial(
                    client.list_consumer_group_offsets, request, request_timeout=self._timeout_s
                ),
            )[group]
        found: dict[str, dict[TopicPartition, Committed]] = {}
        refused: dict[str, HeadraceError] = {}
        for (group, tried), future in asked.items():
            try:
                answer = self._result(tried, future)
            except HeadraceError as error:
                refused[group] = error
                continue
            found[group] = {
                TopicPartition(at.topic, at.partition): Committed(at.offset, at.metadata or "")
                for at in answer.topic_partitions
                if at.error is None and at.offset >= 0
            }
        return found, refused

    def commit(
        self, offsets: Mapping[str, Mapping[TopicPartition, Committed]]
    ) -> dict[str, HeadraceError]:
        """Set what these groups have committed; why some could not be set, all of it or a part:
        ``GroupActive`` of those that have members."""
        client = self._client
        asked = {}
        for group, wanted in sorted(offsets.items()):
            tried = f"set the committed offsets of group {group} of {self.name}"
            positions = [
                confluent_kafka.TopicPartition(*at, one.offset, metadata=one.metadata)
                for at, one in wanted.items()
            ]
            request = [ConsumerGroupTopicPartitions(group, positions)]
            asked[group, tried] = self._call(
                tried,
                partial(
                    client.alter_consumer_group_offsets, request, request_timeout=self._timeout_s
                ),
            )[group]
        failed: dict[str, HeadraceError] = {}
        for (group, tried), future in asked.items():
            try:
                answer = self._result(tried, future)
            except HeadraceError as error:
                failed[group] = error
                continue
            for at in answer.topic_partitions:
                if at.error is not None:
                    failed[group] = translate(at.error, f"{tried} for {at.topic}/{at.partition}")
        return failed

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
            client = self._client
            futures = self._call(
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
        """
        offset: int = self._result(tried, future).offset
        self._served = True
        if offset == OFFSET_INVALID:
            raise Retriable(f"could not {tried}: no answer from the partition's leader")
        return offset

    def _created(
        self, tried: str, name: str, call: Callable[[], Mapping[str, "Future[Any]"]]
    ) -> bool:
        try:
            self._result(tried, self._call(tried, call)[name])
            self._served = True
        except Retriable as error:
            if _code(error) == KafkaError.TOPIC_ALREADY_EXISTS:
                return False
            raise
        return True

    def _timeouts(self) -> dict[str, float]:
        return {"operation_timeout": self._timeout_s, "request_timeout": self._timeout_s}

    def _call(self, tried: str, call: Callable[[], T]) -> T:
        self._client_error = self._all_down = None
        try:
            return call()
        except KafkaException as error:
            raise self._failed(error, tried) from error

    def _result(self, tried: str, future: "Future[T]") -> T:
        waited_s = self._timeout_s + GRACE_S
        began = time.monotonic()
        while True:
            try:
                answer = future.result(timeout=min(_POLL_S, waited_s))
            except TimeoutError:
                passed_s = time.monotonic() - began
                if passed_s >= waited_s:
                    self._renew()
                    message = f"could not {tried}: no answer in time ({waited_s:.0f} s)"
                    raise Retriable(message) from None
                if passed_s >= _BELIEVED_S and (why := self._unreachable(tried)):
                    raise why from None
            except KafkaException as error:
                raise self._failed(error, tried) from error
            else:
                self._advertised = None
                return answer

    def _unreachable(self, tried: str) -> HeadraceError | None:
        """Why nothing can answer, long before the client gives up."""
        self._client.poll(0)
        failed = self._all_down
        if failed is None and not self._served and self._client_error is not None:
            failed = (
                self._client_error if is_advertised(self._cluster, self._client_error) else None
            )
        if failed is None:
            return None
        return self._diagnosed(tried, failed)

    def _failed(self, error: KafkaError | KafkaException, tried: str) -> HeadraceError:
        self._client.poll(0)  # receive what happened meanwhile
        reason: KafkaError = error if isinstance(error, KafkaError) else error.args[0]
        if reason.code() in _UNANSWERED:
            self._renew()
        return self._diagnosed(tried, error)

    def _renew(self) -> None:
        """Have a new client make the next request. This one may never connect again: so librdkafka
        does after a broker that is fenced has answered with no brokers (its issue 5301)."""
        self._renewed.discard(self._client)

    def _diagnosed(self, tried: str, error: KafkaError | KafkaException) -> HeadraceError:
        reported = self._client_error or self._advertised
        return diagnose(self._cluster, tried, translate(error, tried), reported)


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


def _code(error: HeadraceError) -> int | None:
    cause = error.__cause__
    return cause.args[0].code() if isinstance(cause, KafkaException) else None


def _question(position: Position) -> tuple[OffsetSpec, bool, str]:
    """What to list, whether of committed records, and what that tries."""
    earliest = position is Position.EARLIEST
    spec = OffsetSpec.earliest() if earliest else OffsetSpec.latest()  # type: ignore[no-untyped-call]
    return spec, position is Position.LAST_STABLE, f"read {position.value} offsets"
