"""A real cluster with brokers and the operator in it, for all tests of this folder."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster.find import real_cluster
from cluster.real import Cluster
from e2e.stage import install_brokers, install_release, load_images

ARCHIVES = Path(__file__).parents[2] / "dist" / "images"


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """It is left as it was found: up, or down."""
    cluster = real_cluster()
    was_up = cluster.is_up
    cluster.up()
    yield cluster
    if not was_up:
        cluster.down()


@pytest.fixture(scope="session")
def images(cluster: Cluster) -> None:
    """Ours, on the node."""
    load_images(cluster, ARCHIVES)


@pytest.fixture(scope="session")
def brokers(cluster: Cluster, images: None) -> None:
    """Clusters ``east`` and ``west``."""
    install_brokers(cluster, "east", "west")


@pytest.fixture(scope="session")
def release(cluster: Cluster, images: None) -> None:
    """Two operators, installed by Helm."""
    install_release(cluster)


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """Of this test's own, with the strictest of the Pod Security Standards."""
    name = f"e2e-{uuid.uuid4().hex[:6]}"
    cluster.kubectl("create", "namespace", name)
    cluster.kubectl("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
    yield name
    cluster.kubectl("delete", "namespace", name)
