"""Consumers and producers with the settings that integrity needs, and nothing left to librdkafka's
defaults where those would hide a loss."""

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from headrace.api import ClusterAccess, ClusterSpec, TopicPartition
from headrace.api.client_settings import for_librdkafka
from headrace.errors import InvalidSpec
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
