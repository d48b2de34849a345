"""Node of Debian's containerd and our own binaries, in a cell of this machine. Needs root."""

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from signal import Signals

from cluster.archive import read_archive, write_archive
from cluster.build import CLUSTER, NODE, PAUSE, cluster_binary
from cluster.component import Daemon
from cluster.node.cell import in_cell, make_cell, remove_cell
from cluster.node.components import components
from cluster.node.enforcement import enforcement
from cluster.node.files import PAUSE_IMAGE, write_files
from cluster.node.layout import ADMIN, AUDIT_LOG, NETWORK, RUNTIME, WHOLE
from cluster.node.packages import have_packages, plugin_folder
from cluster.program import Program, have_programs
from cluster.real import Cluster, CommandError, Part, run
from rich.console import Console

from headrace.errors import Fatal, HeadraceError
from headrace.host import cache_home, file_lock
from headrace.sandbox.processes import held_ports

ENDPOINT = f"unix://{RUNTIME}"


class SingleNode(Cluster):
    """Cluster for machines without a Docker engine."""

    def __init__(self, console: Console) -> None:
        """Prepare a node on this machine.

        Raises Fatal if this machine or its user cannot run a node.
        """
        if sys.platform != "linux" or os.geteuid() != 0:
            raise Fatal(
                "the tests' cluster needs a Docker engine that answers (`docker version`), or "
                "root on Linux: neither is here"
            )
        super().__init__(lambda: cluster_binary(console), ADMIN)
        self._console = console

    @cached_property
    def _node(self) -> Path:
        return NODE.get(self._console)

    @cached_property
    def _pause(self) -> Path:
        return PAUSE.get(self._console)

    @property
    def programs(self) -> tuple[Program, ...]:
        return CLUSTER, NODE, PAUSE

    def up(self) -> None:
        have_programs(self.programs, self._console)  # before a cell is created for them
        with self._locked():
            began, is_new = time.monotonic(), not WHOLE.exists()
            if is_new:
                self._console.print("Making a cluster: a node of its own, some 20 seconds.")
                self._make()
            daemons = self._components()
            stopped = [name for name, daemon in daemons.items() if not daemon.running]
            self._start(daemons, ("containerd", "etcd", "relay", "kube-apiserver"))
            self._start(daemons, tuple(daemons))
            if stopped:
                took_s = time.monotonic() - began
                what = "a new cluster" if is_new else ", ".join(stopped)
                self._console.print(f"Started {what} in {took_s:.1f} s.", soft_wrap=True)

    def down(self) -> None:
        with self._locked(), self._console.status("Ending what runs in the cluster"):
            if WHOLE.exists():
                self._stop(self._components())
            remove_cell()

    def status(self) -> str:
        if not WHOLE.exists():
            return "The cluster is down: `make cluster-up` starts it."
        daemons = self._components()
        bad = [name for name, one in daemons.items() if not (one.running and one.is_ready())]
        if bad:
            return f"The cluster does not work: {', '.join(bad)}; `make cluster-up` repairs it."
        return f"The cluster is up: KUBECONFIG={self.kubeconfig}"

    def load(self, archive: Path) -> None:
        held, brought = self._images(), read_archive(archive)
        # containerd lists an image by its name and by its id, both with the one digest.
        if any(name not in held or held[name] != held.get(id) for name, id in brought.items()):
            command = ("ctr", "-n", "k8s.io", "images", "import", archive.resolve())
            try:
                self.in_node(*command)
            except CommandError as error:
                if "snapshot" not in str(error):
                    raise
                # containerd has just removed a layer of an earlier image, which this one shares.
                self.in_node(*command)

    def signal(self, part: Part, number: Signals) -> None:
        daemon = self._daemon(part)
        if number == Signals.SIGKILL:
            daemon.kill()
        elif number == Signals.SIGTERM:
            daemon.stop()
        else:
            daemon.signal(number)

    def start(self, part: Part) -> None:
        self._daemon(part).start()

    def enforcing_policies(self) -> AbstractContextManager[None]:
        return enforcement(self)

    def audit_log(self) -> str:
        return AUDIT_LOG.read_text()

    @property
    def network(self) -> Path:
        return NETWORK

    def in_node(self, *command: str | Path) -> str:
        return run(*in_cell(*command))

    def _components(self) -> dict[str, Daemon]:
        return components(self._binary, self._node)

    def _daemon(self, name: str) -> Daemon:
        return self._components()[name]

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with file_lock(cache_home() / "node.lock"):
            yield

    def _make(self) -> None:
        have_packages(self._console)
        plugins = plugin_folder()
        assert plugins
        remove_cell()  # a cell that is incomplete
        with held_ports([None]) as (port,):
            make_cell()
            write_files(port, plugins)
        self._start(self._components(), ("containerd",))
        with suppress(CommandError):  # pods of a node that was cut off; there may be none
            self.in_node(self._node, "remove-pods", ENDPOINT)
        self._load_pause()
        WHOLE.touch()

    def _start(self, daemons: dict[str, Daemon], names: Sequence[str]) -> None:
        for name in names:
            daemons[name].launch()
        for name in names:
            with self._console.status(f"Waiting until {name} is ready"):
                daemons[name].wait_until_ready()

    def _load_pause(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            archive = Path(folder) / "pause.tar"
            self.load(write_archive(archive, PAUSE_IMAGE, {"/pause": self._pause}, ["/pause"]))

    def _images(self) -> dict[str, str]:
        """Return the digests of the node's images, by name and by id."""
        _, *rows = self.in_node("ctr", "-n", "k8s.io", "images", "list").splitlines()
        return {name: digest for name, _, digest, *_ in map(str.split, rows)}

    def _stop(self, daemons: dict[str, Daemon]) -> None:
        """Stop the components in an order in which none waits for one that has ended."""
        last = ("etcd", "containerd", "kube-apiserver")
        for name in [name for name in daemons if name not in last]:
            daemons[name].kill()
        if daemons["containerd"].running:
            daemons["containerd"].thaw()
            with suppress(HeadraceError):  # the next start does it
                self.in_node(self._node, "remove-pods", ENDPOINT)
        daemons["kube-apiserver"].kill()
        daemons["etcd"].kill()
        daemons["containerd"].stop()
