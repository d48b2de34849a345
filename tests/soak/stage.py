"""Two clusters of three brokers each, and a flow between them that logs in to both."""

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic
from support.flows import FlowRun, spec
from support.security import Mounted, by_certificate, by_password

from headrace.api import progress_topic
from headrace.kafka import Admin
from headrace.sandbox import USERNAME, Authority, ClusterPlan, Sandbox, SandboxCluster

BROKERS, DRIVERS, LEASE_S = 3, 3, 6
FLOW = "soak"
SAFE = {"soak-a": 6, "soak-b": 4}
"""Partitions of topics that have three replicas."""
SOLO = "soak-solo"
"""Topic with a partition on each broker, which is without a leader if that broker is down."""
TOPICS: Mapping[str, int] = {**SAFE, SOLO: BROKERS}
PROGRESS = progress_topic("east")
READY_S = 120.0
_ASK_S = 20.0


@dataclass(frozen=True)
class Stage:
    """Clusters and processes that a soak acts on."""

    source: SandboxCluster
    target: SandboxCluster
    run: FlowRun
    mounted: Mounted
    """The Secrets that the drivers read."""
    authority: Authority
    """Signs the certificates that the target trusts."""


def certify(mounted: Mounted, target: SandboxCluster, authority: Authority) -> None:
    """Give the drivers another certificate for the target."""
    certificate, key = authority.issue(USERNAME)
    mounted.write(f"{target.name}-client", {"tls.crt": certificate, "tls.key": key})


@contextmanager
def staged(folder: Path, say: Callable[[str], None]) -> Iterator[Stage]:
    """Yield clusters, topics and the flow, which end with the block and with this process."""
    authority, trusted = Authority("soak"), folder / "trusted.pem"
    trusted.write_bytes(authority.certificate)
    plans = [
        ClusterPlan("east", BROKERS, secure=True),
        ClusterPlan(
            "west", BROKERS, secure=True, properties={"ssl.truststore.location": str(trusted)}
        ),
    ]
    say(f"{len(plans) * BROKERS} brokers start")
    with Sandbox.start("soak", plans, home=folder / "sandboxes") as sandbox:
        source, target = sandbox.clusters
        _make_topics(source, target)
        mounted = Mounted(folder / "mounted", sandbox.secrets)
        flow = _manifest(source, target)
        options = ("--drivers", str(DRIVERS), "--secrets", str(mounted.folder))
        certify(mounted, target, authority)
        try:
            with FlowRun(folder, [flow], *options) as run:
                say(f"headrace run with {DRIVERS} drivers starts")
                _wait_until_ready(run)
                yield Stage(source, target, run, mounted, authority)
        finally:
            for broker in (*source.brokers, *target.brokers):
                shutil.copy(broker.log, folder / f"{broker.cluster}-{broker.node_id}.log")


def _manifest(source: SandboxCluster, target: SandboxCluster) -> dict[str, Any]:
    return {
        "apiVersion": "headrace.dev/v1beta1",
        "kind": "ReplicationFlow",
        "metadata": {"name": FLOW},
        "spec": {
            "source": by_password(source),
            "target": by_certificate(target),
            "topics": {"include": ["soak-.*"]},
            "tasks": {"max": 6},
            "drivers": {"replicas": DRIVERS, "leaseSeconds": LEASE_S},
        },
    }


def _make_topics(source: SandboxCluster, target: SandboxCluster) -> None:
    """Create the topics and their copies, whose brokers stamp records with the time of arrival."""
    arrived = {"message.timestamp.type": "LogAppendTime"}
    for cluster, prefix, config in ((source, "", {}), (target, f"{source.name}.", arrived)):
        for name, partitions in SAFE.items():
            Admin(spec(cluster)).create_topic(f"{prefix}{name}", partitions, config=config)
        solo = NewTopic(
            f"{prefix}{SOLO}",
            BROKERS,
            replica_assignment=[[broker.node_id] for broker in cluster.brokers],
            config={**config, "min.insync.replicas": "1"},
        )
        client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        client.create_topics([solo])[solo.topic].result(_ASK_S)


def _wait_until_ready(run: FlowRun) -> None:
    deadline = time.monotonic() + READY_S
    while not (run.ready() and len(run.settled(DRIVERS)) > 0):
        assert time.monotonic() < deadline, f"not Ready within {READY_S:.0f} s: {run.status()}"
        time.sleep(0.5)
