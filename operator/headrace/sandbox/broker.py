"""Brokers of a cluster, which can be stopped, killed and started one by one."""

import signal
import socket
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from headrace.errors import Fatal, GaveUp, InvalidSpec
from headrace.host import spawn
from headrace.sandbox.processes import HOST, ProcessRecord, end
from headrace.toolchain import ClassArchive, JarSet, Java, jars

START_TIMEOUT_S = 60
"""Time limit of a start in seconds. Three brokers on two busy cores need 6 s, a tenth of it."""

STOP_TIMEOUT_S = 30
"""Time limit of a clean stop.

A stop takes 0.3 to 3 s. The last broker of a cluster finds no broker for its leaderships and takes
6 s.
"""

FREEZE_TIMEOUT_S = 10
"""Time limit of a freeze, which takes milliseconds."""

LOGGING = (
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.log.kafka.server=info",
)


@dataclass
class BrokerProcess:
    """Broker of a sandbox, running or not.

    Its state is stored in its folder, so that any process can control it.
    """

    cluster: str
    node_id: int
    """Node id, from 1."""
    port: int
    folder: Path
    java: Java
    heap_mb: int
    ends_with_us: bool
    """True if a broker that this process starts ends with this process."""
    secure_ports: tuple[int, int] | None = None
    """Ports for SASL over TLS and for client certificates, or None if the cluster is not secure."""
    _child: "subprocess.Popen[bytes] | None" = field(default=None, repr=False, compare=False)

    @property
    def address(self) -> str:
        """Address for clients, as ``host:port``."""
        return f"{HOST}:{self.port}"

    @property
    def log(self) -> Path:
        """File with the output of the JVM from all its starts."""
        return self.folder / "broker.log"

    @property
    def data(self) -> Path:
        """Folder of Kafka's ``log.dirs``."""
        return self.folder / "data"

    @property
    def scram(self) -> Path:
        """File with the initial users of a secure cluster, one a line, for ``format``."""
        return self.folder / "scram.txt"

    @property
    def process(self) -> psutil.Process | None:
        """Process of the JVM, or None if it does not run."""
        if self._child:
            self._child.poll()  # reaps a child that has ended, a zombie until then
        record = ProcessRecord.read(self.folder / "process.json")
        return record.find() if record else None

    def start(self) -> None:
        """Start the broker and wait until it accepts connections."""
        self.launch()
        self.wait_until_up()

    def stop(self) -> None:
        """Stop the broker cleanly. Its leaderships move first."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the broker with -9, which has the effect of a power failure."""
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """Suspend the broker. Its connections stay open, but it does not respond."""
        if process := self.process:
            process.suspend()
            # The kernel stops the threads of the process one after the other.
            deadline = time.monotonic() + FREEZE_TIMEOUT_S
            while not self.frozen:
                if time.monotonic() > deadline:
                    raise GaveUp(f"{self} is not frozen after {FREEZE_TIMEOUT_S} s")
                time.sleep(0.01)

    def thaw(self) -> None:
        """Resume a suspended broker."""
        if process := self.process:
            process.resume()

    @property
    def frozen(self) -> bool:
        """True if the broker is suspended."""
        process = self.process
        return process is not None and process.status() == psutil.STATUS_STOPPED

    def restart(self) -> None:
        """Stop the broker cleanly and start it again."""
        self.stop()
        self.start()

    def format(self, cluster_id: str) -> "subprocess.Popen[bytes]":
        """Begin to create the data folder. ``wait_until_formatted`` waits for the end."""
        arguments = ["-t", cluster_id, "-c", str(self.folder / "server.properties")]
        if self.scram.exists():
            for user in self.scram.read_text().splitlines():
                arguments += ["--add-scram", user]
        return self._jvm("kafka.tools.StorageTool", "format", *arguments)

    def wait_until_formatted(self, formatting: "subprocess.Popen[bytes]") -> None:
        """Wait for the data folder. Raise ``Fatal`` if it could not be created."""
        if formatting.wait() != 0:
            raise Fatal(f"could not create the data folder of {self}: {self._last_words()}")

    def launch(self) -> None:
        """Begin to start the broker. ``wait_until_up`` waits until it is ready."""
        if self.process:
            return
        settings = str(self.folder / "server.properties")
        self._child = self._jvm(f"-Xmx{self.heap_mb}m", "kafka.Kafka", settings)
        try:
            ProcessRecord.of(self._child.pid, str(self)).write(self.folder / "process.json")
        except BaseException:
            self._child.kill()  # without a record it could not be found again
            raise

    def wait_until_up(self) -> None:
        """Wait until the broker accepts connections. A KRaft broker opens its port last.

        Raise ``Fatal`` if the broker has ended, or ``GaveUp`` if it takes too long.
        """
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            if not self.process:
                raise Fatal(f"{self} ended while it started: {self._last_words()}")
            if time.monotonic() > deadline:
                raise GaveUp(
                    f"{self} does not listen on {self.address} after {START_TIMEOUT_S} s: "
                    f"{self._last_words()}"
                )
            time.sleep(0.05)
        if self._classes.exists():
            self._archive().make(self._classes)
            self._classes.unlink()

    def __str__(self) -> str:
        return f"broker {self.node_id} of cluster {self.cluster}"

    @property
    def _classes(self) -> Path:
        """File of the classes that the JVM loaded. A JVM with a class archive does not write it."""
        return self.folder / "classes.txt"

    def _archive(self) -> ClassArchive:
        return ClassArchive(self.java, jars(JarSet.KAFKA_BROKER, self.java))

    def _jvm(self, *arguments: str) -> "subprocess.Popen[bytes]":
        archive = self._archive()
        classpath = ":".join(map(str, archive.classpath))
        # Full compilation would double the CPU time of a broker's start. A sandbox's broker runs
        # for minutes, too short to save as much.
        options = ["-XX:TieredStopAtLevel=1", "-XX:+ExitOnOutOfMemoryError", *LOGGING]
        options += archive.options(self._classes)
        command: list[str | Path] = [self.java.executable, *options, "-cp", classpath, *arguments]
        with self.log.open("ab") as log:
            return spawn(
                command,
                at_parents_death=signal.SIGKILL if self.ends_with_us else None,
                stdout=log,
                stderr=log,
            )

    def _end(self, how: signal.Signals) -> None:
        end(filter(None, [self.process]), how, STOP_TIMEOUT_S)

    def _answers(self) -> bool:
        try:
            socket.create_connection((HOST, self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def _last_words(self) -> str:
        """Return the last error in the log, and the path of the log."""
        lines = self.log.read_text(errors="replace").splitlines()
        telling = [line for line in lines if "ERROR" in line or "Exception" in line] or lines[-1:]
        return f"{telling[-1] if telling else 'it logged nothing'}. Its log: {self.log}"


@dataclass(frozen=True)
class SandboxCluster:
    """Brokers of one cluster."""

    name: str
    cluster_id: str
    brokers: tuple[BrokerProcess, ...]

    @property
    def bootstrap_servers(self) -> str:
        """Addresses for clients, as ``host:port,...``."""
        return ",".join(broker.address for broker in self.brokers)

    @property
    def sasl_servers(self) -> str:
        """Addresses for clients with SASL over TLS. Empty if the cluster is not secure."""
        return self._secure_servers(0)

    @property
    def tls_servers(self) -> str:
        """Addresses for clients with a certificate. Empty if the cluster is not secure."""
        return self._secure_servers(1)

    def _secure_servers(self, which: int) -> str:
        ports = [broker.secure_ports[which] for broker in self.brokers if broker.secure_ports]
        return ",".join(f"{HOST}:{port}" for port in ports)

    @property
    def running(self) -> bool:
        """True if all brokers run."""
        return all(broker.process for broker in self.brokers)

    def broker(self, node_id: int) -> BrokerProcess:
        """Return the broker with this id, from 1. Raise ``InvalidSpec`` if there is none."""
        if not 1 <= node_id <= len(self.brokers):
            raise InvalidSpec(
                f"cluster {self.name} has no broker {node_id}: it has 1 to {len(self.brokers)}"
            )
        return self.brokers[node_id - 1]

    def start(self) -> None:
        """Start all brokers that do not run, in parallel."""
        start_all(self.brokers)

    def stop(self) -> None:
        """Stop every broker cleanly, and keep the data."""
        running = [process for broker in self.brokers if (process := broker.process)]
        end(running, signal.SIGTERM, STOP_TIMEOUT_S)


def format_all(clusters: Iterable[SandboxCluster]) -> None:
    """Create the data folders of all brokers in parallel. Each needs a JVM for half a second."""
    formatting: list[tuple[BrokerProcess, subprocess.Popen[bytes]]] = []
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


def start_all(brokers: Iterable[BrokerProcess]) -> None:
    """Start brokers in parallel.

    A broker becomes ready only after most brokers of its cluster have started.
    """
    starting = list(brokers)
    for broker in starting:
        broker.launch()
    for broker in starting:
        broker.wait_until_up()
