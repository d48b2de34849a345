"""Read quotas of the target, which delay a driver that starts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.flows import FlowRun, manifest, spec
from support.quotas import limit_reads
from support.records import arrived, make_topic, numbered, produce, read, set_topic, unique

from headrace.api import progress_topic
from headrace.sandbox import SandboxCluster

_BYTES_PER_S = 10_000
_PROGRESS_BYTES = 22 * _BYTES_PER_S
"""Size of the progress to read. Brokers allow ten to eleven seconds of the quota at once."""


def test_progress_is_read_at_the_rate_of_a_low_quota(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    """Reading takes 12 s or more. Each attempt of the driver takes 10 s."""
    alias = unique("slow")
    topic, progress = make_topic(spec(east), alias, 2), progress_topic(alias)
    copy = f"{alias}.{topic}"
    flow = manifest(alias, east, west, topic, heartbeats={"enabled": False})
    flow["spec"]["source"]["alias"] = alias
    flow["spec"]["target"]["config"] = {"client.id": alias}
    produce(spec(east), topic, numbered(100, 2))
    with FlowRun(tmp_path, [flow]) as run:
        wait_until(lambda: arrived(spec(west), copy), until=lambda n: n == 100)
        assert run.stop() == 0
    # The records of many seconds, which compaction has not removed yet.
    set_topic(spec(west), progress, "min.compaction.lag.ms", "86400000")
    stored = [one for records in read(spec(west), progress).values() for one in records]
    size_bytes = sum(len(one.key or b"") + len(one.value or b"") for one in stored)
    again = stored * (_PROGRESS_BYTES // size_bytes + 1)
    produce(spec(west), progress, again, {"compression.type": "none", "batch.num.messages": "1"})
    limit_reads(west, alias, _BYTES_PER_S)
    produce(spec(east), topic, numbered(100, 2, first=100))
    with FlowRun(tmp_path, [flow]) as run:
        wait_until(lambda: arrived(spec(west), copy), until=lambda n: n == 200)
        wait_until(run.ready)
        printed = run.output
    assert "not Ready (Throttled): could not read mm2-headrace-progress" in printed
    assert "offsets are read: a quota of the brokers" in printed
    assert "following it by another client" not in printed
    assert "TargetUnreachable" not in printed
