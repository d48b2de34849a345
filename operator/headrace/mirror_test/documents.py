"""The files of a run's folder, and how they are read and written.

In a cluster the same names are keys of the run's ConfigMaps.
"""

import hashlib
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from headrace.errors import GaveUp, InvalidSpec

TEST = "test.json"
"""``MirrorTest``, resolved."""
MANIFEST = "manifest.json"
"""``LoadManifest``."""
MEASURED = "probe.json"
"""``Measured``."""
FAULTS = "chaos.json"
"""``Faults``."""
REHEARSAL = "rehearsal.json"
"""``Rehearsed``."""
REPORT = "report.json"
"""``Result``."""
PAGE = "report.html"
END_LOAD = "end-load"
"""Beside the test, with any content: somebody wants the load to end."""
BEGIN = "begin"
"""Empty; a comparison whose Spark was started early begins when it is there."""
READY = "ready"
"""Empty; the probe creates it when the load may start."""

Document = TypeVar("Document", bound=BaseModel)


def read(path: Path, kind: type[Document]) -> Document | None:
    """A document; ``None`` without one. Raises ``GaveUp`` for one that is damaged."""
    try:
        return kind.model_validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise GaveUp(f"{path} cannot be read: {error.errors()[0]['msg']}") from error


def read_plan(text: str, name: str, kind: type[Document]) -> Document:
    """What a Job is to do; raises ``InvalidSpec``, with the document's name, for another."""
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        raise InvalidSpec(f"{name} is no plan of this version of headrace: {error}") from error


def write(path: Path, document: BaseModel) -> None:
    """Write all of it or nothing."""
    unfinished = path.with_suffix(".part")
    unfinished.write_text(_text(document), encoding="utf-8")
    unfinished.replace(path)


def sha256(document: BaseModel) -> str:
    """Of the file that ``write`` makes."""
    return hashlib.sha256(_text(document).encode()).hexdigest()


def _text(document: BaseModel) -> str:
    return document.model_dump_json(by_alias=True, indent=1)
