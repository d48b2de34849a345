"""MirrorMaker 2's checkpoints, byte for byte (``org.apache.kafka.connect.mirror.Checkpoint``).

They lie on the target in ``<source alias>.checkpoints.internal``, compacted, with one partition.
MirrorClient and RemoteClusterUtils read them.
"""

import struct
from dataclasses import dataclass, replace
from typing import Self

from headrace.replication.protocol_strings import encode_string, take_string
from headrace.replication.translation import Precision

SHARE_GROUP = "share group"
"""Metadata of a share group's checkpoint, as its start offset has none: so the kind of the group is
known without the source."""
_VERSION = 0


@dataclass(frozen=True)
class Checkpoint:
    """Where a group of the source would go on, on the target."""

    group: str
    topic: str
    """Its name on the target."""
    partition: int
    source_offset: int
    """What the group has committed."""
    target_offset: int
    """The same, translated."""
    metadata: str = ""
    """What the group has committed beside the offset."""

    @property
    def is_of_share_group(self) -> bool:
        """Whether its offsets are start offsets."""
        return self.metadata == SHARE_GROUP

    def key(self) -> bytes:
        """Group, topic and partition."""
        names = encode_string(self.group) + encode_string(self.topic)
        return names + struct.pack(">i", self.partition)

    def value(self) -> bytes:
        """Version, both offsets, metadata."""
        offsets = struct.pack(">hqq", _VERSION, self.source_offset, self.target_offset)
        return offsets + encode_string(self.metadata)

    @classmethod
    def decode(cls, key: bytes, value: bytes) -> Self:
        """Read a record back; raises ``ValueError`` for one of another version or shape."""
        try:
            group, rest = take_string(key)
            topic, rest = take_string(rest)
            (partition,) = struct.unpack(">i", rest)
            version, source_offset, target_offset = struct.unpack_from(">hqq", value)
            metadata, rest = take_string(value[struct.calcsize(">hqq") :])
        except (struct.error, ValueError) as error:
            raise ValueError(f"not a checkpoint: {error}") from error
        if version != _VERSION:
            raise ValueError(f"checkpoint of version {version}, can read {_VERSION}")
        return cls(group, topic, partition, source_offset, target_offset, metadata)


def next_checkpoint(
    wanted: Checkpoint, precision: Precision, before: Checkpoint | None
) -> Checkpoint:
    """What is to be written of a group's partition, unless it is ``before``.

    An offset of the target that was right for an earlier source offset skips nothing for a later
    one: what is known less exactly, as syncs were compacted since, does not send the group back.
    """
    if (
        before is not None
        and precision is not Precision.EXACT
        and before.source_offset <= wanted.source_offset
        and before.target_offset > wanted.target_offset
    ):
        return replace(wanted, target_offset=before.target_offset)
    return wanted
