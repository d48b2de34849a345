"""A mirror test of a mirror that is not headrace's: a real MirrorMaker 2 in dedicated mode."""

import subprocess
import sys
from pathlib import Path

import yaml
from support.records import unique

from headrace.mirror_test import Result
from headrace.sandbox import ClusterPlan, Sandbox, start_mirror_maker


def test_mirror_maker_2_is_judged(tmp_path: Path) -> None:
    """By clusters of its own: MirrorMaker 2 writes heartbeats, as flows of other tests do."""
    name = unique("judged")
    plans = [ClusterPlan("east"), ClusterPlan("west")]
    with Sandbox.start(name, plans, home=tmp_path / "sandboxes") as sandbox:
        east, west = sandbox.clusters
        start_mirror_maker(sandbox, east, west, rf"{name}-\d+")
        test = {
            "apiVersion": "headrace.dev/v1alpha1",
            "kind": "MirrorTest",
            "metadata": {"name": name},
            "spec": {
                "source": {"alias": east.name, "bootstrapServers": east.bootstrap_servers},
                "target": {"alias": west.name, "bootstrapServers": west.bootstrap_servers},
                "load": {"topics": 2, "partitions": 3, "messages": 4_000, "messagesPerSecond": 500},
                "settleSeconds": 60,
            },
        }
        file, report = tmp_path / "test.yaml", tmp_path / "report"
        file.write_text(yaml.safe_dump(test))
        command = [sys.executable, "-m", "headrace", "verify", str(file), "--report", str(report)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    result = Result.model_validate_json((report / "report.json").read_text())
    assert result.counts is not None
    assert (result.counts.acknowledged, result.counts.missing) == (4_000, 0)
    assert (result.counts.reordered, result.counts.corrupted) == (0, 0)
    assert (result.counts.sentinels, result.counts.sentinels_seen) == (6, 6)
    assert {topic.target for topic in result.topics} == {f"east.{name}-0", f"east.{name}-1"}
    assert result.latency_ms is not None
    assert result.latency_ms.measured == 4_000 + result.counts.duplicated
