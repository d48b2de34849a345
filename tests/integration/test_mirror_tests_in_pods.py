"""Whole mirror tests by the operator: pods run as processes, brokers and Spark are real."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from cluster.api_server import ApiServer
from cluster.kubelet import Kubelet, running_kubelet
from cluster.pod import RunningPod
from support.flows import manifest
from support.operators import Operator, Resources
from support.records import unique

from headrace.sandbox import Cluster
from headrace.toolchain import JarSet, find_java, jars

Wait = Callable[..., Any]
LONG_S = 480.0


@pytest.fixture
def kubelet(api_server: ApiServer, namespace: str, tmp_path: Path) -> Iterator[Kubelet]:
    """With what the image of the Spark jobs brings: Java, and the jars."""
    java, conf = find_java(), tmp_path / "conf"
    conf.mkdir()
    found = ":".join(map(str, jars(JarSet.SPARK_KAFKA, java)))
    paths = [f"spark.{role}.extraClassPath {found}\n" for role in ("driver", "executor")]
    (conf / "spark-defaults.conf").write_text("".join(paths))
    spark = find_spec("pyspark")
    assert spark
    assert spark.origin
    image = {
        "JAVA_HOME": str(java.home),
        "SPARK_HOME": str(Path(spark.origin).parent),
        "SPARK_CONF_DIR": str(conf),
        "PYSPARK_PYTHON": sys.executable,
    }
    with running_kubelet(api_server, namespace, tmp_path / "pods", image) as kubelet:
        yield kubelet


def mirror_test(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "headrace.dev/v1alpha1",
        "kind": "MirrorTest",
        "metadata": {"name": name},
        "spec": {"settleSeconds": 20, "spark": {"executors": 0}, **spec},  # less to start
    }


def between(east: Cluster, west: Cluster) -> dict[str, Any]:
    """Of a mirror that nobody runs."""
    clusters = {"source": east, "target": west}
    return {
        side: {"alias": one.name, "bootstrapServers": one.bootstrap_servers}
        for side, one in clusters.items()
    }


def status(resources: Resources, name: str) -> dict[str, Any]:
    found: dict[str, Any] = resources.get("mtest", name).get("status", {})
    return found


def verdict(resources: Resources, wait_until: Wait, name: str) -> dict[str, Any]:
    """The status of a test that has ended."""
    found: dict[str, Any] = wait_until(
        lambda: status(resources, name), within_s=LONG_S, until=lambda seen: "verdict" in seen
    )
    return found


def driver_pod(kubelet: Kubelet, wait_until: Wait, job: str) -> RunningPod:
    """The pod of a Job, once it runs."""

    def look() -> RunningPod | None:
        found = [pod for pod in kubelet.pods() if pod.name.startswith(f"{job}-")]
        return found[0] if found and found[0].container().running else None

    pod: RunningPod = wait_until(look, within_s=LONG_S)
    return pod


def headrace(api_server: ApiServer, folder: Path, *arguments: str, browser: str = "false") -> str:
    done = subprocess.run(
        [sys.executable, "-m", "headrace", *arguments],
        env={**os.environ, "KUBECONFIG": str(api_server.kubeconfig), "BROWSER": browser},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def test_a_flow_passes_and_its_report_is_there_when_the_pods_are_gone(
    *,
    api_server: ApiServer,
    operator: Operator,
    kubelet: Kubelet,
    resources: Resources,
    east: Cluster,
    west: Cluster,
    tmp_path: Path,
    wait_until: Wait,
) -> None:
    name = unique("carried")
    resources.apply(
        manifest(name, east, west, f"{name}.*", drivers={"replicas": 1}),
        mirror_test(
            name,
            flowName=name,
            load={"topics": 2, "partitions": 3, "messages": 20_000, "messagesPerSecond": 2_000},
            budgets={"latencyP99Ms": 60_000},
            spark={"executors": 2},
        ),
    )
    enforced = "pod-security.kubernetes.io/enforce=restricted"
    resources.kubectl("label", "namespace", resources.namespace, enforced)
    executors = ("-l", "headrace.dev/stage=produce,spark-role=executor")
    wait_until(
        lambda: [
            pod["metadata"]["ownerReferences"][0]["kind"]
            for pod in resources.get("pods", *executors)["items"]
            if pod["status"]["phase"] == "Running"
        ],
        within_s=LONG_S,
        until=lambda seen: seen == ["Pod", "Pod"],
    )
    early = headrace(api_server, tmp_path, "report", name, "-n", resources.namespace)
    assert early.startswith(f"headrace: MirrorTest {name} has no report yet")
    ended = verdict(resources, wait_until, name)
    assert (ended["verdict"], ended["phase"]) == ("Passed", "Finished"), ended
    assert ended["counts"]["acknowledged"] == 20_000
    assert ended["counts"]["missing"] == 0
    assert 0 < ended["latencyMs"]["p50"] <= ended["latencyMs"]["max"]
    assert resources.get("pods", "-l", "spark-role=executor")["items"] == []
    kept = resources.get("configmap", f"{name}-report")
    assert kept["metadata"]["ownerReferences"][0]["name"] == name
    report = json.loads(kept["data"]["report.json"])
    assert (report["flow"], report["latencyMs"]["measured"]) == (name, 20_000)
    print(f"{len(kept['data']['report.json'])} bytes; {ended['latencyMs']}")

    resources.kubectl("delete", "jobs", "--all")
    wait_until(
        lambda: resources.kubectl("get", "pods", "-l", "headrace.dev/stage", "-o", "name"),
        within_s=60,
        until=lambda left: not left,
    )
    seen = tmp_path / "browser"
    script = tmp_path / "browse"
    script.write_text(f'#!/bin/sh\necho "$1" > {seen}\n')
    script.chmod(0o755)
    where = ("report", name, "-n", resources.namespace)
    told = headrace(api_server, tmp_path, *where, browser=str(script))
    assert told.startswith("Passed: all 20,000 acknowledged messages are on the target")
    page = tmp_path / "headrace-reports" / name / report["run"] / "report.html"
    assert "Passed" in page.read_text()
    assert wait_until(lambda: seen.exists() and seen.read_text(), within_s=10).strip() == (
        page.as_uri()
    )
    assert "<svg" in headrace(api_server, tmp_path, *where, "--output", "-")


def test_a_load_whose_spark_driver_is_killed_is_no_proof(
    *,
    operator: Operator,
    kubelet: Kubelet,
    resources: Resources,
    east: Cluster,
    west: Cluster,
    wait_until: Wait,
) -> None:
    name = unique("killed")
    load = {"topics": 1, "partitions": 1, "durationSeconds": 600, "messagesPerSecond": 100}
    spark = {"executors": 1}
    resources.apply(
        mirror_test(name, **between(east, west), load=load, settleSeconds=1, spark=spark)
    )
    probe = driver_pod(kubelet, wait_until, f"{name}-probe")
    producer = driver_pod(kubelet, wait_until, f"{name}-produce")
    wait_until(lambda: '"progress"' in producer.log, within_s=LONG_S)
    producer.kill()
    executors = ("-l", "headrace.dev/stage=produce,spark-role=executor", "-o", "name")
    wait_until(
        lambda: resources.kubectl("get", "pods", *executors),
        within_s=60,
        until=lambda left: not left,
    )
    ended = verdict(resources, wait_until, name)
    assert ended["verdict"] == "Inconclusive"
    said = next(c for c in ended["conditions"] if c["type"] == "Ready")["message"]
    assert said.startswith(f"there is no manifest of run {probe_run(probe)}")
    assert f"pod {producer.name} ended with signal 9" in said
    wait_until(
        lambda: [job for job in resources.get("jobs")["items"] if job["status"].get("active")],
        within_s=60,
        until=lambda under_way: not under_way,
    )
    assert ended["report"] == f"{name}-report"


def probe_run(probe: RunningPod) -> str:
    arguments = probe.container().spec["args"]
    return str(next(one for one in arguments if one.startswith("--run="))).removeprefix("--run=")


def test_a_verifier_that_cannot_leave_its_report_is_no_proof(
    *,
    operator: Operator,
    kubelet: Kubelet,
    resources: Resources,
    east: Cluster,
    west: Cluster,
    wait_until: Wait,
) -> None:
    name = unique("mute")
    load = {"topics": 1, "partitions": 1, "messages": 10}
    resources.apply(mirror_test(name, **between(east, west), load=load, settleSeconds=1))
    driver_pod(kubelet, wait_until, f"{name}-verify")
    resources.kubectl("delete", f"configmap/{name}-report")
    ended = verdict(resources, wait_until, name)
    assert (ended["verdict"], ended.get("report")) == ("Inconclusive", None)
    said = next(c for c in ended["conditions"] if c["type"] == "Ready")["message"]
    assert said.startswith("the verifier ended without a report (")
    assert re.search(
        rf"exit code 2: the verifier could not patch configmaps {name}-report .* not found", said
    )
