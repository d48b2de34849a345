"""Groups of the source whose offsets are not translated: those of KIP-932 and of KIP-1071."""

from collections.abc import Sequence
from typing import NamedTuple

from headrace.connect.runtime.context import FlowContext

SHARE, STREAMS = "share", "streams"
"""Kafka's protocol types of them."""
_NAMES = {SHARE: "share group", STREAMS: "Streams group"}
_MOST = 5
_NOTES = {
    SHARE: (
        ": its offsets are not translated. At the target it begins by its "
        "share.auto.offset.reset, at the end of the copies unless that is set"
    ),
    STREAMS: (
        ": its offsets are not translated, as its state is not at the target. "
        "There the application begins by its auto.offset.reset, and rebuilds its state"
    ),
}


class UntranslatedGroup(NamedTuple):
    """A group by name, and its kind: ``share`` or ``streams``."""

    group: str
    kind: str

    @property
    def sentence(self) -> str:
        """What happens at a fail-over; without a full stop."""
        return f"{_NAMES[self.kind]} {self.group}{_NOTES[self.kind]}"


def listed(groups: Sequence[UntranslatedGroup]) -> str:
    """``share group orders-share, Streams group prices and 3 more``; empty for none."""
    named = [f"{_NAMES[one.kind]} {one.group}" for one in groups[:_MOST]]
    more = len(groups) - _MOST
    return ", ".join(named) + (f" and {more} more" if more > 0 else "")


def untranslated_groups(context: FlowContext) -> tuple[UntranslatedGroup, ...]:
    """Those that match ``spec.groups``, but Streams groups that have offsets of other topics only.
    (Of share groups this client cannot ask that.) Raises as asking the source does."""
    found = {
        group: kind
        for group, kind in context.source.protocol_types().items()
        if kind in _NOTES and context.groups.matches(group)
    }
    committed, _ = context.source.committed(one for one, kind in found.items() if kind == STREAMS)
    elsewhere = {
        group
        for group, offsets in committed.items()
        if offsets and not any(context.topics.matches(at.topic) for at in offsets)
    }
    return tuple(
        UntranslatedGroup(*one) for one in sorted(found.items()) if one[0] not in elsewhere
    )
