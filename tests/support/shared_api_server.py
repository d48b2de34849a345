"""The API server that all workers of a run of the tests share.

The process that the user started owns it: it starts it for the first test that needs it, and ends
it with the run. It also ends when that process ends in any way.

That process also owns the folder of the run. It is removed with the run, unless the run failed and
a test needed the API server: then the summary names the folder, which has the server's logs.
"""

import shutil
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, cast
from xmlrpc.client import Fault, ServerProxy
from xmlrpc.server import SimpleXMLRPCServer

import pytest
from cluster.api_server import ApiServer, running_api_server
from cluster.build import cluster_binary

from headrace.errors import Fatal
from headrace.sandbox.processes import HOST

CRDS = Path(__file__).parents[2] / "crds"

Place = tuple[str, str]
"""The API server's folder and URL."""


class SharedApiServer:
    """The API server in the process that owns it."""

    def __init__(self, make_folder: Callable[[str], Path]) -> None:
        """Prepare the server; ``make_folder`` makes a new folder of the run under a name."""
        self._make_folder = make_folder
        self._running = ExitStack()
        self._starting = threading.Lock()
        self._place: Place | None = None
        self.was_needed = False
        """Whether it was started, even if it did not come up."""

    def place(self) -> Place:
        """Return the server's folder and URL, and start the server if it does not run."""
        with self._starting:
            self.was_needed = True
            if self._place is None:
                folder = self._make_folder("api-server")
                server = self._running.enter_context(running_api_server(folder))
                server.install_crds(CRDS)
                self._place = str(folder), server.url
            return self._place

    @cached_property
    def address(self) -> str:
        """Address at which workers of pytest-xdist request ``place``; the first use starts it."""
        answering = SimpleXMLRPCServer((HOST, 0), logRequests=False)
        answering.register_function(self.place, "place")
        threading.Thread(target=answering.serve_forever, daemon=True).start()
        return f"http://{HOST}:{answering.server_address[1]}"

    def close(self) -> None:
        """End it."""
        self._running.close()


OWNED = pytest.StashKey[SharedApiServer]()
FOLDER = pytest.StashKey[Path]()
"""Folder of the run."""
FAILED = pytest.StashKey[bool]()
"""Whether the run failed."""


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.stash[OWNED] = SharedApiServer(lambda name: new_folder(config, name))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Pass the address to a worker."""
    node.workerinput["api_server"] = node.config.stash[OWNED].address


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    session.config.stash[FAILED] = exitstatus != pytest.ExitCode.OK


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if keeps_folder(config):
        terminalreporter.write_line(f"logs of the API server: {config.stash[FOLDER]}")


def pytest_unconfigure(config: pytest.Config) -> None:
    try:
        if OWNED in config.stash:
            config.stash[OWNED].close()
    finally:
        if FOLDER in config.stash and not keeps_folder(config):
            shutil.rmtree(config.stash[FOLDER], ignore_errors=True)


def keeps_folder(config: pytest.Config) -> bool:
    """Return whether the run's folder has logs that explain a failure."""
    failed = config.stash.get(FAILED, True)
    return failed and FOLDER in config.stash and config.stash[OWNED].was_needed


def open_api_server(config: pytest.Config) -> ApiServer:
    """Return the run's API server, with headrace's kinds, for any process of the run."""
    if OWNED in config.stash:
        folder, url = config.stash[OWNED].place()
    else:
        owner = ServerProxy(config.workerinput["api_server"])  # type: ignore[attr-defined]
        try:
            folder, url = cast("list[str]", owner.place())
        except Fault as why:
            raise Fatal(f"the run's API server could not be started: {why.faultString}") from why
    return ApiServer(cluster_binary(), Path(folder), url)


def new_folder(config: pytest.Config, name: str) -> Path:
    """Return a new folder of this run, in the process that the user started."""
    # The fixture tmp_path_factory cannot give it: the controller of pytest-xdist has no fixtures.
    if FOLDER not in config.stash:
        config.stash[FOLDER] = Path(mkdtemp(prefix="headrace-tests-"))
    folder = config.stash[FOLDER] / name
    folder.mkdir()
    return folder
