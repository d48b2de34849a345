"""Manifest files, read as YAML documents and as objects.

They are read like kubectl reads them: keys and times are text.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from yaml.reader import ReaderError

from headrace.api.cluster import ConfigMap, Secret
from headrace.api.flow import ReplicationFlow
from headrace.api.manifest_errors import Key, ManifestMistake, explain, format_value, one_of
from headrace.api.meta import API_VERSION
from headrace.api.mirror_test import MirrorTest
from headrace.errors import InvalidSpec

_MAPPING = "tag:yaml.org,2002:map"
_SEQUENCE = "tag:yaml.org,2002:seq"
_TIMESTAMP = "tag:yaml.org,2002:timestamp"


@dataclass(frozen=True)
class Document:
    """One document of a file."""

    file: Path
    data: Any
    """Mappings, lists, text, numbers, booleans and nulls."""
    lines: dict[tuple[Key, ...], int]
    """Line of each value. For a value of a mapping it is the line of its key."""

    def line(self, path: tuple[Key, ...]) -> int:
        """Return the line of the value at ``path``, or of the nearest written value around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines[path]


STANDARD_INPUT = Path("-")
"""Name of standard input among the manifest files."""


@cache
def _standard_input() -> str:
    """Return the text on standard input. A later call returns the same text."""
    return sys.stdin.buffer.read().decode()


def read(file: Path) -> tuple[list[Document], list[ManifestMistake]]:
    """Return the documents of ``file`` and its YAML errors, without empty documents."""
    try:
        text = _standard_input() if file == STANDARD_INPUT else file.read_text(encoding="utf-8")
    except OSError as error:
        return [], [ManifestMistake(file, None, (), f"cannot be read: {error.strerror}")]
    except UnicodeDecodeError:
        return [], [ManifestMistake(file, None, (), "cannot be read: it is not UTF-8 text")]
    return read_text(file, text)


def read_text(file: Path, text: str) -> tuple[list[Document], list[ManifestMistake]]:
    """Return the documents of a text, and its YAML errors. Empty documents are left out.

    Args:
        file: The name of the text in sentences.
        text: The YAML.
    """
    documents: list[Document] = []
    mistakes: list[ManifestMistake] = []
    try:
        for node in yaml.compose_all(text, _Loader):
            builder = _Builder(file)
            data = builder.build(node, ())
            mistakes += builder.mistakes
            if data is not None and not builder.mistakes:
                documents.append(Document(file, data, builder.lines))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = " ".join(part for part in (error.context, error.problem) if part)
        mistakes.append(
            ManifestMistake(file, mark.line + 1 if mark else None, (), f"is not YAML: {what}")
        )
    except RecursionError:
        mistakes.append(ManifestMistake(file, None, (), "is nested too deeply"))
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        what = f"is not YAML: character U+{error.character:04X} is not permitted"
        mistakes.append(ManifestMistake(file, line, (), what))
    if not documents and not mistakes:
        mistakes.append(ManifestMistake(file, None, (), "holds no document"))
    return documents, mistakes


class _Loader(yaml.SafeLoader):
    """YAML loader that leaves times as text, because JSON has no times."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, regex) for tag, regex in resolvers if tag != _TIMESTAMP]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class _Builder:
    """Converter from the nodes of a document to data."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._scalars = _Loader("")
        self._inside: set[yaml.Node] = set()
        self._merged: set[yaml.Node] = set()
        self.lines: dict[tuple[Key, ...], int] = {}
        self.mistakes: list[ManifestMistake] = []

    def build(self, node: yaml.Node, path: tuple[Key, ...], line: int | None = None) -> Any:
        """Return the data of ``node``. Invalid nodes are reported as errors and omitted."""
        self.lines[path] = line or node.start_mark.line + 1
        if node in self._inside:
            self._wrong(path, "is part of itself")
            return None
        self._inside.add(node)
        try:
            match node:
                case yaml.MappingNode(tag=tag) if tag == _MAPPING:
                    return self._mapping(node, path)
                case yaml.SequenceNode(tag=tag) if tag == _SEQUENCE:
                    return [self.build(item, (*path, i)) for i, item in enumerate(node.value)]
                case yaml.ScalarNode():
                    return self._scalar(node, path)
            self._wrong(path, f"has the tag {node.tag}, which is not known here")
            return None
        finally:
            self._inside.discard(node)

    def _mapping(self, node: yaml.MappingNode, path: tuple[Key, ...]) -> dict[str, Any]:
        if node not in self._merged:  # a node with an anchor is met again at every alias
            self._merged.add(node)
            self._refuse_doubles(node, path)
            self._scalars.flatten_mapping(node)
        data = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._wrong(path, "has a key that is not text", key)
                continue
            line = key.start_mark.line + 1
            data[key.value] = self.build(value, (*path, key.value), line)
        return data

    def _refuse_doubles(self, node: yaml.MappingNode, path: tuple[Key, ...]) -> None:
        lines: dict[str, int] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in lines:
                    before = lines[key.value]
                    self._wrong((*path, key.value), f"is there already, in line {before}", key)
                lines[key.value] = key.start_mark.line + 1

    def _scalar(self, node: yaml.ScalarNode, path: tuple[Key, ...]) -> Any:
        try:
            return self._scalars.construct_object(node)
        except yaml.constructor.ConstructorError:
            self._wrong(path, f"has the tag {node.tag}, which is not known here")
        except ValueError:
            self._wrong(path, f"is not what the tag {node.tag} stands for")
        return None

    def _wrong(self, path: tuple[Key, ...], what: str, node: yaml.Node | None = None) -> None:
        line = node.start_mark.line + 1 if node else self.lines[path]
        self.mistakes.append(ManifestMistake(self._file, line, path, what))


Object = ReplicationFlow | MirrorTest | Secret | ConfigMap

KINDS: dict[str, tuple[str, type[Object]]] = {
    "ReplicationFlow": (API_VERSION, ReplicationFlow),
    "MirrorTest": (API_VERSION, MirrorTest),
    "Secret": ("v1", Secret),
    "ConfigMap": ("v1", ConfigMap),
}
"""Kinds that a file may contain, with their apiVersion and type."""

_REPLACED = "headrace.dev/v1alpha1"
"""The version that `headrace convert` reads."""

SUFFIXES = (".yaml", ".yml")
"""Suffixes of the files that are read in a folder."""


@dataclass(frozen=True)
class Manifest:
    """Objects of all files. Objects of one kind keep the order of the files."""

    flows: tuple[ReplicationFlow, ...] = ()
    tests: tuple[MirrorTest, ...] = ()
    secrets: tuple[Secret | ConfigMap, ...] = ()
    documents: Mapping[tuple[str, str, str], Document] = field(default_factory=dict)
    """Document of each object, by kind, namespace and name."""

    def mistake(self, found: Object, path: tuple[Key, ...], sentence: str) -> ManifestMistake:
        """Return a mistake with this sentence, at the line of the field ``path``."""
        document = self.documents[_identity(found)]
        return ManifestMistake(document.file, document.line(path), (), sentence)

    @property
    def objects(self) -> tuple[Object, ...]:
        """All objects."""
        return (*self.flows, *self.tests, *self.secrets)


class InvalidManifest(InvalidSpec):
    """Files with errors. The message has one line for each error."""

    def __init__(self, mistakes: Sequence[ManifestMistake]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("\n".join(map(str, self.mistakes)))


def load(paths: Sequence[Path]) -> Manifest:
    """Load the objects in ``paths``: YAML files of one or more documents, or folders of such files.

    Raise InvalidManifest (an InvalidSpec) with every mistake of every file.
    """
    mistakes: list[ManifestMistake] = []
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
    """Return the files that ``load`` reads."""
    return list(dict.fromkeys(_files(paths, [])))


def _identity(found: Object) -> tuple[str, str, str]:
    return found.kind, found.metadata.namespace, found.metadata.name


def _files(paths: Sequence[Path], mistakes: list[ManifestMistake]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            files = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES)
            if not files:
                what = f"is a folder without {' and '.join(SUFFIXES)} files"
                mistakes.append(ManifestMistake(path, None, (), what))
            yield from files
        else:
            yield path


def _object(document: Document) -> Object | list[ManifestMistake]:
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
            ManifestMistake(document.file, document.line(path), path, allowed, given)
            for path, allowed, given in explain(error, kind, document.data)
        ]


def _mistake(
    document: Document, path: tuple[Key, ...], allowed: str, given: object = None
) -> ManifestMistake:
    return ManifestMistake(document.file, document.line(path), path, allowed, format_value(given))
