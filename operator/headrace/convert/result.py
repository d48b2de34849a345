"""Result of a conversion: manifests, and notes about settings that they do not contain."""

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from headrace.api.manifest_errors import explain, path_text
from headrace.api.manifests import KINDS
from headrace.errors import InvalidSpec

_WIDTH = 98


@dataclass(frozen=True)
class Note:
    """Note about a setting that has no counterpart, or that a user must complete."""

    line: int
    """Line of the setting in the file."""
    setting: str
    """Name of the setting as in the file."""
    sentence: str
    """Reason, and what to do instead."""
    included: Path | None = None
    """Included file that has the setting, or None."""

    def __str__(self) -> str:
        place = f"{self.included}, line" if self.included else "line"
        return f"{self.setting} ({place} {self.line}): {self.sentence}"


@dataclass(frozen=True)
class Converted:
    """Manifest with its notes."""

    document: dict[str, Any]
    notes: tuple[Note, ...] = ()
    line: int = 1
    """Line of the file where the object begins."""

    def check(self, file: Path) -> None:
        """Raise ``InvalidSpec`` if `headrace validate` would reject the manifest."""
        kind = self.document["kind"]
        try:
            KINDS[kind][1].model_validate(self.document, by_alias=True, by_name=False)
        except ValidationError as error:
            sentences = [
                f"{path_text(path)}: {f'got {given}, ' if given is not None else ''}{allowed}"
                for path, allowed, given in explain(error, KINDS[kind][1], self.document)
            ]
            metadata = self.document.get("metadata")
            name = metadata.get("name") if isinstance(metadata, dict) else None
            raise InvalidSpec(
                "\n".join(
                    f"{file}:{self.line}: {kind} {name} would be refused: {sentence}"
                    for sentence in sentences
                )
            ) from None


def write(found: Sequence[Converted]) -> str:
    """Return the manifests as YAML, each with its notes as comments above it."""
    return "---\n".join(
        _comments(one.notes)
        + yaml.safe_dump(one.document, sort_keys=False, width=_WIDTH, allow_unicode=True)
        for one in found
    )


def _comments(notes: Iterable[Note]) -> str:
    lines = [
        line
        for note in notes
        for line in textwrap.wrap(
            str(note),
            _WIDTH,
            initial_indent="# - ",
            subsequent_indent="#   ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    ]
    return "\n".join(["# Not converted, or to be completed:", *lines, ""]) if lines else ""
