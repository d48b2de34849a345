"""How tests wait, run side by side, and share servers."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cluster.kubectl import KubectlError
from cluster.rest import ApiError
from confluent_kafka import KafkaException
from hypothesis import settings
from support.shared_servers import Facts, SharedServers, ask
from urllib3.exceptions import HTTPError

from headrace.errors import Retriable

LOOK_EVERY_S = 0.1
NO_ANSWER = (ApiError, HTTPError, KafkaException, KubectlError, Retriable)
"""What a look comes to while the one that is asked starts, moves or is away."""

# A machine that others use too stands still now and then: how long an example takes is no finding.
settings.register_profile("headrace", deadline=None)
settings.load_profile("headrace")


SERVERS, ADDRESS = pytest.StashKey[SharedServers](), pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # a worker of pytest-xdist has none of its own
        config.stash[SERVERS] = SharedServers(lambda name: _folder(config, name))


def _folder(config: pytest.Config, name: str) -> Path:
    return config._tmp_path_factory.mktemp(name)  # type: ignore[attr-defined] # not made yet then


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    servers = node.config.stash[SERVERS]
    node.workerinput["shared_servers"] = node.config.stash[ADDRESS] = (
        node.config.stash.get(ADDRESS, None) or servers.listen()
    )


def pytest_unconfigure(config: pytest.Config) -> None:
    if SERVERS in config.stash:
        config.stash[SERVERS].close()


ONE_AFTER_ANOTHER = ("own_api_server", "own_sandbox")
"""Fixtures whose tests run in one worker."""

FIRST = (
    "own_api_server",
    "canary_secret",
    "security",
    "examples_on_kubernetes",
    "mirror_test",
    "operator_drivers",
    "flow",
    "faults",
)
"""Groups and files that take longest: none of them is to be the last to end."""


def group(item: pytest.Item) -> str:
    """The tests that run in one worker, one after another; empty for a test of its own."""
    names = getattr(item, "fixturenames", ())
    if own := next((name for name in ONE_AFTER_ANOTHER if name in names), ""):
        return own
    together = item.path.parent.name != "integration" or item.get_closest_marker("in_one_worker")
    return file_of(item) if together else ""


def file_of(item: pytest.Item) -> str:
    """``security`` of ``test_security.py``."""
    return item.path.stem.removeprefix("test_")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not hasattr(config, "workerinput"):
        return
    for item in items:
        if name := group(item):
            item.add_marker(pytest.mark.xdist_group(name))
    items.sort(key=_rank)


def _rank(item: pytest.Item) -> int:
    name = group(item) or file_of(item)
    if name in FIRST:
        return FIRST.index(name)
    return len(FIRST) + (item.path.parent.name != "integration")


@pytest.fixture(scope="session")
def shared_server(pytestconfig: pytest.Config) -> Callable[[str], Facts]:
    """``shared_server(name)``: where a server of this run is, as ``SharedServers.get`` has it."""
    if SERVERS in pytestconfig.stash:
        return pytestconfig.stash[SERVERS].get
    return partial(ask, pytestconfig.workerinput["shared_servers"])  # type: ignore[attr-defined]


@pytest.fixture(scope="session")
def wait_until() -> Callable[..., object]:
    """``wait_until(look, within_s=10, until=bool)``: look until it is so; what was seen then.

    No answer is "not yet".
    """

    def wait(
        look: Callable[[], object],
        *,
        within_s: float,
        until: Callable[[object], bool] = bool,
        every_s: float = LOOK_EVERY_S,
    ) -> object:
        def answer() -> object:
            try:
                return look()
            except NO_ANSWER as error:
                return error

        deadline = time.monotonic() + within_s
        while isinstance(seen := answer(), NO_ANSWER) or not until(seen):
            if time.monotonic() > deadline:
                pytest.fail(f"not so within {within_s} s; last seen: {seen!r}")
            time.sleep(every_s)
        return seen

    return wait
