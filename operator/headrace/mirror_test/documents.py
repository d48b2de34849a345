"""Documents that the stages exchange, as files and as records of the journal.

In a cluster, the file names are also keys of the run's ConfigMaps.
"""

import hashlib
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from headrace.errors import GaveUp, InvalidSpec

TEST = "test.json"
"""File with the resolved ``MirrorTest``."""
MANIFEST = "manifest.json"
"""File with the ``LoadManifest``."""
MEASURED = "probe.json"
"""File with the ``ProbeMeasurements``."""
FAULTS = "chaos.json"
"""File with the ``Faults``."""
REHEARSAL = "rehearsal.json"
"""File with the ``Rehearsed``."""
REPORT = "report.json"
"""File with the ``Result``."""
TOPICS = "topics.json"
"""Key of the report's ConfigMap with the ``CreatedTopics``."""
PAGE = "report.html"
END_LOAD = "end-load"
"""File with any content, next to the test, that requests the end of the load."""
BEGIN = "begin"
"""Empty file that lets a comparison begin whose Spark was started early."""
READY = "ready"
"""Empty file that the probe creates when the load may start."""

Document = TypeVar("Document", bound=BaseModel)


def read(path: Path, kind: type[Document]) -> Document | None:
    """Read a document. Return None if it does not exist.

    Raise ``GaveUp`` if it is damaged.
    """
    try:
        return kind.model_validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise GaveUp(f"{path} cannot be read: {error.errors()[0]['msg']}") from error


def read_plan(text: str, name: str, kind: type[Document]) -> Document:
    """Parse the plan of a Job.

    Raise ``InvalidSpec``, with the name of the document, if the plan is invalid.
    """
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        raise InvalidSpec(f"{name} is not a plan of this version of headrace: {error}") from error


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


# Keys of a run's records in the journal (``headrace.kafka.journal``), and their values:
#
# =========================  ==========================================================
# ``<producer>/progress``    ``{"acknowledged": n, "sent": n, "failed": n}``, twice a second
# ``probe-<n>/ready``        the consumer has reached the end of each of its partitions
# ``probe-<n>/seen``         counts of its messages (``SequenceCounts``), if metrics are served
# ``probe-<n>/sentinels``    end sentinels that it received: ``[[topic, partition], ...]``
# ``end``                    request to end the load early
# ``topics``                 ``{topic: partitions}`` that chaos steps have added to the load
# ``created/<topic>``        ``CreatedTopic``: a topic that a job of the run created on the source
# ``manifest``               ``LoadManifest``: the load has ended
# ``load-failed``            ``{}``: the load has ended without a manifest
# ``measured``               ``ProbeMeasurements``: the probe has ended
# ``faults``                 ``Faults``: the outcome of the chaos steps so far
# ``recovered``              ``{}``: the chaos Job has ended and watches no more recoveries
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
    return producer + _PROGRESS


def ready_key(consumer: str) -> str:
    """Return the key of the record that reports a probe consumer as ready."""
    return consumer + _READY


def seen_key(consumer: str) -> str:
    """Return the key of a probe consumer's counts of received messages."""
    return consumer + _SEEN


def sentinels_key(consumer: str) -> str:
    """Return the key of the end sentinels that a probe consumer received."""
    return consumer + _SENTINELS


def is_progress(key: str) -> bool:
    """Return True if this is the key of a producer's progress."""
    return key.endswith(_PROGRESS)


def is_ready(key: str) -> bool:
    """Return True if this is the key of a probe consumer that is ready."""
    return key.endswith(_READY)


def is_seen(key: str) -> bool:
    """Return True if this is the key of a probe consumer's counts."""
    return key.endswith(_SEEN)


def is_sentinels(key: str) -> bool:
    """Return True if this is the key of received end sentinels."""
    return key.endswith(_SENTINELS)


def created_key(topic: str) -> str:
    return _CREATED + topic


def is_created(key: str) -> bool:
    return key.startswith(_CREATED)
