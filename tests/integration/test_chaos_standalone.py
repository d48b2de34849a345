"""Faults that ``headrace verify`` injects on one machine: the drivers of a run, and brokers."""

from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.flows import ANSWER_S, spec
from support.records import Record, make_topic, produce, unique
from support.scenes import WaitUntil, flow_under_load

from headrace.api import ChaosStep, ClusterSpec, MirrorTest
from headrace.chaos import Injection, LocalInjector
from headrace.cli.mirror_test.local_faults import BrokerFaults
from headrace.control import control
from headrace.errors import HeadraceError, InvalidSpec
from headrace.mirror_test import MirrorTestRun
from headrace.sandbox import ClusterPlan, Sandbox, SandboxCluster


def step(action: str, **more: Any) -> ChaosStep:
    return ChaosStep.model_validate({"action": action, "atSeconds": 1, **more})


@pytest.mark.long
def test_drivers_are_frozen_scaled_and_rolled_and_the_flow_recovers(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    with flow_under_load(east, west, tmp_path, wait_until) as scene:
        injector = LocalInjector(partial(control.request, scene.run.name, timeout_s=ANSWER_S))

        def alive() -> set[str]:
            return set(scene.ask("drivers")["alive"])

        frozen = injector.inject(step("FreezeDriver"))
        wait_until(frozen.recovered)
        wait_until(lambda: frozen.driver in alive())  # it was thawed

        scaled = injector.inject(step("ScaleDrivers", drivers=3))
        wait_until(scaled.recovered)
        old = alive()
        rolled = injector.inject(step("RollDrivers"))
        wait_until(rolled.recovered)
        assert len(old) == 3
        assert not alive() & old
        wait_until(injector.inject(step("ScaleDrivers", drivers=1)).recovered)
        with pytest.raises(InvalidSpec, match="the run has no other"):
            injector.inject(step("FreezeDriver"))


@pytest.mark.long
def test_a_broker_is_killed_and_started_and_what_comes_after_has_arrived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait_until: WaitUntil
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with closing(Sandbox.start("broken", [ClusterPlan("west")], detached=True)) as sandbox:
        west = sandbox.cluster("west")
        (broker,) = west.brokers
        topic = make_topic(spec(west), unique("hit"), 2)
        steps = [step("KillBroker", cluster="Target"), step("StartBroker", cluster="Target")]
        nobody = ClusterSpec(alias="east", bootstrap_servers="127.0.0.1:1")
        run = run_of(nobody, spec(west).spec, topic)
        faults = BrokerFaults(run, steps)
        killed = faults.inject(steps[0])
        assert broker.process is None
        assert killed.driver == "broker 1 of cluster west"
        with pytest.raises(InvalidSpec, match="is down already"):
            faults.inject(steps[0])

        started = faults.inject(steps[1])
        broker.wait_until_up()
        wait_until(lambda: recovered(started) is False)
        after_ms = started.at_ms + 1
        for partition in range(2):
            wait_until(lambda: recovered(killed) is False)
            produce(spec(west), topic, [Record(partition, b"k", b"v", (), after_ms)])
        for injection in (killed, started):
            wait_until(lambda injection=injection: recovered(injection))
        faults.inject(steps[0])
        faults.restore()
        broker.wait_until_up()

        with pytest.raises(InvalidSpec, match="is no cluster of a sandbox that runs by itself"):
            BrokerFaults(run, [step("KillBroker", cluster="Source")])


def recovered(injection: Injection) -> bool | None:
    """Return whether the injection has recovered, or None while the broker cannot answer."""
    try:
        return injection.recovered()
    except HeadraceError:
        return None


def run_of(source: ClusterSpec, target: ClusterSpec, topic: str) -> MirrorTestRun:
    test = MirrorTest.model_validate(
        {
            "metadata": {"name": "t"},
            "spec": {
                "source": source,
                "target": target,
                "targetTopic": "{topic}",
                "load": {"names": [topic]},
            },
        }
    )
    return MirrorTestRun(name="r", test=test)
