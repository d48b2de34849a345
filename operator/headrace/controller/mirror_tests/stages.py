"""Decides the next step of a MirrorTest from facts.

``mirror_test.sequence`` defines the sequence of the stages. This module adds what only a cluster
needs: a flow to wait for, permissions, and pods that do not start.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from pydantic import ValidationError

from headrace.api import (
    MAX_MESSAGE_LENGTH,
    ConditionStatus,
    ConditionType,
    FlowState,
    LatencyMs,
    MirrorTest,
    MirrorTestCounts,
    MirrorTestPhase,
    MirrorTestStatus,
    Readiness,
    Reason,
    ReplicationFlow,
    Verdict,
    conditions_of,
)
from headrace.controller.mirror_tests.pods import PodProblem, TestPod, has_ended, of_stage
from headrace.controller.mirror_tests.run import report_name
from headrace.k8s import Object
from headrace.mirror_test import Stage
from headrace.mirror_test.sequence import Activity, RunState, StageState, Transition, advance


def with_conditions(test: MirrorTest, verdict: Readiness, now: datetime) -> MirrorTestStatus:
    """Return the status of ``test`` with the conditions of ``verdict``.

    The phase does not change, because the load must not be sent twice.
    """
    generation, before = test.metadata.generation, test.status or MirrorTestStatus()
    conditions = conditions_of(verdict, before, now, generation=generation)
    return before.model_copy(update={"observed_generation": generation, "conditions": conditions})


@dataclass(frozen=True)
class RunFacts:
    """Facts from which the next step is decided."""

    test: MirrorTest
    now: datetime
    run: str = ""
    """Name of the run."""
    flow: ReplicationFlow | None = None
    """Flow under test, or None if it does not exist."""
    jobs: Mapping[Stage, Object] | None = None
    """Existing Jobs by stage."""
    pods: Sequence[TestPod] = ()
    """Pods of the Jobs in ``jobs``, and Spark's executor pods."""
    report: str | None = None
    """Content of ``report.json``, or None if the verifier has not written it."""
    breaks: bool = False
    """True if the run started with chaos steps."""
    may_break: bool = False
    """True if this operator has a role for the Job of ``spec.chaos``."""
    rehearses: bool = False
    """True if the run started with a rehearsal."""
    may_rehearse: bool = False
    """True if this operator has a role for the Job of ``spec.rehearsal``."""

    @property
    def started(self) -> datetime:
        """Start of the test, or the current time if it has not begun."""
        return (self.test.status and self.test.status.start_time) or self.now

    def since_s(self, time: datetime) -> float:
        """Return the seconds since a time of the cluster's clock.

        If the first Job seems to have been created before the start of the test, this operator's
        clock is ahead of the API server's, and the difference is subtracted. A difference above the
        elapsed time shows that an earlier leader with another clock set the start. It is not
        subtracted.
        """
        stage = Stage.PROBE if self.test.spec.audit is None else Stage.VERIFY
        first = (self.jobs or {}).get(stage)
        ahead_s = max(0.0, (self.started - created_at(first)).total_seconds()) if first else 0.0
        passed_s = (self.now - time).total_seconds()
        return passed_s - ahead_s if passed_s >= ahead_s else passed_s


@dataclass(frozen=True)
class StageDecision:
    """Decision about the next step of a test."""

    status: MirrorTestStatus
    start: Stage | None = None
    again_s: float | None = None
    """Seconds until the next reconcile if there is no event, or None."""
    expired: bool = False
    """True if ttlSecondsAfterFinished has elapsed, so that the test is deleted."""

    @property
    def is_last(self) -> bool:
        """True if the test has a verdict."""
        return self.status.verdict is not None


def created_at(job: Object) -> datetime:
    """Return the time at which the API server created a Job."""
    return datetime.fromisoformat(job["metadata"]["creationTimestamp"])


def status_with(
    facts: RunFacts, ready: bool, stalled: bool, reason: Reason, message: str
) -> MirrorTestStatus:
    """Return the test's status with a readiness of this reason and message."""
    make = Readiness.stalled if stalled else Readiness.reconciling
    readiness = (Readiness.ready if ready else make)(reason, message)
    return with_conditions(facts.test, readiness, facts.now)


_BEFORE_VERDICT = (Stage.PROBE, Stage.CHAOS, Stage.REHEARSAL, Stage.PRODUCE)
_REASONS = {
    Verdict.PASSED: Reason.TEST_PASSED,
    Verdict.FAILED: Reason.TEST_FAILED,
    Verdict.INCONCLUSIVE: Reason.TEST_INCONCLUSIVE,
}


def judged(facts: RunFacts, report: str) -> MirrorTestStatus:
    """Return the status with the report's verdict, or Inconclusive for an unreadable report."""
    try:
        document = json.loads(report)
        if document["run"] != facts.run:
            return inconclusive(facts, f"the report is of run {document['run']}").status
        verdict = Verdict(document["verdict"])
        counts, latency = (
            model.model_validate({k: v for k, v in found.items() if k in _aliases(model)})
            if (found := document.get(key))
            else None
            for key, model in (("counts", MirrorTestCounts), ("latencyMs", LatencyMs))
        )
        why = [*document["reasons"], *([] if latency else _about_latency(document))]
        reasons = "; ".join(dict.fromkeys(str(one).removesuffix(".") for one in why))
        if verdict is Verdict.INCONCLUSIVE:
            reasons = "; ".join([reasons, *failed_driver_messages(facts, *_BEFORE_VERDICT)])
    except (ValueError, KeyError, TypeError, AttributeError, ValidationError) as error:
        return inconclusive(facts, f"the report cannot be read: {error}").status
    return _with_verdict(facts, verdict, reasons[:MAX_MESSAGE_LENGTH]).model_copy(
        update={
            "counts": counts,
            "latency_ms": latency,
            "report": report_name(facts.test),
        }
    )


def _about_latency(document: Object) -> list[str]:
    """Return the sentences of the check of latency, which the column P99-Ms cannot show."""
    checks = document.get("checks") or ()
    return [one for check in checks if check["name"] == "latency" for one in check["sentences"]]


def _aliases(model: type[MirrorTestCounts] | type[LatencyMs]) -> set[str | None]:
    return {info.alias for info in model.model_fields.values()}


def failed_driver_messages(facts: RunFacts, *stages: Stage) -> list[str]:
    """Return the problems of the Spark drivers of ``stages`` that ended with an error."""
    pods = [pod for stage in stages for pod in of_stage(facts.pods, stage)]
    return [pod.problem.message for pod in pods if pod.problem and pod.ended and not pod.executor]


def inconclusive(facts: RunFacts, why: str) -> StageDecision:
    """Return the decision to end a test without a report as Inconclusive."""
    return StageDecision(_with_verdict(facts, Verdict.INCONCLUSIVE, why[:MAX_MESSAGE_LENGTH]))


def _with_verdict(facts: RunFacts, verdict: Verdict, message: str) -> MirrorTestStatus:
    passed = verdict is Verdict.PASSED
    return status_with(facts, passed, not passed, _REASONS[verdict], message).model_copy(
        update={
            "phase": MirrorTestPhase.FINISHED,
            "verdict": verdict,
            "start_time": facts.started,
            "completion_time": facts.now,
        }
    )


_START_S = 300.0
"""Time to start pods, in seconds.

If the probe is not ready after this time plus settleSeconds, the load starts without a probe. A pod
that does not fit on any node, or has no image, ends the test.
"""
_GRACE_PERIOD_S = 30.0
"""Time before a condition reports a pod that does not start, in seconds.

An autoscaler or a registry may need that long.
"""
_POLL_S = 10.0
_MAY_NOT_BREAK = (
    "spec.chaos asks for faults, and this operator may not make any: set chaos.enabled: true in "
    "the values of its chart (`headrace operator --chaos-role`), or leave spec.chaos out"
)

_MAY_NOT_FAIL_OVER = (
    "spec.rehearsal asks for a fail-over, and this operator may not have its flow failed over: set "
    "rehearsal.enabled: true in the values of its chart (`headrace operator --rehearsal-role`), or "
    "leave spec.rehearsal out"
)
_ONE_MACHINE = (
    "spec.chaos asks for faults of brokers or for commands, which only `headrace verify` makes, on "
    "its own machine: leave these steps out"
)


def next_decision(facts: RunFacts) -> StageDecision:
    """Return the next step of a test.

    Stages run in sequence. The load is sent once, whatever the outcome of its Job.
    """
    test = facts.test
    if test.status is not None and test.status.verdict is not None:
        return _finished(test, test.status, facts.now)
    if obstacle := _obstacle(facts):
        return obstacle
    if facts.report:
        return StageDecision(judged(facts, facts.report))
    if blocked := _blocked(facts):
        return blocked
    transition = advance(_state(facts))
    if transition.activity.is_end:
        return inconclusive(facts, _why_it_ends(facts, transition.activity))
    return _under_way(facts, transition)


def has_begun(test: MirrorTest) -> bool:
    """Return True if the load may have been sent."""
    phase = test.status.phase if test.status else None
    return phase not in (None, MirrorTestPhase.PENDING)


def _obstacle(facts: RunFacts) -> StageDecision | None:
    if has_begun(facts.test):
        return None
    spec = facts.test.spec
    if any(step.action.is_of_machine for step in spec.chaos):
        return _waiting(facts, Reason.INVALID_SPEC, _ONE_MACHINE, stalled=True)
    if facts.breaks and not facts.may_break:
        return _waiting(facts, Reason.FORBIDDEN, _MAY_NOT_BREAK, stalled=True)
    if facts.rehearses and not facts.may_rehearse:
        return _waiting(facts, Reason.FORBIDDEN, _MAY_NOT_FAIL_OVER, stalled=True)
    if not facts.jobs and (why := _not_yet(facts)):
        return _waiting(facts, Reason.WAITING_FOR_FLOW, why)
    return None


def _blocked(facts: RunFacts) -> StageDecision | None:
    """Return a decision if pods of a running stage do not start, otherwise None.

    A condition reports the problem first. After ``_START_S``, the test ends.
    """
    for stage, job in (facts.jobs or {}).items():
        if has_ended(job):
            continue
        if (found := _problem(facts, stage, job)) is None:
            continue
        problem, age_s = found
        if age_s > _START_S:
            return inconclusive(facts, f"{problem.message} (waited {_START_S:.0f} s)")
        if age_s > _GRACE_PERIOD_S:
            status = status_with(facts, False, True, problem.reason, problem.message)
            return StageDecision(status, again_s=_POLL_S)
    return None


def _problem(facts: RunFacts, stage: Stage, job: Object) -> tuple[PodProblem, float] | None:
    """Return the problem of a stage that waits for a pod, and its duration in seconds, or None."""
    pods = of_stage(facts.pods, stage)
    if not pods and not job.get("status", {}).get("active"):
        name = job["metadata"]["name"]
        message = f"Job {name} makes no pod: `kubectl describe job {name}` shows who refuses it"
        return PodProblem(Reason.POD_FAILED, message), facts.since_s(created_at(job))
    # All tasks of probe and load start at once. For the verifier's tasks, one executor is enough.
    enough = stage is Stage.VERIFY and any(pod.executor and pod.runs for pod in pods)
    for pod in pods:
        if pod.problem and pod.waits and not (pod.executor and enough):
            return pod.problem, facts.since_s(pod.created_at)
    return None


def _state(facts: RunFacts) -> RunState:
    test = facts.test
    return RunState(
        stages={stage: _stage_state(facts, job) for stage, job in (facts.jobs or {}).items()},
        settle_s=test.spec.settle_seconds,
        probe_start_s=_START_S + test.spec.settle_seconds,
        chaos_start_s=_START_S,
        has_chaos=facts.breaks,
        has_load=test.spec.audit is None,
        has_rehearsal=facts.rehearses,
        has_manifest=not any(
            pod.killed and not pod.executor for pod in of_stage(facts.pods, Stage.PRODUCE)
        ),
        load_sent=has_begun(test),
    )


def _stage_state(facts: RunFacts, job: Object) -> StageState:
    end, ended_s = has_ended(job), None
    if end:
        ended_s = facts.since_s(datetime.fromisoformat(end["lastTransitionTime"]))
    return StageState(facts.since_s(created_at(job)), _is_ready(job), ended_s)


def _why_it_ends(facts: RunFacts, activity: Activity) -> str:
    jobs = facts.jobs or {}
    for failed, stage, goal in (
        (Activity.CHAOS_FAILED, Stage.CHAOS, "break"),
        (Activity.REHEARSAL_FAILED, Stage.REHEARSAL, "rehearse"),
    ):
        if activity is failed:
            name = jobs[stage]["metadata"]["name"]
            why = f"nothing was sent: Job {name} did not come to {goal} anything"
            return "; ".join([why, *failed_driver_messages(facts, stage)])
    if activity is Activity.UNREPORTED:
        verify = jobs[Stage.VERIFY]
        end, name = has_ended(verify) or {}, verify["metadata"]["name"]
        how = end.get("message") or end.get("reason") or end.get("type")
        why = f"{activity} ({how}): see the log of Job {name}"
        return "; ".join([why, *failed_driver_messages(facts, *Stage)])
    return str(activity)


def _not_yet(facts: RunFacts) -> str:
    name = facts.test.spec.flow_name
    if name is None:
        return ""
    if facts.flow is None:
        return f"there is no ReplicationFlow {name} in namespace {facts.test.metadata.namespace}"
    if (state := facts.flow.spec.state) is not FlowState.RUNNING:
        return f"flow {name} copies nothing: its spec.state is {state}, and must be Running"
    conditions = facts.flow.status.conditions if facts.flow.status else ()
    ready = next((c for c in conditions if c.type is ConditionType.READY), None)
    if ready is None or ready.status is not ConditionStatus.TRUE:
        why = f": {ready.message}" if ready and ready.message else ""
        return f"flow {name} is not Ready{why}"
    return _not_current(facts.flow, facts.test.spec.settle_seconds) if facts.test.spec.audit else ""


def _not_current(flow: ReplicationFlow, settle_s: int) -> str:
    """Return the reason why an audit would report records that are not copied yet, or ""."""
    name, lag = flow.metadata.name, flow.status.lag if flow.status else None
    if flow.spec.paused_partitions:
        return f"flow {name} is paused in part: spec.pausedPartitions must be empty for an audit"
    if lag is not None and lag.seconds > settle_s:
        return (
            f"flow {name} is about {lag.seconds:,} s behind, more than {settle_s} s "
            "(settleSeconds): records that it has not copied would be reported as missing"
        )
    return ""


def _finished(test: MirrorTest, status: MirrorTestStatus, now: datetime) -> StageDecision:
    ttl_s, ended = test.spec.ttl_seconds_after_finished, status.completion_time
    if ttl_s is None or ended is None:
        return StageDecision(status)
    left_s = ttl_s - (now - ended).total_seconds()
    return StageDecision(status, again_s=max(left_s, 1.0), expired=left_s <= 0)


def _under_way(facts: RunFacts, transition: Transition) -> StageDecision:
    activity = transition.activity
    status = status_with(facts, False, False, Reason.TEST_RUNNING, str(activity))
    status = status.model_copy(update={"phase": activity.phase, "start_time": facts.started})
    return StageDecision(status, start=transition.start, again_s=_POLL_S)


def _waiting(facts: RunFacts, reason: Reason, why: str, *, stalled: bool = False) -> StageDecision:
    status = status_with(facts, False, stalled, reason, why)
    status = status.model_copy(update={"phase": MirrorTestPhase.PENDING})
    return StageDecision(status, again_s=None if stalled else _POLL_S)


def _is_ready(job: Object) -> bool:
    return bool(job.get("status", {}).get("ready"))
