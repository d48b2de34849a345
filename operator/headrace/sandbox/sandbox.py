"""Named clusters on this machine, which end together."""

import shutil
import signal
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from headrace.errors import InvalidSpec
from headrace.host import file_lock, state_home
from headrace.logs import get_logger
from headrace.sandbox.broker import BrokerProcess, SandboxCluster, format_all, start_all
from headrace.sandbox.layout import SECRETS, ClusterPlan, Layout, check_name, wanted_ports
from headrace.sandbox.processes import ProcessRecord, end, held_ports
from headrace.toolchain import JarSet, find_java, jars


def require_disk(folder: Path, needed_bytes: int, purpose: str) -> None:
    """Raise InvalidSpec when ``folder``, made if absent, has less than ``needed_bytes`` free."""
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < needed_bytes:
        raise InvalidSpec(
            f"{purpose} needs {needed_bytes / 1e9:.1f} GB of free disk for its data, and there are "
            f"{free / 1e9:.1f} GB in {folder}. Make room, or set XDG_STATE_HOME to a folder on a "
            "larger disk"
        )


DISK_BYTES = 1 << 30
"""Free disk that a sandbox wants at least: Kafka ends when it cannot write."""

COMPANION_GRACE_S = 10
"""A flow stops within 5 s; twice that."""

log = get_logger(__name__)


class Sandbox:
    """Kafka clusters as local processes: ``start`` makes a sandbox, ``open`` finds it again.

    It ends with the process that started it, whatever ends that one, and with its ``with`` block.
    A *detached* one outlives both, unless the block ends with an error; ``close`` ends it, from any
    process. Its data is then gone; its logs stay when an error closed it, until the next start
    under its name.
    """

    def __init__(self, folder: Path, layout: Layout) -> None:
        """Not for others: see ``start`` and ``open``."""
        self.folder = folder
        self.detached = layout.detached
        self._ports = ExitStack()
        """Ports that are held, so that no other process takes one while its broker is down."""
        self.clusters = tuple(
            cluster.at(folder, layout.java, ends_with_us=not layout.detached)
            for cluster in layout.clusters
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
        Raises InvalidSpec for what one can correct: a name or a port that is taken, an unusable
        JAVA_HOME, too little disk.
        """
        check_name(name)
        names = [plan.name for plan in plans]
        if twice := {cluster for cluster in names if names.count(cluster) > 1}:
            raise InvalidSpec(f"sandbox {name} has two clusters named {', '.join(sorted(twice))}")
        home = home or sandboxes_home()
        folder = home / name
        with file_lock(home / f".{name}.lock"):
            if Layout.is_in(folder) and cls._at(folder).running:
                raise InvalidSpec(
                    f"sandbox {name} is already running; `headrace sandbox status` shows it, "
                    f"`headrace sandbox down {name}` ends it"
                )
            require_disk(home, disk_bytes, f"sandbox {name}")
            with ExitStack() as held:
                ports = held.enter_context(held_ports(wanted_ports(plans)))
                java = find_java()
                jars(JarSet.KAFKA_BROKER, java)
                _delete(folder)
                sandbox = cls(folder, Layout.write(folder, plans, ports, java, detached=detached))
                try:
                    format_all(sandbox.clusters)
                    start_all(broker for c in sandbox.clusters for broker in c.brokers)
                except BaseException:
                    sandbox.close(keep_logs=True)
                    raise
                if not detached:
                    sandbox._ports = held.pop_all()
        return sandbox

    @classmethod
    def open(cls, name: str, home: Path | None = None) -> Self:
        """Open the sandbox ``name``, running or not. Raise InvalidSpec if there is none."""
        folder = (home or sandboxes_home()) / name
        if not Layout.is_in(folder):
            there = ", ".join(sandbox.name for sandbox in cls.all(home)) or "none"
            raise InvalidSpec(f"there is no sandbox {name} (there: {there})")
        return cls._at(folder)

    @classmethod
    def all(cls, home: Path | None = None) -> tuple[Self, ...]:
        """Every sandbox of this user, by name; also those of which only logs are left."""
        home = home or sandboxes_home()
        return tuple(cls._at(f) for f in sorted(home.glob("*")) if Layout.is_in(f))

    @classmethod
    def _at(cls, folder: Path) -> Self:
        return cls(folder, Layout.read(folder))

    @property
    def name(self) -> str:
        """Its name, unique for a user of a machine."""
        return self.folder.name

    @property
    def secrets(self) -> Path:
        """Folder with the files that clients of its secure clusters need, for ``--secrets``."""
        return self.folder / SECRETS

    @property
    def running(self) -> bool:
        """Whether any process of the sandbox runs."""
        return bool(self._brokers() or self._companions())

    def cluster(self, name: str) -> SandboxCluster:
        """Return the cluster ``name``."""
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
        """Adopted processes that are running."""
        paths = sorted((self.folder / "companions").glob("*.json"))
        records = [record for path in paths if (record := ProcessRecord.read(path))]
        return tuple(record for record in records if record.find())

    def close(self, *, keep_logs: bool = False) -> None:
        """End all processes and delete the sandbox.

        With ``keep_logs``, only the brokers' data is deleted.
        """
        end(self._companions(), signal.SIGTERM, COMPANION_GRACE_S)
        # No clean stop for a broker: what it would save is deleted next.
        end(self._brokers(), signal.SIGKILL, grace_s=0)
        self._ports.close()
        if keep_logs:
            for broker in self._all_brokers():
                _delete(broker.data)
        else:
            _delete(self.folder)

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

    def _all_brokers(self) -> list[BrokerProcess]:
        return [broker for cluster in self.clusters for broker in cluster.brokers]

    def _brokers(self) -> list[psutil.Process]:
        return [process for broker in self._all_brokers() if (process := broker.process)]

    def _companions(self) -> list[psutil.Process]:
        return [process for record in self.companions if (process := record.find())]


def sandboxes_home() -> Path:
    """Where the sandboxes of this user are."""
    return state_home() / "sandboxes"


def _delete(folder: Path) -> None:
    with suppress(FileNotFoundError):  # it was never made, or is deleted already
        shutil.rmtree(folder)
