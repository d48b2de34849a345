"""Kafka's own Java client of MirrorMaker 2's topics, called from Python."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from py4j.java_gateway import (  # type: ignore[import-untyped]
    GatewayParameters,
    JavaGateway,
    launch_gateway,
)

from headrace.sandbox import SandboxCluster
from headrace.toolchain import JarSet, find_java, jars

_TIMEOUT_S = 120
"""Longest read of the checkpoints. When it has elapsed, the client returns what it has read."""


class MirrorClient:
    """``org.apache.kafka.connect.mirror.MirrorClient`` and ``RemoteClusterUtils``, on a target."""

    def __init__(self, jvm: Any, target: SandboxCluster) -> None:
        self._jvm, self._kafka = jvm, jvm.org.apache.kafka.connect.mirror
        self._settings = {"bootstrap.servers": target.bootstrap_servers}
        self._client = self._kafka.MirrorClient(self._settings)

    def upstream_clusters(self) -> set[str]:
        """Return the aliases of upstream clusters."""
        return set(self._client.upstreamClusters())

    def checkpoint_topics(self) -> set[str]:
        """Return the checkpoint topics of all sources."""
        return set(self._client.checkpointTopics())

    def remote_topics(self, *source: str) -> set[str]:
        """Return the copies of a source's topics, or of every source's."""
        return set(self._client.remoteTopics(*source))

    def consumer_offsets(self, source: str, group: str) -> dict[tuple[str, int], tuple[int, str]]:
        """Return offset and metadata, by topic and partition of the target."""
        return _offsets(self._client.remoteConsumerOffsets(group, source, self._timeout))

    def translate_offsets(self, source: str, group: str) -> dict[tuple[str, int], tuple[int, str]]:
        """Return a group's translated offsets by ``RemoteClusterUtils``."""
        utils = self._kafka.RemoteClusterUtils
        return _offsets(utils.translateOffsets(self._settings, source, group, self._timeout))

    def close(self) -> None:
        """Free it."""
        self._client.close()

    @property
    def _timeout(self) -> Any:
        return self._jvm.java.time.Duration.ofSeconds(_TIMEOUT_S)


def _offsets(found: Any) -> dict[tuple[str, int], tuple[int, str]]:
    return {
        (at.topic(), at.partition()): (offset.offset(), offset.metadata())
        for at, offset in found.items()
    }


@contextmanager
def java_gateway() -> Iterator[Any]:
    """Run MirrorMaker 2's classes in a JVM that PySpark's gateway drives.

    No Java is compiled.
    """
    (gateway_jar,) = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")
    java = find_java()
    port = launch_gateway(
        jarpath=str(gateway_jar),
        classpath=":".join(map(str, jars(JarSet.MIRROR_MAKER, java))),
        java_path=str(java.executable),
        die_on_exit=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
    try:
        yield gateway.jvm
    finally:
        gateway.shutdown()


@contextmanager
def mirror_client(target: SandboxCluster) -> Iterator[MirrorClient]:
    """Yield a client in a JVM of its own."""
    with java_gateway() as jvm:
        client = MirrorClient(jvm, target)
        try:
            yield client
        finally:
            client.close()
