"""The replicators that are compared: headrace, MirrorMaker 2, and a short program on franz-go."""

import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum, auto
from pathlib import Path
from typing import Any

import psutil
import yaml
from bench.mirror.workloads import PARTITIONS
from cluster.program import Module, Program

from headrace.api import ClusterAccess, ClusterSpec
from headrace.host import spawn
from headrace.kafka import Admin
from headrace.sandbox import Sandbox, SandboxCluster, start_mirror_maker

MM2_HEAP_MB = 2048
"""Heap that MirrorMaker 2's own start script sets."""
_STOP_S = 15


FRANZ_MIRROR = Program(
    "franz",
    "the mirror on franz-go",
    Module(Path(__file__).parent / "franz", ("-trimpath", "-buildvcs=false"), "60 MB of downloads"),
    ".",
    0.5,
    "It needs Go's modules (GOPROXY and the proxy variables of the environment say from where)",
)
"""Mirror of 90 lines in Go. It creates no topics, and has no checkpoints and no status."""


class Replicator(StrEnum):
    """Program that copies."""

    HEADRACE = auto()
    MIRROR_MAKER = auto()
    """MirrorMaker 2 in dedicated mode."""
    FRANZ_GO = auto()


@dataclass(frozen=True)
class Subject:
    """A replicator with its settings: a row of the table."""

    name: str
    replicator: Replicator = Replicator.MIRROR_MAKER
    tuned: bool = False
    tls: bool = False
    """Whether connections to both clusters are encrypted, with a client certificate."""
    exactly_once: bool = False
    """Whether headrace uses ``delivery.mode: ExactlyOnce``."""
    offsets: str = "Translated"
    """The ``offsets.mode`` of headrace."""


DEFAULT, TUNED, FRANZ = "MM2 default", "MM2 tuned", "franz-go"
HEADRACE = Subject("headrace", Replicator.HEADRACE)
PEERS = (
    HEADRACE,
    Subject(FRANZ, Replicator.FRANZ_GO),
    Subject(TUNED, tuned=True),
)
SUBJECTS = (*PEERS, Subject(DEFAULT))
DELIVERY = (
    HEADRACE,
    Subject(TUNED, tuned=True),
    Subject("headrace, ExactlyOnce", Replicator.HEADRACE, exactly_once=True),
    Subject("headrace, TLS", Replicator.HEADRACE, tls=True),
    Subject(f"{FRANZ}, TLS", Replicator.FRANZ_GO, tls=True),
    Subject(f"{TUNED}, TLS", tuned=True, tls=True),
)
"""Subjects that show the costs of encryption and transactions."""


@contextmanager
def running(
    subject: Subject, sandbox: Sandbox, alias: str, topic: str, codec: str = "none"
) -> Iterator[psutil.Process]:
    """Yield the subject's process, whose children belong to it.

    ``alias`` is this run's own name of the source: a replicator that finds the progress of an
    earlier run copies nothing.
    """
    source = replace(sandbox.cluster("east"), name=alias)
    target = sandbox.cluster("west")
    if subject.replicator is Replicator.HEADRACE:
        process = _headrace(subject, source, target, topic, sandbox=sandbox)
    elif subject.replicator is Replicator.FRANZ_GO:
        process = _franz_go(subject, source, target, topic, codec, sandbox=sandbox)
    else:
        settings = {f"{target.name}.producer.compression.type": codec}
        if subject.tuned:
            settings |= tuned(source.name, target.name)
        if subject.tls:
            settings |= _encrypted(sandbox, "east", source) | _encrypted(sandbox, "west", target)
        process, _ = start_mirror_maker(
            sandbox,
            source,
            target,
            topic,
            settings,
            heap_mb=MM2_HEAP_MB,
            all_compilers=True,
        )
    with ending(process) as known:
        yield known


@contextmanager
def ending(process: "subprocess.Popen[bytes]") -> Iterator[psutil.Process]:
    """Yield a process, and end it with the ``with`` block."""
    try:
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_S)
        process.kill()
        process.wait()


def _franz_go(
    subject: Subject,
    source: SandboxCluster,
    target: SandboxCluster,
    topic: str,
    codec: str,
    *,
    sandbox: Sandbox,
) -> "subprocess.Popen[bytes]":
    copy = f"{source.name}.{topic}"
    west = ClusterSpec(alias="west", bootstrap_servers=target.bootstrap_servers)
    Admin(ClusterAccess(west)).create_topic(copy, PARTITIONS)
    ends = {"source": ("east", source), "target": ("west", target)}
    options = {"topic": topic, "copy": copy, "codec": codec}
    for end, (name, cluster) in ends.items():
        options[end] = cluster.tls_servers if subject.tls else cluster.bootstrap_servers
        if subject.tls:
            options[f"{end}-ca"] = str(sandbox.secrets / f"{name}-ca")
            options[f"{end}-certificate"] = str(sandbox.secrets / f"{name}-client")
    return spawn(
        [FRANZ_MIRROR.get(), *(f"-{option}={value}" for option, value in options.items())],
        at_parents_death=signal.SIGTERM,
    )


def tuned(source: str, target: str) -> dict[str, str]:
    """Return client settings of MirrorMaker 2 for throughput, with the prefix of their cluster."""
    consumer = {
        "max.poll.records": 10_000,
        "fetch.min.bytes": 1 << 20,
        "fetch.max.wait.ms": 100,
        "max.partition.fetch.bytes": 4 << 20,
    }
    producer = {"batch.size": 512 << 10, "linger.ms": 20, "buffer.memory": 128 << 20}
    return {f"{source}.consumer.{key}": str(value) for key, value in consumer.items()} | {
        f"{target}.producer.{key}": str(value) for key, value in producer.items()
    }


def _encrypted(sandbox: Sandbox, name: str, cluster: SandboxCluster) -> dict[str, str]:
    """Return TLS settings of MirrorMaker 2's clients; ``name`` is the cluster's in the sandbox."""
    own = sandbox.folder / f"{cluster.name}.pem"
    client = sandbox.secrets / f"{name}-client"
    own.write_text((client / "tls.key").read_text() + (client / "tls.crt").read_text())
    return {
        f"{cluster.name}.{key}": str(value)
        for key, value in {
            "bootstrap.servers": cluster.tls_servers,
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": sandbox.secrets / f"{name}-ca" / "ca.crt",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": own,
        }.items()
    }


def _fields(cluster: SandboxCluster, name: str, *, tls: bool) -> dict[str, Any]:
    """Return the cluster's fields in a manifest."""
    if not tls:
        return {"alias": cluster.name, "bootstrapServers": cluster.bootstrap_servers}
    trusted = [{"secretName": f"{name}-ca", "key": "ca.crt"}]
    return {
        "alias": cluster.name,
        "bootstrapServers": cluster.tls_servers,
        "tls": {
            "trustedCertificates": trusted,
            "clientCertificate": {"secretName": f"{name}-client"},
        },
    }


def _headrace(
    subject: Subject,
    source: SandboxCluster,
    target: SandboxCluster,
    topic: str,
    *,
    sandbox: Sandbox,
) -> "subprocess.Popen[bytes]":
    spec = {
        "source": _fields(source, "east", tls=subject.tls),
        "target": _fields(target, "west", tls=subject.tls),
        "delivery": {"mode": "ExactlyOnce" if subject.exactly_once else "AtLeastOnce"},
        "offsets": {"mode": subject.offsets},
        "topics": {"include": [topic]},
    }
    options = ("--secrets", str(sandbox.secrets)) if subject.tls else ()
    return started(source.name, spec, sandbox.folder, *options)


def started(
    name: str, spec: Mapping[str, Any], folder: Path, *options: str
) -> "subprocess.Popen[bytes]":
    """Start ``headrace run`` of a flow, with one driver; it ends with this process."""
    flow = {
        "apiVersion": "headrace.dev/v1beta1",
        "kind": "ReplicationFlow",
        "metadata": {"name": name},
        "spec": dict(spec),
    }
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(flow))
    with (folder / f"{name}.log").open("wb") as log:
        return spawn(
            [sys.executable, "-m", "headrace", "run", "--drivers", "1", *options, str(file)],
            at_parents_death=signal.SIGTERM,
            stdout=log,
            stderr=log,
        )
