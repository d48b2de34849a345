"""Checkpoints of consumer groups, and the target offsets that headrace sets from them.

Checkpoints are stored on the target in ``<source alias>.checkpoints.internal``, a compacted topic
with one partition. MirrorClient and RemoteClusterUtils read them.
"""

import struct
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple, Self

from headrace.replication.mirror_maker_formats import encode_string, take_string
from headrace.replication.progress import Loss
from headrace.replication.translation import Precision, Translated

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
NOT_SET = "headrace.not-set"
"""Header of a checkpoint whose own offset headrace has not set for the group."""


class Applied(StrEnum):
    """State of a group on the target in one partition."""

    SET = "Set"
    """The group has the checkpoint's offset, or headrace may set it."""
    LATER = "Later"
    """The group has a later offset that headrace has set, and moved back on the source since."""
    FOREIGN = "Foreign"
    """The group has an offset that headrace has not set, or is a share group that was used."""
    ACTIVE = "Active"
    """The group has members, and only members may commit its offsets."""
    REFUSED = "Refused"
    """The target rejected the request to read or set the group's offset."""


class StoredCheckpoint(NamedTuple):
    """A checkpoint with its headers."""

    checkpoint: Checkpoint
    applied: tuple[int, ...] = ()
    """Offsets in the header ``APPLIED``."""
    is_set: bool = True
    """Whether headrace may also have set the checkpoint's own offset.

    Checkpoints of MirrorMaker 2, and of flows that have set no group, have no headers, and count as
    set.
    """

    @property
    def ours(self) -> frozenset[int]:
        """Offsets that the group has on the target if no consumer has committed since."""
        own = (self.checkpoint.target_offset,) if self.is_set else ()
        return frozenset((*self.applied, *own))

    @property
    def headers(self) -> dict[str, str | bytes | None]:
        """Headers of the record."""
        found: dict[str, str | bytes | None] = {}
        if self.applied:
            found[APPLIED] = ",".join(map(str, self.applied)).encode()
        if not self.is_set:
            found[NOT_SET] = b""
        return found

    @classmethod
    def decode(cls, key: bytes, value: bytes, headers: Mapping[str, object]) -> Self:
        """Decode a checkpoint record. Raise ``ValueError`` as ``Checkpoint.decode``."""
        checkpoint = Checkpoint.decode(key, value)
        return cls(checkpoint, _decode_applied(headers.get(APPLIED)), NOT_SET not in headers)

    def after_losses(self, stored_ms: int, losses: Iterable[Loss]) -> "StoredCheckpoint":
        """Return the checkpoint with an offset that is correct after losses of the target.

        Args:
            stored_ms: Unix time in ms at which the checkpoint was stored.
            losses: Losses of its partition.
        """
        lost_from = _lost_since(stored_ms, losses)
        if lost_from is None or self.checkpoint.target_offset <= lost_from:
            return self
        checkpoint = replace(self.checkpoint, target_offset=lost_from)
        return StoredCheckpoint(checkpoint, tuple(sorted(self.ours)), self.is_set)

    def precedes_loss(self, stored_ms: int, losses: Iterable[Loss]) -> bool:
        """Return whether the target has lost records before an offset that headrace may have set.

        The arguments are those of ``after_losses``. A group with this offset would skip records
        that are copied afterwards, also if it has moved back on the source.
        """
        lost_from = _lost_since(stored_ms, losses)
        return lost_from is not None and max(self.ours, default=0) > lost_from


def translated_after_losses(
    translated: Translated, synced_ms: int, losses: Iterable[Loss]
) -> Translated:
    """Return a translation that is correct after losses of the target.

    ``synced_ms`` is the Unix time in ms of the partition's last offset sync. Syncs after a loss
    contain the new offsets.
    """
    lost_from = _lost_since(synced_ms, losses)
    if lost_from is None or translated.offset <= lost_from:
        return translated
    return Translated(lost_from, Precision.CONSERVATIVE)


def _lost_since(time_ms: int, losses: Iterable[Loss]) -> int | None:
    """Return the first target offset that was lost since ``time_ms``, or None.

    Later source records have this offset or a higher one, because they were copied afterwards.
    """
    lost = (one.first for one in losses if one.is_on_target and one.time_ms >= time_ms)
    return min(lost, default=None)


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
    if current is None:
        return Applied.SET
    if current not in ours:
        return Applied.FOREIGN
    return Applied.SET if back or current <= translated else Applied.LATER


def may_move_back(checkpoint: Checkpoint, before: StoredCheckpoint | None) -> bool:
    """Return whether a group that headrace has set may be moved back to a checkpoint.

    If the group has not moved back on the source, the target has lost records. When they are copied
    again, the group would skip some of them if it kept its offset.
    """
    return (
        before is not None
        and before.is_set
        and before.checkpoint.source_offset <= checkpoint.source_offset
    )


def announced(
    checkpoint: Checkpoint,
    before: StoredCheckpoint | None,
    current: int | None,
    *,
    sets: bool,
    readable: bool = True,
) -> StoredCheckpoint:
    """Return the checkpoint to store before the group's offset is set.

    If headrace has set the group's current offset, the header contains it. Without this entry, a
    later check would take the offset for a consumer's commit.

    Args:
        checkpoint: Checkpoint to store.
        before: Last stored checkpoint of the group's partition, or None.
        current: Offset of the group on the target, or None.
        sets: Whether headrace sets the group to the checkpoint, or has set it.
        readable: Whether ``current`` is known.
    """
    if before is None:
        return StoredCheckpoint(checkpoint, is_set=sets)
    if sets and checkpoint == before.checkpoint and before.is_set:
        return before
    kept = before.ours if not readable else before.ours & {current}
    is_set = sets or checkpoint.target_offset in kept
    return StoredCheckpoint(checkpoint, tuple(sorted(kept - {checkpoint.target_offset})), is_set)


def _decode_applied(value: object) -> tuple[int, ...]:
    """Return the offsets in the header ``APPLIED``. Empty if it cannot be read."""
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")
    numbers = text.split(",") if text else []
    return tuple(int(one) for one in numbers) if all(map(str.isdecimal, numbers)) else ()
