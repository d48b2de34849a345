"""Strings of Kafka's protocol types: an int16 length and UTF-8."""

import struct


def encode_string(text: str) -> bytes:
    """Raises ``ValueError`` for one that is too long."""
    encoded = text.encode()
    if len(encoded) > 0x7FFF:
        raise ValueError(f"a string of {len(encoded)} bytes is longer than the format takes")
    return struct.pack(">h", len(encoded)) + encoded


def take_string(data: bytes) -> tuple[str, bytes]:
    """The string at the beginning, and what follows it; ``ValueError`` where there is none."""
    if len(data) < 2:
        raise ValueError("it ends inside a string")
    (length,) = struct.unpack_from(">h", data)
    if not 0 <= length <= len(data) - 2:
        raise ValueError("it ends inside a string")
    return data[2 : 2 + length].decode(), data[2 + length :]
