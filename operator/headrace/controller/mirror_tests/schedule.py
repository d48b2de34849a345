"""MirrorTests that create other tests: by a schedule, or one for each window."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from croniter import CroniterError, croniter

from headrace.api import (
    API_VERSION,
    ConcurrencyPolicy,
    ConditionStatus,
    ConditionType,
    MirrorTest,
    MirrorTestPhase,
    MirrorTestStatus,
    Readiness,
    Reason,
    Verdict,
    find_condition,
)
from headrace.controller.mirror_tests.stages import with_conditions
from headrace.errors import InvalidSpec
from headrace.k8s import Object, owner_reference
from headrace.mirror_test import window_load

_OF_A_SCHEDULE = {
    "schedule",
    "time_zone",
    "starting_deadline_seconds",
    "concurrency_policy",
    "suspend",
    "successful_tests_history_limit",
    "failed_tests_history_limit",
}


@dataclass(frozen=True)
class Scheduled:
    """Actions for a test that creates other tests."""

    status: MirrorTestStatus
    create: Object | None = None
    delete: tuple[str, ...] = ()
    """Names of runs beyond the history limits, oldest first."""
    end: tuple[str, ...] = ()
    """Names of runs that a later run replaces."""
    again_s: float = 60.0
    """Seconds until the next reconcile."""


def next_scheduled(test: MirrorTest, runs: Iterable[MirrorTest], now: datetime) -> Scheduled:
    """Return the actions for a test with a schedule at the wall-clock time ``now``.

    If several runs were missed, or if the clock jumped ahead, only the latest run is started. It is
    not started if ``startingDeadlineSeconds`` have passed since its time. A last run in the future,
    after the clock was set back, does not delay the next run. ``concurrencyPolicy`` decides about a
    run that is due while another one is in progress. Raise ``InvalidSpec`` for an invalid schedule.
    """
    spec = test.spec
    runs = sorted(runs, key=lambda run: (run.metadata.creation_timestamp or now, run.metadata.name))
    due, coming = _moments(spec.schedule or "", now.astimezone(ZoneInfo(spec.time_zone or "UTC")))
    last = test.status.last_schedule_time if test.status else None
    if last is not None:
        last = min(last, now)
    deadline_s = spec.starting_deadline_seconds
    in_time = deadline_s is None or (now - due).total_seconds() <= deadline_s
    overdue = in_time and due > (last or test.metadata.creation_timestamp or now)
    one_by_one = spec.concurrency_policy is ConcurrencyPolicy.FORBID
    before = runs if one_by_one else []
    status = with_conditions(test, _schedule_readiness(before, coming, overdue=overdue), now)
    calm = Scheduled(
        status.model_copy(update={"last_schedule_time": last}),
        delete=surplus(test, runs),
        again_s=max(1.0, (coming - now).total_seconds()),
    )
    if spec.suspend:
        message = "spec.suspend is true: no further runs start"
        suspended = Readiness.ready(Reason.SUSPENDED, message)
        return replace(calm, status=with_conditions(test, suspended, now))
    under_way = tuple(run.metadata.name for run in runs if not has_ended(run))
    replaces = spec.concurrency_policy is ConcurrencyPolicy.REPLACE
    if not overdue or (under_way and one_by_one):
        return replace(calm, end=under_way[:-1] if replaces else ())
    status = calm.status.model_copy(update={"last_schedule_time": due})
    return replace(
        calm,
        status=status,
        create=build_scheduled(test, due),
        end=under_way if replaces else (),
    )


def build_scheduled(test: MirrorTest, at: datetime) -> Object:
    """Return the run for a time.

    Its name contains the minute, so that two operators cannot create it twice.
    """
    spec = test.spec.model_dump(
        mode="json", by_alias=True, exclude_unset=True, exclude=_OF_A_SCHEDULE
    )
    return {
        "apiVersion": API_VERSION,
        "kind": test.kind,
        "metadata": {
            "name": f"{test.metadata.name}-{int(at.timestamp()) // 60}",
            "namespace": test.metadata.namespace,
            "labels": dict(test.metadata.labels),
            "ownerReferences": [owner_reference(test)],
        },
        "spec": spec,
    }


def surplus(test: MirrorTest, runs: list[MirrorTest]) -> tuple[str, ...]:
    """Return the names of the runs beyond the history limits. ``runs`` has the oldest first."""
    passed = [run.metadata.name for run in runs if verdict_of(run) is Verdict.PASSED]
    others = [run.metadata.name for run in runs if has_ended(run)]
    others = [name for name in others if name not in passed]
    spec = test.spec
    return (
        *passed[: max(0, len(passed) - spec.successful_tests_history_limit)],
        *others[: max(0, len(others) - spec.failed_tests_history_limit)],
    )


def has_ended(run: MirrorTest) -> bool:
    """Return True if the run has a verdict."""
    return verdict_of(run) is not None


def verdict_of(run: MirrorTest) -> Verdict | None:
    """Return a run's verdict, or None if it has none yet."""
    return run.status.verdict if run.status else None


def _schedule_readiness(
    runs: Iterable[MirrorTest], coming: datetime, *, overdue: bool
) -> Readiness:
    """Return when the next run starts, or the reason why an earlier run prevents it.

    That run is stalled, waits for its flow, or is in progress when the next one is due.
    """
    for run in runs:
        if has_ended(run):
            continue
        name, conditions = run.metadata.name, run.status.conditions if run.status else ()
        stalled = find_condition(conditions, ConditionType.STALLED)
        if stalled and stalled.status is ConditionStatus.TRUE:
            message = f"no run starts before {name} has ended, and it is stalled: {stalled.message}"
            return Readiness.stalled(stalled.reason, message)
        ready = find_condition(conditions, ConditionType.READY)
        if ready and (overdue or ready.reason is Reason.WAITING_FOR_FLOW):
            message = f"waits for run {name}: {ready.message}"
            return Readiness.reconciling(ready.reason, message)
    message = f"the next run starts at {coming:%Y-%m-%dT%H:%M:%SZ}"
    return Readiness.ready(Reason.SCHEDULED, message)


def _moments(schedule: str, now: datetime) -> tuple[datetime, datetime]:
    """Return the last time up to ``now`` and the next one, in UTC.

    The schedule is interpreted in the time zone of ``now``.
    """
    # croniter's extension R returns another time at each call.
    if re.search(r"(?i)(^|[\s,])r", schedule):
        raise _no_schedule(schedule, "R, a moment at random, is not known here")
    try:
        coming = croniter(schedule, now).get_next(datetime)
        # Half a second later, because get_prev excludes a time that is met exactly.
        due = croniter(schedule, now + timedelta(seconds=0.5)).get_prev(datetime)
        return due.astimezone(UTC), coming.astimezone(UTC)
    except CroniterError as error:
        raise _no_schedule(schedule, str(error)) from error


def _no_schedule(schedule: str, why: str) -> InvalidSpec:
    return InvalidSpec(
        f"spec.schedule {schedule!r} names no time: {why}; "
        "write minute, hour, day of month, month and day of week, like 30 2 * * mon-fri"
    )


# A MirrorTest with an endless load sends nothing itself, but creates a test for each window. The
# next window begins when the load of the last one has ended. The messages of the last window are
# compared at the same time.

_POLL_S = 5.0
"""Maximum time between the end of a load and the next window, in seconds."""


def next_window(test: MirrorTest, runs: Iterable[MirrorTest], now: datetime) -> Scheduled:
    """Return the actions for a test with an endless load.

    A window begins unless another one is sending, at most one per minute. Windows beyond the
    history limits are deleted.
    """
    runs = sorted(runs, key=lambda run: (run.metadata.creation_timestamp or now, run.metadata.name))
    sending = [run for run in runs if not _has_sent(run)]
    window = build_window(test, now)
    status = with_conditions(test, _window_readiness(test, runs, sending), now)
    calm = Scheduled(status, delete=surplus(test, runs), again_s=_POLL_S)
    there = window["metadata"]["name"] in [run.metadata.name for run in runs]
    if test.spec.suspend or sending or there:
        return calm
    status = status.model_copy(update={"last_schedule_time": now})
    return replace(calm, status=status, create=window)


def build_window(test: MirrorTest, at: datetime) -> Object:
    """Return the test for the window that begins at ``at``."""
    window = build_scheduled(test, at)
    load = window_load(test).model_dump(mode="json", by_alias=True, exclude_unset=True)
    window["spec"]["load"] = load
    return window


def _has_sent(run: MirrorTest) -> bool:
    phase = run.status.phase if run.status else None
    return has_ended(run) or phase is MirrorTestPhase.VERIFYING


def _window_readiness(
    test: MirrorTest, runs: list[MirrorTest], sending: list[MirrorTest]
) -> Readiness:
    ended = [run for run in runs if has_ended(run)]
    last = f"; {ended[-1].metadata.name}: {verdict_of(ended[-1])}" if ended else ""
    for run in sending:
        name, conditions = run.metadata.name, run.status.conditions if run.status else ()
        stalled = find_condition(conditions, ConditionType.STALLED)
        if stalled and stalled.status is ConditionStatus.TRUE:
            message = f"window {name} is stalled: {stalled.message}{last}"
            return Readiness.stalled(stalled.reason, message)
        ready = find_condition(conditions, ConditionType.READY)
        if ready and ready.reason is Reason.WAITING_FOR_FLOW:
            return Readiness.reconciling(ready.reason, f"window {name}: {ready.message}{last}")
    if test.spec.suspend:
        message = f"spec.suspend is true: no further windows start{last}"
        return Readiness.ready(Reason.SUSPENDED, message)
    names = ", ".join(run.metadata.name for run in sending) or "the next one starts"
    return Readiness.ready(Reason.SCHEDULED, f"window under way: {names}{last}")
