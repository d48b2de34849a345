"""MirrorMaker 2's offset syncs, byte for byte (``org.apache.kafka.connect.mirror.OffsetSync``).

They lie in a compacted topic with one partition, on the source or on the target. The topic bears
the alias of the other cluster. headrace adds a header, which MirrorMaker 2 does not read.
"""

import struct
from dataclasses import dataclass
from typing import Self

from headrace.replication.protocol_strings import encode_string, take_string

STRETCH = "headrace.stretch"
"""Header of a sync that headrace wrote. Of two syncs of a partition that follow each other with the
same value and the same distance, each record between them was copied to the target, without a hole
on either side. Without the header, as from MirrorMaker 2, nothing is known of what lies between."""


@dataclass(frozen=True)
class OffsetSync:
    """A record of the source, and where its copy is on the target."""

    topic: str
    """Its name on the source."""
    partition: int
    source_offset: int
    target_offset: int

    def key(self) -> bytes:
        """Topic and partition."""
        return encode_string(self.topic) + struct.pack(">i", self.partition)

    def value(self) -> bytes:
        """Both offsets; it has no version."""
        return struct.pack(">qq", self.source_offset, self.target_offset)

    @classmethod
    def decode(cls, key: bytes, value: bytes) -> Self:
        """Read a record back; raises ``ValueError`` for one of another shape."""
        try:
            topic, rest = take_string(key)
            (partition,) = struct.unpack(">i", rest)
            source_offset, target_offset = struct.unpack(">qq", value)
        except (struct.error, ValueError) as error:
            raise ValueError(f"not an offset sync: {error}") from error
        return cls(topic, partition, source_offset, target_offset)
