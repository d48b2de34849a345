"""What a MirrorTest does next, from what there is: its flow, its Jobs, its report."""

from datetime import datetime

from headrace.api import (
    ConditionStatus,
    ConditionType,
    MirrorTest,
    MirrorTestPhase,
    MirrorTestStatus,
    Reason,
    unbuilt,
)
from headrace.controller.mirror_tests.ended import has_ended
from headrace.controller.mirror_tests.facts import Facts, Step, made, say
from headrace.controller.mirror_tests.outcome import ended_badly, inconclusive, judged
from headrace.controller.mirror_tests.pods import Trouble, of_stage
from headrace.k8s import Object
from headrace.mirror_test.stages import Stage

_START_S = 300.0
"""Executors to place. After that, and settleSeconds for the target's topics to appear, the load
starts without a probe; a pod that no node takes, or whose image is not there, ends the test."""
_PATIENCE_S = 30.0
"""What a cluster that grows by itself, or a registry, may be late without a word about it."""
_PROBE_END_S = 60.0
"""Beyond settleSeconds: for its executors' results."""
_RECOVERY_END_S = 60.0
"""Beyond settleSeconds, which is what a recovery may take."""
_LOOK_S = 10.0
_MAY_NOT_BREAK = (
    "spec.chaos asks for faults, and this operator may not make any: set chaos.enabled: true in "
    "the values of its chart (`headrace operator --chaos-role`), or leave spec.chaos out"
)


def next_step(facts: Facts) -> Step:
    """One stage after the other; the load is sent once, whatever happens to its Job."""
    test = facts.test
    if test.status is not None and test.status.verdict is not None:
        return _finished(test, test.status, facts.now)
    if obstacle := _obstacle(facts):
        return obstacle
    if facts.report:
        return Step(judged(facts, facts.report))
    if hindered := _hindered(facts):
        return hindered
    load = (facts.jobs or {}).get(Stage.PRODUCE)
    return _before_the_load(facts) if load is None else _after_its_start(facts, load)


def has_begun(test: MirrorTest) -> bool:
    """Whether the load may have been sent."""
    phase = test.status.phase if test.status else None
    return phase not in (None, MirrorTestPhase.PENDING)


def _obstacle(facts: Facts) -> Step | None:
    if has_begun(facts.test):
        return None
    if refused := unbuilt(facts.test).refused:
        return _waiting(facts, Reason.NOT_BUILT, "; ".join(refused), stalled=True)
    if facts.breaks and not facts.may_break:
        return _waiting(facts, Reason.FORBIDDEN, _MAY_NOT_BREAK, stalled=True)
    if not facts.jobs and (why := _not_yet(facts)):
        return _waiting(facts, Reason.WAITING_FOR_FLOW, why)
    return None


def _hindered(facts: Facts) -> Step | None:
    """What keeps pods of the stages under way from starting: said while it lasts, then the end."""
    for stage, job in (facts.jobs or {}).items():
        if has_ended(job):
            continue
        if (found := _stuck(facts, stage, job)) is None:
            continue
        trouble, age_s = found
        if age_s > _START_S:
            return inconclusive(facts, f"{trouble.message} (waited {_START_S:.0f} s)")
        if age_s > _PATIENCE_S:
            status = say(facts, False, True, trouble.reason, trouble.message)
            return Step(status, again_s=_LOOK_S)
    return None


def _stuck(facts: Facts, stage: Stage, job: Object) -> tuple[Trouble, float] | None:
    """Why a stage waits for a pod, and for how many seconds it does."""
    pods = of_stage(facts.pods, stage)
    if not pods and not job.get("status", {}).get("active"):
        name = job["metadata"]["name"]
        message = f"Job {name} makes no pod: `kubectl describe job {name}` shows who refuses it"
        return Trouble(Reason.POD_FAILED, message), facts.since_s(made(job))
    # Tasks of probe and load begin all at once; the verifier's make do with one executor.
    enough = stage is Stage.VERIFY and any(pod.executor and pod.runs for pod in pods)
    for pod in pods:
        if pod.trouble and pod.waits and not (pod.executor and enough):
            return pod.trouble, facts.since_s(pod.made)
    return None


def _before_the_load(facts: Facts) -> Step:
    probe = (facts.jobs or {}).get(Stage.PROBE)
    if has_begun(facts.test):
        return inconclusive(facts, "the producer's Job is gone: nobody knows what was sent")
    if probe is None:
        return _under_way(facts, MirrorTestPhase.PENDING, "starting the probe", Stage.PROBE)
    if facts.breaks and (not_yet := _before_chaos(facts)):
        return not_yet
    patience_s = _START_S + facts.test.spec.settle_seconds
    if not (_ready(probe) or has_ended(probe) or facts.since_s(made(probe)) > patience_s):
        return _under_way(facts, MirrorTestPhase.PENDING, "waiting for the probe")
    return _under_way(facts, MirrorTestPhase.RUNNING, "sending the load", Stage.PRODUCE)


def _before_chaos(facts: Facts) -> Step | None:
    """Without who breaks what is to be broken, a load would prove nothing."""
    chaos = (facts.jobs or {}).get(Stage.CHAOS)
    if chaos is None:
        return _under_way(facts, MirrorTestPhase.PENDING, "starting the Job of chaos", Stage.CHAOS)
    if _ready(chaos):
        return None
    if has_ended(chaos) or facts.since_s(made(chaos)) > _START_S:
        said = f"nothing was sent: Job {chaos['metadata']['name']} did not come to break anything"
        return inconclusive(facts, "; ".join([said, *ended_badly(facts, Stage.CHAOS)]))
    return _under_way(facts, MirrorTestPhase.PENDING, "waiting for the Job of chaos")


def _after_its_start(facts: Facts, load: Object) -> Step:
    verify = (facts.jobs or {}).get(Stage.VERIFY)
    if not (load_end := has_ended(load)):
        return _under_way(facts, MirrorTestPhase.RUNNING, "sending the load")
    # A load that was killed left no word on what is to be waited for.
    killed = any(pod.killed and not pod.executor for pod in of_stage(facts.pods, Stage.PRODUCE))
    if verify is None and not killed and _goes_on(facts, Stage.PROBE, load_end, _PROBE_END_S):
        said = "waiting for the last message on the target"
        return _under_way(facts, MirrorTestPhase.RUNNING, said)
    if verify is None and _goes_on(facts, Stage.CHAOS, load_end, _RECOVERY_END_S):
        said = "waiting for the recovery from the last fault"
        return _under_way(facts, MirrorTestPhase.RUNNING, said)
    if verify is None:
        said = "comparing the clusters"
        return _under_way(facts, MirrorTestPhase.VERIFYING, said, Stage.VERIFY)
    if not (end := has_ended(verify)):
        return _under_way(facts, MirrorTestPhase.VERIFYING, "comparing the clusters")
    why = end.get("message") or end.get("reason") or end["type"]
    name = verify["metadata"]["name"]
    said = f"the verifier ended without a report ({why}): look into the log of Job {name}"
    return inconclusive(facts, "; ".join([said, *ended_badly(facts, *Stage)]))


def _goes_on(facts: Facts, stage: Stage, load_end: Object, end_s: float) -> bool:
    """Whether a stage beside the load is to be waited for: until it ends, or the mirror's time and
    ``end_s`` are over."""
    job = (facts.jobs or {}).get(stage)
    if job is None or has_ended(job):
        return False
    waited_s = facts.since_s(datetime.fromisoformat(load_end["lastTransitionTime"]))
    return waited_s < facts.test.spec.settle_seconds + end_s


def _not_yet(facts: Facts) -> str:
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


def _finished(test: MirrorTest, status: MirrorTestStatus, now: datetime) -> Step:
    ttl_s, ended = test.spec.ttl_seconds_after_finished, status.completion_time
    if ttl_s is None or ended is None:
        return Step(status)
    left_s = ttl_s - (now - ended).total_seconds()
    return Step(status, again_s=max(left_s, 1.0), expired=left_s <= 0)


def _under_way(facts: Facts, phase: MirrorTestPhase, said: str, start: Stage | None = None) -> Step:
    status = say(facts, False, False, Reason.TEST_RUNNING, said)
    status = status.model_copy(update={"phase": phase, "start_time": facts.started})
    return Step(status, start=start, again_s=_LOOK_S)


def _waiting(facts: Facts, reason: Reason, why: str, *, stalled: bool = False) -> Step:
    status = say(facts, False, stalled, reason, why)
    status = status.model_copy(update={"phase": MirrorTestPhase.PENDING})
    return Step(status, again_s=None if stalled else _LOOK_S)


def _ready(job: Object) -> bool:
    return bool(job.get("status", {}).get("ready"))
