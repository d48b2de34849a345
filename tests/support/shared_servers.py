"""What a run of the tests has once, for all of its workers: an API server.

The process that the person started owns them: it starts each when the first test needs it, and
ends them with the run. They also end with that process, whatever ends it. Workers (pytest-xdist)
ask it over a socket where a server is.
"""

import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import cached_property
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path

import pytest
from cluster.api_server import ApiServer, running_api_server
from cluster.build import cluster_binary
from cluster.kubectl import KubectlError

from headrace.errors import Fatal, HeadraceError

CRDS = Path(__file__).parents[2] / "crds"

Facts = dict[str, str]
"""How a worker reaches a server."""


class SharedServers:
    """The servers of this run, in the process that owns them."""

    def __init__(self, make_folder: Callable[[str], Path]) -> None:
        """``make_folder`` makes a new folder of the run's under a name."""
        self._make_folder = make_folder
        self._running = ExitStack()
        self._locks = {name: threading.Lock() for name in _START}
        self._facts: dict[str, Facts] = {}

    def get(self, name: str) -> Facts:
        """Where the server ``name`` is; started first when it does not run."""
        with self._locks[name]:
            if name not in self._facts:
                self._facts[name] = _START[name](self._make_folder(name), self._running)
            return self._facts[name]

    @cached_property
    def address(self) -> str:
        """Where workers ask; they are answered from the first look at this on."""
        address = str(self._make_folder("shared") / "socket")
        listener = self._running.enter_context(Listener(address, "AF_UNIX"))
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        return address

    def _accept(self, listener: Listener) -> None:
        while True:
            try:
                line = listener.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._answer, args=(line,), daemon=True).start()

    def _answer(self, line: Connection) -> None:
        with line, suppress(BrokenPipeError, ConnectionResetError, EOFError):  # the worker ended
            name = line.recv()
            try:
                answer: Facts | str = self.get(name)
            except (HeadraceError, KubectlError, OSError) as error:
                answer = f"{type(error).__name__}: {error}"
            line.send(answer)

    def close(self) -> None:
        """End all of them."""
        self._running.close()


def new_folder(config: pytest.Config, name: str) -> Path:
    """A new folder of this run's, in any process of it."""
    # A fixture cannot give it: the controller of pytest-xdist has none.
    folder: Path = config._tmp_path_factory.mktemp(name)  # type: ignore[attr-defined]
    return folder


def ask(address: str, name: str) -> Facts:
    """What ``SharedServers.get`` answers in the process that listens at ``address``."""
    with Client(address, "AF_UNIX") as line:
        line.send(name)
        answer: Facts | str = line.recv()
    if isinstance(answer, str):
        raise Fatal(f"the run's {name} could not be started: {answer}")
    return answer


def open_api_server(facts: Facts) -> ApiServer:
    """The run's API server, with headrace's kinds."""
    return ApiServer(cluster_binary(), Path(facts["folder"]), facts["url"])


def _start_api_server(folder: Path, running: ExitStack) -> Facts:
    server = running.enter_context(running_api_server(folder))
    server.install_crds(CRDS)
    return {"folder": str(folder), "url": server.url}


_START: dict[str, Callable[[Path, ExitStack], Facts]] = {
    "api-server": _start_api_server,
}
