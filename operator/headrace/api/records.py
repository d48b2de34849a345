"""Records that a flow filters, changes or loses."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from headrace.api.model import (
    BY_NAME,
    Count,
    Flag,
    Model,
    Once,
    Rule,
    RuleViolation,
    Text,
    Timestamp,
)


class RecordHeader(Model):
    """A header that a record must have, or must not have."""

    name: Annotated[str, Field(min_length=1, max_length=255)]
    """Key of the header."""
    value: Annotated[str, Field(max_length=1024)] | None = None
    """Header value to match exactly (UTF-8). If omitted, any value matches, including none."""


_ALSO_INCLUDED = "must not be in include as well: no record with that header would be copied"
RecordHeaders = Annotated[tuple[RecordHeader, ...], Field(max_length=100)]


class HeaderFilter(Model):
    """Selection of records by their headers."""

    include: RecordHeaders = ()
    """Only records with one of these headers are copied, for example [{name: region, value: eu}].
    If empty, all records are copied."""
    exclude: RecordHeaders = ()
    """Records with one of these headers are not copied. Takes precedence over include."""

    rules = (
        Rule(
            "!has(self.include) || !has(self.exclude) || !self.include.exists(one, "
            "self.exclude.exists(other, other.name == one.name"
            " && has(other.value) == has(one.value)"
            " && (!has(one.value) || other.value == one.value)))",
            _ALSO_INCLUDED,
            at="exclude",
        ),
    )

    def _breaches(self) -> Iterator[RuleViolation]:
        for place, header in enumerate(self.exclude):
            if header in self.include:
                yield RuleViolation(("exclude", place), _ALSO_INCLUDED)


class RecordFilter(Model):
    """Selection of records to copy. Heartbeats are always copied."""

    headers: HeaderFilter = HeaderFilter()
    """Selection by headers. If several headers have the same key, one of them must match."""


HeaderName = Annotated[str, Field(min_length=1, max_length=255)]


class AddedHeader(Model):
    """A header that is added to each copied record."""

    name: HeaderName
    """Key of the header."""
    value: Annotated[str, Field(max_length=1024)]
    """Value of the header (UTF-8)."""


class HeaderChanges(Model):
    """Changes to the headers of copied records, except heartbeats.

    Headers are removed first, then added. To replace a header, name it in both lists.
    """

    remove: Annotated[tuple[HeaderName, ...], Field(max_length=20), Once()] = ()
    """Keys of headers to remove. All headers with such a key are removed."""
    add: Annotated[tuple[AddedHeader, ...], Field(max_length=20), BY_NAME] = ()
    """Headers to append to each record, in this order. A record that already has a header
    with the same key keeps it, unless remove names it."""


class LossCause(StrEnum):
    """Cause of the loss.

    Source... refers to offsets of the source, Target... to offsets of the target.
    """

    SOURCE_TRUNCATED = "SourceTruncated"
    """The source deleted records before they were copied (retention)."""
    SOURCE_DIVERGED = "SourceDiverged"
    """The source lost records that were copied, and may write others in their place (an unclean
    election)."""
    SOURCE_RECREATED = "SourceRecreated"
    """The topic on the source was deleted and created again."""
    SOURCE_DELETED = "SourceDeleted"
    """The topic on the source was deleted, with records that were not copied."""
    TARGET_TRUNCATED = "TargetTruncated"
    """The target lost copies that it had acknowledged (an unclean election)."""
    TARGET_RECREATED = "TargetRecreated"
    """The topic on the target was deleted and created again."""


class LossAction(StrEnum):
    """Action of the flow, by spec.onDataLoss."""

    STOPPED = "Stopped"
    """The partition waits for a user."""
    RESTARTED = "Restarted"
    """The partition was copied again from the earliest offset."""
    CONTINUED = "Continued"
    """The partition resumed after the lost records."""


class LostOffsets(Model):
    """The last loss of one partition."""

    topic: Text
    """Topic of the source."""
    partition: Count
    """Partition number."""
    cause: LossCause
    """Cause of the loss."""
    first_offset: Count
    """First lost offset. If the cause begins with Target, it is an offset of the target."""
    last_offset: Count | None = None
    """Last lost offset. Absent if it is unknown."""
    lower_bound: Flag = False
    """Whether later records may also be lost. The end of a deleted topic cannot be read."""
    action: LossAction
    """Action of the flow."""
    time: Timestamp
    """Time at which the loss was noticed."""
