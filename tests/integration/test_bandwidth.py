"""``spec.bandwidth``, with real brokers."""

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.flows import FlowRun, manifest, spec
from support.records import arrived, count, make_topic, numbered, produce, unique

from headrace.sandbox import SandboxCluster

LIMIT = 50_000
"""Limit in bytes a second."""
SLACK_S = 2.0
"""Slack for an unused share of the limit, and for data that is read before it is accounted for."""
RECORDS, SIZE = 2_000, 1_000
MARKERS = 8
"""Most markers of fences: two a partition, because its first owner has no successor."""
Wait = Callable[..., Any]


def test_all_drivers_of_a_flow_together_read_no_faster_than_its_bandwidth(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: Wait
) -> None:
    """Check the number of copied bytes since the start against the limit, on machines of any speed.

    Without a limit, and after its removal, all records are copied at once.
    """
    topic = make_topic(spec(east), unique("limited"), 4)
    records = [one._replace(value=bytes(SIZE)) for one in numbered(RECORDS, 4)]
    produce(spec(east), topic, records, {"batch.num.messages": "10"})
    copy, limit, tasks = f"east.{topic}", {"bytesPerSecond": LIMIT}, {"max": 4}
    flow = manifest(unique("limited"), east, west, topic, bandwidth=limit, tasks=tasks)
    began_s = time.monotonic()
    with FlowRun(tmp_path, [flow], drivers=2) as run:
        wait_until(run.settled)

        def within_the_limit() -> int:
            copied = count(spec(west), copy) - MARKERS
            assert copied * SIZE <= LIMIT * (time.monotonic() - began_s + SLACK_S)
            return copied

        wait_until(within_the_limit, until=lambda n: n >= 300)
        del flow["spec"]["bandwidth"]
        run.write(run.file, [flow])
        run.process.send_signal(signal.SIGHUP)
        wait_until(lambda: arrived(spec(west), copy), until=lambda n: n == RECORDS)
        wait_until(run.ready)
