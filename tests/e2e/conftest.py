"""The real cluster that the end-to-end tests share, with its images and brokers; it is left up."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from cluster.find import real_cluster
from cluster.program import have_programs
from cluster.real import Cluster
from e2e.prepare import programs
from e2e.stage import MIRROR_TESTS_MAY, install_brokers, install_release, load_images
from rich.console import Console
from support.programs import build_programs
from support.records import unique

from headrace.errors import HeadraceError

ARCHIVES = Path(__file__).parents[2] / "dist" / "images"
"""Archives of `make images-test`."""
POLL_INTERVAL_S = 1.0
"""Seconds between polls: each runs kubectl, on two cores that pods share."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move the test of used permissions to the end."""
    last = Path(__file__).with_name("test_rights.py")
    items.sort(key=lambda item: item.path == last)


def pytest_collection_finish(session: pytest.Session) -> None:
    if any(item.path.is_relative_to(Path(__file__).parent) for item in session.items):
        build_programs(session, lambda: have_programs(programs()))


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """Return the running cluster. A test may break it, and repairs it afterwards."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():  # steps that take minutes are printed
        try:
            found = real_cluster(Console(stderr=True))
            found.up()
        except HeadraceError as error:
            pytest.exit(str(error), returncode=1)
    return found


@pytest.fixture(scope="session")
def wait_until(wait_until: Callable[..., object]) -> Callable[..., object]:
    """Return ``wait_until`` with a longer interval."""
    return partial(wait_until, every_s=POLL_INTERVAL_S)


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """Yield a namespace with restricted pod security, and delete it at the end."""
    name = unique("test")
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    metadata = {"name": name, "labels": labels}
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    account = ("-n", name, "serviceaccount/default")  # a pod before it would be refused
    cluster.kubectl("wait", "--for=create", "--timeout=300s", *account)
    yield name
    cluster.up()  # a test that failed may have left a part of it frozen, or dead
    cluster.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture(scope="session")
def images(cluster: Cluster) -> None:
    """Load our images to the node."""
    load_images(cluster, ARCHIVES)


@pytest.fixture(scope="session")
def brokers(cluster: Cluster, images: None) -> None:
    """Install the clusters ``east`` and ``west``."""
    install_brokers(cluster, "east", "west")


@pytest.fixture(scope="session")
def release(cluster: Cluster, images: None) -> None:
    """Install two operators by Helm; tests may break the ones that they test."""
    install_release(cluster, MIRROR_TESTS_MAY)
