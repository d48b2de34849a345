"""Grouping of tests into workers of pytest-xdist, and the order in which they start."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.shared_api_server import new_folder

from headrace.host import write_whole

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling

OWN_API_SERVER = "own_api_server"
"""The fixture whose tests run in one worker."""

SPARK = "spark"
"""The group of the folder with the Spark session, and of ``SPARK_FILES``."""

SPARK_FILES = {"integration/audit", "integration/mirror_test"}
"""Files whose tests start Spark: a JVM that keeps two cores busy, so one at a time."""

ONE_WORKER = {"e2e", SPARK}
"""Folders whose tests share a slow fixture: the cluster, a Spark session."""

FIRST = (
    "e2e",
    OWN_API_SERVER,
    SPARK,
    "integration/canary_secret",
    "integration/fail_over",
    "integration/security",
    "integration/chart",
    "integration/examples_on_kubernetes",
    "integration/operator_drivers",
    "integration/flow",
    "integration/faults",
    "integration",
)
"""Groups, files and folders in the order in which they start: what takes longest is not to end
last. The others follow."""

GROUPS = pytest.StashKey[Path]()
"""File, in the controller, to which workers write the group of each test."""


def group(item: pytest.Item) -> str:
    """Return the group of tests that run one after another in a worker; empty for a lone test."""
    if OWN_API_SERVER in getattr(item, "fixturenames", ()):
        return OWN_API_SERVER
    if _file(item) in SPARK_FILES:
        return SPARK
    if _folder(item) in ONE_WORKER:
        return _folder(item)
    together = _folder(item) != "integration" or item.get_closest_marker("in_one_worker")
    return _file(item) if together else ""


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Pass the groups' file to a worker."""
    stash = node.config.stash
    if GROUPS not in stash:
        stash[GROUPS] = new_folder(node.config, "groups") / "groups.json"
    node.workerinput["groups"] = str(stash[GROUPS])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the tests in a worker."""
    if hasattr(config, "workerinput"):
        items.sort(key=_rank)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Write the groups before pytest-xdist reports the collection. Each worker writes the same."""
    if hasattr(session.config, "workerinput"):
        groups = {item.nodeid: name for item in session.items if (name := group(item))}
        write_whole(Path(session.config.workerinput["groups"]), json.dumps(groups).encode())


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> "LoadScopeScheduling":
    """Return a scheduler that assigns a group at a time, in the order of collection.

    pytest-xdist's own ``--dist loadgroup`` does not work with pytest 9.2 (pytest-xdist 3.8 writes
    the group to an attribute that a test does not have any more).
    """
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415 - only here when it is used

    class GroupScheduling(LoadScopeScheduling):
        def schedule(self) -> None:
            self.groups: dict[str, str] = json.loads(config.stash[GROUPS].read_text())
            super().schedule()

        def _split_scope(self, nodeid: str) -> str:
            return self.groups.get(nodeid, nodeid)

    config.option.loadscopereorder = False
    return GroupScheduling(config, log)


def _folder(item: pytest.Item) -> str:
    """Return ``integration`` for ``tests/integration/test_flow.py``."""
    return item.path.parent.name


def _file(item: pytest.Item) -> str:
    """Return ``integration/flow`` for ``tests/integration/test_flow.py``."""
    return f"{_folder(item)}/{item.path.stem.removeprefix('test_')}"


def _rank(item: pytest.Item) -> int:
    for name in (group(item), _file(item), _folder(item)):
        if name in FIRST:
            return FIRST.index(name)
    return len(FIRST)
