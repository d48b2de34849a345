"""``make demo-k8s``: brokers, operator, a flow and its test in a real cluster, to the verdict."""

import shutil
import sys
import time
from pathlib import Path
from typing import Any

from cluster.find import real_cluster
from cluster.kubectl import Kubectl, KubectlError
from cluster.real import Cluster
from e2e.stage import (
    OPERATOR,
    OPERATORS,
    flow_between_brokers,
    install_brokers,
    install_release,
    load_images,
)
from progress import progress
from rich.console import Console
from support.helm import HelmError
from support.manifests import mirror_test

from headrace.errors import HeadraceError

NAMESPACE = "demo"
POLL_INTERVAL_S = 1.0
PATIENCE_S = 900.0
"""Spark starts six pods on what may be two busy cores."""
FLOW = flow_between_brokers("load-.*")
TEST = mirror_test(
    "load",
    flowName="mirror",
    load={"topics": 3, "messages": 300_000, "messagesPerSecond": 2_000},
    spark={"executors": 1},
)


def main(archives: Path) -> int:
    """Run the demo, and return 0 if the verdict is Passed."""
    console = Console(stderr=True, highlight=False)
    try:
        cluster = real_cluster(console)
        cluster.up()
        return _play(cluster, archives, console)
    except (HeadraceError, KubectlError, HelmError) as error:
        console.print(str(error), soft_wrap=True, markup=False)
        return 1


def _play(cluster: Cluster, archives: Path, console: Console) -> int:
    with progress(console, "Images to the node"):
        load_images(cluster, archives)
    with progress(console, "Brokers east and west, in pods"):
        install_brokers(cluster, "east", "west")
    with progress(console, "The operator, by Helm"):
        install_release(cluster)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    cluster.apply(namespace)
    _forget_last(cluster)
    cluster.apply(FLOW, TEST, namespace=NAMESPACE)
    status = _watch(cluster, console)
    Console().print(_in_words(status), soft_wrap=True)
    _say_what_next(cluster, console)
    return 0 if status.get("verdict") == "Passed" else 1


def _forget_last(cluster: Cluster) -> None:
    """Delete the objects of an earlier demo on the same cluster."""
    cluster.kubectl("delete", "-n", NAMESPACE, "--ignore-not-found", "mtest/load", "rflow/mirror")


def _watch(cluster: Cluster, console: Console) -> Any:
    """Wait until the test has ended or the time is over, and return its status."""
    began, printed = time.monotonic(), ""
    with console.status("") as shown:
        while True:
            status = cluster.get("-n", NAMESPACE, "mtest", "load").get("status", {})
            lag = cluster.get("-n", NAMESPACE, "rflow", "mirror").get("status", {}).get("lag", {})
            ready: dict[str, Any] = next(
                (c for c in status.get("conditions", ()) if c["type"] == "Ready"), {}
            )
            line = f"{status.get('phase', 'Pending')}: {ready.get('message', '')}"
            shown.update(f"{line}  mirror {lag.get('records', 0):,} behind")
            if line != printed and not console.is_terminal:
                console.print(f"{time.monotonic() - began:4.0f} s  {line}", soft_wrap=True)
            printed = line
            if "verdict" in status or time.monotonic() - began > PATIENCE_S:
                return status
            time.sleep(POLL_INTERVAL_S)


def _in_words(status: Any) -> str:
    counts, latency = status.get("counts", {}), status.get("latencyMs", {})
    words = ", ".join(f"{counts[name]:,} {name}" for name in counts)
    return f"{status.get('verdict', 'No verdict')}: {words}; latency {latency}"


def _say_what_next(cluster: Cluster, console: Console) -> None:
    lines = (f"  {command}" for command in next_commands(cluster))
    console.print("All of it is up still. Next:", *lines, sep="\n", soft_wrap=True)


def next_commands(
    cluster: Kubectl, namespace: str = NAMESPACE, operators: str = OPERATORS
) -> tuple[str, ...]:
    """Return commands for a shell in the clone, without kubectl or headrace on PATH."""
    lease = cluster.get("-n", operators, "lease", OPERATOR)
    leader = lease["spec"]["holderIdentity"]
    kubectl = "kubectl" if shutil.which("kubectl") else cluster.own_kubectl
    headrace = Path(sys.executable).with_name("headrace")
    return (
        f"export KUBECONFIG={cluster.kubeconfig}",
        f"{kubectl} -n {namespace} get rflow,rtask,mtest",
        f"{headrace} test report load -n {namespace}",
        f"{kubectl} -n {operators} logs {leader}  # the replica that leads",
        "make cluster-down",
    )


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
