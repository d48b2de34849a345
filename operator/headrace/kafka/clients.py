"""Consumers and producers with the settings that integrity needs."""

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, closing
from typing import Any, TypeVar

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

# librdkafka's own log lines are not ours to show: what matters arrives as an error, in a sentence.
_SILENT = logging.getLogger("headrace.librdkafka")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


def client_config(cluster: ClusterAccess) -> Settings:
    """Return the settings of every client: addresses, credentials, the user's own settings.

    Raises:
        SecretMissing: A file of a Secret is missing.
    """
    return {
        "client.id": "headrace",
        # A killed broker is back in seconds: never wait librdkafka's ten before the next attempt.
        "reconnect.backoff.max.ms": 1_000,
        # A network may drop an idle connection without a sign.
        "socket.keepalive.enable": "true",
        **for_librdkafka(cluster.spec.config),
        "bootstrap.servers": cluster.bootstrap_servers,
        "logger": _SILENT,
        **security_settings(cluster),
    }


def construct(
    client: Callable[[Settings], Client], cluster: ClusterAccess, config: Settings
) -> Client:
    """Create a client.

    Raise ``InvalidSpec`` if a user's setting is unknown or has a wrong value, and ``TlsFailed`` if
    a certificate or key cannot be used.
    """
    try:
        return client(config)
    except KafkaException as error:
        reason = error.args[0].str()
        if cluster.spec.tls and "ssl." in reason:  # a user cannot set these: it is what files hold
            raise unusable_files(cluster, reason) from None
        raise InvalidSpec(f"config of cluster {cluster.alias}: {reason}") from error


def check_settings(cluster: ClusterSpec) -> None:
    """Raise ``InvalidSpec`` for settings that the client does not support.

    No Secret is read and no broker is contacted.
    """
    bare = ClusterAccess(cluster.model_copy(update={"tls": None, "authentication": None}))
    construct(AdminClient, bare, client_config(bare))


def make_consumer(
    cluster: ClusterAccess,
    settings: Mapping[str, Any] | None = None,
    on_error: OnError | None = None,
) -> Consumer:
    """Create a consumer that is assigned by hand and never commits, resets or skips by itself.

    ``settings`` are librdkafka's and take precedence. With ``auto.offset.reset=error`` a deleted
    offset is reported as an error message, because a silent reset would hide a loss.
    """
    tuning = {
        "fetch.wait.max.ms": 100,
        # The default of 1,000 ms stalls a fetcher for a second when its queue was full once.
        "fetch.queue.backoff.ms": 20,
    }
    integrity = {
        "group.id": "headrace",  # never joined: assign() only
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        "check.crcs": True,
        "enable.partition.eof": True,  # the only sign of a position behind trailing markers
    }
    config = _config(cluster, tuning, integrity, settings, on_error)
    return construct(Consumer, cluster, config)


def make_producer(
    cluster: ClusterAccess,
    settings: Mapping[str, Any] | None = None,
    on_error: OnError | None = None,
) -> Producer:
    """Create an idempotent producer that never gives up a record by the clock.

    With ``message.timeout.ms=0`` a record stays queued until the broker responds. A record that
    timed out may still have been written, and sending it again would duplicate or reorder it. The
    broker decides how large a record may be: a consumer reads at most 100,000,000 bytes
    (``receive.message.max.bytes``), brokers accept requests of 104,857,600 bytes, and batches of
    several records stay within ``batch.size``.
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


def assign(consumer: Consumer, positions: Iterable[tuple[TopicPartition, int]]) -> None:
    """Read these partitions from these offsets on, and no others."""
    consumer.assign([confluent_kafka.TopicPartition(*at, offset) for at, offset in positions])


def assign_more(
    consumer: Consumer,
    positions: Iterable[tuple[TopicPartition, int]],
    leader_epochs: Mapping[TopicPartition, int],
) -> None:
    """Read these partitions as well; fetched records of the others are kept.

    ``leader_epochs`` are the epochs of the preceding records (-1: unknown). From them the broker
    detects a log that was truncated and filled again since it was read (KIP-320).
    """
    consumer.incremental_assign(
        [
            confluent_kafka.TopicPartition(*at, offset, leader_epoch=leader_epochs[at])
            for at, offset in positions
        ]
    )


def unassign(consumer: Consumer, partitions: Iterable[TopicPartition]) -> None:
    """Stop reading these partitions; fetched records of the others are kept."""
    consumer.incremental_unassign([confluent_kafka.TopicPartition(*at) for at in partitions])


def diverged_at(error: KafkaError) -> int | None:
    """Return the offset from which a truncated partition holds other records than were read.

    It is 0 if the client does not report it, and None for any other error. librdkafka reports a
    truncation under the code of a failed offset reset, because it has no code for it, and gives the
    offset only in the message.
    """
    if KafkaError(KafkaError._LOG_TRUNCATION).str() not in error.str():
        return None
    end = re.search(r"broker end offset is (\d+)", error.str())
    return int(end[1]) if end else 0


def fetched_end(consumer: Consumer, at: TopicPartition) -> int | None:
    """Return the partition's end at the last fetch without a request; None before the first."""
    known = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(*at), cached=True)
    return known[1] if known and known[1] >= 0 else None


def _config(
    cluster: ClusterAccess,
    tuning: Settings,
    integrity: Settings,
    settings: Mapping[str, Any] | None,
    on_error: OnError | None,
) -> Settings:
    """Merge settings: the user's override our tuning, but never the settings of integrity."""
    hears = {} if on_error is None else {"error_cb": on_error}
    return tuning | client_config(cluster) | integrity | dict(settings or {}) | hears


OnRecord = Callable[[str, Message], None]
_MOST = 100
"""Records of one group before the next has its turn."""
_WAIT_S = 0.02
_SILENCE_S = 20.0
"""Maximum time without records before a partition's end. Joining takes a few seconds."""


def open_member(cluster: ClusterAccess, group: str, topics: Iterable[str]) -> Consumer:
    """Create a group member that does not commit by itself.

    Without an offset it begins at the end, as applications do by default. A group that a fail-over
    forgets therefore misses the existing records.
    """
    settings = {
        "group.id": group,
        "auto.offset.reset": "latest",
        # One process has up to 100 members; the default is 64 MiB for each.
        "queued.max.messages.kbytes": 1_024,
        "fetch.max.bytes": 1 << 20,
    }
    consumer = make_consumer(cluster, settings)
    consumer.subscribe(list(topics))
    return consumer


def poll_member(consumer: Consumer) -> tuple[list[Message], set[TopicPartition]]:
    """Return the next records, and the partitions whose ends were reached.

    Raise Kafka's errors.
    """
    found, ends = [], set()
    try:
        for message in consumer.consume(_MOST, _WAIT_S):
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
    """Commit after these records, one of each partition, and wait for the response.

    Raise Kafka's errors.
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

    ``topics`` has the number of partitions of each topic. Raise Kafka's errors, and ``GaveUp`` if
    no records arrive before an end.
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
            if time.monotonic() - since_s > _SILENCE_S:
                raise GaveUp(
                    f"group {min(left)} was delivered nothing for {_SILENCE_S:.0f} s, and did not "
                    "reach the ends of its partitions"
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
