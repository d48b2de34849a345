"""Whether a translated offset goes into a group of the target. Pure.

A group of the target whose offset is not one that headrace has set belongs to consumers there: to
move it forward would skip records that they have not read.
"""

from collections.abc import Collection
from enum import StrEnum
from typing import NamedTuple

from headrace.replication.checkpoints import Checkpoint

APPLIED = "headrace.applied"
"""Header of a checkpoint, written before a group's offset is set: the offsets that the group may
hold by that. So whoever takes the group over, also after a crash in between, knows them again."""


class Applied(StrEnum):
    """How a group of the target is, for one partition."""

    SET = "Set"
    """It holds the checkpoint's offset, or is to be set to it."""
    LATER = "Later"
    """It holds a later one that headrace has set: no group is moved back."""
    FOREIGN = "Foreign"
    """It holds one that headrace has not set, or is a share group that was used."""
    ACTIVE = "Active"
    """It has members, and only these may commit."""
    REFUSED = "Refused"
    """The target did not let it be read or set."""


class StoredCheckpoint(NamedTuple):
    """A checkpoint, and its header."""

    checkpoint: Checkpoint
    applied: tuple[int, ...] = ()
    """See ``APPLIED``; beside the checkpoint's own offset."""

    @property
    def ours(self) -> frozenset[int]:
        """What the target's group holds, if no consumer there has committed since."""
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
    """What is to be in the topic before the group is set: no offset of ours that the group holds
    becomes a foreign one by it. ``readable``: whether ``held`` is known."""
    if before is None:
        return StoredCheckpoint(wanted)
    if wanted == before.checkpoint:
        return before
    if not readable:  # nothing was set since: it holds one of the earliest
        return StoredCheckpoint(wanted, tuple(sorted(before.ours)[:2]))
    kept = held is not None and held in before.ours and held != wanted.target_offset
    return StoredCheckpoint(wanted, (held,) if held is not None and kept else ())


def encode_applied(offsets: Collection[int]) -> bytes:
    """The value of the header ``APPLIED``."""
    return ",".join(map(str, offsets)).encode()


def decode_applied(value: object) -> tuple[int, ...]:
    """Nothing where the header cannot be read: such a group is left alone."""
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")
    numbers = text.split(",") if text else []
    return tuple(int(one) for one in numbers) if all(map(str.isdecimal, numbers)) else ()
