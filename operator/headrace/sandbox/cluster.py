"""One Kafka cluster of a sandbox."""

import signal
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass

from headrace.errors import InvalidSpec
from headrace.sandbox.broker import STOP_TIMEOUT_S, Broker
from headrace.sandbox.ports import HOST
from headrace.sandbox.processes import end


@dataclass(frozen=True)
class Cluster:
    """Brokers that are one cluster."""

    name: str
    cluster_id: str
    brokers: tuple[Broker, ...]

    @property
    def bootstrap_servers(self) -> str:
        """What a client is given: ``host:port,...``."""
        return ",".join(broker.address for broker in self.brokers)

    @property
    def sasl_servers(self) -> str:
        """The same for clients that log in over TLS; empty where the cluster is not secure."""
        return self._secure_servers(0)

    @property
    def tls_servers(self) -> str:
        """The same for clients with a certificate; empty where the cluster is not secure."""
        return self._secure_servers(1)

    def _secure_servers(self, which: int) -> str:
        ports = [broker.secure_ports[which] for broker in self.brokers if broker.secure_ports]
        return ",".join(f"{HOST}:{port}" for port in ports)

    @property
    def running(self) -> bool:
        """Does every broker run?"""
        return all(broker.process for broker in self.brokers)

    def broker(self, node_id: int) -> Broker:
        """The broker with this id; they count from 1."""
        if not 1 <= node_id <= len(self.brokers):
            raise InvalidSpec(
                f"cluster {self.name} has no broker {node_id}: it has 1 to {len(self.brokers)}"
            )
        return self.brokers[node_id - 1]

    def start(self) -> None:
        """Start the brokers that do not run, all at once."""
        start_all(self.brokers)

    def stop(self) -> None:
        """Stop every broker cleanly; the data stays."""
        running = [process for broker in self.brokers if (process := broker.process)]
        end(running, signal.SIGTERM, STOP_TIMEOUT_S)


def format_all(clusters: Iterable[Cluster]) -> None:
    """Make the data folders of all brokers, all at once: each costs a JVM of half a second."""
    formatting: list[tuple[Broker, subprocess.Popen[bytes]]] = []
    try:
        for cluster in clusters:
            for broker in cluster.brokers:
                formatting.append((broker, broker.format(cluster.cluster_id)))
        for broker, process in formatting:
            broker.wait_until_formatted(process)
    finally:
        for _, process in formatting:
            process.kill()
            process.wait()


def start_all(brokers: Iterable[Broker]) -> None:
    """Start brokers, all at once: the first of a cluster is ready only when most of it is."""
    starting = list(brokers)
    for broker in starting:
        broker.launch()
    for broker in starting:
        broker.wait_until_up()
