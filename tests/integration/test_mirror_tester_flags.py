"""The scripts produce.py, probe.py and verify.py with kafka-mirror-tester's flags.

The brokers are real. The scripts serve the tester's metrics for the chart's dashboard while they
run, and print a verdict at the end.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from operator import eq
from pathlib import Path
from typing import Any

import pytest
from support.flows import spec
from support.helm import CHART
from support.patience import WITHIN_S
from support.prometheus import SCRAPE_S, running_prometheus, scraped
from support.records import make_topic, produce, read, unique

from headrace.cli.mirror_test.spark_job import environment
from headrace.mirror_test import Result, Stage
from headrace.sandbox import SandboxCluster
from headrace.sandbox.processes import held_ports

WaitUntil = Callable[..., Any]
CLONE = Path(__file__).parents[2]
PAGE = json.loads((CHART / "files" / "dashboards" / "mirror-tester.json").read_text())


def started(job: str, folder: Path, *words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, CLONE / "spark-jobs" / f"{job}.py", *words, "--out", folder],
        env=environment(Stage(job), 2, folder),
        stdout=subprocess.PIPE,
        stderr=(folder / f"{job}.log").open("w"),
        text=True,
    )


@pytest.mark.long
@pytest.mark.usefixtures("prometheus_program")
def test_what_a_user_of_kafka_mirror_tester_types_gives_its_metrics_and_a_verdict(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    topic, run = unique("tester"), "tester-1"
    make_topic(spec(east), topic, 2)
    make_topic(spec(west), topic, 2)
    with held_ports([None, None]) as (load_port, probe_port):
        pass  # free, until another process takes them
    sides = (east.bootstrap_servers, west.bootstrap_servers)
    both = (f"--id={run}", f"--topics={topic}", "--use-message-headers=false")
    consume = (
        *both,
        f"--bootstrap-servers={sides[1]}",
        f"--source-bootstrap-servers={sides[0]}",
        "--consumer-group=testers",
    )
    probe = started("probe", tmp_path, *consume, f"--metrics-port={probe_port}")
    load = started(
        "produce",
        tmp_path,
        *both,
        "--throughput=200",
        "--message-size=100",
        f"--bootstrap-servers={sides[0]}",
        f"--target-bootstrap-servers={sides[1]}",
        f"--metrics-port={load_port}",
    )
    try:
        wait_until((tmp_path / "ready").exists)

        def produced() -> dict[str, float]:
            assert load.poll() is None, (tmp_path / "produce.log").read_text()
            return scraped(load_port)

        seen = wait_until(produced, until=lambda s: s.get("messages_produced", 0) > 400)
        assert seen["bytes_produced"] == 100 * seen["messages_produced"]
        assert (seen["producer_number_of_topics"], seen["producer_number_of_partitions"]) == (1, 2)
        assert seen["message_send_errors"] == 0
        labels = {"namespace": "default", "headrace_dev_mirror_test": run}
        ports = (load_port, probe_port)
        targets = [{"targets": [f"127.0.0.1:{port}" for port in ports], "labels": labels}]
        with running_prometheus(tmp_path, {"kafka/headrace-mirror-tests": targets}, []) as found:
            picked = {"namespace": "default", "test": run, "__rate_interval": f"{5 * SCRAPE_S}s"}
            wait_until(found.ready)
            wait_until(partial(found.unanswered, PAGE, picked), until=partial(eq, set()))
        # Like kafka-mirror-tester, it sends until it is ended.
        (tmp_path / "end-load").touch()
        output, _ = load.communicate(timeout=WITHIN_S)
        assert load.returncode == 0, (tmp_path / "produce.log").read_text()
        *_, last = output.splitlines()
        sent = json.loads(last)["acknowledged"]

        records = read(spec(east), topic)
        ends = [copies.pop() for copies in records.values()]
        assert {len(one.value or b"") for copies in records.values() for one in copies} == {100}
        assert {one.key for copies in records.values() for one in copies} == {b"0", b"1"}
        dropped = records[0].pop(10)
        again = records[1][5]
        records[1].insert(6, again)
        for copies in records.values():
            produce(spec(west), topic, copies)
        seen = wait_until(
            lambda: scraped(probe_port),
            within_s=30,
            until=lambda s: s.get("messages_consumed", 0) >= sent,
        )
        assert dropped != again
        assert {name: seen[name] for name in seen if "message_count" in name} == {
            "in_order_message_count": sent - 2,
            "same_message_count": 1,
            "old_message_count": 0,
            "skipped_message_count": 1,
        }
        assert seen["bytes_consumed"] == 100 * sent
        histogram = "message_arrival_latency_hist_ms"
        assert seen[f"{histogram}_count"] == seen[f'{histogram}_bucket{{le="+Inf"}}'] == sent
        produce(spec(west), topic, ends)
        probe.communicate(timeout=WITHIN_S)
    finally:
        for process in (load, probe):
            process.kill()
            process.wait()
    assert probe.returncode == 0, (tmp_path / "probe.log").read_text()
    judged = started("verify", tmp_path, *consume)
    judged.communicate(timeout=WITHIN_S)
    assert judged.returncode == 1, (tmp_path / "verify.log").read_text()
    counts = Result.model_validate_json((tmp_path / "report.json").read_text()).counts
    assert counts is not None
    assert (counts.acknowledged, counts.missing, counts.duplicated) == (sent, 1, 1)
