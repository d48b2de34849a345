"""A sandbox: named clusters on this machine, and what else ends with them."""

import base64
import secrets
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
from pydantic import BaseModel, ConfigDict

from headrace.errors import InvalidSpec
from headrace.logs import get_logger
from headrace.sandbox.broker import Broker
from headrace.sandbox.cluster import Cluster, format_all, start_all
from headrace.sandbox.disk import require_disk
from headrace.sandbox.plan import ClusterPlan, check_name
from headrace.sandbox.ports import held_ports
from headrace.sandbox.processes import ProcessRecord, end
from headrace.sandbox.properties import broker_properties
from headrace.toolchain import JarSet, Java, find_java, jars, state_home
from headrace.toolchain.files import write_whole
from headrace.toolchain.locks import file_lock

DISK_BYTES = 1 << 30
"""Free disk that a sandbox wants at least: Kafka ends when it cannot write."""

COMPANION_GRACE_S = 10
"""A flow stops within 5 s; twice that."""

log = get_logger(__name__)


class _ClusterFacts(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    cluster_id: str
    heap_mb: int
    ports: tuple[tuple[int, int], ...]
    """Client and controller port of each broker."""


class _Facts(BaseModel):
    """``sandbox.json``: what does not change while the sandbox is there."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    detached: bool
    java_home: Path
    java_version: int
    java_origin: str
    clusters: tuple[_ClusterFacts, ...]


class Sandbox:
    """Kafka clusters as local processes: ``start`` makes a sandbox, ``open`` finds it again.

    It ends with the process that started it, whatever ends that one, and with its ``with`` block.
    A *detached* one outlives both, unless the block ends with an error; ``close`` ends it, from any
    process. Its data is then gone; its logs stay when an error closed it, until the next start
    under its name.
    """

    def __init__(self, folder: Path, facts: _Facts) -> None:
        """Not for others: see ``start`` and ``open``."""
        self.folder = folder
        self.detached = facts.detached
        java = Java(facts.java_home, facts.java_version, facts.java_origin)
        self.clusters = tuple(
            _cluster(cluster, folder, java, leashed=not facts.detached)
            for cluster in facts.clusters
        )

    @classmethod
    def start(
        cls,
        name: str,
        plans: Sequence[ClusterPlan],
        *,
        detached: bool = False,
        disk_bytes: int = DISK_BYTES,
        home: Path | None = None,
    ) -> Self:
        """Start clusters under ``name`` and wait until every broker takes connections.

        ``disk_bytes`` must be free in ``home`` (``sandboxes_home()``), where data and logs go.
        Raises InvalidSpec for what a person can mend: a name or a port that is taken, an unusable
        JAVA_HOME, too little disk.
        """
        check_name(name)
        names = [plan.name for plan in plans]
        if twice := {cluster for cluster in names if names.count(cluster) > 1}:
            raise InvalidSpec(f"sandbox {name} has two clusters named {', '.join(sorted(twice))}")
        home = home or sandboxes_home()
        folder = home / name
        with file_lock(home / f".{name}.lock"):
            if _is_sandbox(folder) and cls._at(folder).running:
                raise InvalidSpec(
                    f"sandbox {name} is already running; `headrace sandbox status` shows it, "
                    f"`headrace sandbox down {name}` ends it"
                )
            require_disk(home, disk_bytes, f"sandbox {name}")
            given = [port for plan in plans for port in _given_ports(plan)]
            with held_ports(given) as ports:
                java = find_java()
                jars(JarSet.KAFKA_BROKER, java)
                shutil.rmtree(folder, ignore_errors=True)
                sandbox = cls(folder, _lay_out(folder, plans, ports, java, detached))
                try:
                    format_all(sandbox.clusters)
                    start_all(broker for c in sandbox.clusters for broker in c.brokers)
                except BaseException:
                    sandbox.close(keep_logs=True)
                    raise
        return sandbox

    @classmethod
    def open(cls, name: str, home: Path | None = None) -> Self:
        """The sandbox ``name``, running or not. Raises InvalidSpec when there is none."""
        folder = (home or sandboxes_home()) / name
        if not _is_sandbox(folder):
            there = ", ".join(sandbox.name for sandbox in cls.all(home)) or "none"
            raise InvalidSpec(f"there is no sandbox {name} (there: {there})")
        return cls._at(folder)

    @classmethod
    def all(cls, home: Path | None = None) -> tuple[Self, ...]:
        """Every sandbox of this user, by name; also those of which only logs are left."""
        home = home or sandboxes_home()
        return tuple(cls._at(f) for f in sorted(home.glob("*")) if _is_sandbox(f))

    @classmethod
    def _at(cls, folder: Path) -> Self:
        return cls(folder, _Facts.model_validate_json((folder / "sandbox.json").read_bytes()))

    @property
    def name(self) -> str:
        """Its name, unique for a user of a machine."""
        return self.folder.name

    @property
    def running(self) -> bool:
        """Does any process of it run?"""
        return bool(self._brokers() or self._companions())

    def cluster(self, name: str) -> Cluster:
        """The cluster ``name``."""
        for cluster in self.clusters:
            if cluster.name == name:
                return cluster
        there = ", ".join(cluster.name for cluster in self.clusters)
        raise InvalidSpec(f"sandbox {self.name} has no cluster {name} (it has {there})")

    def adopt(self, pid: int, label: str) -> None:
        """Let process ``pid``, called ``label``, end with the sandbox: by SIGTERM, first."""
        ProcessRecord.of(pid, label).write(self.folder / "companions" / f"{pid}.json")

    @property
    def companions(self) -> tuple[ProcessRecord, ...]:
        """The adopted processes that run."""
        paths = sorted((self.folder / "companions").glob("*.json"))
        records = [record for path in paths if (record := ProcessRecord.read(path))]
        return tuple(record for record in records if record.find())

    def close(self, *, keep_logs: bool = False) -> None:
        """End everything and delete the data; with ``keep_logs`` what was written to logs stays."""
        end(self._companions(), signal.SIGTERM, COMPANION_GRACE_S)
        # No clean stop for a broker: what it would save is deleted next.
        end(self._brokers(), signal.SIGKILL, grace_s=0)
        if keep_logs:
            for broker in self._all_brokers():
                shutil.rmtree(broker.data, ignore_errors=True)
        else:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            self.close(keep_logs=True)
            log.warning("sandbox ended by an error", sandbox=self.name, logs=str(self.folder))
        elif not self.detached:
            self.close()

    def _all_brokers(self) -> list[Broker]:
        return [broker for cluster in self.clusters for broker in cluster.brokers]

    def _brokers(self) -> list[psutil.Process]:
        return [process for broker in self._all_brokers() if (process := broker.process)]

    def _companions(self) -> list[psutil.Process]:
        return [process for record in self.companions if (process := record.find())]


def sandboxes_home() -> Path:
    """Where the sandboxes of this user are."""
    return state_home() / "sandboxes"


def _is_sandbox(folder: Path) -> bool:
    return (folder / "sandbox.json").is_file()


def _given_ports(plan: ClusterPlan) -> list[int | None]:
    """The ports that ``plan`` asks for: all brokers' for clients, then all for controllers."""
    if plan.port is None:
        return [None] * (2 * plan.brokers)
    return [*range(plan.port, plan.port + plan.brokers), *[None] * plan.brokers]


def _lay_out(
    folder: Path, plans: Sequence[ClusterPlan], ports: Sequence[int], java: Java, detached: bool
) -> _Facts:
    """Write the folder of a sandbox that was never started."""
    clusters = []
    left = iter(ports)
    for plan in plans:
        client = [next(left) for _ in range(plan.brokers)]
        controller = [next(left) for _ in range(plan.brokers)]
        facts = _ClusterFacts(
            name=plan.name,
            cluster_id=_random_cluster_id(),
            heap_mb=plan.heap_mb,
            ports=tuple(zip(client, controller, strict=True)),
        )
        for broker in _cluster(facts, folder, java, leashed=not detached).brokers:
            broker.folder.mkdir(parents=True)
            settings = broker_properties(broker.node_id, facts.ports, broker.data, plan.properties)
            (broker.folder / "server.properties").write_text(settings)
        clusters.append(facts)
    facts_of_all = _Facts(
        detached=detached,
        java_home=java.home,
        java_version=java.version,
        java_origin=java.origin,
        clusters=tuple(clusters),
    )
    write_whole(folder / "sandbox.json", facts_of_all.model_dump_json(indent=2).encode())
    return facts_of_all


def _cluster(facts: _ClusterFacts, folder: Path, java: Java, *, leashed: bool) -> Cluster:
    brokers = tuple(
        Broker(
            cluster=facts.name,
            node_id=node_id,
            port=port,
            folder=folder / facts.name / f"broker-{node_id}",
            java=java,
            heap_mb=facts.heap_mb,
            leashed=leashed,
        )
        for node_id, (port, _) in enumerate(facts.ports, start=1)
    )
    return Cluster(facts.name, facts.cluster_id, brokers)


def _random_cluster_id() -> str:
    """16 random bytes in base64, like Kafka's Uuid.randomUuid; a '-' in front looks like a flag."""
    while (text := base64.urlsafe_b64encode(secrets.token_bytes(16)).decode()).startswith("-"):
        pass
    return text.rstrip("=")
