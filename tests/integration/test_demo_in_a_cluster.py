"""The commands that ``make demo-k8s`` prints at its end run as printed, in an empty shell."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from cluster.api_server import ApiServer
from e2e.demo import FLOW, TEST, next_commands
from e2e.stage import OPERATOR
from support.patience import WITHIN_S

ROOT = Path(__file__).parents[2]
LEADER = f"{OPERATOR}-0"


@pytest.fixture
def demo(api_server: ApiServer, namespace: str) -> str:
    """Create the flow, the test and the leader's Lease; return the namespace. Nothing runs."""
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": OPERATOR},
        "spec": {"holderIdentity": LEADER},
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": LEADER},
        "spec": {"containers": [{"name": "operator", "image": "headrace"}]},
    }
    api_server.apply(lease, pod, FLOW, TEST, namespace=namespace)
    return namespace


@pytest.fixture
def no_kubectl(demo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reduce PATH to bash and make, once the API server runs: Go may have to build it."""
    for program in ("bash", "make"):
        (tmp_path / program).symlink_to(str(shutil.which(program)))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert shutil.which("kubectl") is None


@pytest.mark.usefixtures("no_kubectl")
def test_what_is_printed_runs_without_kubectl_and_headrace_on_the_path(
    api_server: ApiServer, demo: str
) -> None:
    export, get, report, logs, down = next_commands(api_server, demo, operators=demo)
    for command, status, shown in (
        (get, 0, "replicationflow.headrace.dev/mirror"),
        (get, 0, "mirrortest.headrace.dev/load"),
        (report, 2, "load has no report yet"),
        (logs, 0, ""),  # of a pod that no node runs
        (down.replace("make", "make -n"), 0, "cluster down"),
    ):
        done = run(f"{export}\n{command}")
        assert (done.returncode, shown in done.stdout + done.stderr) == (status, True), (
            command,
            done,
        )


@pytest.mark.usefixtures("no_kubectl")
def test_a_kubectl_of_the_path_is_preferred(
    api_server: ApiServer, demo: str, tmp_path: Path
) -> None:
    (tmp_path / "kubectl").write_text(f'#!{tmp_path}/bash\nexec {api_server.own_kubectl} "$@"\n')
    (tmp_path / "kubectl").chmod(0o755)
    export, get, *_ = next_commands(api_server, demo, operators=demo)
    assert get.startswith("kubectl -n ")
    assert run(f"{export}\n{get}").returncode == 0


def run(script: str) -> "subprocess.CompletedProcess[str]":
    """Run a script in a shell that a user has open in the clone."""
    return subprocess.run(
        ["bash", "-c", script],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
