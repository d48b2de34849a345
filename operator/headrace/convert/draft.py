"""Draft of a flow that is created from settings of MirrorMaker 2."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.api import API_VERSION
from headrace.api.model import LABEL
from headrace.convert.result import Converted, Note
from headrace.errors import InvalidSpec

_PLACEHOLDER = re.compile(r"\$\{[^}]*\}")


@dataclass(frozen=True)
class Setting:
    """Setting of a configuration, with its line."""

    name: str
    """Name as in the file."""
    value: str
    line: int
    drops: str = ""
    """Raw value, as in the file, if the properties format drops a backslash from it. Otherwise
    empty."""
    included: Path | None = None
    """Included file that has the setting, or None."""

    @property
    def has_placeholder(self) -> bool:
        """True if a part of the value is a placeholder for a config provider."""
        return _PLACEHOLDER.search(self.value) is not None


Settings = Mapping[str, Setting]
"""Settings by their documented name in MirrorMaker 2, without a prefix."""


@dataclass
class Draft:
    """Spec of one flow, and notes for the user."""

    file: Path
    name: str
    line: int
    """Line of the file where the flow's configuration begins."""
    spec: dict[str, Any] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    secrets: dict[str, dict[str, str]] = field(default_factory=dict)
    """Secrets that the flow needs, with a description of the content of each key."""

    def put(self, path: str, value: object) -> None:
        """Set the field at ``path``, such as ``topicConfigs.enabled``."""
        *outer, last = path.split(".")
        at = self.spec
        for name in outer:
            at = at.setdefault(name, {})
        at[last] = value

    def note(self, setting: Setting, sentence: str) -> None:
        """Add a note about something that the manifest does not contain."""
        self.notes.append(Note(setting.line, setting.name, sentence, setting.included))

    def stop(self, setting: Setting, sentence: str) -> None:
        """Set the flow's state to Stopped, and add a note with the reason.

        A running flow would copy differently than MirrorMaker 2.
        """
        self.put("state", "Stopped")
        self.note(setting, f"{sentence}. The flow is written with state: Stopped until then")

    def need(self, secret: str, key: str, content: str) -> dict[str, str]:
        """Return a reference to a key of a Secret, and list the Secret as required."""
        self.secrets.setdefault(secret, {})[key] = content
        return {"secretName": secret, "key": key}

    def refuse(self, setting: Setting, sentence: str) -> InvalidSpec:
        """Return the error for a setting that cannot be converted."""
        file = setting.included or self.file
        return InvalidSpec(f"{file}:{setting.line}: {setting.name}: {sentence}")

    def finish(self, metadata: Mapping[str, Any]) -> Converted:
        """Return the manifest with its notes."""
        notes = (*self._secret_notes(), *sorted(self.notes, key=lambda note: note.line))
        head = {"apiVersion": API_VERSION, "kind": "ReplicationFlow"}
        document = {**head, "metadata": {"name": self.name, **metadata}, "spec": self.spec}
        return Converted(document, notes, self.line)

    def _secret_notes(self) -> Iterator[Note]:
        for name, keys in self.secrets.items():
            listed = "; ".join(f"key {key} is {content}" for key, content in keys.items())
            yield Note(self.line, f"Secret {name}", f"must exist beside the flow: {listed}")


def alias_of(file: Path, line: int, alias: str) -> str:
    """Return the alias of a cluster. Raise ``InvalidSpec`` if headrace does not support it."""
    if not re.fullmatch(LABEL, alias, re.ASCII) or len(alias) > 63:
        raise InvalidSpec(
            f"{file}:{line}: alias {alias}: headrace supports aliases of a-z, 0-9 and '-' only, "
            "because they are labels of Kubernetes objects. Topics have the alias in their names: "
            "write the flow by hand, and name its topics with replicationPolicy.type: RenameMap"
        )
    return alias
