"""Metrics of working drivers and of the operator: real brokers, a real API server."""

from collections.abc import Callable
from functools import partial
from operator import eq
from pathlib import Path
from typing import Any

import pytest
import urllib3
from cluster.api_server import ApiServer
from cluster.kubelet import Kubelet
from prometheus_client.parser import text_string_to_metric_families
from support.flows import manifest, spec
from support.operators import Resources, give_rights, running_operator
from support.records import make_topic, numbered, produce, unique

from headrace.sandbox import SandboxCluster

Wait = Callable[..., Any]
RECORDS, PARTITIONS = 1000, 4


class Scraped:
    """Samples of one or more scrapes."""

    def __init__(self, *texts: str) -> None:
        self._samples = [
            sample
            for text in texts
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        ]

    def values(self, name: str, **labels: str) -> list[float]:
        """Return the values of all series that have these labels."""
        return [
            sample.value
            for sample in self._samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]

    def total(self, name: str, **labels: str) -> float:
        """Return the sum of all series that have these labels."""
        return sum(self.values(name, **labels))


@pytest.fixture
def resources(api_server: ApiServer, namespace: str) -> Resources:
    give_rights(api_server, namespace)
    return Resources(api_server, namespace)


def test_drivers_say_what_they_copied_and_the_operator_how_the_flow_is(
    *,
    api_server: ApiServer,
    resources: Resources,
    kubelet: Kubelet,
    start_cluster: Callable[..., SandboxCluster],
    west: SandboxCluster,
    tmp_path: Path,
    wait_until: Wait,
) -> None:
    """Use one driver, so that nothing moves, and a source without heartbeats to copy."""
    source, name = start_cluster("source"), unique("metrics")
    topic = make_topic(spec(source), name, PARTITIONS)
    records = numbered(RECORDS, PARTITIONS)
    produce(spec(source), topic, records, {"linger.ms": "1000"})  # none is joined: a batch each
    written = sum(len(record.key or b"") + len(record.value or b"") for record in records)
    flow = {"namespace": resources.namespace, "flow": name}
    copying = {**flow, "type": "SourceTask"}

    def driver() -> Scraped:
        urls = [f"http://{pod.ip}:8080/metrics" for pod in kubelet.pods()]
        return Scraped(
            *(urllib3.request("GET", url, timeout=60, retries=False).data.decode() for url in urls)
        )

    def beats() -> list[float]:
        return driver().values("headrace_heartbeat_timestamp_seconds", **flow, cluster="west")

    with running_operator(api_server, resources.namespace, tmp_path) as operator:
        fields = {
            "tasks": {"max": PARTITIONS},
            "drivers": {"replicas": 1},
            "heartbeats": {"onSource": False},
        }
        resources.apply(manifest(name, source, west, topic, **fields))
        resources.kubectl("wait", "--for=condition=Ready", f"rflow/{name}", "--timeout=300s")
        seen = wait_until(
            driver,
            until=lambda seen: (
                seen.total("headrace_task_copied_records_total", **copying) == RECORDS
                and seen.values("headrace_task_lag_records", **copying) == [0] * PARTITIONS
            ),
        )
        whole = {**copying, "path": "copied"}
        headers = 61 * seen.total("headrace_task_batches_total", **whole)
        copied = seen.total("headrace_task_copied_bytes_total", **copying)
        assert copied == seen.total("headrace_task_batch_bytes_total", **whole) - headers
        assert copied > written, "each record has a length, a time and an offset besides"
        assert seen.total("headrace_task_partitions", **copying) == PARTITIONS
        assert seen.total("headrace_task_phase", **copying, phase="Running") == PARTITIONS
        conditions = seen.values("headrace_task_condition", **copying)
        assert len(conditions) >= PARTITIONS
        assert not any(conditions)
        written_status = {"verb": "update", "kind": "ReplicationTask", "outcome": "Success"}
        assert seen.total("headrace_api_requests_total", **written_status) >= PARTITIONS
        (first,) = wait_until(beats)
        wait_until(beats, until=lambda beats: beats > [first])

        heartbeat = 1
        expected = {
            "running": [PARTITIONS + heartbeat],
            "leader": [1],
            "ready": [1],
            "drivers": [1],
        }

        def state(metrics: Scraped) -> dict[str, list[float]]:
            return {
                "running": metrics.values("headrace_flow_tasks", **flow, phase="Running"),
                "leader": metrics.values("headrace_operator_leader"),
                "ready": metrics.values("headrace_flow_condition", **flow, condition="Ready"),
                "drivers": metrics.values("headrace_flow_drivers_ready", **flow),
            }

        metrics = wait_until(
            lambda: Scraped(operator.get("/metrics")),
            until=lambda metrics: state(metrics) == expected,
        )
        assert (
            metrics.total("headrace_reconcile_duration_seconds_count", kind="ReplicationFlow") > 0
        )
        applied = {"verb": "patch", "kind": "Deployment", "outcome": "Success"}
        assert metrics.total("headrace_api_requests_total", **applied) >= 1


def test_a_verdict_is_told_until_its_test_is_deleted(
    *, api_server: ApiServer, resources: Resources, tmp_path: Path, wait_until: Wait
) -> None:
    test = {
        "apiVersion": "headrace.dev/v1beta1",
        "kind": "MirrorTest",
        "metadata": {"name": "once"},
        "spec": {
            "source": {"alias": "east", "bootstrapServers": "127.0.0.1:1"},
            "target": {"alias": "west", "bootstrapServers": "127.0.0.1:2"},
        },
    }
    status = (
        '{"status": {"phase": "Finished", "verdict": "Failed", "counts": {"missing": 3},'
        ' "latencyMs": {"p50": 5, "p99": 40, "p999": 60, "max": 70},'
        ' "completionTime": "2026-11-21T12:00:00Z"}}'
    )
    resources.apply(test)  # a running operator would begin it, and also write its status
    resources.kubectl("patch", "mtest/once", "--subresource=status", "--type=merge", "-p", status)
    with running_operator(api_server, resources.namespace, tmp_path) as operator:
        wait_until(lambda: "leads" in operator.log)
        named = {"namespace": resources.namespace, "test": "once"}

        def verdict() -> list[float]:
            metrics = Scraped(operator.get("/metrics"))
            return metrics.values("headrace_mirror_test_verdict", **named, verdict="Failed")

        wait_until(verdict, until=partial(eq, [1]))
        metrics = Scraped(operator.get("/metrics"))
        assert metrics.values("headrace_mirror_test_messages", **named, outcome="missing") == [3]
        p99 = metrics.values("headrace_mirror_test_latency_seconds", **named, quantile="0.99")
        assert p99 == [0.04]
        resources.kubectl("delete", "mtest/once")
        wait_until(verdict, until=partial(eq, []))
