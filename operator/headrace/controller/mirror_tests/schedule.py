"""A MirrorTest with a schedule runs nothing itself: it makes tests without one, as a CronJob makes
Jobs."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from croniter import croniter

from headrace.api import (
    API_VERSION,
    Condition,
    ConditionStatus,
    ConditionType,
    MirrorTest,
    MirrorTestStatus,
    Reason,
    Verdict,
)
from headrace.k8s import Object, owner_reference

_OF_A_SCHEDULE = {
    "schedule",
    "suspend",
    "successful_tests_history_limit",
    "failed_tests_history_limit",
}


@dataclass(frozen=True)
class Scheduled:
    """What to do for a test with a schedule."""

    status: MirrorTestStatus
    create: Object | None = None
    delete: tuple[str, ...] = ()
    """Names of runs beyond the history limits, oldest first."""
    again_s: float = 60.0
    """Seconds until it must be looked at again."""


def next_scheduled(test: MirrorTest, runs: Iterable[MirrorTest], now: datetime) -> Scheduled:
    """Decide from the wall clock; a clock that jumped ahead makes one run, not all it passed.

    Runs of one test never overlap: one that is due waits for the one before, and of several that
    were missed the latest is made up for (CronJob: ``concurrencyPolicy: Forbid``).
    """
    runs = sorted(runs, key=lambda run: (run.metadata.creation_timestamp or now, run.metadata.name))
    coming = _cron(test, now).get_next(datetime)
    calm = Scheduled(
        _status(test, Reason.SCHEDULED, f"the next run starts at {coming:%Y-%m-%dT%H:%M:%SZ}"),
        delete=_surplus(test, runs),
        again_s=max(1.0, (coming - now).total_seconds()),
    )
    if test.spec.suspend:
        said = "spec.suspend is true: no further runs start"
        return replace(calm, status=_status(test, Reason.SUSPENDED, said))
    last = test.status.last_schedule_time if test.status else None
    since = last or test.metadata.creation_timestamp or now
    # Half a second on: get_prev leaves out a moment that is met exactly.
    due = _cron(test, datetime.fromtimestamp(now.timestamp() + 0.5, UTC)).get_prev(datetime)
    if due <= since or any(not _finished(run) for run in runs):
        return calm
    status = calm.status.model_copy(update={"last_schedule_time": due})
    return replace(calm, status=status, create=build_scheduled(test, due))


def build_scheduled(test: MirrorTest, at: datetime) -> Object:
    """The run for a time; its name tells the minute, so that two operators make one."""
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


def _surplus(test: MirrorTest, runs: list[MirrorTest]) -> tuple[str, ...]:
    passed = [run.metadata.name for run in runs if _verdict(run) is Verdict.PASSED]
    others = [
        run.metadata.name for run in runs if _finished(run) and _verdict(run) is not Verdict.PASSED
    ]
    spec = test.spec
    return (
        *passed[: max(0, len(passed) - spec.successful_tests_history_limit)],
        *others[: max(0, len(others) - spec.failed_tests_history_limit)],
    )


def _finished(run: MirrorTest) -> bool:
    return _verdict(run) is not None


def _verdict(run: MirrorTest) -> Verdict | None:
    return run.status.verdict if run.status else None


def _cron(test: MirrorTest, at: datetime) -> croniter:
    return croniter(test.spec.schedule or "", at.astimezone(UTC))


def _status(test: MirrorTest, reason: Reason, message: str) -> MirrorTestStatus:
    ready = Condition(
        type=ConditionType.READY,
        status=ConditionStatus.TRUE,
        reason=reason,
        message=message,
        observed_generation=test.metadata.generation,
    )
    before = test.status or MirrorTestStatus()
    return before.model_copy(
        update={"observed_generation": test.metadata.generation, "conditions": (ready,)}
    )
