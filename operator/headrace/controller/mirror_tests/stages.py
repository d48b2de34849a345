"""What a MirrorTest does next, from what there is: its flow, its Jobs, its report."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from pydantic import ValidationError

from headrace.api import (
    ConditionStatus,
    ConditionType,
    LatencyMs,
    MirrorTest,
    MirrorTestCounts,
    MirrorTestPhase,
    MirrorTestStatus,
    Reason,
    ReplicationFlow,
    Verdict,
    unbuilt,
)
from headrace.controller.mirror_tests.jobs import report_name
from headrace.controller.mirror_tests.status import saying
from headrace.k8s import Object
from headrace.replication import flow_status
from headrace.replication.stages import Stage

_PROBE_START_S = 300.0
"""Images to pull, executors to place; after that the load starts without a probe."""
_LOOK_S = 10.0

_REASONS = {
    Verdict.PASSED: Reason.TEST_PASSED,
    Verdict.FAILED: Reason.TEST_FAILED,
    Verdict.INCONCLUSIVE: Reason.TEST_INCONCLUSIVE,
}


@dataclass(frozen=True)
class Facts:
    """All that a decision rests on."""

    test: MirrorTest
    now: datetime
    run: str = ""
    """Name of the run."""
    flow: ReplicationFlow | None = None
    """The one that the test names, when it is there."""
    jobs: Mapping[Stage, Object] | None = None
    """Those that are there."""
    report: str | None = None
    """``report.json``, as the verifier left it."""


@dataclass(frozen=True)
class Step:
    """What to do."""

    status: MirrorTestStatus
    start: Stage | None = None
    again_s: float | None = None
    """Seconds until it must be looked at again though nothing happened."""
    expired: bool = False
    """Whether its time after the end is over: delete it."""


def next_step(facts: Facts) -> Step:
    """One stage after the other; the load is sent once, whatever happens to its Job."""
    test = facts.test
    if test.status is not None and test.status.verdict is not None:
        return _finished(test, test.status, facts.now)
    if obstacle := _obstacle(facts):
        return obstacle
    if facts.report:
        return Step(_judged(facts, facts.report))
    load = (facts.jobs or {}).get(Stage.PRODUCE)
    return _before_the_load(facts) if load is None else _after_its_start(facts, load)


def _obstacle(facts: Facts) -> Step | None:
    if _has_begun(facts.test):
        return None
    if refused := unbuilt(facts.test).refused:
        return _waiting(facts, Reason.NOT_BUILT, "; ".join(refused), stalled=True)
    if not facts.jobs and (why := _not_yet(facts)):
        return _waiting(facts, Reason.WAITING_FOR_FLOW, why)
    return None


def _has_begun(test: MirrorTest) -> bool:
    """Whether the load may have been sent."""
    phase = test.status.phase if test.status else None
    return phase not in (None, MirrorTestPhase.PENDING)


def _before_the_load(facts: Facts) -> Step:
    probe = (facts.jobs or {}).get(Stage.PROBE)
    if _has_begun(facts.test):
        return _inconclusive(facts, "the producer's Job is gone: nobody knows what was sent")
    if probe is None:
        return _under_way(facts, MirrorTestPhase.PENDING, "starting the probe", Stage.PROBE)
    if not (_ready(probe) or _end(probe) or _age_s(probe, facts.now) > _PROBE_START_S):
        return _under_way(facts, MirrorTestPhase.PENDING, "waiting for the probe")
    return _under_way(facts, MirrorTestPhase.RUNNING, "sending the load", Stage.PRODUCE)


def _after_its_start(facts: Facts, load: Object) -> Step:
    verify = (facts.jobs or {}).get(Stage.VERIFY)
    if not _end(load):
        return _under_way(facts, MirrorTestPhase.RUNNING, "sending the load")
    if verify is None:
        said = "comparing the clusters"
        return _under_way(facts, MirrorTestPhase.VERIFYING, said, Stage.VERIFY)
    if not (end := _end(verify)):
        return _under_way(facts, MirrorTestPhase.VERIFYING, "comparing the clusters")
    why = end.get("message") or end.get("reason") or end["type"]
    name = verify["metadata"]["name"]
    return _inconclusive(
        facts, f"the verifier ended without a report ({why}): look into the log of Job {name}"
    )


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


def _judged(facts: Facts, report: str) -> MirrorTestStatus:
    """The verdict of the report, and of nothing else; one that cannot be read is none."""
    try:
        document = json.loads(report)
        if document["run"] != facts.run:
            return _inconclusive(facts, f"the report is of run {document['run']}").status
        verdict = Verdict(document["verdict"])
        counts, latency = (
            model.model_validate({k: v for k, v in found.items() if k in _aliases(model)})
            if (found := document.get(key))
            else None
            for key, model in (("counts", MirrorTestCounts), ("latencyMs", LatencyMs))
        )
        reasons = " ".join(map(str, document["reasons"]))[:4096]
    except (ValueError, KeyError, TypeError, AttributeError, ValidationError) as error:
        return _inconclusive(facts, f"the report cannot be read: {error}").status
    return _with_verdict(facts, verdict, reasons).model_copy(
        update={
            "counts": counts,
            "latency_ms": latency,
            "report": report_name(facts.test),
        }
    )


def _aliases(model: type[MirrorTestCounts] | type[LatencyMs]) -> set[str | None]:
    return {info.alias for info in model.model_fields.values()}


def _inconclusive(facts: Facts, why: str) -> Step:
    return Step(_with_verdict(facts, Verdict.INCONCLUSIVE, why))


def _with_verdict(facts: Facts, verdict: Verdict, message: str) -> MirrorTestStatus:
    passed = verdict is Verdict.PASSED
    return _saying(facts, passed, not passed, _REASONS[verdict], message).model_copy(
        update={
            "phase": MirrorTestPhase.FINISHED,
            "verdict": verdict,
            "completion_time": facts.now,
        }
    )


def _under_way(facts: Facts, phase: MirrorTestPhase, said: str, start: Stage | None = None) -> Step:
    started = (facts.test.status and facts.test.status.start_time) or facts.now
    status = _saying(facts, False, False, Reason.TEST_RUNNING, said)
    status = status.model_copy(update={"phase": phase, "start_time": started})
    return Step(status, start=start, again_s=_LOOK_S)


def _waiting(facts: Facts, reason: Reason, why: str, *, stalled: bool = False) -> Step:
    status = _saying(facts, False, stalled, reason, why)
    status = status.model_copy(update={"phase": MirrorTestPhase.PENDING})
    return Step(status, again_s=None if stalled else _LOOK_S)


def _saying(
    facts: Facts, ready: bool, stalled: bool, reason: Reason, message: str
) -> MirrorTestStatus:
    return saying(facts.test, flow_status.Verdict(ready, stalled, reason, message), facts.now)


def _ready(job: Object) -> bool:
    return bool(job.get("status", {}).get("ready"))


def _end(job: Object) -> Object | None:
    for condition in job.get("status", {}).get("conditions", []):
        if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
            found: Object = condition
            return found
    return None


def _age_s(job: Object, now: datetime) -> float:
    made = job["metadata"].get("creationTimestamp")
    return (now - datetime.fromisoformat(made)).total_seconds() if made else 0.0
