"""Real brokers and a real API server for the tests."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from cluster.api_server import ApiServer, OwnApiServer, running_api_server
from cluster.build import cluster_binary
from cluster.kubelet import Kubelet, running_kubelet
from support.helm import helm_binary
from support.operators import Operator, Resources, give_rights, running_operator
from support.programs import build_programs
from support.prometheus import prometheus_binary
from support.records import unique
from support.shared_api_server import CRDS, open_api_server

from headrace.sandbox import ClusterPlan, Sandbox, SandboxCluster

KEEP_GROUPS = {"offsets.retention.check.interval.ms": "86400000"}
"""Brokers delete groups that have neither members nor offsets every ten minutes: within a test."""


@pytest.fixture(scope="session", autouse=True)
def as_installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Hide hypothesis from the processes of tests, as where only headrace is installed.

    kio imports it if it can, which takes a sixth of a driver's start.
    """
    folder = tmp_path_factory.mktemp("as-installed")
    (folder / "hypothesis.py").write_text("raise ImportError('of the tests alone')\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
        yield


@pytest.fixture(autouse=True)
def runtime_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a folder for control sockets and Secrets; short, as a socket's path has 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="hr-") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield Path(folder)


@pytest.fixture(scope="session")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """Yield clusters ``east`` and ``west`` of one broker each, for all tests of a process.

    Each process has its own: flows of one source into one target share its heartbeats.
    """
    plans = [ClusterPlan(name, properties=KEEP_GROUPS) for name in ("east", "west")]
    with Sandbox.start("tests", plans, home=tmp_path_factory.mktemp("sandboxes")) as sandbox:
        yield sandbox


@pytest.fixture
def clusters(sandbox: Sandbox) -> Iterator[Sandbox]:
    """Yield both clusters, running. Name topics uniquely.

    A test may stop or freeze brokers, and fail while they are down.
    """
    yield sandbox
    for cluster in sandbox.clusters:
        for broker in cluster.brokers:
            broker.thaw()
            broker.start()


@pytest.fixture
def east(clusters: Sandbox) -> SandboxCluster:
    """Return the source."""
    return clusters.cluster("east")


@pytest.fixture
def west(clusters: Sandbox) -> SandboxCluster:
    """Return the target."""
    return clusters.cluster("west")


@pytest.fixture
def start_cluster(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[..., SandboxCluster]]:
    """Yield ``start_cluster("three", brokers=3)``, which starts a cluster of this test's own.

    Its arguments are the fields of a ClusterPlan. Afterwards, the ends of the logs of brokers that
    have ended are printed. pytest shows them if the test has failed.
    """
    clusters: list[SandboxCluster] = []
    with ExitStack() as running:

        def start(name: str, **plan: Any) -> SandboxCluster:
            home = tmp_path_factory.mktemp("sandboxes")
            plans = [ClusterPlan(name, **plan)]
            cluster = running.enter_context(Sandbox.start(name, plans, home=home)).cluster(name)
            clusters.append(cluster)
            return cluster

        yield start
        ended = [one for cluster in clusters for one in cluster.brokers if one.process is None]
        for broker in ended:
            print(broker.log, *broker.log.read_text().splitlines()[-_LOG_LINES:], sep="\n")


_LOG_LINES = 60
"""Number of printed lines at the end of the log of a broker that has ended."""

PROGRAMS: dict[str, list[Callable[[], object]]] = {
    "api_server": [cluster_binary],
    "prometheus_program": [prometheus_binary],
    "helm_program": [helm_binary],
}
"""Programs that are built from Go modules, by the fixture that needs them."""


def pytest_collection_finish(session: pytest.Session) -> None:
    needed = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    for fixture in PROGRAMS.keys() & needed:
        build_programs(session, *PROGRAMS[fixture])


@pytest.fixture(scope="session")
def prometheus_program() -> Path:
    """Return the file of Prometheus, which is built before the first test's time-out starts."""
    return prometheus_binary()


@pytest.fixture(scope="session")
def helm_program() -> Path:
    """Return the file of Helm, which is built before the first test's time-out starts."""
    return helm_binary()


@pytest.fixture(scope="session", autouse=True)
def no_cluster_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Hide the user's clusters from all tests and their processes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", str(tmp_path_factory.getbasetemp() / "no-kubeconfig"))
        patch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
        yield


@pytest.fixture(scope="session")
def shared_api_server(pytestconfig: pytest.Config) -> ApiServer:
    """Return the API server that all tests share, with headrace's kinds. It cannot be stopped."""
    return open_api_server(pytestconfig)


@pytest.fixture(scope="session")
def own_api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnApiServer]:
    """Yield an API server for tests that break it (``own_api_server.kill()``).

    Tests that change the kinds or act in all namespaces also use it. They run one after another.
    """
    with running_api_server(tmp_path_factory.mktemp("own-api-server")) as server:
        server.install_crds(CRDS)
        yield server


@pytest.fixture
def api_server(request: pytest.FixtureRequest) -> ApiServer:
    """Return ``own_api_server`` for a test that requests it, else the shared one."""
    own = "own_api_server" in request.fixturenames
    server: ApiServer = request.getfixturevalue("own_api_server" if own else "shared_api_server")
    return server


@pytest.fixture
def namespace(api_server: ApiServer) -> Iterator[str]:
    """Yield a namespace of this test's own, and delete it with its contents at the end."""
    name = unique("test")
    api_server.kubectl("create", "namespace", name)
    account = ("-n", name, "serviceaccount/default")  # a pod before it would be refused
    api_server.kubectl("wait", "--for=create", "--timeout=300s", *account)
    yield name
    api_server.recover()
    api_server.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def kubelet(api_server: ApiServer, namespace: str, tmp_path: Path) -> Iterator[Kubelet]:
    """Yield a kubelet that runs the pods of the test's namespace as processes of this machine."""
    with running_kubelet(api_server, namespace, tmp_path / "pods") as kubelet:
        yield kubelet


@pytest.fixture
def resources(api_server: ApiServer, namespace: str) -> Resources:
    """Return this test's namespace as a user of kubectl sees it."""
    return Resources(api_server, namespace)


@pytest.fixture
def operator(api_server: ApiServer, resources: Resources, tmp_path: Path) -> Iterator[Operator]:
    """Yield an operator for that namespace alone."""
    give_rights(api_server, resources.namespace)
    with running_operator(api_server, resources.namespace, tmp_path) as operator:
        yield operator
