"""Consumers and producers whose settings protect against loss and duplication."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, closing
from typing import Any, Protocol, TypeVar

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient

from headrace.api import ClusterAccess, ClusterSpec, TopicPartition
from headrace.api.client_settings import for_librdkafka
from headrace.errors import GaveUp, InvalidSpec
from headrace.kafka.errors import translate
from headrace.kafka.security import security_settings, unusable_files

Client = TypeVar("Client")
Settings = dict[str, Any]
OnError = Callable[[KafkaError], None]

# librdkafka's log lines are not shown, because important events are also reported as errors.
_SILENT = logging.getLogger("headrace.librdkafka")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


def client_config(cluster: ClusterAccess) -> Settings:
    """Return the settings that all clients have: addresses, credentials and the user's settings.

    Raises:
        SecretMissing: A file of a Secret is missing.
        TokenUnavailable: There is no valid OAuth token.
    """
    return {
        "client.id": "headrace",
        # A killed broker may return within seconds. librdkafka's default is to wait up to 10 s.
        "reconnect.backoff.max.ms": 1_000,
        # A network may drop an idle connection without notice.
        "socket.keepalive.enable": "true",
        **for_librdkafka(cluster.spec.config),
        "bootstrap.servers": cluster.bootstrap_servers,
        "logger": _SILENT,
        **security_settings(cluster),
    }


def construct(
    client: Callable[[Settings], Client], cluster: ClusterAccess, config: Settings
) -> Client:
    """Create a client with ``config``.

    Raises:
        InvalidSpec: A setting of the user is unknown or has an invalid value.
        TlsFailed: A certificate or key cannot be used.
    """
    try:
        return client(config)
    except KafkaException as error:
        reason = error.args[0].str()
        if cluster.spec.tls and "ssl." in reason:  # users cannot set ssl.* themselves
            raise unusable_files(cluster, reason) from None
        raise InvalidSpec(f"config of cluster {cluster.alias}: {reason}") from error


def check_settings(cluster: ClusterSpec) -> None:
    """Raise ``InvalidSpec`` if the client does not support a setting of ``cluster.config``.

    Reads no Secret and contacts no broker.
    """
    bare = ClusterAccess(cluster.model_copy(update={"tls": None, "authentication": None}))
    construct(AdminClient, bare, client_config(bare))


def make_consumer(
    cluster: ClusterAccess,
    settings: Mapping[str, Any] | None = None,
    on_error: OnError | None = None,
) -> Consumer:
    """Create a consumer that uses manual assignment and never commits or resets offsets by itself.

    ``settings`` are librdkafka settings and take precedence. With ``auto.offset.reset=error``, a
    deleted offset is reported as an error. A silent reset would hide the loss of records.
    """
    tuning = {
        "fetch.wait.max.ms": 100,
        # With the default of 1,000 ms, a full queue stops fetching for a second.
        "fetch.queue.backoff.ms": 20,
    }
    integrity = {
        "group.id": "headrace",  # never joined, because partitions are assigned manually
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        "check.crcs": True,
        "enable.partition.eof": True,  # the only sign that the position is after trailing markers
    }
    config = _config(cluster, tuning, integrity, settings, on_error)
    return construct(Consumer, cluster, config)


def make_producer(
    cluster: ClusterAccess,
    settings: Mapping[str, Any] | None = None,
    on_error: OnError | None = None,
) -> Producer:
    """Create an idempotent producer that never drops a record after a time-out.

    With ``message.timeout.ms=0`` a record stays queued until the broker responds. A record that
    timed out may still have been written, and sending it again would duplicate or reorder it.

    Only the broker limits the size of a record, because ``message.max.bytes`` has its highest
    value. A consumer reads at most 100,000,000 bytes (``receive.message.max.bytes``), brokers
    accept requests of 104,857,600 bytes, and batches of several records stay within ``batch.size``.
    """
    tuning = {
        "linger.ms": 5,
        "retry.backoff.ms": 100,
        "retry.backoff.max.ms": 500,
        "message.max.bytes": 1_000_000_000,  # librdkafka's maximum
    }
    integrity = {"enable.idempotence": True, "acks": "all", "message.timeout.ms": 0}
    config = _config(cluster, tuning, integrity, settings, on_error)
    return construct(Producer, cluster, config)


class Assignable(Protocol):
    """Consumer to which partitions can be assigned."""

    def assign(self, partitions: list[confluent_kafka.TopicPartition], /) -> None:
        """Read exactly these partitions, each from its offset on."""
        ...

    def incremental_unassign(self, partitions: list[confluent_kafka.TopicPartition], /) -> None:
        """Read no more of these partitions."""
        ...


def assign(consumer: Assignable, positions: Iterable[tuple[TopicPartition, int]]) -> None:
    """Assign exactly these partitions to the consumer, each from the given offset."""
    consumer.assign([confluent_kafka.TopicPartition(*at, offset) for at, offset in positions])


def unassign(consumer: Assignable, partitions: Iterable[TopicPartition]) -> None:
    """Remove partitions from the consumer. Fetched records of its other partitions are kept."""
    consumer.incremental_unassign([confluent_kafka.TopicPartition(*at) for at in partitions])


def _config(
    cluster: ClusterAccess,
    tuning: Settings,
    integrity: Settings,
    settings: Mapping[str, Any] | None,
    on_error: OnError | None,
) -> Settings:
    """Merge settings. The user's settings override ``tuning``, but not ``integrity``."""
    hears = {} if on_error is None else {"error_cb": on_error}
    return tuning | client_config(cluster) | integrity | dict(settings or {}) | hears


OnRecord = Callable[[str, Message], None]
_MAX_RECORDS_PER_TURN = 100
"""Maximum number of records read for one group before the next group has its turn."""
_WAIT_S = 0.02
_IDLE_TIMEOUT_S = 20.0
"""Time limit for the next record or end of a partition, in seconds. Joining takes a few seconds."""


def open_member(cluster: ClusterAccess, group: str, topics: Iterable[str]) -> Consumer:
    """Create a consumer that joins ``group`` and does not commit by itself.

    A group without a committed offset starts at the end, as applications do by default. A test
    therefore finds a fail-over that loses offsets: the group misses the existing records.
    """
    settings = {
        "group.id": group,
        "auto.offset.reset": "latest",
        # One process has up to 100 members. The default is 64 MiB for each.
        "queued.max.messages.kbytes": 1_024,
        "fetch.max.bytes": 1 << 20,
    }
    consumer = make_consumer(cluster, settings)
    consumer.subscribe(list(topics))
    return consumer


def poll_member(consumer: Consumer) -> tuple[list[Message], set[TopicPartition]]:
    """Return the next records, and the partitions whose ends were reached.

    Raise ``HeadraceError`` if the client reports a fatal error.
    """
    found, ends = [], set()
    try:
        for message in consumer.consume(_MAX_RECORDS_PER_TURN, _WAIT_S):
            if (error := message.error()) is None:
                found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                ends.add(TopicPartition(message.topic() or "", message.partition() or 0))
            elif error.fatal():
                raise translate(error, "read in a group")
    except KafkaException as error:
        raise translate(error.args[0], "read in a group") from error
    return found, ends


def commit_member(consumer: Consumer, last: Iterable[Message]) -> None:
    """Commit the offset after each of these records, and wait for the responses.

    Raise ``HeadraceError`` if a commit fails.
    """
    try:
        for message in last:
            consumer.commit(message=message, asynchronous=False)
    except KafkaException as error:
        raise translate(error.args[0], "commit in a group") from error


def read_to_ends(
    cluster: ClusterAccess,
    groups: Iterable[str],
    topics: Mapping[str, int],
    on_record: OnRecord,
) -> None:
    """Read these topics to their ends in every group, then leave the groups.

    Args:
        cluster: Cluster to read.
        groups: Names of the consumer groups.
        topics: Number of partitions of each topic.
        on_record: Called with the group and the record.

    Raises:
        HeadraceError: Reading failed.
        GaveUp: No record arrived for 20 s before the ends were reached.
    """
    waited = {TopicPartition(topic, n) for topic, count in topics.items() for n in range(count)}
    with ExitStack() as open_ones:
        members = {
            group: open_ones.enter_context(closing(open_member(cluster, group, topics)))
            for group in groups
        }
        left = {group: set(waited) for group in members}
        since_s = time.monotonic()
        while left:
            for group in list(left):
                found, ends = poll_member(members[group])
                for message in found:
                    on_record(group, message)
                left[group] -= ends
                if found or ends:
                    since_s = time.monotonic()
                if not left[group]:
                    del left[group]
            if time.monotonic() - since_s > _IDLE_TIMEOUT_S:
                raise GaveUp(
                    f"group {min(left)} was delivered nothing for {_IDLE_TIMEOUT_S:.0f} s, and did "
                    "not reach the ends of its partitions"
                )


_M, _R, _SEED = 0x5BD1E995, 24, 0x9747B28C
_32 = 0xFFFFFFFF


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition that Kafka's default partitioner chooses for a key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """Return the unsigned 32-bit hash (``org.apache.kafka.common.utils.Utils.murmur2``)."""
    whole = len(data) & ~3
    hashed = (_SEED ^ len(data)) & _32
    for place in range(0, whole, 4):
        word = int.from_bytes(data[place : place + 4], "little") * _M & _32
        hashed = hashed * _M & _32 ^ (word ^ word >> _R) * _M & _32
    if rest := data[whole:]:
        hashed = (hashed ^ int.from_bytes(rest, "little")) * _M & _32
    hashed = (hashed ^ hashed >> 13) * _M & _32
    return hashed ^ hashed >> 15
