"""Passed, Failed or Inconclusive: rules over the evidence, each a small pure function.

A rule yields objections: sentences, each with the verdict that it forces. Failed outweighs
Inconclusive: a record that the source has and the target lacks is missing, whatever else is not
known. Inconclusive outweighs Passed: what could not be seen is never taken for good.
"""

from collections.abc import Callable, Iterator

from headrace.api import Verdict
from headrace_spark import arrival_rules, fault_rules, load_rules
from headrace_spark.evidence import Evidence, Objection

RULES: tuple[Callable[[Evidence], Iterator[Objection]], ...] = (
    arrival_rules.records,
    arrival_rules.sentinels,
    load_rules.source,
    load_rules.load,
    arrival_rules.latency,
    fault_rules.recovery,
    fault_rules.rehearsal,
    load_rules.rate,
)


def judge(evidence: Evidence) -> tuple[Verdict, tuple[str, ...], tuple[str, ...]]:
    """The verdict, the reasons for it with the heaviest first, and warnings."""
    objections = [objection for rule in RULES for objection in rule(evidence)]

    def sentences(verdict: Verdict) -> tuple[str, ...]:
        return tuple(o.sentence for o in objections if o.verdict is verdict)

    failed, unclear = sentences(Verdict.FAILED), sentences(Verdict.INCONCLUSIVE)
    warnings = (*evidence.manifest.warnings, *sentences(Verdict.PASSED))
    if failed or unclear:
        verdict = Verdict.FAILED if failed else Verdict.INCONCLUSIVE
        return verdict, (*failed, *unclear), warnings
    acknowledged = evidence.counts.acknowledged
    at = "" if evidence.counts.unequal_offsets != 0 else " at their source's offsets"
    passed = (
        f"all {acknowledged:,} acknowledged messages are on the target{at}, within every budget"
    )
    return Verdict.PASSED, (passed,), warnings
