"""A flow that is being put together from settings of MirrorMaker 2."""

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
    """One setting of a configuration."""

    name: str
    """The name, as the file has it."""
    value: str
    line: int
    drops: str = ""
    """The value as it is written, if a backslash of it is an escape of properties files."""

    @property
    def has_placeholder(self) -> bool:
        """Whether a config provider replaces a part of the value."""
        return _PLACEHOLDER.search(self.value) is not None


Settings = Mapping[str, Setting]
"""Settings by the name that MirrorMaker 2 documents, without prefix."""


@dataclass
class Draft:
    """The spec and the notes of one flow."""

    file: Path
    name: str
    line: int
    """Line of the file where the configuration of the flow begins."""
    spec: dict[str, Any] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    secrets: dict[str, dict[str, str]] = field(default_factory=dict)
    """Secrets that the flow needs, by name: each key with its content."""

    def put(self, path: str, value: object) -> None:
        """Set the field at ``path``, such as ``topicConfigs.enabled``."""
        *outer, last = path.split(".")
        at = self.spec
        for name in outer:
            at = at.setdefault(name, {})
        at[last] = value

    def note(self, setting: Setting, sentence: str) -> None:
        """Tell the user what the manifest does not contain."""
        self.notes.append(Note(setting.line, setting.name, sentence))

    def stop(self, setting: Setting, sentence: str) -> None:
        """Write the flow as stopped, because it would copy in another way than before."""
        self.put("state", "Stopped")
        self.note(setting, f"{sentence}. The flow is written with state: Stopped until then")

    def need(self, secret: str, key: str, content: str) -> dict[str, str]:
        """Return a reference to a Secret's key, and list the Secret as needed."""
        self.secrets.setdefault(secret, {})[key] = content
        return {"secretName": secret, "key": key}

    def refuse(self, setting: Setting, sentence: str) -> InvalidSpec:
        """Return the error of a setting that cannot be converted."""
        return InvalidSpec(f"{self.file}:{setting.line}: {setting.name}: {sentence}")

    def finish(self, metadata: Mapping[str, Any]) -> Converted:
        """Return the manifest."""
        notes = (*self._secret_notes(), *sorted(self.notes, key=lambda note: note.line))
        head = {"apiVersion": API_VERSION, "kind": "ReplicationFlow"}
        document = {**head, "metadata": {"name": self.name, **metadata}, "spec": self.spec}
        return Converted(document, notes, self.line)

    def _secret_notes(self) -> Iterator[Note]:
        for name, keys in self.secrets.items():
            listed = "; ".join(f"key {key} is {content}" for key, content in keys.items())
            yield Note(self.line, f"Secret {name}", f"must exist beside the flow: {listed}")


def alias_of(file: Path, line: int, alias: str) -> str:
    """Return the alias of a cluster, which must be one that headrace supports."""
    if not re.fullmatch(LABEL, alias, re.ASCII) or len(alias) > 63:
        raise InvalidSpec(
            f"{file}:{line}: alias {alias}: headrace supports aliases of a-z, 0-9 and '-' only, "
            "because they are labels of Kubernetes objects. Topics have the alias in their names: "
            "write the flow by hand, and name its topics with replicationPolicy.type: RenameMap"
        )
    return alias
