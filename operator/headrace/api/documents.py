"""YAML files as documents of plain data that remember the line of every value.

Read as kubectl reads them: keys are text, and so are moments.
"""

import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from headrace.api.mistakes import Key, Mistake

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
    """Where each value is written; the key's line for a value of a mapping."""

    def line(self, path: tuple[Key, ...]) -> int:
        """Line of the value at ``path``, or of the nearest one around it that is written."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines[path]


STANDARD_INPUT = Path("-")
"""Name of standard input among the manifest files."""


@cache
def _standard_input() -> str:
    """Return the text on standard input, also when a run reads its manifests again."""
    return sys.stdin.buffer.read().decode()


def read(file: Path) -> tuple[list[Document], list[Mistake]]:
    """The documents of ``file`` and what is wrong with it as YAML; empty documents are left out."""
    try:
        text = _standard_input() if file == STANDARD_INPUT else file.read_text(encoding="utf-8")
    except OSError as error:
        return [], [Mistake(file, None, (), f"cannot be read: {error.strerror}")]
    except UnicodeDecodeError:
        return [], [Mistake(file, None, (), "cannot be read: it is not UTF-8 text")]
    return read_text(file, text)


def read_text(file: Path, text: str) -> tuple[list[Document], list[Mistake]]:
    """Return the documents of a text, and its mistakes as YAML. Empty documents are left out.

    Args:
        file: The name of the text in sentences.
        text: The YAML.
    """
    documents: list[Document] = []
    mistakes: list[Mistake] = []
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
        mistakes.append(Mistake(file, mark.line + 1 if mark else None, (), f"is not YAML: {what}"))
    except RecursionError:
        mistakes.append(Mistake(file, None, (), "is nested too deeply"))
    except yaml.YAMLError as error:
        mistakes.append(Mistake(file, None, (), f"is not YAML: {' '.join(str(error).split())}"))
    if not documents and not mistakes:
        mistakes.append(Mistake(file, None, (), "holds no document"))
    return documents, mistakes


class _Loader(yaml.SafeLoader):
    """Leaves moments as text: a manifest is JSON in the end, and JSON has none."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, regex) for tag, regex in resolvers if tag != _TIMESTAMP]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class _Builder:
    """Turns the nodes of one document into data."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._scalars = _Loader("")
        self._inside: set[yaml.Node] = set()
        self._merged: set[yaml.Node] = set()
        self.lines: dict[tuple[Key, ...], int] = {}
        self.mistakes: list[Mistake] = []

    def build(self, node: yaml.Node, path: tuple[Key, ...], line: int | None = None) -> Any:
        """The data of ``node``; what is wrong on the way is noted and left out."""
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
        self.mistakes.append(Mistake(self._file, line, path, what))
