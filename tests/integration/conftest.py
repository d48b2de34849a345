"""Real brokers for the tests, and how they wait."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from headrace.sandbox import Cluster, ClusterPlan, Sandbox

LOOK_EVERY_S = 0.1


@pytest.fixture(scope="session")
def shared_sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """Clusters ``east`` and ``west`` of one broker each, for all tests: name topics uniquely."""
    home = tmp_path_factory.mktemp("sandboxes")
    with Sandbox.start("shared", [ClusterPlan("east"), ClusterPlan("west")], home=home) as sandbox:
        yield sandbox


@pytest.fixture(scope="session")
def east(shared_sandbox: Sandbox) -> Cluster:
    """The shared source."""
    return shared_sandbox.cluster("east")


@pytest.fixture(scope="session")
def west(shared_sandbox: Sandbox) -> Cluster:
    """The shared target."""
    return shared_sandbox.cluster("west")


@pytest.fixture
def start_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Cluster]]:
    """``start_cluster("three", brokers=3)``: a cluster of this test's own, as a ClusterPlan."""
    with ExitStack() as running:

        def start(name: str, **plan: object) -> Cluster:
            home = tmp_path_factory.mktemp("sandboxes")
            plans = [ClusterPlan(name, **plan)]  # type: ignore[arg-type]
            return running.enter_context(Sandbox.start(name, plans, home=home)).cluster(name)

        yield start


@pytest.fixture(scope="session")
def wait_until() -> Callable[..., object]:
    """``wait_until(look, within_s=10, until=bool)``: look until it is so; what was seen then."""

    def wait(
        look: Callable[[], object], *, within_s: float, until: Callable[[object], bool] = bool
    ) -> object:
        deadline = time.monotonic() + within_s
        while not until(seen := look()):
            if time.monotonic() > deadline:
                pytest.fail(f"not so within {within_s} s; last seen: {seen!r}")
            time.sleep(LOOK_EVERY_S)
        return seen

    return wait
