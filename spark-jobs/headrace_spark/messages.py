"""Messages of a mirror test, and their topics.

A producer sends the sequence numbers 0, 1, 2 ... to every topic. In both formats the value is
``id;seq;timestamp;payload``, cut to the requested size. The timestamp is in ms since 1970 UTC.

The format ``Headers`` adds the headers ``id``, ``seq``, ``topic`` and ``partition``. The last two
name the source topic and partition. Without them, messages of two topics could be equal, and a
mirror that exchanges them would not be detected. The format ``Body`` has topic and partition at the
beginning of the payload, if there is room. With ``Headers``, the body repeats the identity. A
mirror that drops headers is therefore reported as corrupting records, and not as losing them.
``docs/mirror-test-formats.md`` describes the format.
"""

import random
import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from headrace.api import MIN_MESSAGE_BYTES, ClusterAccess, MessageFormat, TopicPartition
from headrace.kafka import Admin, Position, Topic, journal
from headrace.kafka import Message as Record
from headrace.mirror_test import (
    FORMAT,
    CreatedTopic,
    CreatedTopics,
    MirrorTestRun,
    created_in,
    documents,
)
from headrace_spark.patient_admin import PatientAdmin

HEADER_ID = "id"
HEADER_SEQ = "seq"
HEADER_TOPIC = "topic"
HEADER_PARTITION = "partition"
HEADER_SENTINEL = "sentinel"
"""Header with the partition number, on the last record of a partition.

The header ``id`` of this record is the run.
"""

ADDRESS = r"to=([A-Za-z0-9._-]+)/[0-9]+;"
"""Pattern of the source topic and partition at the beginning of a payload of ``Body``."""

_INDEX_AND_ATTEMPT = re.compile(rb"-\d+-\d+")
"""Suffix of a producer's id after the name of the run."""
_SENTINEL = re.compile(HEADER_SENTINEL.encode() + rb"-(\d+)")
"""Second field of a sentinel's body. A mirror may damage it."""
_ADDRESS = re.compile(rb";" + ADDRESS.encode())
_STARTS = 8_192  # distinct payloads of one producer; the prefix also makes values unique

Headers = list[tuple[str, str | bytes | None]]
"""Headers in the form that the Kafka client accepts. Here the values are bytes."""


def producer_id(run: str, index: int, attempt: int) -> str:
    """Return the id of a producer. A repeated attempt of a Spark task has a new id."""
    return f"{run}-{index}-{attempt}"


def key_of(seq: int, keys: int) -> int:
    """Return the key number of a message. The key is this number in decimal digits."""
    return seq % keys


def partition_of(seq: int, keys: int, partitions: int) -> int:
    """Return the source partition of a message.

    The partition is chosen here, because hashing few keys would leave some partitions empty.
    """
    return key_of(seq, keys) % partitions


def share(total: int, parts: int, index: int) -> int:
    """Return part ``index`` of ``parts`` nearly equal parts of ``total``."""
    return total // parts + (index < total % parts)


@dataclass(frozen=True)
class Message:
    """Record to send. ``checksum`` is the CRC-32 of the value."""

    value: bytes
    headers: Headers
    checksum: int


class MessageFactory:
    """Creates the messages of one producer. Values of 64 bytes or more are unique."""

    def __init__(
        self, producer: str, size_bytes: int, format: MessageFormat = MessageFormat.HEADERS
    ) -> None:
        self._id = producer.encode()
        self._size = size_bytes
        self._has_headers = format is MessageFormat.HEADERS
        # Payloads are slices of one random block, because generating 1 KiB for each message would
        # cost more than sending it. The seed makes a run repeatable.
        self._noise = random.Random(producer).randbytes(size_bytes + _STARTS)

    def message(self, to: TopicPartition, seq: int, timestamp_ms: int) -> Message:
        """Return the message for a sequence number, partition and timestamp."""
        prefix = b"%b;%d;%d;" % (self._id, seq, timestamp_ms)
        if not self._has_headers and has_room(to.topic, self._size):
            prefix += _address_text(to)
        start = seq % _STARTS
        value = (prefix + self._noise[start : start + self._size])[: self._size]
        if not self._has_headers:
            return Message(value, [], zlib.crc32(value))
        headers: Headers = [(HEADER_ID, self._id), (HEADER_SEQ, b"%d" % seq), *_address(to)]
        return Message(value, headers, zlib.crc32(value))


def has_room(topic: str, size_bytes: int) -> bool:
    """Return True if a body of that size has room for the topic and the partition."""
    return size_bytes >= MIN_MESSAGE_BYTES + len(f"to={topic}/123456;")


def sentinel(
    run: str,
    ends: TopicPartition,
    timestamp_ms: int,
    format: MessageFormat = MessageFormat.HEADERS,
) -> Message:
    """Return the end sentinel of a partition.

    It is the last record that the run sends to the partition.
    """
    number = b"%d" % ends.partition
    value = f"{run};{HEADER_SENTINEL}-{ends.partition};{timestamp_ms};{FORMAT}".encode()
    if format is MessageFormat.BODY:
        value += b";" + _address_text(ends)
        return Message(value, [], zlib.crc32(value))
    headers: Headers = [(HEADER_ID, run.encode()), (HEADER_SENTINEL, number), *_address(ends)]
    return Message(value, headers, zlib.crc32(value))


@lru_cache(maxsize=10_000)
def _address_text(at: TopicPartition) -> bytes:
    return f"to={at.topic}/{at.partition};".encode()


@lru_cache(maxsize=10_000)
def _address(at: TopicPartition) -> Headers:
    return [(HEADER_TOPIC, at.topic.encode()), (HEADER_PARTITION, b"%d" % at.partition)]


class Sighting(NamedTuple):
    """Record that belongs to a run."""

    timestamp_ms: int
    """Time at which the record was sent."""
    sentinel: int | None
    """Source partition of an end sentinel; None for a message."""
    topic: str | None = None
    """Source topic of an end sentinel. None for a message, or if a mirror dropped the headers."""
    name: tuple[bytes, bytes] = (b"", b"")
    """Producer and sequence number of a message."""
    size_bytes: int = 0
    """Size of a message's value."""


def recognise_all(records: Iterable[Record], run: bytes) -> tuple[list[Sighting], list[Sighting]]:
    """Return the messages and the end sentinels of this run."""
    found = [one for record in records if (one := recognise(record, run)) is not None]
    sentinels = [one for one in found if one.sentinel is not None]
    return [one for one in found if one.sentinel is None] if sentinels else found, sentinels


def recognise(record: Record, run: bytes) -> Sighting | None:
    """Return the identity of a record if it belongs to this run, or None.

    The identity is read from the body, or from the headers if the body is too short. The timestamp
    in the body is correct even if the target uses ``LogAppendTime``.
    """
    value = record.value() or b""
    if value.startswith(run):
        fields = value.split(b";", 3)
        if len(fields) == 4 and fields[2].isdigit() and is_of(run, fields[0]):
            end = _SENTINEL.fullmatch(fields[1])
            if end is None:
                return Sighting(int(fields[2]), None, None, (fields[0], fields[1]), len(value))
            headers = dict(record.headers() or ())
            return Sighting(int(fields[2]), int(end[1]), _topic(headers) or _named(fields[3]))
    headers = dict(record.headers() or ())
    who, sentinel = headers.get(HEADER_ID), headers.get(HEADER_SENTINEL)
    if not isinstance(who, bytes) or not is_of(run, who):
        return None
    if not isinstance(sentinel, bytes) or not sentinel.isdigit():
        seq = headers.get(HEADER_SEQ)
        name = (who, seq if isinstance(seq, bytes) else b"")
        return Sighting(record.timestamp()[1], None, None, name, len(value))
    return Sighting(record.timestamp()[1], int(sentinel), _topic(headers))


@lru_cache(maxsize=1_000)
def is_of(run: bytes, identity: bytes) -> bool:
    """Return True if an id is the name of the run, or the id of one of its producers.

    For run ``r1`` these are ``r1`` and, for example, ``r1-0-0``, but not ``r10-0-0``.
    """
    rest = identity.removeprefix(run)
    return identity.startswith(run) and (not rest or _INDEX_AND_ATTEMPT.fullmatch(rest) is not None)


def _topic(headers: dict[str, str | bytes | None]) -> str | None:
    topic = headers.get(HEADER_TOPIC)
    return topic.decode(errors="replace") if isinstance(topic, bytes) else None


def _named(rest: bytes) -> str | None:
    """Return the topic in the body of a ``Body`` sentinel, after the format version, or None."""
    found = _ADDRESS.search(rest)
    return found[1].decode() if found else None


def ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return numbers as inclusive ranges: ``{1, 2, 3, 7}`` gives ``[(1, 3), (7, 7)]``."""
    found: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


@dataclass(frozen=True)
class LoadTopic:
    """Topic of the load, with its number of keys."""

    name: str
    target: str
    partitions: int
    keys: int


def prepare(run: MirrorTestRun) -> None:
    """Create the journal and the topics that the source lacks. Each job of a run calls this first.

    If ``load.names`` is empty, the created topics belong to the run, and their ids are written into
    the journal.
    """
    journal.create(run.source)
    admin = Admin(run.source)
    missing = run.first_topics.keys() - PatientAdmin(run.source).topics().keys()
    taken = on_target(run).keys() if missing else frozenset()
    created = {name for name in missing if admin.create_topic(name, run.test.spec.load.partitions)}
    journal.wait_for_topics(admin, run.first_topics.keys())
    if not run.test.spec.load.names:
        for one in admin.describe(created).values():
            copy = run.first_topics[one.name]
            record_created(run, one, copy if copy not in taken else None)


def record_created(run: MirrorTestRun, topic: Topic, copy: str | None) -> None:
    """Record in the journal that the run created a topic."""
    created = CreatedTopic(name=topic.name, topic_id=topic.topic_id, copy_name=copy)
    text = created.model_dump_json(by_alias=True)
    journal.write(run.source, run.name, documents.created_key(topic.name), text)


def created_topics(run: MirrorTestRun) -> CreatedTopics:
    """Return the topics that the run created, with the ids of their target topics."""
    created = created_in(journal.read_all(run.source, run.name))
    copies = PatientAdmin(run.target).describe(created.copies)
    return created.with_copies({name: one.topic_id for name, one in copies.items()})


def describe(run: MirrorTestRun) -> tuple[LoadTopic, ...]:
    """Return the topics that exist when the load begins.

    The number of keys is the final number of partitions of the cluster with more partitions. A
    mirror that partitions by key can then write to all partitions of the target.
    """
    source, target = PatientAdmin(run.source).topics(), on_target(run)
    more = sum(step.partitions or 0 for step in run.test.spec.chaos)
    return tuple(
        LoadTopic(name, mirrored, source[name], max(source[name] + more, target.get(mirrored, 0)))
        for name, mirrored in run.first_topics.items()
    )


def changed(
    run: MirrorTestRun, load_topics: tuple[LoadTopic, ...], changes: dict[str, int]
) -> tuple[LoadTopic, ...]:
    """Return all topics of the load after the chaos steps.

    ``changes`` is the new number of partitions of each added or extended topic.
    """
    known = {t.name for t in load_topics}
    return (
        *(replace(t, partitions=changes.get(t.name, t.partitions)) for t in load_topics),
        *(added(run, name, count) for name, count in changes.items() if name not in known),
    )


def added(run: MirrorTestRun, name: str, partitions: int) -> LoadTopic:
    """Return a topic that a chaos step adds."""
    return LoadTopic(name, run.added_topics[name], partitions, keys=partitions)


def on_target(run: MirrorTestRun) -> dict[str, int]:
    """Return the target's existing topics of this run, with their partitions.

    The result is empty if the run does not know its target.
    """
    if not run.knows_target:
        return {}
    there = PatientAdmin(run.target).topics()
    return {name: there[name] for name in run.topics.values() if name in there}


def ends(cluster: ClusterAccess, topics: dict[str, int]) -> dict[str, tuple[int, ...]]:
    """Return the last stable offset of each partition.

    ``topics`` is the number of partitions by topic.
    """
    partitions = [TopicPartition(name, p) for name, count in topics.items() for p in range(count)]
    offsets = PatientAdmin(cluster).offsets(partitions, Position.LAST_STABLE)
    return {
        name: tuple(offsets[TopicPartition(name, p)] for p in range(count))
        for name, count in topics.items()
    }
