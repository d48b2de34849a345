"""Figures of a status after the processes that report them, or the target, stop."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.flows import FlowRun, manifest, spec
from support.records import arrived, make_topic, numbered, produce, unique
from support.scenes import WaitUntil

from headrace.sandbox import SandboxCluster


def conditions(status: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the conditions of a status by type."""
    return {one["type"]: one for one in status.get("conditions", ())}


def test_figures_of_frozen_drivers_are_unknown_and_a_target_without_answers_is_reported(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    topic = make_topic(spec(east), unique("states"), 2)
    copy = f"east.{topic}"
    produce(spec(east), topic, numbered(10, 2))
    options = {"tasks": {"max": 1}, "drivers": {"replicas": 1, "leaseSeconds": 3}}
    flow = manifest(topic, east, west, topic, heartbeats={"enabled": False}, **options)
    flow["spec"]["target"]["config"] = {"request.timeout.ms": "3000"}
    with FlowRun(tmp_path, [flow]) as run:
        wait_until(lambda: arrived(spec(west), copy) == 10)
        wait_until(run.ready)
        wait_until(lambda: run.status()["tasks"], until=lambda tasks: tasks["running"] == 1)

        (broker,) = west.brokers
        broker.freeze()
        produce(spec(east), topic, numbered(10, 2, 10))
        wait_until(
            lambda: conditions(run.units()[0]).get("Ready", {}),
            until=lambda ready: "west has not acknowledged" in ready.get("message", ""),
        )
        status = wait_until(
            run.status,
            until=lambda seen: conditions(seen)["Ready"]["reason"] == "TargetUnreachable",
        )
        assert conditions(status)["Ready"]["status"] == "False"
        assert status["lag"]["records"] == 10
        wait_until(lambda: run.status()["bytesPerSecond"] == 0)
        broker.thaw()
        wait_until(lambda: arrived(spec(west), copy) == 20)
        wait_until(run.ready)

        (driver,) = run.drivers()
        driver.suspend()
        status = wait_until(run.status, until=lambda seen: seen.get("lostDrivers"))
        driver.resume()
        assert (status["tasks"]["running"], status["readyReplicas"]) == (0, 0)
        assert status["bytesPerSecond"] == 0
        assert "lag" not in status
        assert {unit["phase"] for unit in status["units"]} == {"Unknown"}
        ready = conditions(status)["Ready"]
        assert (ready["status"], ready["reason"]) == ("False", "NoDrivers")

        wait_until(run.ready)
        status = run.status()
        assert (status["tasks"]["running"], status.get("lostDrivers")) == (1, [])
