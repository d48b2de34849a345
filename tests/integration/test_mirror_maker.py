"""A mirror test of a mirror that is not headrace's: a real MirrorMaker 2 in dedicated mode."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.records import unique
from support.verifying import verified

from headrace.sandbox import ClusterPlan, Sandbox

HEADRACE = [sys.executable, "-m", "headrace"]


@pytest.mark.long
def test_mirror_maker_2_is_killed_and_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Use clusters of its own: MirrorMaker 2 writes heartbeats, as flows of other tests do."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    name = unique("judged")
    sandbox = Sandbox.start(name, [ClusterPlan("east"), ClusterPlan("west")], detached=True)
    try:
        east, west = sandbox.clusters
        mirror = [*HEADRACE, "sandbox", "mirror-maker", rf"{name}-\d+", "--sandbox", name]
        started = subprocess.run(mirror, capture_output=True, text=True, check=True).stdout
        (pid,) = re.findall(r"process (\d+)", started)
        test = {
            "apiVersion": "headrace.dev/v1beta1",
            "kind": "MirrorTest",
            "metadata": {"name": name},
            "spec": {
                "source": {"alias": east.name, "bootstrapServers": east.bootstrap_servers},
                "target": {"alias": west.name, "bootstrapServers": west.bootstrap_servers},
                # A restart may take up to 30 s, and only messages sent after it show the recovery.
                "load": {"topics": 2, "partitions": 3, "messages": 6_000, "messagesPerSecond": 150},
                "settleSeconds": 120,
                "chaos": [
                    {"atPercent": 10, "action": "RunCommand", "command": ["kill", "-9", pid]},
                    {"atPercent": 20, "action": "RunCommand", "command": mirror},
                ],
            },
        }
        result = verified(tmp_path, test, "--run-commands").result
    finally:
        sandbox.close()
    assert result.counts is not None
    assert (result.counts.acknowledged, result.counts.missing) == (6_000, 0)
    assert (result.counts.reordered, result.counts.corrupted) == (0, 0)
    assert (result.counts.sentinels, result.counts.sentinels_seen) == (6, 6)
    assert {topic.target for topic in result.topics} == {f"east.{name}-0", f"east.{name}-1"}
    killed, restarted = result.faults
    assert killed.driver == f"kill -9 {pid}"
    assert killed.recovery_seconds is not None
    assert restarted.recovery_seconds is not None
    assert killed.recovery_seconds > restarted.recovery_seconds
