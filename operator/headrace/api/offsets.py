"""First offsets of a flow, and the offsets of its copies."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import reduce
from typing import Annotated, Protocol

from pydantic import Field
from pydantic.alias_generators import to_camel

from headrace.api.client_settings import CompressionType
from headrace.api.cluster import TargetClusterSpec
from headrace.api.model import (
    BY_PARTITION,
    FILLED_IN_BY_SERVER,
    Count,
    Model,
    OnlyWith,
    RecordTime,
    Rule,
    RuleViolation,
    Topic,
)
from headrace.api.partitions import TopicPartition


class OffsetsMode(StrEnum):
    """Offsets of the copies on the target."""

    TRANSLATED = "Translated"
    PRESERVED = "Preserved"


class GapPolicy(StrEnum):
    """Content of the copies at offsets where the source has no committed record."""

    MARKERS = "Markers"
    ABORTED_FILLERS = "AbortedFillers"
    COPIES = "Copies"


_NO_HOLES = (
    "goes with offsets.mode: Preserved only: copies with translated offsets have no holes to fill"
)


class Offsets(Model):
    """Settings for the offsets of copies."""

    mode: Annotated[OffsetsMode, FILLED_IN_BY_SERVER] = OffsetsMode.TRANSLATED
    """Preserved gives each committed record on the target the offset that it has on the source. No
    other client may write to these topics. Offsets of groups are copied unchanged, and offsets that
    are stored elsewhere remain correct. A partition stops if its offset cannot be preserved, and
    its error names the offset. With Translated, records have other offsets on the target, and
    offsets of groups are translated."""
    holes: GapPolicy = GapPolicy.MARKERS
    """Content of the target at offsets where the source has no committed record. Applies only to
    mode: Preserved. Markers: markers of empty transactions, which no consumer sees. Some hundreds
    are written per second. AbortedFillers: aborted empty records, in one transaction for each hole.
    Consumers of uncommitted records see them. Copies: where compaction removed a record, a copy of
    the next record, written as fast as records are copied. All consumers see it until the target
    compacts the topic. All other holes get markers. A change applies to offsets that are copied
    after it."""

    rules = (
        Rule(
            "(has(self.mode) && self.mode == 'Preserved')"
            " || !has(self.holes) || self.holes == 'Markers'",
            _NO_HOLES,
            at="holes",
        ),
    )

    def _breaches(self) -> Iterator[RuleViolation]:
        if self.mode is OffsetsMode.TRANSLATED and self.holes is not GapPolicy.MARKERS:
            yield RuleViolation(("holes",), _NO_HOLES)


class _Spec(Protocol):
    @property
    def offsets(self) -> Offsets: ...

    @property
    def target(self) -> TargetClusterSpec: ...


@dataclass(frozen=True)
class _Excluded:
    """Values of a field that ``offsets: Preserved`` forbids. If empty, the field is forbidden."""

    fields: tuple[str, ...]
    """The field and those around it, in Python's spelling."""
    values: tuple[str, ...]
    why: str

    @property
    def path(self) -> tuple[str, ...]:
        return tuple(map(to_camel, self.fields))

    def value(self, spec: _Spec) -> object:
        return reduce(getattr, self.fields, spec)

    @property
    def sentence(self) -> str:
        words = " or ".join(self.values)
        return (
            f"must not be {words} with offsets.mode: Preserved: {self.why}" if words else self.why
        )

    def breach(self, value: object) -> bool:
        return value in self.values if self.values else value is not None

    @property
    def rule(self) -> Rule:
        here = ["self"]
        for name in self.path:
            here.append(f"{here[-1]}.{name}")
        allowed = " || ".join(f"!has({one})" for one in here[1:])
        if self.values:
            allowed += f" || !({here[-1]} in [{', '.join(map(repr, self.values))}])"
        return Rule(f"!({_CHOSEN}) || {allowed}", self.sentence, at=".".join(self.path))


_CHOSEN = "has(self.offsets) && has(self.offsets.mode) && self.offsets.mode == 'Preserved'"
_CHANGED = (
    "is immutable: what is on the target has offsets of the one kind; make another flow, to other "
    "topics, instead"
)
_EXCLUDED = (
    _Excluded(
        ("delivery", "mode"),
        ("ExactlyOnce",),
        "the markers of its transactions take offsets; nothing is doubled with AtLeastOnce either",
    ),
    _Excluded(
        ("on_record_error", "action"),
        ("Skip", "DeadLetter"),
        "a record that is left out is not preserved",
    ),
    _Excluded(
        ("record_filter",),
        (),
        "does not go with offsets.mode: Preserved: a record that is left out is not preserved",
    ),
    _Excluded(
        ("headers",),
        (),
        "does not go with offsets.mode: Preserved: a take-over compares the target's records with "
        "the source's",
    ),
    _Excluded(
        ("target", "compression", "type"),
        tuple(one.value for one in CompressionType if one is not CompressionType.SOURCE),
        "batches are appended as the source has them",
    ),
    _Excluded(
        ("on_data_loss",),
        ("Restart", "Continue"),
        "both leave the target with other offsets than the source",
    ),
    _Excluded(
        ("start_from", "mode"),
        ("Latest", "Timestamp", "Offsets"),
        "copies begin with the first offset that the source has",
    ),
)

OFFSETS_RULES = (
    Rule(
        f"({_CHOSEN}) == ({_CHOSEN.replace('self', 'oldSelf')})",
        _CHANGED,
        at="offsets.mode",
    ),
    *(one.rule for one in _EXCLUDED),
)


def offsets_breaches(spec: _Spec) -> Iterator[RuleViolation]:
    """Yield the parts of a spec that contradict its ``offsets``."""
    if spec.offsets.mode is OffsetsMode.PRESERVED:
        for one in _EXCLUDED:
            if one.breach(one.value(spec)):
                yield RuleViolation(one.path, one.sentence)


class StartMode(StrEnum):
    """Choice of the first offset of a partition without progress."""

    EARLIEST = "Earliest"
    LATEST = "Latest"
    TIMESTAMP = "Timestamp"
    OFFSETS = "Offsets"


class StartOffset(Model):
    """The first offset of one partition of the source."""

    topic: Topic
    """Name of the topic on the source."""
    partition: Annotated[Count, Field(le=999_999)]
    """Number of the partition."""
    offset: Count
    """First offset to copy. The source must have this offset, or it must be the end of the log."""

    @property
    def at(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)


_TIMESTAMP = OnlyWith("timestamp", "mode", StartMode.TIMESTAMP)
_OFFSETS = OnlyWith("offsets", "mode", StartMode.OFFSETS)


class StartFrom(Model):
    """The first offset of a partition without progress."""

    mode: Annotated[StartMode, FILLED_IN_BY_SERVER] = StartMode.EARLIEST
    """Earliest: the first record that the source has. Latest: the first record whose timestamp is
    not older than the flow (in headrace run: than that run), otherwise the end. At its first start,
    the flow stores on the target which topics the source has. Topics and partitions that are
    created later, or that the flow could not see, are copied from their beginning. A topic that
    existed at the first start, and that topics.include matches later, begins at its end. Timestamp:
    the first record that is not older than timestamp. Offsets: the listed offsets. Partitions that
    are not listed begin as with Earliest."""
    timestamp: RecordTime | None = None
    """First record that is not older than this time (RFC 3339). Requires mode: Timestamp."""
    offsets: (
        Annotated[
            tuple[StartOffset, ...],
            Field(min_length=1, max_length=1000),
            BY_PARTITION,
        ]
        | None
    ) = None
    """First offsets of partitions, for example [{topic: orders, partition: 0, offset: 1200}].
    Requires mode: Offsets. The entry of a partition with progress has no effect. The task fails if
    the source does not have an offset."""

    rules = (*_TIMESTAMP.rules, *_OFFSETS.rules)

    def _breaches(self) -> Iterator[RuleViolation]:
        yield from _TIMESTAMP.breaches(self.timestamp, self.mode)
        yield from _OFFSETS.breaches(self.offsets, self.mode)
        counts = Counter(one.at for one in self.offsets or ())
        for index, one in enumerate(self.offsets or ()):
            if counts[one.at] > 1:
                yield RuleViolation(("offsets", index), f"must list partition {one.at} only once")
