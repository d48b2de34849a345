"""The metrics of a MirrorTest that has ended: what its status says."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from headrace.api import Verdict
from headrace.telemetry.flows import Sample
from headrace.telemetry.metrics import Described

Object = Mapping[str, Any]

_TEST = ("namespace", "test")
_OF_TEST = (
    "of a finished MirrorTest; runs of a "
    "schedule, and windows of a load without end, go by its name, and the last one counts."
)

TEST_VERDICT = Described(
    "headrace_mirror_test_verdict",
    "gauge",
    f"1 for the verdict (Passed, Failed, Inconclusive), 0 for the others, {_OF_TEST}",
    (*_TEST, "verdict"),
)
TEST_MESSAGES = Described(
    "headrace_mirror_test_messages",
    "gauge",
    f"Messages by outcome, {_OF_TEST}",
    (*_TEST, "outcome"),
)
TEST_LATENCY = Described(
    "headrace_mirror_test_latency_seconds",
    "gauge",
    f"Quantiles of the mirror's latency (quantile 1: the slowest), {_OF_TEST}",
    (*_TEST, "quantile"),
)
TEST_ENDED = Described(
    "headrace_mirror_test_completion_timestamp_seconds",
    "gauge",
    f"When it ended (Unix time), {_OF_TEST}",
    _TEST,
)
TEST_METRICS: Sequence[Described] = (TEST_VERDICT, TEST_MESSAGES, TEST_LATENCY, TEST_ENDED)

_OUTCOMES = ("acknowledged", "missing", "duplicated", "reordered", "corrupted", "alien")
_QUANTILES = {"0.5": "p50", "0.99": "p99", "0.999": "p999", "1": "max"}


def test_samples(name: tuple[str, str], status: Object) -> Iterator[Sample]:
    """Of a MirrorTest that has ended: its namespace and name, and its status."""
    for verdict in Verdict:
        yield TEST_VERDICT, (*name, verdict.value), status["verdict"] == verdict
    if (counts := status.get("counts")) is not None:
        for outcome in _OUTCOMES:
            yield TEST_MESSAGES, (*name, outcome), counts.get(outcome, 0)
        if (unequal := counts.get("unequalOffsets")) is not None:
            yield TEST_MESSAGES, (*name, "unequalOffsets"), unequal
    if (latency_ms := status.get("latencyMs")) is not None:
        for quantile, field in _QUANTILES.items():
            yield TEST_LATENCY, (*name, quantile), latency_ms[field] / 1000
    if at_s := ended_s(status):
        yield TEST_ENDED, name, at_s


def ended_s(status: Object) -> float:
    """When a test ended, in Unix time; 0 without one."""
    ended: str | None = status.get("completionTime")
    return datetime.fromisoformat(ended).timestamp() if ended else 0.0
