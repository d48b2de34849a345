"""A MirrorTest whose load has no end sends nothing itself: it makes a test for each window.

The next one begins when the load of the last has ended; what that one sent is compared meanwhile.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from headrace.api import (
    ConditionStatus,
    ConditionType,
    MirrorTest,
    MirrorTestPhase,
    Readiness,
    Reason,
    condition,
)
from headrace.controller.mirror_tests.schedule import (
    Scheduled,
    build_scheduled,
    has_ended,
    surplus,
    verdict_of,
)
from headrace.controller.mirror_tests.status import with_conditions
from headrace.k8s import Object
from headrace.mirror_test import window_load

_POLL_S = 5.0
"""Between the end of a load and the next window, at most."""


def next_window(test: MirrorTest, runs: Iterable[MirrorTest], now: datetime) -> Scheduled:
    """Begin a window when none is being sent, at most one a minute; delete those beyond the history
    limits."""
    runs = sorted(runs, key=lambda run: (run.metadata.creation_timestamp or now, run.metadata.name))
    sending = [run for run in runs if not _has_sent(run)]
    window = build_window(test, now)
    status = with_conditions(test, _readiness(test, runs, sending), now)
    calm = Scheduled(status, delete=surplus(test, runs), again_s=_POLL_S)
    there = window["metadata"]["name"] in [run.metadata.name for run in runs]
    if test.spec.suspend or sending or there:
        return calm
    status = status.model_copy(update={"last_schedule_time": now})
    return replace(calm, status=status, create=window)


def build_window(test: MirrorTest, at: datetime) -> Object:
    """The test of the window that begins at a time."""
    window = build_scheduled(test, at)
    load = window_load(test).model_dump(mode="json", by_alias=True, exclude_unset=True)
    window["spec"]["load"] = load
    return window


def _has_sent(run: MirrorTest) -> bool:
    phase = run.status.phase if run.status else None
    return has_ended(run) or phase is MirrorTestPhase.VERIFYING


def _readiness(test: MirrorTest, runs: list[MirrorTest], sending: list[MirrorTest]) -> Readiness:
    ended = [run for run in runs if has_ended(run)]
    last = f"; {ended[-1].metadata.name}: {verdict_of(ended[-1])}" if ended else ""
    for run in sending:
        name, conditions = run.metadata.name, run.status.conditions if run.status else ()
        stalled = condition(conditions, ConditionType.STALLED)
        if stalled and stalled.status is ConditionStatus.TRUE:
            message = f"window {name} is stalled: {stalled.message}{last}"
            return Readiness.stalled(stalled.reason, message)
        ready = condition(conditions, ConditionType.READY)
        if ready and ready.reason is Reason.WAITING_FOR_FLOW:
            return Readiness.reconciling(ready.reason, f"window {name}: {ready.message}{last}")
    if test.spec.suspend:
        message = f"spec.suspend is true: no further windows start{last}"
        return Readiness.ready(Reason.SUSPENDED, message)
    names = ", ".join(run.metadata.name for run in sending) or "the next one starts"
    return Readiness.ready(Reason.SCHEDULED, f"window under way: {names}{last}")
