"""Metrics of the operator at a scrape, for given flows and tests of the API server."""

from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from headrace.controller.metrics import METRICS, OperatorMetrics
from headrace.k8s import Object

Samples = dict[tuple[str, ...], float]
ENDED = "2026-11-21T12:00:00Z"


def scrape(registry: CollectorRegistry) -> dict[str, Samples]:
    """Return values by the name of the metric, then by its labels in the order of its description.

    The value of a histogram is its count.
    """
    described = {metric.name: metric for metric in METRICS}
    found: dict[str, Samples] = {name: {} for name in described}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            name = sample.name.removesuffix("_count")
            if sample.name.endswith(("_bucket", "_sum", "_created")):
                continue
            metric = described[name]
            assert (family.type, family.documentation) == (metric.type, metric.help)
            assert sample.labels.keys() == set(metric.labels)
            found[name][tuple(sample.labels[label] for label in metric.labels)] = sample.value
    return found


class Reconciled:
    """Objects that an operator with three objects in its queue reconciles."""

    def __init__(self, *objects: Object) -> None:
        self._objects = objects

    def objects(self) -> tuple[Object, ...]:
        return self._objects

    def queue_length(self) -> int:
        return 3


def seen(*objects: Object) -> dict[str, Samples]:
    registry = CollectorRegistry()
    metrics = OperatorMetrics(registry, lambda: True)
    flows = [one for one in objects if one["kind"] == "ReplicationFlow"]
    tests = [one for one in objects if one["kind"] == "MirrorTest"]
    metrics.lead(Reconciled(*flows), Reconciled(*tests))
    return scrape(registry)


def flow(status: Object | None = None) -> Object:
    metadata = {"namespace": "shop", "name": "orders"}
    return {"kind": "ReplicationFlow", "metadata": metadata} | (
        {"status": status} if status else {}
    )


def a_test(name: str, verdict: str = "", *, schedule: str = "", **status: Any) -> Object:
    metadata: Object = {"namespace": "shop", "name": name}
    if schedule:
        metadata["ownerReferences"] = [{"kind": "MirrorTest", "name": schedule}]
    reported = {"completionTime": ENDED, **status} | ({"verdict": verdict} if verdict else {})
    return {"kind": "MirrorTest", "metadata": metadata, "status": reported}


def test_a_flow_says_what_its_status_has() -> None:
    found = seen(
        flow(
            {
                "conditions": [
                    {"type": "Ready", "status": "False"},
                    {"type": "DataLossDetected", "status": "True"},
                    {"type": "OfALaterVersion", "status": "True"},
                ],
                "tasks": {"total": 9, "running": 5, "failed": 2},
                "readyReplicas": 2,
                "desiredReplicas": 3,
                "lag": {"records": 1024, "seconds": 16},
            }
        )
    )
    true = [key[2] for key, value in found["headrace_flow_condition"].items() if value]
    assert true == ["DataLossDetected"]
    assert found["headrace_flow_condition"]["shop", "orders", "Ready"] == 0
    phases = {key[2]: value for key, value in found["headrace_flow_tasks"].items()}
    assert phases == {"Running": 5, "Restoring": 0, "Paused": 0, "Failed": 2, "Other": 2}
    assert found["headrace_flow_drivers_ready"] == {("shop", "orders"): 2}
    assert found["headrace_flow_drivers_desired"] == {("shop", "orders"): 3}
    assert found["headrace_flow_lag_records"] == {("shop", "orders"): 1024}
    assert found["headrace_flow_lag_seconds"] == {("shop", "orders"): 16}


def test_a_flow_of_which_nothing_was_said_yet_is_not_ready() -> None:
    found = seen(flow())
    assert found["headrace_flow_condition"]["shop", "orders", "Ready"] == 0
    assert found["headrace_flow_drivers_ready"] == {("shop", "orders"): 0}
    assert found["headrace_flow_drivers_desired"] == {("shop", "orders"): 0}
    assert not found["headrace_flow_lag_records"]


def test_a_test_that_ended_says_its_verdict_counts_and_latency() -> None:
    found = seen(
        a_test(
            "once",
            "Failed",
            counts={"acknowledged": 1000, "missing": 7},
            latencyMs={"p50": 5, "p99": 250, "p999": 1000, "max": 2500},
        ),
        a_test("runs-still"),
    )
    assert found["headrace_mirror_test_verdict"] == {
        ("shop", "once", "Passed"): 0,
        ("shop", "once", "Failed"): 1,
        ("shop", "once", "Inconclusive"): 0,
    }
    counts = {key[2]: value for key, value in found["headrace_mirror_test_messages"].items()}
    assert {outcome: count for outcome, count in counts.items() if count} == {
        "acknowledged": 1000,
        "missing": 7,
    }
    assert len(counts) == 6
    (test,) = seen(a_test("equal", "Passed", counts={"acknowledged": 9, "unequalOffsets": 0}))[
        "headrace_mirror_test_messages"
    ].keys() - {("shop", "equal", outcome) for outcome in counts}
    assert test == ("shop", "equal", "unequalOffsets")
    assert found["headrace_mirror_test_latency_seconds"] == {
        ("shop", "once", "0.5"): 0.005,
        ("shop", "once", "0.99"): 0.25,
        ("shop", "once", "0.999"): 1.0,
        ("shop", "once", "1"): 2.5,
    }
    ended = found["headrace_mirror_test_completion_timestamp_seconds"]
    assert ended == {("shop", "once"): 1795262400}


def test_of_the_runs_of_a_schedule_the_one_that_ended_last_counts() -> None:
    found = seen(
        a_test("nightly"),
        a_test("nightly-2", "Failed", schedule="nightly", completionTime="2026-11-21T13:00:00Z"),
        a_test("nightly-1", "Passed", schedule="nightly"),
        a_test("nightly-3", schedule="nightly", completionTime=None),
    )
    verdicts = found["headrace_mirror_test_verdict"]
    assert [key for key, value in verdicts.items() if value] == [("shop", "nightly", "Failed")]
    assert len(verdicts) == 3


def test_reconciles_are_counted_and_timed() -> None:
    registry = CollectorRegistry()
    metrics = OperatorMetrics(registry, lambda: True)
    reconciled = metrics.reconciles("ReplicationFlow")
    reconciled(0.25, False)
    reconciled(0.5, True)
    found = scrape(registry)
    assert found["headrace_reconcile_duration_seconds"] == {("ReplicationFlow",): 2}
    assert found["headrace_reconcile_errors_total"] == {("ReplicationFlow",): 1}
    took = registry.get_sample_value(
        "headrace_reconcile_duration_seconds_sum", {"kind": "ReplicationFlow"}
    )
    assert took == 0.75


def test_a_replica_that_does_not_lead_says_so_and_no_more() -> None:
    registry = CollectorRegistry()
    OperatorMetrics(registry, lambda: False)
    series = {name: samples for name, samples in scrape(registry).items() if samples}
    assert series == {"headrace_operator_leader": {(): 0}}


def test_every_metric_that_is_described_is_served() -> None:
    registry = CollectorRegistry()
    metrics = OperatorMetrics(registry, lambda: True)
    metrics.reconciles("ReplicationFlow")(0.1, True)
    write = {"topic": "orders", "partition": 1, "offsets": 12}
    status = {"tasks": {"total": 1}, "lag": {}, "sourceWrites": [write]}
    latency = {"p50": 1, "p99": 1, "p999": 1, "max": 1}
    test = a_test("once", "Passed", counts={"acknowledged": 1}, latencyMs=latency)
    metrics.lead(Reconciled(flow(status)), Reconciled(test))
    found = scrape(registry)
    assert [name for name, samples in found.items() if not samples] == []
    queued = {("ReplicationFlow",): 3, ("MirrorTest",): 3}
    assert found["headrace_reconcile_queue_length"] == queued
