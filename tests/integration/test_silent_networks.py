"""Networks that swallow packets, and brokers that do not answer fetches."""

import base64
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.flows import FlowRun, manifest, spec
from support.proxy import Proxy
from support.records import count, make_topic, numbered, produce, unique
from support.scenes import WaitUntil

from headrace.kafka import Admin
from headrace.sandbox import SandboxCluster
from headrace.sandbox.processes import HOST, held_ports

PRODUCE, FETCH = b"\0\0", b"\0\1"
ONE_TASK: dict[str, Any] = {"heartbeats": {"enabled": False}, "tasks": {"max": 1}}
IDLE_S = 6.0
"""Longer than ``ConnectionSettings.probe_after_s``."""
MOST_S = 15.0
"""About 3 s on an idle machine, and 30 s without a probe."""


@contextmanager
def proxied(
    name: str, start_cluster: Callable[..., SandboxCluster]
) -> Iterator[tuple[Proxy, SandboxCluster]]:
    """Yield a cluster, and the proxy that all its clients use."""
    with held_ports([None]) as (port,):
        pass
    with Proxy(HOST, port) as line:
        advertised = {"advertised.listeners": f"PLAINTEXT://{HOST}:{line.port}"}
        yield line, start_cluster(name, port=port, properties=advertised)


def test_a_record_after_idleness_is_copied_though_the_network_dropped_the_connection(
    east: SandboxCluster,
    start_cluster: Callable[..., SandboxCluster],
    tmp_path: Path,
    wait_until: WaitUntil,
) -> None:
    produced_s = [0.0]

    def note(sent: bytes) -> bool:
        if sent[4:6] == PRODUCE:
            produced_s[0] = time.monotonic()
        return False

    with proxied("west", start_cluster) as (line, west):
        topic = make_topic(spec(east), unique("idle"), 1)
        line.holds = note
        with FlowRun(tmp_path, [manifest(topic, east, west, topic, **ONE_TASK)]) as run:
            wait_until(run.ready)
            produce(spec(east), topic, numbered(1, 1))
            wait_until(lambda: count(spec(west), f"east.{topic}") == 1)
            wait_until(lambda: time.monotonic() - produced_s[0] > IDLE_S)
            line.swallow()
            produce(spec(east), topic, numbered(1, 1, 1))
            began_s = time.monotonic()
            wait_until(lambda: count(spec(west), f"east.{topic}") == 2, within_s=40)
            took_s = time.monotonic() - began_s
    print(f"copied {took_s:.1f} s after the network dropped the connection")
    assert took_s < MOST_S


def test_a_partition_without_answers_is_reported_and_delays_no_other(
    west: SandboxCluster,
    start_cluster: Callable[..., SandboxCluster],
    tmp_path: Path,
    wait_until: WaitUntil,
) -> None:
    with proxied("east", start_cluster) as (line, east):
        slow = make_topic(spec(east), unique("slow"), 1)
        fast = make_topic(spec(east), unique("fast"), 1)
        written = Admin(spec(east)).describe([slow])[slow].topic_id
        topic_id = base64.urlsafe_b64decode(f"{written}==")
        for topic in (slow, fast):
            produce(spec(east), topic, numbered(10, 1))
        line.holds = lambda sent: sent[4:6] == FETCH and topic_id in sent
        flow = manifest(slow, east, west, slow, fast, **ONE_TASK)
        flow["spec"]["source"]["config"] = {"request.timeout.ms": "3000"}
        with FlowRun(tmp_path, [flow]) as run:
            wait_until(lambda: count(spec(west), f"east.{fast}") == 10)
            ready = wait_until(
                lambda: run.condition("Ready"),
                until=lambda seen: seen.get("reason") == "SourceUnreachable",
            )
            assert f"{slow}/0" in ready["message"]
            assert ready["status"] == "False"
            assert run.status().get("lag") is None
            assert count(spec(west), f"east.{slow}") == 0

            line.holds = lambda _: False
            line.release()
            wait_until(lambda: count(spec(west), f"east.{slow}") == 10)
            wait_until(run.ready)
            wait_until(
                lambda: run.status().get("lag"),
                until=lambda lag: lag == {"records": 0, "seconds": 0},
            )

            line.swallow()
            produce(spec(east), fast, numbered(10, 1, 10))
            began_s = time.monotonic()
            wait_until(lambda: count(spec(west), f"east.{fast}") == 20, within_s=40)
            took_s = time.monotonic() - began_s
    print(f"copied {took_s:.1f} s after the network dropped the connections to the source")
    assert took_s < MOST_S
