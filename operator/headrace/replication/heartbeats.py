"""MirrorMaker 2's heartbeat records, byte for byte (``org.apache.kafka.connect.mirror.Heartbeat``).

MirrorClient finds upstream clusters by them.
"""

import struct
from dataclasses import dataclass
from typing import Self

from headrace.replication.protocol_strings import encode_string, take_string

_VERSION = 0


@dataclass(frozen=True)
class Heartbeat:
    """A sign that the flow from ``source`` to ``target`` was alive at ``timestamp_ms``."""

    source: str
    target: str
    timestamp_ms: int

    def key(self) -> bytes:
        """Both aliases."""
        return encode_string(self.source) + encode_string(self.target)

    def value(self) -> bytes:
        """Version and time."""
        return struct.pack(">hq", _VERSION, self.timestamp_ms)

    @classmethod
    def decode(cls, key: bytes, value: bytes) -> Self:
        """Read a record back; raises ``ValueError`` for one of another version or shape."""
        try:
            source, rest = take_string(key)
            target, _ = take_string(rest)
            version, timestamp_ms = struct.unpack(">hq", value)
        except (struct.error, ValueError) as error:
            raise ValueError(f"not a heartbeat: {error}") from error
        if version != _VERSION:
            raise ValueError(f"heartbeat of version {version}, can read {_VERSION}")
        return cls(source, target, timestamp_ms)
