"""Everything fails once while a load runs; one verdict covers all of it."""

import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
from cluster.real import Cluster
from e2e.flow import FlowInPods
from e2e.recoveries import Recoveries
from e2e.stage import (
    BROKERS,
    OPERATOR,
    OPERATORS,
    flow_between_brokers,
    install_release,
    wait_for_rollout,
)
from rich.console import Console
from support.manifests import mirror_test

API_PORT = 6443
LOAD_S = 360
"""Longer than all faults together take."""
PER_SECOND = 500
CUT_OFF_S = 15.0
LITTLE_LAG = PER_SECOND
"""What one second brings."""

FLOW = flow_between_brokers("faults-.*")
TEST = mirror_test(
    "faults",
    flowName="mirror",
    load={
        "topics": 1,
        "partitions": 8,
        "producers": 1,
        "durationSeconds": LOAD_S,
        "messagesPerSecond": PER_SECOND,
    },
    settleSeconds=60,
    spark={"executors": 0},  # a stage is one pod: all of it shares two cores
)

pytestmark = pytest.mark.usefixtures("brokers", "release")


@pytest.fixture
def flow(cluster: Cluster, namespace: str) -> FlowInPods:
    """Applied, and a load under way."""
    cluster.apply(FLOW, TEST, namespace=namespace)
    flow = FlowInPods(cluster, namespace, "mirror")
    flow.kubectl("wait", "rflow/mirror", "--for=condition=Ready", "--timeout=120s")
    flow.kubectl("wait", "mtest/faults", "--for=jsonpath={.status.phase}=Running", "--timeout=300s")
    return flow


@pytest.fixture
def recoveries(flow: FlowInPods, capsys: pytest.CaptureFixture[str]) -> Iterator[Recoveries]:
    """Shown in the end, whatever became of the test."""
    recoveries = Recoveries(lambda: flow.kubectl("get", "rflow,rtask,mtest,pods", "-o", "wide"))
    yield recoveries
    with capsys.disabled():
        recoveries.show(Console())


def test_one_verdict_covers_all_faults(
    cluster: Cluster, flow: FlowInPods, recoveries: Recoveries
) -> None:
    recoveries.measure("(before the first)", lambda: flow.settled(2))
    a_driver_is_lost(flow, recoveries)
    a_driver_is_frozen(flow, recoveries)
    drivers_are_scaled(flow, recoveries)
    drivers_are_rolled(flow, recoveries)
    the_operator_is_killed(cluster, flow, recoveries)
    the_api_server_is_killed(cluster, flow, recoveries)
    a_driver_is_cut_off(cluster, flow, recoveries)
    the_chart_is_upgraded(cluster, flow, recoveries)
    the_kubelet_stands_still(cluster, flow, recoveries)
    (ready,) = flow.get("mtest", "faults")["status"]["conditions"][:1]
    assert ready["message"] == "sending the load", "it has to outlast the faults"
    status = verdict(flow)
    assert (status["verdict"], status["counts"]["missing"]) == ("Passed", 0), status
    print(status["counts"])


def a_driver_is_lost(flow: FlowInPods, recoveries: Recoveries) -> None:
    victim = flow.driver()
    flow.kubectl("delete", "pod", victim, "--wait=false")
    recoveries.measure("driver pod deleted", lambda: flow.settled(2, without=victim))

    victim = flow.driver()
    held = flow.held_by(victim)
    flow.signal(victim, signal.SIGKILL)
    recoveries.measure("driver killed with -9", lambda: flow.were_claimed_again(held))
    recoveries.measure("... and balanced again", lambda: flow.settled(2))


def a_driver_is_frozen(flow: FlowInPods, recoveries: Recoveries) -> None:
    victim = flow.driver()
    flow.signal(victim, signal.SIGSTOP)
    recoveries.measure("driver frozen past its Lease", lambda: flow.runs_without(victim))
    flow.signal(victim, signal.SIGCONT)
    recoveries.measure("... and thawed", lambda: flow.settled(2))


def drivers_are_scaled(flow: FlowInPods, recoveries: Recoveries) -> None:
    for drivers in (4, 1, 2):
        flow.scale(drivers)
        recoveries.measure(f"scaled to {drivers}", lambda drivers=drivers: flow.settled(drivers))


def drivers_are_rolled(flow: FlowInPods, recoveries: Recoveries) -> None:
    before, old = flow.epochs(), flow.pods()
    rolled = {"spec": {"drivers": {"podTemplate": {"metadata": {"annotations": {"rolled": "1"}}}}}}
    flow.cluster.kubectl(
        *("patch", "-n", flow.namespace, "rflow/mirror", "--type=merge", "--patch-file=/dev/stdin"),
        input=rolled,
    )
    recoveries.measure(
        "drivers rolled", lambda: flow.settled(2) and not old.keys() & flow.pods().keys()
    )
    moves = {name: epoch - before[name] for name, epoch in flow.epochs().items()}
    assert set(moves.values()) == {1}, f"each unit moves once: {moves}"


def the_operator_is_killed(cluster: Cluster, flow: FlowInPods, recoveries: Recoveries) -> None:
    lease = cluster.get("-n", OPERATORS, "lease", OPERATOR)
    leader = lease["spec"]["holderIdentity"]
    flow.scale(3)
    while not any(unit.wanted != unit.holder for unit in flow.units().values()):
        time.sleep(0.05)
    cluster.signal_container(OPERATORS, leader, signal.SIGKILL)
    recoveries.measure("operator killed amid a rebalance", lambda: flow.settled(3))
    flow.scale(2)
    recoveries.measure("scaled to 2 by the next operator", lambda: flow.settled(2))


def the_api_server_is_killed(cluster: Cluster, flow: FlowInPods, recoveries: Recoveries) -> None:
    before = flow.epochs()
    for part in ("kube-apiserver", "etcd"):
        cluster.signal(part, signal.SIGKILL)
    for part in ("etcd", "kube-apiserver"):
        cluster.start(part)
    moved = moves_a_unit(flow, recoveries, "API server and etcd killed")
    others = {name: epoch for name, epoch in flow.epochs().items() if name != moved}
    assert others == {name: epoch for name, epoch in before.items() if name != moved}


def a_driver_is_cut_off(cluster: Cluster, flow: FlowInPods, recoveries: Recoveries) -> None:
    victim = flow.driver()
    address = flow.pods()[victim]["status"]["podIP"]
    (broker,) = cluster.get("-n", BROKERS, "pods", "-l", "app=east")["items"]
    with cluster.dropping(address, broker["status"]["podIP"]):
        time.sleep(CUT_OFF_S)
    recoveries.measure("cut off from the source for 15 s", lambda: flow.lag() < LITTLE_LAG)

    with cluster.dropping(address, cluster.node_ip, port=API_PORT):
        recoveries.measure("cut off from the API server", lambda: flow.runs_without(victim))
    recoveries.measure("... and back", lambda: flow.settled(2))


def the_chart_is_upgraded(cluster: Cluster, flow: FlowInPods, recoveries: Recoveries) -> None:
    before = flow.epochs()
    install_release(cluster, "--set=logLevel=DEBUG")
    wait_for_rollout(cluster, OPERATORS, OPERATOR)
    moved = moves_a_unit(flow, recoveries, "chart upgraded")
    others = {name: epoch for name, epoch in flow.epochs().items() if name != moved}
    assert others == {name: epoch for name, epoch in before.items() if name != moved}


def the_kubelet_stands_still(cluster: Cluster, flow: FlowInPods, recoveries: Recoveries) -> None:
    before = flow.epochs()
    cluster.signal("kubelet", signal.SIGSTOP)
    cluster.kubectl("wait", "node", "--all", "--for=condition=Ready=Unknown", "--timeout=120s")
    cluster.start("kubelet")
    recoveries.measure("kubelet stopped until its node was NotReady", lambda: is_ready(cluster))
    assert flow.epochs() == before, "nothing moves"


def moves_a_unit(flow: FlowInPods, recoveries: Recoveries, fault: str) -> str:
    """The operator and both drivers do as they are told."""
    units = flow.units()
    name = min(units)
    goal = max(flow.pods().keys() - {units[name].holder})
    flow.wish(name, goal)
    recoveries.measure(fault, lambda: flow.units()[name].holder == goal and flow.settled(2))
    return name


def is_ready(cluster: Cluster) -> bool:
    (node,) = cluster.get("nodes")["items"]
    return any(
        (one["type"], one["status"]) == ("Ready", "True") for one in node["status"]["conditions"]
    )


def verdict(flow: FlowInPods) -> Any:
    """The status of the test when it has ended."""
    flow.kubectl("wait", "mtest/faults", "--for=jsonpath={.status.verdict}", "--timeout=900s")
    return flow.get("mtest", "faults")["status"]
