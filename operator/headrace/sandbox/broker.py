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
"""Three brokers at once take 6 s on two busy cores: ten times that."""

STOP_TIMEOUT_S = 30
"""A clean stop takes 0.3 to 3 s, the last of a cluster, who finds nobody to hand over to, 6 s."""

FREEZE_TIMEOUT_S = 10
"""It takes milliseconds."""

LOGGING = (
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.log.kafka.server=info",
)


@dataclass
class BrokerProcess:
    """A broker of a sandbox, running or not.

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
    """Whether a broker that is started here ends with this process."""
    secure_ports: tuple[int, int] | None = None
    """Ports for SASL over TLS and for client certificates, or None if the cluster is not secure."""
    _child: "subprocess.Popen[bytes] | None" = field(default=None, repr=False, compare=False)

    @property
    def address(self) -> str:
        """Address for clients, as ``host:port``."""
        return f"{HOST}:{self.port}"

    @property
    def log(self) -> Path:
        """File with the output of the JVM, of all its starts."""
        return self.folder / "broker.log"

    @property
    def data(self) -> Path:
        """Kafka's ``log.dirs``."""
        return self.folder / "data"

    @property
    def scram(self) -> Path:
        """Users that a secure cluster has from the start, one a line, for ``format``."""
        return self.folder / "scram.txt"

    @property
    def process(self) -> psutil.Process | None:
        """The JVM, while it runs."""
        if self._child:
            self._child.poll()  # a child that has ended stays a zombie until it is asked for
        record = ProcessRecord.read(self.folder / "process.json")
        return record.find() if record else None

    def start(self) -> None:
        """Start it, again or for the first time, and wait until it takes connections."""
        self.launch()
        self.wait_until_up()

    def stop(self) -> None:
        """End it cleanly: its leaderships move first."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a power cut does (kill -9)."""
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """Freeze it: its connections stay open, and nothing answers."""
        if process := self.process:
            process.suspend()
            # The kernel stops every thread of it, one after the other.
            deadline = time.monotonic() + FREEZE_TIMEOUT_S
            while not self.frozen:
                if time.monotonic() > deadline:
                    raise GaveUp(f"{self} is not frozen after {FREEZE_TIMEOUT_S} s")
                time.sleep(0.01)

    def thaw(self) -> None:
        """Resume a broker that was frozen."""
        if process := self.process:
            process.resume()

    @property
    def frozen(self) -> bool:
        """Whether the broker is frozen."""
        process = self.process
        return process is not None and process.status() == psutil.STATUS_STOPPED

    def restart(self) -> None:
        """Stop it cleanly and start it."""
        self.stop()
        self.start()

    def format(self, cluster_id: str) -> "subprocess.Popen[bytes]":
        """Begin to make its data folder; ``wait_until_formatted`` ends it."""
        arguments = ["-t", cluster_id, "-c", str(self.folder / "server.properties")]
        if self.scram.exists():
            for user in self.scram.read_text().splitlines():
                arguments += ["--add-scram", user]
        return self._jvm("kafka.tools.StorageTool", "format", *arguments)

    def wait_until_formatted(self, formatting: "subprocess.Popen[bytes]") -> None:
        """Raise Fatal when the data folder could not be made."""
        if formatting.wait() != 0:
            raise Fatal(f"could not make the data folder of {self}: {self._last_words()}")

    def launch(self) -> None:
        """Begin to start it; ``wait_until_up`` ends it."""
        if self.process:
            return
        settings = str(self.folder / "server.properties")
        self._child = self._jvm(f"-Xmx{self.heap_mb}m", "kafka.Kafka", settings)
        try:
            ProcessRecord.of(self._child.pid, str(self)).write(self.folder / "process.json")
        except BaseException:
            self._child.kill()  # nobody could find it any more
            raise

    def wait_until_up(self) -> None:
        """Wait for the port, which a KRaft broker opens last.

        Raises Fatal when the broker ended instead, GaveUp when it takes too long.
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
        """File with the classes that its JVM loaded, if there was no archive."""
        return self.folder / "classes.txt"

    def _archive(self) -> ClassArchive:
        return ClassArchive(self.java, jars(JarSet.KAFKA_BROKER, self.java))

    def _jvm(self, *arguments: str) -> "subprocess.Popen[bytes]":
        archive = self._archive()
        classpath = ":".join(map(str, archive.classpath))
        # A broker of a sandbox lives for minutes: to compile more than this would take as much CPU
        # again as its start, and would not pay.
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
        """Return the last error in the log, and where the rest can be read."""
        lines = self.log.read_text(errors="replace").splitlines()
        telling = [line for line in lines if "ERROR" in line or "Exception" in line] or lines[-1:]
        return f"{telling[-1] if telling else 'it logged nothing'}. Its log: {self.log}"


@dataclass(frozen=True)
class SandboxCluster:
    """Brokers that are one cluster."""

    name: str
    cluster_id: str
    brokers: tuple[BrokerProcess, ...]

    @property
    def bootstrap_servers(self) -> str:
        """Addresses for a client: ``host:port,...``."""
        return ",".join(broker.address for broker in self.brokers)

    @property
    def sasl_servers(self) -> str:
        """Addresses for clients that log in over TLS. Empty if the cluster is not secure."""
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
        """Whether all brokers run."""
        return all(broker.process for broker in self.brokers)

    def broker(self, node_id: int) -> BrokerProcess:
        """Return the broker with this id; ids count from 1."""
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


def format_all(clusters: Iterable[SandboxCluster]) -> None:
    """Make the data folders of all brokers, all at once: each costs a JVM of half a second."""
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
    """Start brokers, all at once: the first of a cluster is ready only when most of it is."""
    starting = list(brokers)
    for broker in starting:
        broker.launch()
    for broker in starting:
        broker.wait_until_up()
