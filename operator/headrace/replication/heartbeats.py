"""MirrorMaker 2's heartbeat records, byte for byte (``org.apache.kafka.connect.mirror.Heartbeat``).

Big-endian; a string is an int16 length and UTF-8. MirrorClient finds upstream clusters by them.
"""

import struct
from dataclasses import dataclass
from typing import Self

_VERSION = 0


@dataclass(frozen=True)
class Heartbeat:
    """A sign that the flow from ``source`` to ``target`` was alive at ``timestamp_ms``."""

    source: str
    target: str
    timestamp_ms: int

    def key(self) -> bytes:
        """Both aliases."""
        return _string(self.source) + _string(self.target)

    def value(self) -> bytes:
        """Version and time."""
        return struct.pack(">hq", _VERSION, self.timestamp_ms)

    @classmethod
    def decode(cls, key: bytes, value: bytes) -> Self:
        """Read a record back; raises ``ValueError`` for one of another version or shape."""
        try:
            source, rest = _take(key)
            target, _ = _take(rest)
            version, timestamp_ms = struct.unpack(">hq", value)
        except (struct.error, UnicodeDecodeError) as error:
            raise ValueError(f"not a heartbeat: {error}") from error
        if version != _VERSION:
            raise ValueError(f"heartbeat of version {version}, can read {_VERSION}")
        return cls(source, target, timestamp_ms)


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


def _take(data: bytes) -> tuple[str, bytes]:
    (length,) = struct.unpack_from(">h", data)
    if len(data) < 2 + length:
        raise ValueError("not a heartbeat: the key ends inside a string")
    return data[2 : 2 + length].decode(), data[2 + length :]
