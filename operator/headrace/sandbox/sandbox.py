"""Named clusters on this machine, which are started and ended together."""

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
    """Raise ``InvalidSpec`` if less than ``needed_bytes`` are free on the disk of ``folder``.

    Create the folder if it does not exist.
    """
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < needed_bytes:
        raise InvalidSpec(
            f"{purpose} needs {needed_bytes / 1e9:.1f} GB of free disk for its data, and there are "
            f"{free / 1e9:.1f} GB in {folder}. Free some space, or set XDG_STATE_HOME to a folder "
            "on a larger disk"
        )


DISK_BYTES = 1 << 30
"""Minimum free disk space of a sandbox in bytes. A broker ends if it cannot write."""

COMPANION_GRACE_S = 10
"""Time in seconds for adopted processes to end. It is twice the 5 s that a flow needs to stop."""

log = get_logger(__name__)


class Sandbox:
    """Kafka clusters as local processes, which ``start`` creates and ``open`` finds again.

    A sandbox ends with the process that started it, and at the end of its ``with`` block. A
    *detached* sandbox outlives both, unless the block raises an error. Any process can end it with
    ``close``, which deletes its data. If an error ended the sandbox, its logs are kept until the
    next start under its name.
    """

    def __init__(self, folder: Path, layout: Layout) -> None:
        """Create the object of an existing sandbox. Callers use ``start`` or ``open``."""
        self.folder = folder
        self.detached = layout.detached
        self._ports = ExitStack()
        """Held ports, so that no other process takes the port of a stopped broker."""
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
        """Start clusters under ``name`` and wait until every broker accepts connections.

        ``disk_bytes`` must be free in ``home``, where data and logs are stored. The default of
        ``home`` is ``sandboxes_home()``.

        Raises:
            InvalidSpec: The name or a port is in use, JAVA_HOME is not usable, or there is too
                little free disk space.
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
        """Return the sandbox ``name``, running or not. Raise ``InvalidSpec`` if there is none."""
        folder = (home or sandboxes_home()) / name
        if not Layout.is_in(folder):
            there = ", ".join(sandbox.name for sandbox in cls.all(home)) or "none"
            raise InvalidSpec(f"there is no sandbox {name} (existing sandboxes: {there})")
        return cls._at(folder)

    @classmethod
    def all(cls, home: Path | None = None) -> tuple[Self, ...]:
        """Return all sandboxes of this user by name.

        Sandboxes of which only logs exist are included.
        """
        home = home or sandboxes_home()
        return tuple(cls._at(f) for f in sorted(home.glob("*")) if Layout.is_in(f))

    @classmethod
    def _at(cls, folder: Path) -> Self:
        return cls(folder, Layout.read(folder))

    @property
    def name(self) -> str:
        """Name, which is unique for a user of a machine."""
        return self.folder.name

    @property
    def secrets(self) -> Path:
        """Folder with the files that clients of secure clusters need, for ``--secrets``."""
        return self.folder / SECRETS

    @property
    def running(self) -> bool:
        """True if any process of the sandbox runs."""
        return bool(self._brokers() or self._companions())

    def cluster(self, name: str) -> SandboxCluster:
        """Return the cluster ``name``. Raise ``InvalidSpec`` if there is none."""
        for cluster in self.clusters:
            if cluster.name == name:
                return cluster
        there = ", ".join(cluster.name for cluster in self.clusters)
        raise InvalidSpec(f"sandbox {self.name} has no cluster {name} (it has {there})")

    def adopt(self, pid: int, label: str) -> None:
        """End process ``pid`` with the sandbox, first by SIGTERM. Messages name it ``label``."""
        ProcessRecord.of(pid, label).write(self.folder / "companions" / f"{pid}.json")

    @property
    def companions(self) -> tuple[ProcessRecord, ...]:
        """Adopted processes that still run."""
        paths = sorted((self.folder / "companions").glob("*.json"))
        records = [record for path in paths if (record := ProcessRecord.read(path))]
        return tuple(record for record in records if record.find())

    def close(self, *, keep_logs: bool = False) -> None:
        """End all processes and delete the sandbox.

        With ``keep_logs``, delete only the data of the brokers.
        """
        end(self._companions(), signal.SIGTERM, COMPANION_GRACE_S)
        # Brokers need no clean stop, because their data is deleted next.
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
    """Return the folder with the sandboxes of this user."""
    return state_home() / "sandboxes"


def _delete(folder: Path) -> None:
    with suppress(FileNotFoundError):  # it was never created, or was already deleted
        shutil.rmtree(folder)
