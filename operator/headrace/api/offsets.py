"""``spec.offsets``: whether copies have their sources' offsets, and what that excludes."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from headrace.api.extensions import Rule
from headrace.api.model import Breach


class Offsets(StrEnum):
    """Which offsets the copies have."""

    TRANSLATED = "Translated"
    PRESERVED = "Preserved"


class Holes(StrEnum):
    """What the copies have where the source has no committed record."""

    MARKERS = "Markers"
    ABORTED_FILLERS = "AbortedFillers"
    COPIES = "Copies"


class _Spec(Protocol):
    @property
    def offsets(self) -> Offsets: ...

    @property
    def holes(self) -> Holes: ...


@dataclass(frozen=True)
class _Excluded:
    """Values of a field that do not go with ``offsets: Preserved``; none: any value."""

    field: str
    """In Python's spelling."""
    values: tuple[str, ...]
    why: str

    @property
    def path(self) -> str:
        first, *rest = self.field.split("_")
        return first + "".join(word.capitalize() for word in rest)

    @property
    def sentence(self) -> str:
        words = " or ".join(self.values)
        return f"must not be {words} with offsets: Preserved: {self.why}" if words else self.why

    def breach(self, value: object) -> bool:
        return value in self.values if self.values else value is not None

    @property
    def rule(self) -> Rule:
        here = f"self.{self.path}"
        allowed = f"!has({here})"
        if self.values:
            allowed += f" || !({here} in [{', '.join(map(repr, self.values))}])"
        return Rule(f"!({_CHOSEN}) || {allowed}", self.sentence, at=self.path)


_CHOSEN = "has(self.offsets) && self.offsets == 'Preserved'"
_CHANGED = (
    "is immutable: what is on the target has offsets of the one kind; make another flow, to other "
    "topics, instead"
)
_EXCLUDED = (
    _Excluded(
        "delivery",
        ("ExactlyOnce",),
        "the markers of its transactions take offsets; nothing is doubled with AtLeastOnce either",
    ),
    _Excluded("mover", ("Record",), "records get their offsets from batches, by mover Batch"),
    _Excluded(
        "on_record_error", ("Skip", "DeadLetter"), "a record that is left out is not preserved"
    ),
    _Excluded(
        "record_filter",
        (),
        "does not go with offsets: Preserved: a record that is left out is not preserved",
    ),
    _Excluded(
        "on_data_loss",
        ("Restart", "Continue"),
        "both leave the target with other offsets than the source",
    ),
    _Excluded(
        "start_from",
        ("Latest", "Timestamp"),
        "copies begin with the first offset that the source has",
    ),
)

_NO_HOLES = (
    "goes with offsets: Preserved only: copies with translated offsets have no holes to fill"
)

OFFSETS_RULES = (
    Rule(
        f"({_CHOSEN}) == ({_CHOSEN.replace('self', 'oldSelf')})",
        _CHANGED,
        at="offsets",
    ),
    *(one.rule for one in _EXCLUDED),
    Rule(f"{_CHOSEN} || !has(self.holes) || self.holes == 'Markers'", _NO_HOLES, at="holes"),
)


def offsets_breaches(spec: _Spec) -> Iterator[Breach]:
    """What of a spec does not go with its ``offsets``."""
    if spec.offsets is Offsets.PRESERVED:
        for one in _EXCLUDED:
            if one.breach(getattr(spec, one.field)):
                yield Breach((one.path,), one.sentence)
    elif spec.holes is not Holes.MARKERS:
        yield Breach(("holes",), _NO_HOLES)
