"""Clusters that can be reached near and from far: by a listener and by a proxy that delays."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from support.proxy import Proxy

from headrace.sandbox import Sandbox, SandboxCluster
from headrace.sandbox.processes import HOST, held_ports


@contextmanager
def from_far(sandbox: Sandbox, round_trip_s: float) -> Iterator[dict[str, str]]:
    """Yield each cluster's delayed bootstrap servers. Brokers reach each other without delay."""
    with ExitStack() as stack:
        found = {}
        for cluster in sandbox.clusters:
            found[cluster.name] = ",".join(_listen(stack, cluster, round_trip_s))
        for cluster in sandbox.clusters:
            cluster.stop()
        for cluster in sandbox.clusters:
            cluster.start()
        yield found


def _listen(stack: ExitStack, cluster: SandboxCluster, round_trip_s: float) -> Iterator[str]:
    for broker in cluster.brokers:
        with held_ports([None]) as (port,):
            line = stack.enter_context(Proxy(HOST, port, delay_s=round_trip_s / 2))
        file = broker.folder / "server.properties"
        more = {
            "listeners": f",FAR://{HOST}:{port}",
            "advertised.listeners": f",FAR://{HOST}:{line.port}",
            "listener.security.protocol.map": ",FAR:PLAINTEXT",
        }
        lines = []
        for text in file.read_text().splitlines():
            key = text.partition("=")[0]
            lines.append(text + more.get(key, ""))
        file.write_text("\n".join(lines) + "\n")
        yield f"{HOST}:{line.port}"
