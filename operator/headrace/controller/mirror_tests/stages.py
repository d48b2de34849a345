"""What a MirrorTest does next, from what there is: its flow, its Jobs, its report.

The sequence of the stages is that of ``mirror_test.sequence``. Here is what only a cluster has: a
flow to wait for, rights, and pods that do not start.
"""

from datetime import datetime

from headrace.api import (
    ConditionStatus,
    ConditionType,
    MirrorTest,
    MirrorTestPhase,
    MirrorTestStatus,
    Reason,
)
from headrace.controller.mirror_tests.ended import has_ended
from headrace.controller.mirror_tests.facts import RunFacts, StageDecision, created_at, status_with
from headrace.controller.mirror_tests.outcome import ended_badly, inconclusive, judged
from headrace.controller.mirror_tests.pods import PodProblem, of_stage
from headrace.k8s import Object
from headrace.mirror_test import Stage
from headrace.mirror_test.sequence import Activity, RunState, StageState, Transition, advance

_START_S = 300.0
"""Executors to place. After that, and settleSeconds for the target's topics to appear, the load
starts without a probe; a pod that no node takes, or whose image is not there, ends the test."""
_PATIENCE_S = 30.0
"""By so much an autoscaler or a registry may be late before a condition reports it."""
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
    """One stage after the other; the load is sent once, whatever becomes of its Job."""
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
    """Whether the load may have been sent."""
    phase = test.status.phase if test.status else None
    return phase not in (None, MirrorTestPhase.PENDING)


def _obstacle(facts: RunFacts) -> StageDecision | None:
    if has_begun(facts.test):
        return None
    if any(step.action.is_of_machine for step in facts.test.spec.chaos):
        return _waiting(facts, Reason.INVALID_SPEC, _ONE_MACHINE, stalled=True)
    if facts.breaks and not facts.may_break:
        return _waiting(facts, Reason.FORBIDDEN, _MAY_NOT_BREAK, stalled=True)
    if facts.rehearses and not facts.may_rehearse:
        return _waiting(facts, Reason.FORBIDDEN, _MAY_NOT_FAIL_OVER, stalled=True)
    if not facts.jobs and (why := _not_yet(facts)):
        return _waiting(facts, Reason.WAITING_FOR_FLOW, why)
    return None


def _blocked(facts: RunFacts) -> StageDecision | None:
    """Pods of a running stage that do not start: a condition while that lasts, then the end."""
    for stage, job in (facts.jobs or {}).items():
        if has_ended(job):
            continue
        if (found := _problem(facts, stage, job)) is None:
            continue
        problem, age_s = found
        if age_s > _START_S:
            return inconclusive(facts, f"{problem.message} (waited {_START_S:.0f} s)")
        if age_s > _PATIENCE_S:
            status = status_with(facts, False, True, problem.reason, problem.message)
            return StageDecision(status, again_s=_POLL_S)
    return None


def _problem(facts: RunFacts, stage: Stage, job: Object) -> tuple[PodProblem, float] | None:
    """Why a stage waits for a pod, and for how many seconds."""
    pods = of_stage(facts.pods, stage)
    if not pods and not job.get("status", {}).get("active"):
        name = job["metadata"]["name"]
        message = f"Job {name} makes no pod: `kubectl describe job {name}` shows who refuses it"
        return PodProblem(Reason.POD_FAILED, message), facts.since_s(created_at(job))
    # Tasks of probe and load begin all at once; for the verifier's, one executor is enough.
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
            return "; ".join([why, *ended_badly(facts, stage)])
    if activity is Activity.UNREPORTED:
        verify = jobs[Stage.VERIFY]
        end, name = has_ended(verify) or {}, verify["metadata"]["name"]
        how = end.get("message") or end.get("reason") or end.get("type")
        why = f"{activity} ({how}): see the log of Job {name}"
        return "; ".join([why, *ended_badly(facts, *Stage)])
    return str(activity)


def _not_yet(facts: RunFacts) -> str:
    name = facts.test.spec.flow_name
    if name is None:
        return ""
    if facts.flow is None:
        return f"there is no ReplicationFlow {name} in namespace {facts.test.metadata.namespace}"
    conditions = facts.flow.status.conditions if facts.flow.status else ()
    ready = next((c for c in conditions if c.type is ConditionType.READY), None)
    if ready is None or ready.status is not ConditionStatus.TRUE:
        why = f": {ready.message}" if ready and ready.message else ""
        return f"flow {name} is not Ready{why}"
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
