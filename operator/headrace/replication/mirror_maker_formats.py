"""Record formats of MirrorMaker 2: heartbeats, offset syncs and Connect offsets.

The key of a Connect offset contains the name of the connector and the result of
``MirrorUtils.wrapPartition``:
``["MirrorSourceConnector",{"cluster":"east","partition":0,"topic":"orders"}]``. Its value is the
last source record that was copied: ``{"offset":749}``. Connect and compaction compare keys as
bytes.
"""

import json
import struct
from dataclasses import dataclass
from typing import Self

from headrace.api import TopicPartition

DEDICATED_CONNECTOR = "MirrorSourceConnector"
"""Name of the connector in dedicated mode. On a Connect cluster, users choose it."""
OFFSETS_PARTITIONS = 25
"""Default of ``offset.storage.partitions``."""


def connect_group(source_alias: str) -> str:
    """Return the group id of MirrorMaker 2's workers in dedicated mode, on the target."""
    return f"{source_alias}-mm2"


@dataclass(frozen=True)
class ConnectPartition:
    """A partition of the source in a connector's offsets."""

    connector: str
    cluster: str
    """Alias of the source."""
    at: TopicPartition

    def key(self) -> bytes:
        """Encode the key, with the fields in the order of Java's HashMap."""
        topic, partition = self.at
        where = {"cluster": self.cluster, "partition": partition, "topic": topic}
        return _json([self.connector, where])

    @classmethod
    def decode(cls, key: bytes) -> Self | None:
        """Decode a key.

        Return None for the key of another connector, such as the heartbeats connector.
        """
        match _read(key):
            case [str(connector), {"cluster": str(c), "partition": int(p), "topic": str(topic)}]:
                return cls(connector, c, TopicPartition(topic, p))
        return None


def encode_position(next_offset: int) -> bytes | None:
    """Return the stored form of the next offset to copy.

    At offset 0 it is None (a tombstone), because MirrorMaker 2 starts there without a stored
    offset.
    """
    return _json({"offset": next_offset - 1}) if next_offset > 0 else None


def decode_position(value: bytes | None) -> int | None:
    """Return the next offset to copy, or None if no offset is stored."""
    match _read(value or b"null"):
        case {"offset": int(offset)} if offset >= 0:
            return offset + 1
    return None


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _read(data: bytes) -> object:
    try:
        found: object = json.loads(data)
    except ValueError:
        return None
    return found


def encode_string(text: str) -> bytes:
    """Encode a string with its length. Raise ``ValueError`` if it is too long."""
    encoded = text.encode()
    if len(encoded) > 0x7FFF:
        raise ValueError(f"a string of {len(encoded)} bytes is longer than the format takes")
    return struct.pack(">h", len(encoded)) + encoded


def take_string(data: bytes) -> tuple[str, bytes]:
    """Return the string at the beginning, and the bytes after it.

    Raise ``ValueError`` if there is no complete string.
    """
    if len(data) < 2:
        raise ValueError("it ends inside a string")
    (length,) = struct.unpack_from(">h", data)
    if not 0 <= length <= len(data) - 2:
        raise ValueError("it ends inside a string")
    return data[2 : 2 + length].decode(), data[2 + length :]


# MirrorMaker 2's heartbeat records, with identical bytes
# (``org.apache.kafka.connect.mirror.Heartbeat``). MirrorClient finds upstream clusters by them.

_VERSION = 0


@dataclass(frozen=True)
class Heartbeat:
    """Evidence that the flow from ``source`` to ``target`` was alive at ``timestamp_ms``."""

    source: str
    target: str
    timestamp_ms: int

    def key(self) -> bytes:
        """Encode the record's key: both aliases."""
        return encode_string(self.source) + encode_string(self.target)

    def value(self) -> bytes:
        """Encode the record's value: version and time."""
        return struct.pack(">hq", _VERSION, self.timestamp_ms)

    @classmethod
    def decode(cls, key: bytes, value: bytes) -> Self:
        """Decode a record. Raise ``ValueError`` if its version or format is unknown."""
        try:
            source, rest = take_string(key)
            target, _ = take_string(rest)
            version, timestamp_ms = struct.unpack(">hq", value)
        except (struct.error, ValueError) as error:
            raise ValueError(f"not a heartbeat: {error}") from error
        if version != _VERSION:
            raise ValueError(f"heartbeat of version {version}, can read {_VERSION}")
        return cls(source, target, timestamp_ms)


# MirrorMaker 2's offset syncs, with identical bytes
# (``org.apache.kafka.connect.mirror.OffsetSync``). They are stored in a compacted topic with one
# partition, on the source or on the target. The topic name contains the alias of the other cluster.
# headrace adds a header, which MirrorMaker 2 does not read.

STRETCH = "headrace.stretch"
"""Header of a sync that headrace wrote.

If two consecutive syncs of a partition have the same value and the same distance on both sides,
each record between them was copied, without a gap in the offsets of either side. Without the
header, as in MirrorMaker 2's syncs, nothing is known about the records between them.
"""


@dataclass(frozen=True)
class OffsetSync:
    """Offset of a source record, and offset of its copy on the target."""

    topic: str
    """Name of the topic on the source."""
    partition: int
    source_offset: int
    target_offset: int

    def key(self) -> bytes:
        """Encode the record's key: topic and partition."""
        return encode_string(self.topic) + struct.pack(">i", self.partition)

    def value(self) -> bytes:
        """Encode the record's value: both offsets. The format has no version."""
        return struct.pack(">qq", self.source_offset, self.target_offset)

    @classmethod
    def decode(cls, key: bytes, value: bytes) -> Self:
        """Decode a record. Raise ``ValueError`` if its format is unknown."""
        try:
            topic, rest = take_string(key)
            (partition,) = struct.unpack(">i", rest)
            source_offset, target_offset = struct.unpack(">qq", value)
        except (struct.error, ValueError) as error:
            raise ValueError(f"not an offset sync: {error}") from error
        return cls(topic, partition, source_offset, target_offset)
