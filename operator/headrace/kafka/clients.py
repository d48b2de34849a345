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
    """What every client of this cluster needs: addresses, what opens it, the user's own settings.

    Reads the Secrets' files; raises ``SecretMissing``.
    """
    return {
        "client.id": "headrace",
        # A killed broker is back in seconds: never wait librdkafka's ten before the next attempt.
        "reconnect.backoff.max.ms": 1_000,
        **for_librdkafka(cluster.spec.config),
        "bootstrap.servers": cluster.bootstrap_servers,
        "logger": _SILENT,
        **security_settings(cluster),
    }


def construct(
    client: Callable[[Settings], Client], cluster: ClusterAccess, config: Settings
) -> Client:
    """Make a client; ``InvalidSpec`` when a setting of the user's is none or has a wrong value,
    ``TlsFailed`` when a certificate or key cannot be used."""
    try:
        return client(config)
    except KafkaException as error:
        reason = error.args[0].str()
        if cluster.spec.tls and "ssl." in reason:  # a user cannot set these: it is what files hold
            raise unusable_files(cluster, reason) from None
        raise InvalidSpec(f"config of cluster {cluster.alias}: {reason}") from error


def check_settings(cluster: ClusterSpec) -> None:
    """Raise ``InvalidSpec`` for settings that the client does not know; reads no Secret, asks no
    broker."""
    bare = ClusterAccess(cluster.model_copy(update={"tls": None, "authentication": None}))
    construct(AdminClient, bare, client_config(bare))


def make_consumer(
    cluster: ClusterAccess,
    settings: Mapping[str, Any] | None = None,
    on_error: OnError | None = None,
) -> Consumer:
    """A consumer that is assigned by hand and never commits, resets or skips on its own.

    ``settings`` are librdkafka's, and win. ``auto.offset.reset=error``: an offset that is gone
    surfaces as an error message, because a silent reset would hide a loss.
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
    """An idempotent producer that never gives a record up by the clock.

    ``message.timeout.ms=0``: a record that timed out may have been written all the same, and
    sending it again would double or reorder it; so it stays queued until the broker answers.
    How large a record may be is the broker's to decide: a consumer reads at most 100,000,000 bytes
    (``receive.message.max.bytes``), brokers accept requests of 104,857,600, and batches of several
    records stay within ``batch.size``.
    """
    tuning = {
        "linger.ms": 5,
        "retry.backoff.ms": 100,
        "retry.backoff.max.ms": 500,
        "message.max.bytes": 1_000_000_000,  # the most that librdkafka knows
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
    """Read these partitions, too; what is fetched of the others is kept.

    ``leader_epochs`` are those of the records before (-1: unknown): by them the broker finds a log
    that was truncated and filled again from the one that was read (KIP-320).
    """
    consumer.incremental_assign(
        [
            confluent_kafka.TopicPartition(*at, offset, leader_epoch=leader_epochs[at])
            for at, offset in positions
        ]
    )


def unassign(consumer: Consumer, partitions: Iterable[TopicPartition]) -> None:
    """Read these partitions no more; what is fetched of the others is kept."""
    consumer.incremental_unassign([confluent_kafka.TopicPartition(*at) for at in partitions])


def diverged_at(error: KafkaError) -> int | None:
    """From which offset on the partition holds other records than were read, where its log was
    truncated since; 0 when the client does not tell. ``None`` for any other error.

    librdkafka reports it under the code of a failed offset reset, as there is none of its own, and
    the offset in words only.
    """
    if KafkaError(KafkaError._LOG_TRUNCATION).str() not in error.str():
        return None
    end = re.search(r"broker end offset is (\d+)", error.str())
    return int(end[1]) if end else 0


def fetched_end(consumer: Consumer, at: TopicPartition) -> int | None:
    """The partition's end as the last fetch had it, without asking; ``None`` before the first."""
    known = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(*at), cached=True)
    return known[1] if known and known[1] >= 0 else None


def _config(
    cluster: ClusterAccess,
    tuning: Settings,
    integrity: Settings,
    settings: Mapping[str, Any] | None,
    on_error: OnError | None,
) -> Settings:
    """The user's settings win over our tuning, never over what integrity needs."""
    hears = {} if on_error is None else {"error_cb": on_error}
    return tuning | client_config(cluster) | integrity | dict(settings or {}) | hears


OnRecord = Callable[[str, Message], None]
_MOST = 100
"""Records of one group before the next has its turn."""
_WAIT_S = 0.02
_SILENCE_S = 20.0
"""So long nothing may come before a partition's end: to join takes a few seconds."""


def open_member(cluster: ClusterAccess, group: str, topics: Iterable[str]) -> Consumer:
    """It does not commit by itself. Without an offset it begins at the end, as applications
    do by default: a group that a fail-over forgets misses what there is."""
    settings = {
        "group.id": group,
        "auto.offset.reset": "latest",
        # Of up to 100 members in one process; by default each has 64 MiB.
        "queued.max.messages.kbytes": 1_024,
        "fetch.max.bytes": 1 << 20,
    }
    consumer = make_consumer(cluster, settings)
    consumer.subscribe(list(topics))
    return consumer


def poll_member(consumer: Consumer) -> tuple[list[Message], set[TopicPartition]]:
    """The next records, and the partitions whose ends were reached. Raises Kafka's errors."""
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
    """Behind these records, one of each partition; waits for the answer. Raises Kafka's errors."""
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
    """All groups read on to the ends of these topics, of so many partitions, and leave. Raises
    Kafka's errors, and ``GaveUp`` when nothing comes before an end."""
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
    """Of so many."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """Of 32 bits, without a sign (``org.apache.kafka.common.utils.Utils.murmur2``)."""
    whole = len(data) & ~3
    hashed = (_SEED ^ len(data)) & _32
    for place in range(0, whole, 4):
        word = int.from_bytes(data[place : place + 4], "little") * _M & _32
        hashed = hashed * _M & _32 ^ (word ^ word >> _R) * _M & _32
    if rest := data[whole:]:
        hashed = (hashed ^ int.from_bytes(rest, "little")) * _M & _32
    hashed = (hashed ^ hashed >> 13) * _M & _32
    return hashed ^ hashed >> 15
