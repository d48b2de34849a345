"""Conversion of files in different formats, which are recognized by their content."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headrace.api.manifest_errors import ManifestMistake, format_value
from headrace.api.manifests import KINDS, Document, read_text
from headrace.convert.old_manifests import OLD_VERSION, convert_manifest
from headrace.convert.properties import convert_properties, is_properties
from headrace.convert.result import Converted
from headrace.convert.strimzi import GROUP, KIND, convert_strimzi
from headrace.errors import InvalidSpec

_KNOWN = (
    f"ReplicationFlow and MirrorTest of {OLD_VERSION}, Strimzi's {KIND}, and the properties of a "
    "dedicated MirrorMaker 2"
)


def read(file: Path, text: str) -> list[Converted]:
    """Return the manifests that result from the text of a file.

    Raises:
        InvalidSpec: The text cannot be converted. The message has a line for each mistake.
    """
    if is_properties(text):
        found = convert_properties(file, text)
    else:
        documents, mistakes = read_text(file, text)
        if mistakes:
            raise InvalidSpec("\n".join(map(str, mistakes)))
        beside_strimzi = any(_is_strimzi(document.data) for document in documents)
        found = [one for document in documents for one in _convert(document, beside_strimzi)]
    for one in found:
        one.check(file)
    return found


def _is_strimzi(data: Any) -> bool:
    return any(
        isinstance(one, dict) and one.get("kind") == KIND and _group(one) == GROUP
        for _, one in _objects(data, ())
    )


def _group(data: dict[str, Any]) -> str:
    return str(data.get("apiVersion", "")).partition("/")[0]


def _convert(document: Document, beside_strimzi: bool) -> Iterator[Converted]:
    for path, data in _objects(document.data, ()):
        line = document.line(path)
        if not isinstance(data, dict) or not isinstance(data.get("kind"), str):
            raise _refusal(document, path, None, f"has no kind; `headrace convert` reads {_KNOWN}")
        version, kind = data.get("apiVersion"), data["kind"]
        if version == OLD_VERSION and kind in ("ReplicationFlow", "MirrorTest"):
            yield convert_manifest(data, document.lines, path, line)
        elif kind == KIND and _group(data) == GROUP:
            yield from convert_strimzi(document, data, path)
        elif beside_strimzi and (_group(data) == GROUP or kind == "ConfigMap"):
            continue  # Strimzi's clusters, users and metrics do not change
        elif kind in KINDS and version == KINDS[kind][0]:
            yield Converted(data, line=line)  # a Secret, or a manifest that is current
        elif version == OLD_VERSION and kind == "ReplicationTask":
            continue  # headrace writes the tasks of the converted flows
        else:
            given = f"{format_value(version)}, kind {format_value(kind)}"
            why = f"is not converted; `headrace convert` reads {_KNOWN}"
            raise _refusal(document, (*path, "apiVersion"), given, why)


def _objects(data: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Yield the object of a document, or each item of a ``List`` as kubectl prints it."""
    if isinstance(data, dict) and str(data.get("kind", "")).endswith("List"):
        for index, item in enumerate(data.get("items") or ()):
            yield (*path, "items", index), item
    else:
        yield path, data


def _refusal(
    document: Document, path: tuple[str | int, ...], given: str | None, why: str
) -> InvalidSpec:
    return InvalidSpec(str(ManifestMistake(document.file, document.line(path), path, why, given)))
