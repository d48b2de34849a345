"""How a MirrorTest ends: with the verdict of its report, or without one."""

import json

from pydantic import ValidationError

from headrace.api import (
    LatencyMs,
    MirrorTestCounts,
    MirrorTestPhase,
    MirrorTestStatus,
    Reason,
    Verdict,
)
from headrace.controller.mirror_tests.facts import RunFacts, StageDecision, status_with
from headrace.controller.mirror_tests.pods import of_stage
from headrace.controller.mirror_tests.run import report_name
from headrace.mirror_test import Stage

_BEFORE_VERDICT = (Stage.PROBE, Stage.CHAOS, Stage.REHEARSAL, Stage.PRODUCE)
_REASONS = {
    Verdict.PASSED: Reason.TEST_PASSED,
    Verdict.FAILED: Reason.TEST_FAILED,
    Verdict.INCONCLUSIVE: Reason.TEST_INCONCLUSIVE,
}


def judged(facts: RunFacts, report: str) -> MirrorTestStatus:
    """The verdict of the report, and of nothing else; one that cannot be read is none."""
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
        reasons = "; ".join(str(one).removesuffix(".") for one in document["reasons"])
        if verdict is Verdict.INCONCLUSIVE:
            reasons = "; ".join([reasons, *ended_badly(facts, *_BEFORE_VERDICT)])
    except (ValueError, KeyError, TypeError, AttributeError, ValidationError) as error:
        return inconclusive(facts, f"the report cannot be read: {error}").status
    return _with_verdict(facts, verdict, reasons[:4096]).model_copy(
        update={
            "counts": counts,
            "latency_ms": latency,
            "report": report_name(facts.test),
        }
    )


def _aliases(model: type[MirrorTestCounts] | type[LatencyMs]) -> set[str | None]:
    return {info.alias for info in model.model_fields.values()}


def ended_badly(facts: RunFacts, *stages: Stage) -> list[str]:
    """What the Spark drivers of ``stages`` that ended with an error had to status_with."""
    pods = [pod for stage in stages for pod in of_stage(facts.pods, stage)]
    return [pod.problem.message for pod in pods if pod.problem and pod.ended and not pod.executor]


def inconclusive(facts: RunFacts, why: str) -> StageDecision:
    """The end without a report."""
    return StageDecision(_with_verdict(facts, Verdict.INCONCLUSIVE, why[:4096]))


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
