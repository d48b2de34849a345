"""Mirror tests whose pods fail: their outcome, their messages, their remaining objects."""

import signal
import time
from collections.abc import Callable
from functools import partial
from operator import eq
from pathlib import Path
from typing import Any

import pytest
from cluster.kubectl import KubectlError
from cluster.real import Cluster
from e2e.mirror_test import MirrorTestInPods
from e2e.restrictions import policies
from e2e.stage import SMALL, kafka_cluster, make_topic, records, send
from support.manifests import Document, mirror_test_of_another

Wait = Callable[..., Any]
EXECUTORS = "spark-role=executor"
LOAD = "headrace.dev/stage=produce"
PARTITIONS = 8
RECORDS = 100

pytestmark = pytest.mark.usefixtures("brokers", "release")


@pytest.fixture
def begin(cluster: Cluster, namespace: str) -> Callable[..., MirrorTestInPods]:
    """Return ``begin(name, **spark)``, which starts a test of a mirror that does not run.

    No such test reaches the comparison.
    """

    def apply(name: str, wishes: Document | None = None, **spark: Any) -> MirrorTestInPods:
        test = mirror_test_of_another(
            name,
            source=kafka_cluster("east"),
            target=kafka_cluster("west"),
            load={
                "topics": 1,
                "partitions": PARTITIONS,
                "durationSeconds": 1_200,  # it outlasts the slowest step of a test
                "messagesPerSecond": 100,
            },
            settleSeconds=5,
            podTemplate=wishes or {},
            spark={"executors": 1, "driver": SMALL, "executor": SMALL, **spark},
        )
        cluster.apply(test, namespace=namespace)
        return MirrorTestInPods(cluster, namespace, name)

    return apply


@pytest.mark.timeout(1800)
@pytest.mark.long
def test_a_killed_spark_driver_ends_the_test_without_a_verdict_on_the_mirror(
    begin: Callable[..., MirrorTestInPods],
    cluster: Cluster,
    namespace: str,
    tmp_path: Path,
    wait_until: Wait,
) -> None:
    cluster.apply(*policies(cluster), namespace=namespace)
    wishes = {"nodeSelector": {"kubernetes.io/os": "linux"}, "imagePullSecrets": [{"name": "any"}]}
    name = f"killed-{namespace}"
    topic = f"east.{name}-0"  # the probe waits a minute for it
    wait_until(lambda: make_topic(cluster, "west", topic, PARTITIONS), until=lambda _: True)
    with cluster.enforcing_policies():  # Spark's pods reach each other, and the brokers
        test = begin(name, wishes)
        wait_until(lambda: "sending the load" in test.ready()["message"], within_s=400)
        wait_until(lambda: something_was_sent(cluster, f"{name}-0"), within_s=300)
    (executor,) = wait_until(lambda: test.pods(f"{LOAD},{EXECUTORS}")).values()
    assert {name: executor["spec"][name] for name in wishes} == wishes
    wait_until(lambda: "has no report yet" in test.report(tmp_path))
    (spark_driver,) = test.pods(f"{LOAD},spark-role!=executor")
    cluster.signal_container(test.namespace, spark_driver, signal.SIGKILL)
    assert wait_until(test.verdict, within_s=300) == "Inconclusive"
    assert spark_driver in test.ready()["message"]
    wait_until(lambda: test.pods(EXECUTORS), until=partial(eq, {}))


def something_was_sent(cluster: Cluster, topic: str) -> bool:
    """Return whether executors have sent records, and therefore reached the Spark driver."""
    try:
        return records(cluster, "east", topic, PARTITIONS) > 0
    except KubectlError:
        return False  # the topic does not exist yet


def test_an_audit_compares_topics_from_a_pod(
    cluster: Cluster, namespace: str, tmp_path: Path, wait_until: Wait
) -> None:
    topic, first_ms = f"audited-{namespace}", time.time_ns() // 1_000_000
    patterns = {"audited": topic, "wrong": "no-.*"}
    for alias in ("east", "west"):
        wait_until(partial(make_topic, cluster, alias, topic, 2), until=lambda _: True)
        send(cluster, alias, topic, RECORDS, first_ms)
    for name, pattern in patterns.items():
        cluster.apply(audit_of(name, pattern), namespace=namespace)
    audited, wrong = (MirrorTestInPods(cluster, namespace, name) for name in patterns)
    assert wait_until(audited.verdict, within_s=400) == "Passed", audited.ready()["message"]
    assert audited.status()["counts"]["acknowledged"] == RECORDS
    [compared] = audited.result()["audit"]["topics"]
    assert (compared["source"], compared["targetRecords"]) == (topic, RECORDS)
    assert audited.result()["audit"]["past"]["isStored"]
    page = tmp_path / "audited.html"
    audited.report(tmp_path, "--page", str(page))
    assert "What was compared" in page.read_text()
    assert wait_until(wrong.verdict, within_s=300) == "Inconclusive"
    assert "no topic of east matches no-.*" in wrong.ready()["message"]


def audit_of(name: str, pattern: str) -> Document:
    """Return a MirrorTest that continues after the last audit of the same topics."""
    return mirror_test_of_another(
        name,
        source=kafka_cluster("east"),
        target=kafka_cluster("west"),
        targetTopic="{topic}",
        audit={"topics": [pattern], "startFrom": {"mode": "LastAudit"}},
        spark={"executors": 1, "driver": SMALL, "executor": SMALL},
    )


@pytest.mark.timeout(1800)
@pytest.mark.long
def test_each_audit_in_pods_compares_only_records_since_the_last_one(
    cluster: Cluster, namespace: str, wait_until: Wait
) -> None:
    topic, sent, now_ms = f"nightly-{namespace}", 0, time.time_ns() // 1_000_000
    for alias in ("east", "west"):
        wait_until(partial(make_topic, cluster, alias, topic, 2), until=lambda _: True)
    for night, count in enumerate((RECORDS, 10, 6)):
        for alias in ("east", "west"):
            send(cluster, alias, topic, count, now_ms + sent)
        audited = MirrorTestInPods(cluster, namespace, f"night-{night}")
        cluster.apply(audit_of(audited.name, topic), namespace=namespace)
        assert wait_until(audited.verdict, within_s=400) == "Passed", audited.ready()["message"]
        [compared] = audited.result()["audit"]["topics"]
        print(f"audit {night + 1}: {compared['sourceRecords']} of {sent + count} records")
        assert compared["sourceRecords"] == compared["targetRecords"] == count
        before, after = sent // 2, (sent + count) // 2
        assert compared["sourceRanges"] == [[before, after]] * 2
        sent += count


def test_pods_that_cannot_start_say_so(
    begin: Callable[..., MirrorTestInPods], wait_until: Wait
) -> None:
    too_large = begin("too-large", driver={"resources": {"limits": {"memory": "9000000Mi"}}})
    not_there = begin("not-there", image="nowhere.invalid/spark:1")
    for test, reason, word in (
        (too_large, "Unschedulable", "spec.spark.driver"),
        (not_there, "ImageNotPulled", "nowhere.invalid/spark:1"),
    ):
        ready = wait_until(
            test.ready, until=lambda seen, reason=reason: seen.get("reason") == reason
        )
        assert word in ready["message"]
