"""Manifest files -> objects, or every mistake that is in them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from headrace.api.documents import Document, read
from headrace.api.flow import ReplicationFlow
from headrace.api.meta import API_VERSION
from headrace.api.mirror_test import MirrorTest
from headrace.api.mistakes import Key, Mistake, explain, one_of, shown
from headrace.api.secret import ConfigMap, Secret
from headrace.errors import InvalidSpec

Object = ReplicationFlow | MirrorTest | Secret | ConfigMap

KINDS: dict[str, tuple[str, type[Object]]] = {
    "ReplicationFlow": (API_VERSION, ReplicationFlow),
    "MirrorTest": (API_VERSION, MirrorTest),
    "Secret": ("v1", Secret),
    "ConfigMap": ("v1", ConfigMap),
}
"""What a file may hold: kind -> (apiVersion, type)."""

_REPLACED = "headrace.dev/v1alpha1"
"""The version that `headrace convert` reads."""

SUFFIXES = (".yaml", ".yml")
"""Files of a folder that are read."""


@dataclass(frozen=True)
class Manifest:
    """The objects of all files; those of a kind in the order in which they are written."""

    flows: tuple[ReplicationFlow, ...] = ()
    tests: tuple[MirrorTest, ...] = ()
    secrets: tuple[Secret | ConfigMap, ...] = ()
    documents: Mapping[tuple[str, str, str], Document] = field(default_factory=dict)
    """Where each is written, by kind, namespace and name."""

    def mistake(self, found: Object, path: tuple[Key, ...], sentence: str) -> Mistake:
        """``sentence`` with the place of the field at ``path``."""
        document = self.documents[_identity(found)]
        return Mistake(document.file, document.line(path), (), sentence)

    @property
    def objects(self) -> tuple[Object, ...]:
        """All of them."""
        return (*self.flows, *self.tests, *self.secrets)


class InvalidManifest(InvalidSpec):
    """Files with mistakes; the message lists them, one a line."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("\n".join(map(str, self.mistakes)))


def load(paths: Sequence[Path]) -> Manifest:
    """The objects in ``paths``: YAML files of one or more documents, or folders of such files.

    Raises InvalidManifest (an InvalidSpec) with every mistake of every file.
    """
    mistakes: list[Mistake] = []
    objects: dict[tuple[str, str, str], Object] = {}
    written: dict[tuple[str, str, str], Document] = {}
    for file in dict.fromkeys(_files(paths, mistakes)):
        documents, wrong = read(file)
        for document in documents:
            found = _object(document)
            if isinstance(found, list):
                wrong += found
                continue
            identity = _identity(found)
            if identity in objects:
                other = written[identity]
                place = f"{other.file}:{other.line(('metadata', 'name'))}"
                allowed = f"is the name of another {found.kind}, in {place}"
                wrong.append(_mistake(document, ("metadata", "name"), allowed, identity[-1]))
            else:
                objects[identity] = found
                written[identity] = document
        mistakes += sorted(wrong, key=lambda mistake: mistake.line or 0)
    if mistakes:
        raise InvalidManifest(mistakes)
    return Manifest(
        flows=tuple(found for found in objects.values() if isinstance(found, ReplicationFlow)),
        tests=tuple(found for found in objects.values() if isinstance(found, MirrorTest)),
        secrets=tuple(found for found in objects.values() if isinstance(found, Secret | ConfigMap)),
        documents=written,
    )


def files_of(paths: Sequence[Path]) -> list[Path]:
    """The files that ``load`` reads."""
    return list(dict.fromkeys(_files(paths, [])))


def _identity(found: Object) -> tuple[str, str, str]:
    return found.kind, found.metadata.namespace, found.metadata.name


def _files(paths: Sequence[Path], mistakes: list[Mistake]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            files = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES)
            if not files:
                what = f"is a folder without {' and '.join(SUFFIXES)} files"
                mistakes.append(Mistake(path, None, (), what))
            yield from files
        else:
            yield path


def _object(document: Document) -> Object | list[Mistake]:
    if not isinstance(document.data, dict):
        return [_mistake(document, (), "is no object: it has no fields")]
    name = document.data.get("kind")
    if name == "ReplicationTask":
        what = f"is written by headrace itself; here it {one_of(tuple(KINDS))}"
        return [_mistake(document, ("kind",), what, name)]
    if name not in KINDS:
        return [_mistake(document, ("kind",), one_of(tuple(KINDS), name), name)]
    version, kind = KINDS[name]
    given = document.data.get("apiVersion")
    if given != version:
        replaced = f"was replaced by {API_VERSION}: run `headrace convert {document.file}`"
        what = replaced if (given, version) == (_REPLACED, API_VERSION) else one_of([version])
        return [_mistake(document, ("apiVersion",), what, given)]
    try:
        return kind.model_validate(document.data, by_alias=True, by_name=False)
    except ValidationError as error:
        return [
            Mistake(document.file, document.line(path), path, allowed, given)
            for path, allowed, given in explain(error, kind, document.data)
        ]


def _mistake(
    document: Document, path: tuple[Key, ...], allowed: str, given: object = None
) -> Mistake:
    return Mistake(document.file, document.line(path), path, allowed, shown(given))
