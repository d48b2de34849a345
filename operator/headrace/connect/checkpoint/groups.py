"""Consumer groups, share groups and Streams groups of both clusters, with their offsets."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from headrace.api import TopicPartition
from headrace.connect.runtime.context import FlowContext
from headrace.errors import Fatal, HeadraceError
from headrace.kafka import SHARE, Admin, NoShareGroups
from headrace.replication import CopiedTo, Loss, Progress
from headrace.sentences import first_few

STREAMS = "streams"
"""Kafka's protocol type of Streams groups."""
NOT_APPLIED = "checkpoints.applyToGroups is false"
NO_START = "it has no start offset yet: none of its consumers has finished a record"
_NAMES = {SHARE: "share group", STREAMS: "Streams group"}
_MAX_NAMED_GROUPS = 5
_NOTES = {
    SHARE: (
        ". On the target it begins where its share.auto.offset.reset says, by default at the end "
        "of the copies"
    ),
    STREAMS: (
        ", as its state is not at the target. There the application begins where its "
        "auto.offset.reset says, and rebuilds its state"
    ),
}


class UntranslatedGroup(NamedTuple):
    """Group of kind ``share`` or ``streams`` whose offsets are not translated."""

    group: str
    kind: str
    why: str = ""
    """Reason for a share group; empty for a Streams group."""

    @property
    def sentence(self) -> str:
        """Description of the effect at a fail-over, without a full stop."""
        why = f" ({self.why})" if self.why else ""
        return (
            f"{_NAMES[self.kind]} {self.group}: its offsets are not translated{why}"
            f"{_NOTES[self.kind]}"
        )


class OtherGroups(NamedTuple):
    """Share groups and Streams groups that match ``spec.groups``."""

    starts: Mapping[str, Mapping[TopicPartition, int]] = {}
    """Start offsets of followed share groups, for topics of the flow."""
    untranslated: tuple[UntranslatedGroup, ...] = ()
    """Groups that are not followed. Streams groups without offsets of the flow's topics are left
    out."""
    unread: Mapping[str, HeadraceError] = {}
    """Errors of share groups whose start offsets cannot be read."""


def listed(groups: Sequence[UntranslatedGroup]) -> str:
    """Return a list such as ``share group orders-share, Streams group prices and 3 more``.

    It is empty without groups.
    """
    return first_few([f"{_NAMES[one.kind]} {one.group}" for one in groups], _MAX_NAMED_GROUPS)


def other_groups(context: FlowContext) -> OtherGroups:
    """Return the share groups and Streams groups of the source.

    Raises:
        HeadraceError: The source could not be read.
    """
    found = {
        group: kind
        for group, kind in context.source.protocol_types().items()
        if kind in _NOTES and context.groups.matches(group)
    }
    streams = {group for group, kind in found.items() if kind == STREAMS}
    share = _share_groups(context, found.keys() - streams)
    untranslated = (*share.untranslated, *_streams_groups(context, streams))
    return share._replace(untranslated=tuple(sorted(untranslated)))


def _share_groups(context: FlowContext, groups: Collection[str]) -> OtherGroups:
    if why := _why_none_is_set(context, groups):
        return OtherGroups(untranslated=tuple(UntranslatedGroup(one, SHARE, why) for one in groups))
    every, unread = context.source.share_starts(groups)
    starts = {
        group: {at: offset for at, offset in found.items() if context.topics.matches(at.topic)}
        for group, found in every.items()
    }
    without = tuple(UntranslatedGroup(one, SHARE, NO_START) for one in every if not every[one])
    return OtherGroups({one: found for one, found in starts.items() if found}, without, unread)


def _why_none_is_set(context: FlowContext, groups: Collection[str]) -> str:
    if not context.spec.checkpoints.apply_to_groups:
        return NOT_APPLIED
    _, refused = context.target.share_starts(groups)
    return next((str(one) for one in refused.values() if isinstance(one, NoShareGroups)), "")


def _streams_groups(context: FlowContext, groups: Collection[str]) -> list[UntranslatedGroup]:
    committed, _ = context.source.committed(groups)
    elsewhere = {
        group
        for group, offsets in committed.items()
        if offsets and not any(context.topics.matches(at.topic) for at in offsets)
    }
    return [UntranslatedGroup(one, STREAMS) for one in groups if one not in elsewhere]


class TargetGroups(NamedTuple):
    """Offsets of groups on the target."""

    held: Mapping[str, Mapping[TopicPartition, int]]
    """Committed offsets, or start offsets of share groups, by group."""
    used: Collection[str]
    """Share groups that consumers have used."""
    unreadable: Mapping[str, HeadraceError]

    def committed_at(self, group: str, at: TopicPartition) -> int | None:
        """Return a group's offset of one partition, or None."""
        return self.held.get(group, {}).get(at)


def read_target_groups(target: Admin, groups: set[str], share: set[str]) -> TargetGroups:
    """Read the offsets of groups on the target.

    ``share`` contains the members of ``groups`` that are share groups.
    """
    committed, refused = target.committed(groups - share)
    starts, without_starts = target.share_starts(share)
    used, not_described = target.used_share_groups(share)
    held = {
        group: {at: one.offset for at, one in offsets.items()}
        for group, offsets in committed.items()
    }
    return TargetGroups(held | starts, used, refused | without_starts | not_described)


class GroupPartition(NamedTuple):
    """Group and partition of the source."""

    group: str
    at: TopicPartition


def copied_to(
    context: FlowContext, partitions: Iterable[TopicPartition]
) -> Mapping[TopicPartition, CopiedTo | None]:
    """Read the flow's progress; return how far each partition is copied, or None.

    Raises:
        HeadraceError: Progress could not be read.
    """
    read_progress(context)
    return {at: _stored(context, at) for at in partitions}


def read_progress(context: FlowContext) -> None:
    """Read the flow's progress up to the end of its topic. Raise the errors of the reader."""
    context.progress.start()
    context.progress.read_to_end()


def losses_of_pairs(context: FlowContext, at: TopicPartition) -> tuple[Loss, ...]:
    """Return the losses of a partition after which earlier pairs of offsets are wrong.

    Progress must have been read. Copies with their source's offsets have no pairs.
    """
    stored = None if context.preserved else _progress(context, at)
    return () if stored is None else stored.losses


def _stored(context: FlowContext, at: TopicPartition) -> CopiedTo | None:
    stored = _progress(context, at)
    return None if stored is None else CopiedTo(stored.source_offset, stored.target_offset)


def _progress(context: FlowContext, at: TopicPartition) -> Progress | None:
    try:
        return context.stored(at)
    except Fatal:  # the source task reports the error
        return None
