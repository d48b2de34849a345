"""MirrorMaker 2 between two clusters of a sandbox, as an example of another mirror."""

import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from headrace.host import spawn, write_whole
from headrace.sandbox.broker import LOGGING, SandboxCluster
from headrace.sandbox.sandbox import Sandbox
from headrace.toolchain import JarSet, find_java, jars

HEAP_MB = 512
"""Heap of MirrorMaker 2. With 256 MB, garbage collection takes twice the CPU time of copying."""

_COPIES = (
    "replication.factor",
    "checkpoints.topic.replication.factor",
    "heartbeats.topic.replication.factor",
    "offset-syncs.topic.replication.factor",
    "config.storage.replication.factor",
    "offset.storage.replication.factor",
    "status.storage.replication.factor",
)
"""Settings of replication factors. Their default is 3 or the brokers' default."""


def settings(source: SandboxCluster, target: SandboxCluster, topics: str) -> dict[str, str]:
    """Return the configuration of one worker in dedicated mode (KIP-382).

    ``topics`` is a regular expression. New topics are discovered after 5 s instead of 10 minutes.
    All other settings have MirrorMaker 2's defaults, except replication factors.
    """
    flow = f"{source.name}->{target.name}"
    copies = str(min(3, len(target.brokers), len(source.brokers)))
    return {
        "clusters": f"{source.name}, {target.name}",
        f"{source.name}.bootstrap.servers": source.bootstrap_servers,
        f"{target.name}.bootstrap.servers": target.bootstrap_servers,
        f"{flow}.enabled": "true",
        f"{flow}.topics": topics,
        f"{target.name}->{source.name}.enabled": "false",
        "refresh.topics.interval.seconds": "5",
        **dict.fromkeys(_COPIES, copies),
    }


def start_mirror_maker(
    sandbox: Sandbox,
    source: SandboxCluster,
    target: SandboxCluster,
    topics: str,
    more: Mapping[str, str] | None = None,
    *,
    heap_mb: int = HEAP_MB,
    all_compilers: bool = False,
) -> "tuple[subprocess.Popen[bytes], Path]":
    """Start MirrorMaker 2 as a part of the sandbox. Return the process and its log.

    ``more`` are additional settings. MirrorMaker 2 copies nothing in the first five seconds. With
    ``all_compilers`` it runs as in production. Otherwise it starts faster and runs more slowly.
    """
    java = find_java()
    classpath = ":".join(map(str, jars(JarSet.MIRROR_MAKER, java)))
    name = f"mirror-maker-{source.name}-{target.name}"
    if others := len(list(sandbox.folder.glob(f"{name}*.properties"))):
        name += f"-{others + 1}"  # the previous process may not have read its file yet
    file, path = sandbox.folder / f"{name}.properties", sandbox.folder / f"{name}.log"
    lines = (settings(source, target, topics) | dict(more or {})).items()
    write_whole(file, "".join(f"{key}={_escaped(value)}\n" for key, value in lines).encode())
    options = [f"-Xmx{heap_mb}m", *LOGGING]
    if not all_compilers:
        options.append("-XX:TieredStopAtLevel=1")
    command: list[str | Path] = [java.executable, *options, "-cp", classpath]
    command += ["org.apache.kafka.connect.mirror.MirrorMaker", file]
    with path.open("ab") as log:
        process = spawn(
            command,
            at_parents_death=None if sandbox.detached else signal.SIGKILL,
            stdout=log,
            stderr=log,
        )
    sandbox.adopt(process.pid, f"MirrorMaker 2 from {source.name} to {target.name}")
    return process, path


def _escaped(value: str) -> str:
    """Escape the backslashes of a value for ``java.util.Properties``."""
    return value.replace("\\", "\\\\")
