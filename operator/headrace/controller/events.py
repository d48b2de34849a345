"""Kubernetes Events about state changes of flows and tests."""

import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from headrace.api import (
    Condition,
    ConditionStatus,
    ConditionType,
    MirrorTest,
    Readiness,
    Reason,
    ReplicationFlow,
    ReplicationTask,
    find_condition,
)
from headrace.api.meta import API_VERSION, ObjectMeta
from headrace.errors import HeadraceError, InvalidSpec
from headrace.k8s import EVENT, Client, Forbidden, Object, ObjectInvalid, micro_time
from headrace.logs import get_logger
from headrace.timing import Clock

log = get_logger(__name__)


@dataclass(frozen=True)
class UnparsedMirrorTest:
    """A MirrorTest whose spec is invalid."""

    metadata: ObjectMeta
    api_version: str = API_VERSION
    kind: str = "MirrorTest"


Subject = ReplicationFlow | ReplicationTask | MirrorTest | UnparsedMirrorTest

_WITHOUT_EVENTS = (
    ConditionType.RECONCILING,
    ConditionType.STALLED,
    ConditionType.DRIVERS_AVAILABLE,  # Events of the pods report this
)
_FAILURES = (
    Reason.TASK_FAILED,
    Reason.NOT_PLACED,
    Reason.NOT_APPLIED,
    Reason.REFUSED,
    Reason.SOURCE_UNREACHABLE,
    Reason.TARGET_UNREACHABLE,
    Reason.THROTTLED,
)
"""Reasons that are warnings although the flow is not stalled. The operator retries."""
_QUIET_PERIOD_S = 60.0
"""Time before an Event with the same reason is repeated on an object, in seconds.

The time doubles with each repetition up to ``_MAX_QUIET_PERIOD_S``, because a state may flap. It is
reset if the reason does not occur for ``_MAX_QUIET_PERIOD_S``.
"""
_MAX_QUIET_PERIOD_S = 1800.0
"""Maximum time before an Event is repeated, in seconds.

It is half the time for which the API server keeps an Event, so that one Event per reason is always
visible.
"""
_NOTE_BYTES = 1000
"""Maximum size of a note. The API server rejects notes of 1,024 bytes and more."""


@dataclass(frozen=True)
class Occurrence:
    """A state change to report to users."""

    reason: str
    note: str
    warning: bool = False


def occurrences(before: Iterable[Condition], after: Iterable[Condition]) -> Iterator[Occurrence]:
    """Yield the state changes between two statuses."""
    before = list(before)
    for new in after:
        old = find_condition(before, new.type)
        if old is not None and _same(old, new):
            continue
        if new.type is ConditionType.READY:
            # A stopped flow is Ready and has no drivers: they start when a user resumes it.
            was_ready = old is not None and old.status is ConditionStatus.TRUE
            was_ready &= old is None or old.reason is not Reason.STOPPED
            lost = new.reason is Reason.NO_DRIVERS and was_ready  # otherwise drivers start
            failed = lost or new.reason in _FAILURES or _stalled(after)
            warning = new.status is ConditionStatus.FALSE and failed
            steps = old is not None or new.reason is Reason.NO_DRIVERS
            starts = new.status is ConditionStatus.FALSE and steps and not was_ready
            if warning or not starts:  # intermediate steps to Ready are only in the status
                yield Occurrence(new.reason, new.message, warning)
        elif new.type not in _WITHOUT_EVENTS:
            asked = new.type is ConditionType.RECONCILIATION_PAUSED
            wrong = new.status is ConditionStatus.TRUE and not asked
            wrong |= new.reason in (Reason.INVALID_RESET, Reason.INVALID_ANNOTATION)
            yield Occurrence(new.type, new.message, wrong)


def _same(old: Condition, new: Condition) -> bool:
    """Return True if the change from ``old`` to ``new`` needs no Event.

    Another loss or reset is reported although the status and reason of the condition are unchanged.
    """
    counted = (ConditionType.DATA_LOSS_DETECTED, ConditionType.PARTITIONS_RESET)
    another = new.type in counted and old.message != new.message
    return (old.status, old.reason) == (new.status, new.reason) and not another


@dataclass(frozen=True)
class _Quiet:
    """Times that limit the repetition of an Event, on the monotonic clock."""

    until_s: float = 0.0
    next_s: float = _QUIET_PERIOD_S
    forgotten_s: float = 0.0

    def after(self, now: float) -> "_Quiet":
        longer = min(2 * self.next_s, _MAX_QUIET_PERIOD_S)
        return _Quiet(now + self.next_s, longer, now + self.next_s + _MAX_QUIET_PERIOD_S)


class EventRecorder:
    """Posts Events. Failures are only logged, and nothing depends on an Event."""

    def __init__(self, client: Client, instance: str, clock: Clock = time) -> None:
        """Create a recorder.

        Args:
            client: Client of the API server.
            instance: Operator replica that reports.
            clock: Source of the time.
        """
        self._client, self._instance, self._clock = client, instance, clock
        self._quiet: dict[tuple[str | None, str], _Quiet] = {}

    async def post(self, about: Subject, happened: Occurrence) -> None:
        """Create an Event for an object, unless its reason was reported a short time ago."""
        now, key = self._clock.monotonic(), (about.metadata.uid, happened.reason)
        self._quiet = {k: one for k, one in self._quiet.items() if now < one.forgotten_s}
        quiet = self._quiet.get(key, _Quiet())
        if now < quiet.until_s:
            return
        self._quiet[key] = quiet.after(now)
        say = log.warning if happened.warning else log.info
        name = {"kind": about.kind, "name": about.metadata.name}
        say(happened.note, **name, namespace=about.metadata.namespace, reason=happened.reason)
        try:
            await self._client.create(build_event(about, happened, self._instance))
        except HeadraceError as error:
            log.warning("Event not posted", why=str(error), **name)


def build_event(about: Subject, happened: Occurrence, instance: str) -> Object:
    """Return an Event of events.k8s.io. Its name is random, and its time is the current time."""
    metadata = about.metadata
    return {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.name,
        "metadata": {
            "name": f"{metadata.name}.{uuid.uuid4().hex[:16]}",
            "namespace": metadata.namespace,
        },
        "eventTime": micro_time(),
        "type": "Warning" if happened.warning else "Normal",
        "reason": happened.reason,
        "action": "Reconcile",
        "note": happened.note.encode()[:_NOTE_BYTES].decode(errors="ignore"),
        "reportingController": "headrace.dev/operator",
        "reportingInstance": instance,
        "regarding": {
            "apiVersion": about.api_version,
            "kind": about.kind,
            "name": metadata.name,
            "namespace": metadata.namespace,
            "uid": metadata.uid,
        },
    }


def _stalled(conditions: Iterable[Condition]) -> bool:
    return find_condition(conditions, ConditionType.STALLED) is not None


class NameTaken(InvalidSpec):
    """An object that a flow or a test needs exists and has another owner."""


def blocked_by(error: HeadraceError) -> Readiness | None:
    """Return the readiness after an error that a user must fix, or None for any other error."""
    reasons: dict[type[HeadraceError], Reason] = {
        Forbidden: Reason.FORBIDDEN,
        ObjectInvalid: Reason.REFUSED,
        NameTaken: Reason.NAME_TAKEN,
        InvalidSpec: Reason.INVALID_SPEC,
    }
    for kind, reason in reasons.items():
        if isinstance(error, kind):
            return Readiness.stalled(reason, str(error))
    return None


def is_reported(object: Object, message: str) -> bool:
    """Return True if the object's status already has this message for its current spec."""
    status = object.get("status") or {}
    return status.get("observedGeneration") == object["metadata"].get("generation") and any(
        condition.get("message") == message for condition in status.get("conditions") or ()
    )
