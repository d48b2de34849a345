"""Documents that the stages exchange, as files and as records of the journal.

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
TOPICS = "topics.json"
"""``CreatedTopics``; next to the report in a cluster."""
PAGE = "report.html"
END_LOAD = "end-load"
"""File next to the test, with any content, that requests the end of the load."""
BEGIN = "begin"
"""Empty; a comparison whose Spark was started early begins when it is there."""
READY = "ready"
"""Empty; the probe creates it when the load may start."""

Document = TypeVar("Document", bound=BaseModel)


def read(path: Path, kind: type[Document]) -> Document | None:
    """Read a document; None if it does not exist. Raise ``GaveUp`` if it is damaged."""
    try:
        return kind.model_validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise GaveUp(f"{path} cannot be read: {error.errors()[0]['msg']}") from error


def read_plan(text: str, name: str, kind: type[Document]) -> Document:
    """Parse a Job's plan; raise ``InvalidSpec`` with the document's name if it is invalid."""
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        raise InvalidSpec(f"{name} is no plan of this version of headrace: {error}") from error


def write(path: Path, document: BaseModel) -> None:
    """Write a document atomically."""
    unfinished = path.with_suffix(".part")
    unfinished.write_text(_text(document), encoding="utf-8")
    unfinished.replace(path)


def sha256(document: BaseModel) -> str:
    """Return the hash of the file that ``write`` writes."""
    return hashlib.sha256(_text(document).encode()).hexdigest()


def _text(document: BaseModel) -> str:
    return document.model_dump_json(by_alias=True, indent=1)


# Keys of a run's records in the journal (``headrace.kafka.journal``), and what their values are.
#
# =========================  ==========================================================
# ``<producer>/progress``    ``{"acknowledged": n, "sent": n, "failed": n}``, twice a second
# ``probe-<n>/ready``        the consumer is at the end of each of its partitions
# ``probe-<n>/seen``         what it saw so far (``SequenceCounts``), where the probe serves metrics
# ``probe-<n>/sentinels``    end sentinels that it received: ``[[topic, partition], ...]``
# ``end``                    the load is to end, before it has sent all
# ``topics``                 ``{topic: partitions}`` that steps of chaos added to the load so far
# ``created/<topic>``        ``CreatedTopic``: a topic that a job of the run created on the source
# ``manifest``               ``LoadManifest``: the load has ended
# ``load-failed``            ``{}``: the load has ended without a manifest
# ``measured``               ``Measured``: the probe has ended
# ``faults``                 ``Faults``: the outcome of each step of chaos so far
# ``recovered``              ``{}``: the Job of chaos has ended, and watches no recovery any more
# ``failing-over``           ``{}``: a rehearsal has begun to fail the flow over
# ``rehearsal``              ``Rehearsed``: the plan, then the outcome of the rehearsal
# =========================  ==========================================================

END_KEY = "end"
FAILING_OVER_KEY = "failing-over"
FAULTS_KEY = "faults"
LOAD_FAILED_KEY = "load-failed"
MANIFEST_KEY = "manifest"
MEASURED_KEY = "measured"
RECOVERED_KEY = "recovered"
REHEARSAL_KEY = "rehearsal"
TOPICS_KEY = "topics"

_CREATED = "created/"
_PROGRESS, _READY, _SEEN, _SENTINELS = "/progress", "/ready", "/seen", "/sentinels"


def progress_key(producer: str) -> str:
    """Return the key of a producer's progress."""
    return producer + _PROGRESS


def ready_key(consumer: str) -> str:
    """Return the key that says that a consumer of the probe is ready."""
    return consumer + _READY


def seen_key(consumer: str) -> str:
    """Return the key of the messages that a consumer of the probe has seen."""
    return consumer + _SEEN


def sentinels_key(consumer: str) -> str:
    """Return the key of the end sentinels that a consumer of the probe received."""
    return consumer + _SENTINELS


def is_progress(key: str) -> bool:
    """Whether it is some producer's progress."""
    return key.endswith(_PROGRESS)


def is_ready(key: str) -> bool:
    """Whether some consumer of the probe is in place."""
    return key.endswith(_READY)


def is_seen(key: str) -> bool:
    """Whether it is what some consumer of the probe saw."""
    return key.endswith(_SEEN)


def is_sentinels(key: str) -> bool:
    """Whether it has end sentinels."""
    return key.endswith(_SENTINELS)


def created_key(topic: str) -> str:
    """Return the key of a topic that the run created on the source."""
    return _CREATED + topic


def is_created(key: str) -> bool:
    """Whether it is a topic that the run created."""
    return key.startswith(_CREATED)
