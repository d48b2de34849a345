"""What the operator writes on MirrorTests: their statuses, and an Event for each change."""

from datetime import datetime
from typing import Any

from headrace.api import (
    API_VERSION,
    OPERATOR_MANAGER,
    MirrorTest,
    MirrorTestStatus,
    Readiness,
    Reason,
    conditions_of,
)
from headrace.api.meta import ObjectMeta
from headrace.controller.blocked import is_reported
from headrace.controller.events import EventRecorder, Occurrence, UnparsedMirrorTest, occurrences
from headrace.k8s import MIRROR_TEST, Client, Object
from headrace.logs import get_logger

log = get_logger(__name__)


class StatusWrites:
    """Writes nothing that is there already."""

    def __init__(self, client: Client, events: EventRecorder) -> None:
        self._client, self._events = client, events

    async def report_invalid(self, object: Object, why: str, now: datetime) -> None:
        """Report an invalid test in its status, unless it has ended."""
        status, metadata = object.get("status") or {}, object["metadata"]
        if status.get("verdict") or is_reported(object, why):
            return
        log.warning("test not understood", test=metadata["name"], namespace=metadata["namespace"])
        stalled = Readiness.stalled(Reason.INVALID_SPEC, why)
        generation = metadata.get("generation")
        conditions = conditions_of(stalled, None, now, generation=generation)
        invalid = MirrorTestStatus(observed_generation=generation, conditions=conditions)
        await self._apply(metadata, status | _dumped(invalid))
        named = ObjectMeta(**{key: metadata[key] for key in ("name", "namespace", "uid")})
        unparsed = UnparsedMirrorTest(named)
        await self._events.post(unparsed, Occurrence(Reason.INVALID_SPEC, why, warning=True))

    async def write(self, test: MirrorTest, status: MirrorTestStatus) -> None:
        """Write a status that differs, and post an Event for each change of a condition."""
        if test.status == status:
            return
        await self._apply(test.metadata.model_dump(), _dumped(status))
        before = test.status.conditions if test.status else ()
        for happened in occurrences(before, status.conditions):
            await self._events.post(test, happened)

    async def _apply(self, metadata: Object, status: Object) -> None:
        manifest = {
            "apiVersion": API_VERSION,
            "kind": MIRROR_TEST.name,
            "metadata": {key: metadata[key] for key in ("name", "namespace", "uid")},
            "status": status,
        }
        await self._client.apply(manifest, manager=OPERATOR_MANAGER, subresource="status")


def _dumped(status: MirrorTestStatus) -> dict[str, Any]:
    return status.model_dump(mode="json", by_alias=True, exclude_none=True)
