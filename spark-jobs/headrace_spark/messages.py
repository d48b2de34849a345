"""Messages of a mirror test, and their topics.

A producer sends a dense sequence 0, 1, 2 ... to every topic. The value is
``id;seq;timestamp;payload`` in both formats, cut to the requested size (timestamp in ms since 1970,
UTC). ``Headers`` adds the headers ``id`` and ``seq``, and ``topic`` and ``partition`` of the
source. Without these two, messages of two topics would be equal, and an exchange would be
invisible. In ``Body`` they are at the beginning of the payload if there is room. With headers the
body is a second witness: a mirror that drops headers is reported as corrupting records instead of
losing all of them. ``docs/mirror-test-formats.md`` describes the format.
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
"""On the last record of a partition: the partition's number; ``id`` is then the run's."""

ADDRESS = r"to=([A-Za-z0-9._-]+)/[0-9]+;"
"""At the beginning of a payload of ``Body``: the topic and partition of the source."""

_INDEX_AND_ATTEMPT = re.compile(rb"-\d+-\d+")
"""Suffix after the run's name in a producer's id."""
_ADDRESS = re.compile(rb";" + ADDRESS.encode())
_STARTS = 8_192  # payloads that one producer can tell apart; beside them the prefix tells

Headers = list[tuple[str, str | bytes | None]]
"""Headers as the client accepts them; values are bytes here."""


def producer_id(run: str, index: int, attempt: int) -> str:
    """Return the producer's id: a task that Spark ran a second time is another producer."""
    return f"{run}-{index}-{attempt}"


def key_of(seq: int, keys: int) -> int:
    """Return the number that is a message's key (as decimal digits)."""
    return seq % keys


def partition_of(seq: int, keys: int, partitions: int) -> int:
    """Where a message goes on the source: chosen, since hashing leaves some partitions empty."""
    return key_of(seq, keys) % partitions


def share(total: int, parts: int, index: int) -> int:
    """Return part ``index`` of ``parts`` nearly equal parts of ``total``."""
    return total // parts + (index < total % parts)


@dataclass(frozen=True)
class Message:
    """One record to send; ``checksum`` is the CRC-32 of the value."""

    value: bytes
    headers: Headers
    checksum: int


class MessageFactory:
    """Makes one producer's messages; cheap, and no two values of 64 bytes or more are equal."""

    def __init__(
        self, producer: str, size_bytes: int, format: MessageFormat = MessageFormat.HEADERS
    ) -> None:
        self._id = producer.encode()
        self._size = size_bytes
        self._has_headers = format is MessageFormat.HEADERS
        # Slices of one block of noise: making 1 KiB of it for each message would cost more than
        # sending it. Seeded, so that a run can be repeated.
        self._noise = random.Random(producer).randbytes(size_bytes + _STARTS)

    def message(self, to: TopicPartition, seq: int, timestamp_ms: int) -> Message:
        """Return the message with this number, sent to this partition at this time."""
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
    """Whether a message of that size has room for its topic and partition in its body."""
    return size_bytes >= MIN_MESSAGE_BYTES + len(f"to={topic}/123456;")


def sentinel(
    run: str,
    ends: TopicPartition,
    timestamp_ms: int,
    format: MessageFormat = MessageFormat.HEADERS,
) -> Message:
    """Return the last record of a partition: its reader has seen all that was sent there."""
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
    """A recognised record of a run."""

    timestamp_ms: int
    """Time at which the record was sent."""
    sentinel: int | None
    """Source partition of an end sentinel; None for a message."""
    topic: str | None = None
    """Source topic of an end sentinel; None if a mirror dropped its headers."""
    name: tuple[bytes, bytes] = (b"", b"")
    """Producer and number of a message."""
    size_bytes: int = 0
    """Size of a message's value."""


def recognise_all(records: Iterable[Record], run: bytes) -> tuple[list[Sighting], list[Sighting]]:
    """Return the messages and the end sentinels of this run."""
    found = [one for record in records if (one := recognise(record, run)) is not None]
    sentinels = [one for one in found if one.sentinel is not None]
    return [one for one in found if one.sentinel is None] if sentinels else found, sentinels


def recognise(record: Record, run: bytes) -> Sighting | None:
    """Return a record of this run, or None.

    It is recognized by its body, or by its headers if the body is too short. A target that stamps
    records itself does not change the time in the body.
    """
    value = record.value() or b""
    if value.startswith(run):
        fields = value.split(b";", 3)
        if len(fields) == 4 and fields[2].isdigit() and is_of(run, fields[0]):
            _, dash, partition = fields[1].partition(b"-")
            if not dash:
                return Sighting(int(fields[2]), None, None, (fields[0], fields[1]), len(value))
            headers = dict(record.headers() or ())
            return Sighting(int(fields[2]), int(partition), _topic(headers) or _named(fields[3]))
    headers = dict(record.headers() or ())
    who, sentinel = headers.get(HEADER_ID), headers.get(HEADER_SENTINEL)
    if not isinstance(who, bytes) or not is_of(run, who):
        return None
    if not sentinel:
        seq = headers.get(HEADER_SEQ)
        name = (who, seq if isinstance(seq, bytes) else b"")
        return Sighting(record.timestamp()[1], None, None, name, len(value))
    return Sighting(record.timestamp()[1], int(sentinel), _topic(headers))


@lru_cache(maxsize=1_000)
def is_of(run: bytes, who: bytes) -> bool:
    """Return whether an id is the run's own or one of its producers' (``r1``, ``r1-0-0``).

    Another run's id, such as ``r10-0-0``, is not.
    """
    rest = who.removeprefix(run)
    return who.startswith(run) and (not rest or _INDEX_AND_ATTEMPT.fullmatch(rest) is not None)


def _topic(headers: dict[str, str | bytes | None]) -> str | None:
    topic = headers.get(HEADER_TOPIC)
    return topic.decode(errors="replace") if isinstance(topic, bytes) else None


def _named(rest: bytes) -> str | None:
    """Return the topic in the body of a sentinel of ``Body``, after the format's version."""
    found = _ADDRESS.search(rest)
    return found[1].decode() if found else None


def ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Numbers as ranges, both ends in: ``{1, 2, 3, 7}`` is ``[(1, 3), (7, 7)]``."""
    found: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


@dataclass(frozen=True)
class LoadTopic:
    """A topic of the source, before the load."""

    name: str
    target: str
    partitions: int
    keys: int


def prepare(run: MirrorTestRun) -> None:
    """Make the journal and the topics that the source lacks; the jobs of a run begin with this.

    Topics that ``load.names`` does not name belong to the run: their ids go into the journal.
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
    """Write a topic that the run created into the journal."""
    created = CreatedTopic(name=topic.name, topic_id=topic.topic_id, copy_name=copy)
    text = created.model_dump_json(by_alias=True)
    journal.write(run.source, run.name, documents.created_key(topic.name), text)


def created_topics(run: MirrorTestRun) -> CreatedTopics:
    """Return the topics that the run created, with the ids of their copies."""
    created = created_in(journal.read_all(run.source, run.name))
    copies = PatientAdmin(run.target).describe(created.copies)
    return created.with_copies({name: one.topic_id for name, one in copies.items()})


def describe(run: MirrorTestRun) -> tuple[LoadTopic, ...]:
    """Return the topics with which the load begins.

    There are as many keys as the larger side has partitions in the end: a mirror that partitions by
    key can then reach all of the target's partitions.
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
    """Return all topics of the load after steps of chaos.

    ``changes`` has the number of partitions of topics that were added or extended.
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
    """Return the target's existing topics of this run, with their partitions."""
    there = PatientAdmin(run.target).topics()
    return {name: there[name] for name in run.topics.values() if name in there}


def ends(cluster: ClusterAccess, topics: dict[str, int]) -> dict[str, tuple[int, ...]]:
    """Last stable offset of each partition of the topics, given with their partitions."""
    partitions = [TopicPartition(name, p) for name, count in topics.items() for p in range(count)]
    offsets = PatientAdmin(cluster).offsets(partitions, Position.LAST_STABLE)
    return {
        name: tuple(offsets[TopicPartition(name, p)] for p in range(count))
        for name, count in topics.items()
    }
