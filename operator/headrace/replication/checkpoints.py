"""Checkpoints of consumer groups, and the target offsets that headrace sets from them.

Checkpoints are stored on the target in ``<source alias>.checkpoints.internal``, a compacted topic
with one partition. MirrorClient and RemoteClusterUtils read them.
"""

import struct
from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple, Self

from headrace.replication.mirror_maker_formats import encode_string, take_string
from headrace.replication.translation import Precision

SHARE_GROUP = "share group"
"""Metadata of a share group's checkpoint. It shows the type of the group without the source."""
_VERSION = 0


@dataclass(frozen=True)
class Checkpoint:
    """Target offset at which a consumer group of the source would resume."""

    group: str
    topic: str
    """Name of the topic on the target."""
    partition: int
    source_offset: int
    """Offset that the group has committed on the source."""
    target_offset: int
    """Committed offset, translated to the target."""
    metadata: str = ""
    """Metadata that the group committed with the offset."""

    @property
    def is_of_share_group(self) -> bool:
        """True if the checkpoint belongs to a share group, whose offsets are start offsets."""
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
    checkpoint: Checkpoint, precision: Precision, before: Checkpoint | None
) -> Checkpoint:
    """Return the checkpoint to write for a group's partition. ``before`` is the last written one.

    A target offset that was correct for an earlier source offset skips no record for a later one.
    If compaction of the syncs has made the translation less exact, the group is therefore not moved
    back.
    """
    if (
        before is not None
        and precision is not Precision.EXACT
        and before.source_offset <= checkpoint.source_offset
        and before.target_offset > checkpoint.target_offset
    ):
        return replace(checkpoint, target_offset=before.target_offset)
    return checkpoint


# Decides whether a translated offset is set for a group on the target. No I/O. If a group's offset
# on the target is not one that headrace has set, consumers on the target use the group. Moving it
# forward would skip records that they have not read.

APPLIED = "headrace.applied"
"""Header of a checkpoint with offsets that headrace may have set for the group.

It is written before an offset is set. A new owner therefore recognizes the offset even after a
crash between the two writes.
"""


class Applied(StrEnum):
    """State of a group on the target in one partition."""

    SET = "Set"
    """The group has the checkpoint's offset, or headrace may set it."""
    LATER = "Later"
    """The group has a later offset that headrace has set. Groups are not moved back."""
    FOREIGN = "Foreign"
    """The group has an offset that headrace has not set, or is a share group that was used."""
    ACTIVE = "Active"
    """The group has members, and only members may commit its offsets."""
    REFUSED = "Refused"
    """The target rejected the request to read or set the group's offset."""


class StoredCheckpoint(NamedTuple):
    """A checkpoint with its header."""

    checkpoint: Checkpoint
    applied: tuple[int, ...] = ()
    """Offsets in the header ``APPLIED``, in addition to the checkpoint's offset."""

    @property
    def ours(self) -> frozenset[int]:
        """Offsets that the group has on the target if no consumer has committed since."""
        return frozenset({*self.applied, self.checkpoint.target_offset})


def judge(
    translated: int,
    current: int | None,
    ours: Collection[int],
    *,
    used: bool = False,
    back: bool = False,
) -> Applied:
    """Decide whether an offset is set for a group on the target.

    Args:
        translated: Translated offset.
        current: Offset that the group has committed on the target, or its start offset; None if it
            has none.
        ours: Offsets that headrace may have set.
        used: True for a share group that has or had members. Such a group is not changed, because
            it may have records in flight after a start offset that headrace has set.
        back: True if an offset that headrace has set may also move back.
    """
    if used:
        return Applied.FOREIGN
    if current is None or current == translated:
        return Applied.SET
    if current not in ours:
        return Applied.FOREIGN
    return Applied.SET if back or current < translated else Applied.LATER


def announced(
    checkpoint: Checkpoint, before: StoredCheckpoint | None, current: int | None, *, readable: bool
) -> StoredCheckpoint:
    """Return the checkpoint to store before the group's offset is set.

    If headrace has set the group's current offset, the header contains it. Without this entry, a
    later check would take the offset for a consumer's commit. ``readable`` is True if ``current``
    is known.
    """
    if before is None:
        return StoredCheckpoint(checkpoint)
    if checkpoint == before.checkpoint:
        return before
    if not readable:  # no offset was set since, so the group has one of the lowest
        return StoredCheckpoint(checkpoint, tuple(sorted(before.ours)[:2]))
    kept = current is not None and current in before.ours and current != checkpoint.target_offset
    return StoredCheckpoint(checkpoint, (current,) if current is not None and kept else ())


def encode_applied(offsets: Collection[int]) -> bytes:
    """Return the value of the header ``APPLIED``."""
    return ",".join(map(str, offsets)).encode()


def decode_applied(value: object) -> tuple[int, ...]:
    """Return the offsets in the header ``APPLIED``. Empty if it cannot be read.

    A group with an unreadable header is not changed.
    """
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")
    numbers = text.split(",") if text else []
    return tuple(int(one) for one in numbers) if all(map(str.isdecimal, numbers)) else ()
