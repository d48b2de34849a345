"""Each part fails once while a load runs; one verdict and one report cover all faults."""

import json
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from operator import eq
from pathlib import Path
from typing import Any

import pytest
from cluster.kubectl import KubectlError
from cluster.real import Cluster
from e2e.flow import FlowInPods, Unit
from e2e.mirror_test import MirrorTestInPods
from e2e.recoveries import Recoveries
from e2e.stage import (
    BROKERS,
    MIRROR_TESTS_MAY,
    OPERATOR,
    OPERATORS,
    SMALL,
    flow_between_brokers,
    install_release,
    wait_for_rollout,
)
from rich.console import Console
from support.helm import helm
from support.manifests import mirror_test

API_PORT = 6443
TOPIC = "faults-0"
COPIED, LAG = "headrace_task_copied_records_total", "headrace_task_lag_records"
LOAD_S = 1800
"""Longer than all faults together may take: the test ends it when the last one is over."""
PER_SECOND, PARTITIONS = 500, 8
STEPS_S = 480.0
VERDICT_S = 600.0
"""A kubelet takes up to two minutes to show its pods that a load shall end."""
CUT_OFF_S = 10.0
CALM_S = 5.0
REBALANCE_S = 300.0
LITTLE_LAG = 5 * PER_SECOND
"""Records of a few seconds."""
SURE_S = 2.0
"""Seconds of load that must be copied after a fault, of each part of the load."""
LEASE_S = 10
"""Lease duration: with the default of 6 s, a slow driver on two busy cores would lose its units."""

STEPS: list[dict[str, Any]] = [
    {"action": "KillDriver"},
    {"action": "FreezeDriver"},
    {"action": "DeleteDriverPod"},
    {"action": "ScaleDrivers", "drivers": 4},
    {"action": "ScaleDrivers", "drivers": 1},
    {"action": "ScaleDrivers", "drivers": 2},
    {"action": "RollDrivers"},
    {"action": "KillOperator"},
]
"""Faults that the test itself injects, each after the flow has recovered from the one before."""

FLOW = flow_between_brokers(
    "faults-.*", leaseSeconds=LEASE_S, resources={"limits": {"memory": "512Mi"}}
)
HOG = """
import os, time
for _ in range(80):
    if not os.fork():
        kept = b"x" * (10 << 20)
        break
time.sleep(60)
"""
"""Program that exceeds the limit in small processes: the kernel kills the largest, the driver."""
TEST = mirror_test(
    "faults",
    flowName="mirror",
    load={
        "topics": 1,
        "partitions": PARTITIONS,
        "producers": 1,
        "durationSeconds": LOAD_S,
        "messagesPerSecond": PER_SECOND,
    },
    settleSeconds=180,  # the patience with each step, too
    chaos=[{**step, "atSeconds": 5} for step in STEPS],
    spark={"executors": 1, "driver": SMALL, "executor": SMALL},
    budgets={"latencyP99Ms": 60_000, "duplicated": 0},
)

Wait = Callable[..., Any]

pytestmark = pytest.mark.usefixtures("brokers", "release")


@pytest.fixture
def flow(cluster: Cluster, namespace: str) -> FlowInPods:
    """Apply the flow and its test, and return when the load runs."""
    cluster.apply(FLOW, TEST, namespace=namespace)
    flow = FlowInPods(cluster, namespace, "mirror")
    flow.kubectl("wait", "rflow/mirror", "--for=condition=Ready", "--timeout=300s")
    flow.kubectl("wait", "mtest/faults", "--for=jsonpath={.status.phase}=Running", "--timeout=480s")
    return flow


@pytest.fixture
def recoveries(flow: FlowInPods, capsys: pytest.CaptureFixture[str]) -> Iterator[Recoveries]:
    """Yield the recoveries, and print them at the end, even if the test failed."""
    recoveries = Recoveries(flow.describe)
    yield recoveries
    with capsys.disabled():
        recoveries.show(Console(stderr=True))  # a worker of pytest-xdist has no output


@pytest.mark.timeout(2400)
def test_one_verdict_covers_all_faults(
    cluster: Cluster,
    flow: FlowInPods,
    recoveries: Recoveries,
    tmp_path: Path,
    wait_until: Wait,
) -> None:
    test, began = MirrorTestInPods(cluster, flow.namespace, "faults"), time.monotonic()
    wait_until(lambda: steps_done(flow), within_s=STEPS_S, until=partial(eq, len(STEPS)))
    with flow.without_balance():
        drivers_are_rolled(flow, recoveries)
    drivers_are_drained(flow, recoveries, wait_until)
    a_driver_runs_out_of_memory(flow, recoveries, wait_until)
    the_operator_is_killed(cluster, flow, recoveries, wait_until)
    with flow.without_balance():
        the_api_server_is_killed(cluster, flow, recoveries)
    a_driver_is_cut_off(cluster, flow, recoveries, wait_until)
    with flow.without_balance():
        the_chart_is_upgraded(cluster, flow, recoveries)
        the_kubelet_stands_still(cluster, flow, recoveries)
    assert test.ready()["message"] == "sending the load", "it has to outlast the faults"
    test.end_load()
    sent_s = time.monotonic() - began
    wait_until(test.verdict, within_s=VERDICT_S)
    all_is_there(test, recoveries, at_least=int(sent_s * PER_SECOND / 2))
    flow.kubectl("delete", "jobs", "--all")
    wait_until(lambda: test.pods(""), until=partial(eq, {}))
    the_report_opens(test, tmp_path, wait_until)


def all_is_there(test: MirrorTestInPods, recoveries: Recoveries, at_least: int) -> None:
    status = test.status()
    counts = ", ".join(f"{count:,} {what}" for what, count in status.get("counts", {}).items())
    recoveries.verdict = f"{status['verdict']}: {counts}"
    assert (status["verdict"], status["phase"]) == ("Passed", "Finished"), json.dumps(status)
    for fault in test.result()["faults"]:
        step = fault["step"]
        recoveries.add(f"{step['action']} {step['drivers'] or ''}", fault["recoverySeconds"])
    assert status["counts"]["acknowledged"] >= at_least
    assert (status["counts"]["missing"], status["counts"]["duplicated"]) == (0, 0)
    assert 0 < status["latencyMs"]["p50"] <= status["latencyMs"]["max"]


def the_report_opens(test: MirrorTestInPods, folder: Path, wait_until: Wait) -> None:
    opened, browser = folder / "opened", folder / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
    browser.chmod(0o755)
    count = test.status()["counts"]["acknowledged"]
    verdict = f"Passed: all {count:,} acknowledged messages are on the target"
    wait_until(
        lambda: test.report(folder, browser=str(browser)),
        until=lambda output: output.startswith(verdict),
    )
    (page,) = (folder / "headrace-reports" / test.name).glob("*/report.html")
    assert "Passed" in page.read_text()
    assert wait_until(lambda: opened.exists() and opened.read_text().strip()) == (page.as_uri())
    wait_until(lambda: "<svg" in test.report(folder, "--page", "-"))


def steps_done(flow: FlowInPods) -> int:
    """Return the number of faults that the flow has recovered from."""
    log = flow.kubectl("logs", "job/faults-chaos")
    # A source that is unreachable for a moment is informed later: a warning, and no fault.
    assert "level=warning" not in re.sub(r".*not told, tried again.*", "", log), log
    return log.count("event=recovered")


def drivers_are_rolled(flow: FlowInPods, recoveries: Recoveries) -> None:
    before, old = epochs_at_rest(flow), flow.pods()
    rolled = {"spec": {"drivers": {"podTemplate": {"metadata": {"annotations": {"rolled": "1"}}}}}}
    flow.patch(rolled)
    recoveries.measure(
        "drivers rolled", lambda: flow.settled(2) and not old.keys() & flow.pods().keys()
    )
    moves = {name: epoch - before[name] for name, epoch in flow.epochs().items()}
    assert set(moves.values()) == {1}, f"each unit moves once: {moves}"


def drivers_are_drained(flow: FlowInPods, recoveries: Recoveries, wait_until: Wait) -> None:
    first, second = flow.pods()
    wait_until(lambda: flow.evict(first), until=lambda _: True)

    def refusal() -> str:
        try:
            flow.evict(second)
        except KubectlError as error:
            return str(error)
        return ""

    # Another driver may have replaced the first already; then it is allowed.
    assert "disruption budget" in refusal() or flow.pods().keys() - {first, second}

    def second_is_evicted() -> bool:
        if second in flow.pods():
            flow.evict(second)
        return True

    recoveries.measure("drained: the first driver", second_is_evicted)
    recoveries.measure(
        "drained: the second",
        lambda: flow.settled(2) and not {first, second} & flow.pods().keys(),
    )


def a_driver_runs_out_of_memory(flow: FlowInPods, recoveries: Recoveries, wait_until: Wait) -> None:
    name = flow.driver()
    held = {unit: one.epoch for unit, one in flow.units().items() if one.holder == name}
    with pytest.raises(KubectlError, match=r"137|ttrpc: closed"):  # it dies with the driver
        flow.kubectl("exec", name, "--container=driver", "--", "python", "-c", HOG)

    def is_claimed_again() -> bool:
        epochs = flow.epochs()
        return all(epochs[unit] > epoch for unit, epoch in held.items()) and flow.settled(2)

    recoveries.measure("driver out of memory", is_claimed_again)
    wait_until(lambda: flow.container(name), until=ran_out_of_memory)


def ran_out_of_memory(container: Any) -> bool:
    ends = (container[state].get("terminated", {}) for state in ("state", "lastState"))
    return any(end.get("reason") == "OOMKilled" for end in ends)


def the_operator_is_killed(
    cluster: Cluster, flow: FlowInPods, recoveries: Recoveries, wait_until: Wait
) -> None:
    def begun(units: Mapping[str, Unit]) -> bool:
        return on_its_way(units) or len({unit.holder for unit in units.values()}) == 3

    for _ in range(5):
        leader = cluster.get("-n", OPERATORS, "lease", OPERATOR)["spec"]["holderIdentity"]
        flow.scale(3)
        seen = wait_until(flow.units, within_s=REBALANCE_S, until=begun, every_s=0.05)
        if on_its_way(seen):
            break
        flow.scale(2)  # the move ended before a poll
        wait_until(lambda: flow.settled(2), within_s=REBALANCE_S)
    else:
        pytest.fail("no unit was seen on its way to the third driver")
    cluster.signal_container(OPERATORS, leader, signal.SIGKILL)
    recoveries.measure("operator killed amid a rebalance", lambda: flow.settled(3))
    flow.scale(2)
    recoveries.measure("scaled to 2 by the next operator", lambda: flow.settled(2))


def on_its_way(units: Mapping[str, Unit]) -> bool:
    return any(unit.wanted != unit.holder for unit in units.values())


def the_api_server_is_killed(cluster: Cluster, flow: FlowInPods, recoveries: Recoveries) -> None:
    before = epochs_at_rest(flow)
    for part in ("kube-apiserver", "etcd"):
        cluster.signal(part, signal.SIGKILL)
    cluster.start("etcd")
    cluster.start("kube-apiserver")
    moved = moves_a_unit(flow, recoveries, "API server and etcd killed")
    others = {name: epoch for name, epoch in flow.epochs().items() if name != moved}
    assert others == {name: epoch for name, epoch in before.items() if name != moved}


def a_driver_is_cut_off(
    cluster: Cluster, flow: FlowInPods, recoveries: Recoveries, wait_until: Wait
) -> None:
    victim = flow.driver()
    address = flow.pods()[victim]["status"]["podIP"]
    (broker,) = cluster.pods(BROKERS, "app=east").values()
    source = broker["status"]["podIP"]
    with cluster.dropping(address, source, probability=0.1):
        time.sleep(CUT_OFF_S)
        (before,) = wait_until(lambda: flow.figures(COPIED))
        recoveries.measure(
            "a tenth of the source's packets lost",
            partial(keeps_up, flow, before),
        )
    with cluster.dropping(address, source):
        time.sleep(CUT_OFF_S)
        (before,) = wait_until(lambda: flow.figures(COPIED))
    recoveries.measure(
        f"cut off from the source for {CUT_OFF_S:.0f} s", partial(keeps_up, flow, before)
    )
    with cluster.dropping(address, cluster.node_ip, port=API_PORT):
        recoveries.measure("cut off from the API server", lambda: flow.runs_without(victim))
    recoveries.measure("... and back", lambda: flow.settled(2))


def the_chart_is_upgraded(cluster: Cluster, flow: FlowInPods, recoveries: Recoveries) -> None:
    before = epochs_at_rest(flow)
    install_release(cluster, MIRROR_TESTS_MAY, "--set=logLevel=DEBUG")
    wait_for_rollout(cluster, OPERATORS, OPERATOR)
    helm("test", OPERATORS, f"--namespace={OPERATORS}", kubeconfig=cluster.kubeconfig)
    moved = moves_a_unit(flow, recoveries, "chart upgraded")
    others = {name: epoch for name, epoch in flow.epochs().items() if name != moved}
    assert others == {name: epoch for name, epoch in before.items() if name != moved}


def the_kubelet_stands_still(cluster: Cluster, flow: FlowInPods, recoveries: Recoveries) -> None:
    before = epochs_at_rest(flow)
    cluster.signal("kubelet", signal.SIGSTOP)
    cluster.kubectl("wait", "node", "--all", "--for=condition=Ready=Unknown", "--timeout=300s")
    began = time.monotonic()
    cluster.start("kubelet")  # returns when its node is Ready
    recoveries.add("kubelet stopped until its node was NotReady", time.monotonic() - began)
    assert epochs_at_rest(flow) == before, "nothing moves"


def keeps_up(flow: FlowInPods, before: Mapping[str, float]) -> bool:
    """Return whether all of the load is copied again; a lag describes only the last fetch."""
    (copied, lag), parts = flow.figures(COPIED, LAG), flow.partitions(TOPIC)

    def grown(task: str) -> float:
        now, then = copied.get(task, 0.0), before.get(task, 0.0)
        return now - then if now >= then else now  # its counter restarts on another driver

    return (
        sum(parts.values()) == PARTITIONS
        and all(
            task in lag and grown(task) >= SURE_S * PER_SECOND * part / PARTITIONS
            for task, part in parts.items()
        )
        and sum(lag.values()) < LITTLE_LAG
    )


def moves_a_unit(flow: FlowInPods, recoveries: Recoveries, fault: str) -> str:
    """Move a unit once the operator and both drivers answer, and return its name."""
    moves: dict[str, str] = {}

    def has_moved() -> bool:
        if not flow.settled(2):
            return False
        units = flow.units()
        if not moves:
            load = Counter(unit.holder for unit in units.values())
            name = max(sorted(units), key=lambda name: load[units[name].holder])
            goal = max(flow.pods().keys() - {units[name].holder})
            flow.wish(name, goal)
            moves[name] = goal
        return all(units[name].holder == goal for name, goal in moves.items())

    recoveries.measure(fault, has_moved)
    return next(iter(moves))


def epochs_at_rest(flow: FlowInPods) -> dict[str, int]:
    """Return the epochs once no move is in progress; call it within ``without_balance``."""
    before: dict[str, int] = {}
    while (now := flow.epochs()) != before:
        before = now
        time.sleep(CALM_S)
    return now
