"""Positions of MirrorMaker 2, as Kafka Connect stores them: JSON without schemas, byte for byte.

Key: ``["MirrorSourceConnector",{"cluster":"east","partition":0,"topic":"orders"}]``, the name of
the connector and ``MirrorUtils.wrapPartition``. Value: ``{"offset":749}``, the last record of the
source that was copied. Connect finds a position by the bytes of its key, and compaction does, too.
"""

import json
from dataclasses import dataclass
from typing import Self

from headrace.api import TopicPartition

DEDICATED_CONNECTOR = "MirrorSourceConnector"
"""Its name in dedicated mode; on a Connect cluster people choose it."""
OFFSETS_PARTITIONS = 25
"""``offset.storage.partitions``, by default."""


def connect_group(source_alias: str) -> str:
    """Of the workers in dedicated mode, on the target."""
    return f"{source_alias}-mm2"


@dataclass(frozen=True)
class ConnectPartition:
    """A partition of the source, as a connector names it."""

    connector: str
    cluster: str
    """The source's alias."""
    at: TopicPartition

    def key(self) -> bytes:
        """In the order of Java's HashMap of these three."""
        topic, partition = self.at
        where = {"cluster": self.cluster, "partition": partition, "topic": topic}
        return _json([self.connector, where])

    @classmethod
    def decode(cls, key: bytes) -> Self | None:
        """None for the key of another connector, as that of heartbeats."""
        match _read(key):
            case [str(connector), {"cluster": str(c), "partition": int(p), "topic": str(topic)}]:
                return cls(connector, c, TopicPartition(topic, p))
        return None


def encode_position(next_offset: int) -> bytes | None:
    """``next_offset``: the next to be copied. A tombstone at the beginning, where MirrorMaker 2
    begins without a position."""
    return _json({"offset": next_offset - 1}) if next_offset > 0 else None


def decode_position(value: bytes | None) -> int | None:
    """The next offset to be copied; None where there is no position."""
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
