"""``spec.offsets``: whether copies have their sources' offsets, and what that excludes."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import reduce
from typing import Annotated, Protocol

from pydantic.alias_generators import to_camel

from headrace.api.cluster import TargetClusterSpec
from headrace.api.compression import CompressionType
from headrace.api.extensions import FILLED_IN_BY_SERVER, Rule
from headrace.api.model import Breach, Model


class OffsetsMode(StrEnum):
    """Which offsets the copies have."""

    TRANSLATED = "Translated"
    PRESERVED = "Preserved"


class Holes(StrEnum):
    """What the copies have where the source has no committed record."""

    MARKERS = "Markers"
    ABORTED_FILLERS = "AbortedFillers"
    COPIES = "Copies"


_NO_HOLES = (
    "goes with offsets.mode: Preserved only: copies with translated offsets have no holes to fill"
)


class Offsets(Model):
    """The offsets of the copies."""

    mode: Annotated[OffsetsMode, FILLED_IN_BY_SERVER] = OffsetsMode.TRANSLATED
    """Preserved gives each committed record on the target the offset that it has on the source, in
    topics that nobody else writes to: groups' offsets are copied unchanged, and offsets that are
    stored elsewhere stay right. A partition where that is not possible stops, and its error names
    the offset. With Translated a record's offset on the target is another one, to which groups'
    offsets are translated."""
    holes: Holes = Holes.MARKERS
    """With mode: Preserved: what the target has at offsets where the source has no committed
    record. Markers: those of empty transactions, which no consumer sees, some hundreds a second.
    AbortedFillers: empty records that are aborted, a transaction for each hole, which consumers of
    uncommitted records see. Copies: where compaction removed a record, a copy of the next one,
    which all consumers see until the target has compacted, as fast as records are copied; all other
    holes get markers. A change counts for what is copied after it."""

    rules = (
        Rule(
            "(has(self.mode) && self.mode == 'Preserved')"
            " || !has(self.holes) || self.holes == 'Markers'",
            _NO_HOLES,
            at="holes",
        ),
    )

    def _breaches(self) -> Iterator[Breach]:
        if self.mode is OffsetsMode.TRANSLATED and self.holes is not Holes.MARKERS:
            yield Breach(("holes",), _NO_HOLES)


class _Spec(Protocol):
    @property
    def offsets(self) -> Offsets: ...

    @property
    def target(self) -> TargetClusterSpec: ...


@dataclass(frozen=True)
class _Excluded:
    """Values of a field that do not go with ``offsets: Preserved``; none: any value."""

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


def offsets_breaches(spec: _Spec) -> Iterator[Breach]:
    """What of a spec does not go with its ``offsets``."""
    if spec.offsets.mode is OffsetsMode.PRESERVED:
        for one in _EXCLUDED:
            if one.breach(one.value(spec)):
                yield Breach(one.path, one.sentence)
