"""Checkpoints of consumer groups, and the offsets that headrace applies from them.

They are stored on the target in ``<source alias>.checkpoints.internal``, a compacted topic with one
partition. MirrorClient and RemoteClusterUtils read them.
"""

import struct
from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple, Self

from headrace.replication.mirror_maker_formats import encode_string, take_string
from headrace.replication.translation import Precision

SHARE_GROUP = "share group"
"""Metadata of a share group's checkpoint, as its start offset has none: so the kind of the group is
known without the source."""
_VERSION = 0


@dataclass(frozen=True)
class Checkpoint:
    """The target offset at which a consumer group of the source would resume."""

    group: str
    topic: str
    """Topic name on the target."""
    partition: int
    source_offset: int
    """Offset that the group has committed on the source."""
    target_offset: int
    """The committed offset, translated to the target."""
    metadata: str = ""
    """Metadata that the group committed with the offset."""

    @property
    def is_of_share_group(self) -> bool:
        """Whether the checkpoint belongs to a share group, whose offsets are start offsets."""
        return self.metadata == SHARE_GROUP

    def key(self) -> bytes:
        """Encode the record's key: group, topic and partition."""
        names = encode_string(self.group) + encode_string(self.topic)
        return names + struct.pack(">i", self.partition)

    def value(self) -> bytes:
        """Encode the record's value: version, both offsets and metadata."""
        offsets = struct.pack(">hqq", _VERSION, self.source_offset, self.target_offset)
        return offsets + encode_string(self.metadata)

    @classmethod
    def decode(cls, key: bytes, value: bytes) -> Self:
        """Decode a checkpoint record.

        Raise ``ValueError`` if its version or format is unknown.
        """
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
    """Return the checkpoint to write for a group's partition, given the one written before.

    A target offset that was correct for an earlier source offset skips no record for a later one.
    If compaction of the syncs made the translation less exact, the group is therefore not moved
    back.
    """
    if (
        before is not None
        and precision is not Precision.EXACT
        and before.source_offset <= wanted.source_offset
        and before.target_offset > wanted.target_offset
    ):
        return replace(wanted, target_offset=before.target_offset)
    return wanted


# Whether a translated offset goes into a group of the target. Pure.
#
# A group of the target whose offset is not one that headrace has set belongs to consumers there: to
# move it forward would skip records that they have not read.

APPLIED = "headrace.applied"
"""Header of a checkpoint, written before a group's offset is set: the offsets that headrace may
have given the group. A new owner recognizes them, even after a crash between the two writes.
"""


class Applied(StrEnum):
    """State of a group of the target in one partition."""

    SET = "Set"
    """The group has the checkpoint's offset, or is to be set to it."""
    LATER = "Later"
    """The group has a later offset that headrace has set: no group is moved back."""
    FOREIGN = "Foreign"
    """The group has an offset that headrace has not set, or is a share group that was used."""
    ACTIVE = "Active"
    """The group has members, and only members may commit its offsets."""
    REFUSED = "Refused"
    """The target rejected the request to read or set the group's offset."""


class StoredCheckpoint(NamedTuple):
    """A checkpoint and its header."""

    checkpoint: Checkpoint
    applied: tuple[int, ...] = ()
    """Offsets of the header ``APPLIED``, in addition to the checkpoint's own offset."""

    @property
    def ours(self) -> frozenset[int]:
        """Return the offsets that the target's group has if no consumer has committed since."""
        return frozenset({*self.applied, self.checkpoint.target_offset})


def judge(
    wanted: int,
    held: int | None,
    ours: Collection[int],
    *,
    used: bool = False,
    back: bool = False,
) -> Applied:
    """Decide whether a group of the target is set to an offset.

    Args:
        wanted: The translated offset.
        held: The offset that the group has committed, or its start offset.
        ours: The offsets that headrace may have set.
        used: Whether it is a share group that ever had members. Such a group may have records in
            flight behind a start offset that is still ours, so it is left alone.
        back: Whether an offset that headrace has set may also move back.
    """
    if used:
        return Applied.FOREIGN
    if held is None or held == wanted:
        return Applied.SET
    if held not in ours:
        return Applied.FOREIGN
    return Applied.SET if back or held < wanted else Applied.LATER


def announced(
    wanted: Checkpoint, before: StoredCheckpoint | None, held: int | None, *, readable: bool
) -> StoredCheckpoint:
    """Return the checkpoint to store before the group's offset is set.

    An offset of ours that the group holds must not count as a foreign commit afterwards.
    ``readable`` states whether ``held`` is known.
    """
    if before is None:
        return StoredCheckpoint(wanted)
    if wanted == before.checkpoint:
        return before
    if not readable:  # no offset was set since: the group holds one of the earliest
        return StoredCheckpoint(wanted, tuple(sorted(before.ours)[:2]))
    kept = held is not None and held in before.ours and held != wanted.target_offset
    return StoredCheckpoint(wanted, (held,) if held is not None and kept else ())


def encode_applied(offsets: Collection[int]) -> bytes:
    """Return the value of the header ``APPLIED``."""
    return ",".join(map(str, offsets)).encode()


def decode_applied(value: object) -> tuple[int, ...]:
    """Return the offsets in the header; empty if it cannot be read.

    The group of an unreadable header is left alone.
    """
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")
    numbers = text.split(",") if text else []
    return tuple(int(one) for one in numbers) if all(map(str.isdecimal, numbers)) else ()
