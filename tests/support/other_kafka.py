"""Brokers of other releases of Kafka: real ones, with ZooKeeper where they need it."""

import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from support.patience import WITHIN_S
from support.records import unique

from headrace.api import ClusterAccess, ClusterSpec
from headrace.host import spawn
from headrace.sandbox.broker_config import broker_properties
from headrace.sandbox.processes import HOST, held_ports
from headrace.toolchain import find_java
from headrace.toolchain.jars import fetched, read_pins

_PINS = Path(__file__).with_name("kafka_jars.toml")
_KRAFT_ALONE = ("process.roles", "node.id", "controller.")
_CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"


class OtherKafka:
    """A cluster of one broker of one release."""

    def __init__(self, name: str, version: str, folder: Path, ports: Sequence[int]) -> None:
        """Prepare the cluster; hold its two ports until it is started."""
        self.name, self.version = name, version
        self._folder = folder
        self._zookeeper = version.startswith("2.")
        self._java = find_java().executable
        jars = fetched(read_pins(_PINS.read_text())[version])
        self._classpath = ":".join(map(str, jars))
        self._processes: list[subprocess.Popen[bytes]] = []
        self._port, self._second_port = ports

    @property
    def bootstrap_servers(self) -> str:
        """Return the access for a client."""
        return f"{HOST}:{self._port}"

    @property
    def access(self) -> ClusterAccess:
        """Return the cluster as a flow's manifest names it."""
        return ClusterAccess(ClusterSpec(alias=self.name, bootstrap_servers=self.bootstrap_servers))

    def start(self, wait_until: Callable[..., object]) -> None:
        """Start it, and wait until it takes connections."""
        properties = self._folder / "server.properties"
        properties.write_text(self._properties())
        if self._zookeeper:
            data = str(self._folder / "zookeeper")
            self._launch(
                "org.apache.zookeeper.server.ZooKeeperServerMain", str(self._second_port), data
            )
            wait_until(lambda: _answers(self._second_port))
        else:
            formatting = self._jvm(
                "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(properties)
            )
            assert formatting.wait(WITHIN_S) == 0, self.log
        self._launch("kafka.Kafka", str(properties))
        wait_until(lambda: _answers(self._port))

    def stop(self) -> None:
        """End it."""
        for process in reversed(self._processes):
            process.send_signal(signal.SIGKILL)
            process.wait(WITHIN_S)

    @property
    def log(self) -> str:
        """Return what its JVMs wrote."""
        return (self._folder / "broker.log").read_text(errors="replace")

    def _properties(self) -> str:
        ports, data = [(self._port, self._second_port)], self._folder / "data"
        text = broker_properties(1, ports, data, {"transaction.max.timeout.ms": "900000"})
        if not self._zookeeper:
            return text
        plain = f"PLAINTEXT://{HOST}:{self._port}"
        settings = {
            "broker.id": "1",
            "zookeeper.connect": f"{HOST}:{self._second_port}",
            "listeners": plain,
            "advertised.listeners": plain,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT",
        }
        kept = [
            line
            for line in text.splitlines()
            if not line.startswith(_KRAFT_ALONE) and line.partition("=")[0] not in settings
        ]
        return "\n".join([*kept, *(f"{key}={value}" for key, value in settings.items()), ""])

    def _launch(self, *arguments: str) -> None:
        self._processes.append(self._jvm("-Xmx256m", *arguments))

    def _jvm(self, *arguments: str) -> "subprocess.Popen[bytes]":
        options = ("-XX:TieredStopAtLevel=1", "-Dzookeeper.admin.enableServer=false")
        with (self._folder / "broker.log").open("ab") as log:
            return spawn(
                [self._java, *options, "-cp", self._classpath, *arguments], stdout=log, stderr=log
            )


def _answers(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


StartKafka = Callable[[str, str], OtherKafka]


@contextmanager
def other_kafkas(folder: Path, wait_until: Callable[..., object]) -> Iterator[StartKafka]:
    """Yield ``start("east", "2.8.2")``, which starts brokers that live as long as the block."""
    with ExitStack() as running:

        def start(name: str, version: str) -> OtherKafka:
            own = folder / unique(name)
            own.mkdir(parents=True)
            with held_ports([None, None]) as ports:
                kafka = OtherKafka(name, version, own, ports)
                running.callback(kafka.stop)
                kafka.start(wait_until)
            return kafka

        yield start
