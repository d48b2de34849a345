"""Records that real brokers have deleted, and the effect of ``spec.onDataLoss``."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from operator import eq
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.flows import FlowRun, manifest, spec
from support.progress import progress_records
from support.records import arrived, delete_records, make_topic, numbered, produce, read, unique

from headrace.kafka import Admin
from headrace.sandbox import SandboxCluster

WaitUntil = Callable[..., Any]
ONE_TASK = {"tasks": {"max": 1}, "drivers": {"replicas": 1}, "discovery": {"topicsSeconds": 2}}
OLD, NEW = numbered(100, 1), numbered(50, 1, first=100)


def losses(run: FlowRun) -> list[dict[str, Any]]:
    """Return the losses without their times."""
    lost = run.status().get("losses", [])
    return [{name: value for name, value in one.items() if name != "time"} for one in lost]


def ready(run: FlowRun) -> tuple[str, str]:
    """Return status and reason of Ready."""
    condition = run.condition("Ready")
    return condition.get("status", ""), condition.get("reason", "")


def recreate(cluster: SandboxCluster, topic: str, run: FlowRun, wait_until: WaitUntil) -> None:
    """Recreate a topic while the flow's driver is frozen, so that it cannot see the time between.

    A source topic that discovery does not find is removed, and no loss. A target topic that does
    not exist is created by the flow.
    """
    admin = Admin(spec(cluster))
    drivers = run.drivers()
    for driver in drivers:
        driver.suspend()
    try:
        admin.delete_topic(topic)
        wait_until(lambda: admin.create_topic(topic, 1))
    finally:
        for driver in drivers:
            with suppress(psutil.NoSuchProcess):
                driver.resume()


def confirmed(west: SandboxCluster, topic: str) -> int:
    """Up to where the stored progress of partition 0 is known to be of this topic."""
    stored = [
        progress
        for key, progress in progress_records(spec(west))
        if progress is not None and key.topic == topic
    ]
    return max((one.known_good.source_offset for one in stored if one.confirmed), default=0)


@pytest.mark.parametrize("policy", ["Fail", "Restart", "Continue"])
def test_retention_that_was_faster_than_the_flow(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil, policy: str
) -> None:
    lost, other = (make_topic(spec(east), unique(word), 1) for word in ("cut", "whole"))
    flow = manifest("retention", east, west, lost, other, onDataLoss=policy, **ONE_TASK)
    produce(spec(east), lost, OLD)
    with FlowRun(tmp_path, [flow], "--until-caught-up") as run:
        assert run.end() == 0, run.output
    produce(spec(east), lost, NEW)
    produce(spec(east), other, NEW)
    delete_records(spec(east), lost, {0: 120})

    with FlowRun(tmp_path, [flow]) as run:
        (loss,) = wait_until(partial(losses, run))
        action = {"Fail": "Stopped", "Restart": "Restarted", "Continue": "Continued"}[policy]
        expected = {"topic": lost, "partition": 0, "cause": "SourceTruncated", "action": action}
        offsets = {"firstOffset": 100, "lastOffset": 119, "lowerBound": False}
        assert loss == expected | offsets
        wait_until(
            lambda: run.condition("DataLossDetected").get("message", ""),
            until=lambda said: "offsets 100 to 119 are lost" in said,
        )
        # The other partitions of its task continue in any case.
        wait_until(partial(arrived, spec(west), f"east.{other}"), until=partial(eq, 50))
        if policy == "Fail":
            wait_until(partial(ready, run), until=partial(eq, ("False", "DataLost")))
            assert arrived(spec(west), f"east.{lost}") == 100
        else:
            wait_until(run.ready)
            copies = partial(read, spec(west), f"east.{lost}")
            wait_until(copies, until=lambda found: found[0] == OLD + NEW[20:])


@pytest.mark.parametrize("policy", ["Restart", "Continue"])
@pytest.mark.parametrize("side", ["source", "target"])
def test_a_topic_that_is_created_again_while_the_flow_runs(  # noqa: PLR0917
    east: SandboxCluster,
    west: SandboxCluster,
    tmp_path: Path,
    wait_until: WaitUntil,
    side: str,
    policy: str,
) -> None:
    topic = make_topic(spec(east), unique("again"), 1)
    copy = f"east.{topic}"
    produce(spec(east), topic, OLD)
    flow = manifest("again", east, west, topic, onDataLoss=policy, **ONE_TASK)
    with FlowRun(tmp_path, [flow]) as run:
        wait_until(partial(arrived, spec(west), copy), until=partial(eq, 100))
        wait_until(run.ready)
        wait_until(partial(confirmed, west, topic), until=partial(eq, 100))
        cluster, name = (east, topic) if side == "source" else (west, copy)
        recreate(cluster, name, run, wait_until)
        (loss,) = wait_until(partial(losses, run))
        if side == "source":
            assert (loss["cause"], loss["firstOffset"]) == ("SourceRecreated", 100)
            assert loss["lowerBound"]
        else:
            assert (loss["cause"], loss["firstOffset"]) == ("TargetRecreated", 0)
            assert loss["lastOffset"] == 99
        produce(spec(east), topic, NEW)
        expected = {
            ("source", "Restart"): OLD + NEW,
            ("source", "Continue"): OLD + NEW,
            ("target", "Restart"): OLD + NEW,
            ("target", "Continue"): NEW,
        }[side, policy]
        copies = partial(read, spec(west), copy)
        wait_until(copies, until=lambda found: found.get(0) == expected)
        wait_until(run.ready)


def test_a_topic_that_is_deleted_before_all_of_it_is_copied(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    """Copy one topic to its end, which is no loss, while the other waits for a user."""
    lost, whole = (make_topic(spec(east), unique(word), 1) for word in ("lost", "whole"))
    produce(spec(east), lost, OLD)
    produce(spec(east), whole, OLD)
    paused = {"pausedPartitions": [{"topic": lost}]}
    flow = manifest("deleted", east, west, lost, whole, **ONE_TASK)
    with FlowRun(tmp_path, [flow], "--until-caught-up") as run:
        assert run.end() == 0, run.output
    produce(spec(east), lost, NEW)
    flow = manifest("deleted", east, west, lost, whole, **ONE_TASK, **paused)
    with FlowRun(tmp_path, [flow]) as run:
        wait_until(run.ready)
        behind = partial(eq, 50)  # how much is lost is known by the end that was seen last
        wait_until(lambda: run.status().get("lag", {}).get("records"), until=behind)
        admin = Admin(spec(east))
        admin.delete_topic(lost)
        admin.delete_topic(whole)
        (loss,) = wait_until(partial(losses, run))
        expected = {"topic": lost, "partition": 0, "cause": "SourceDeleted", "action": "Stopped"}
        offsets = {"firstOffset": 100, "lastOffset": 149, "lowerBound": True}
        assert loss == expected | offsets
        message = wait_until(
            lambda: run.condition("DataLossDetected").get("message", ""),
            until=lambda said: f"topic {lost} on" in said,
        )
        assert "offsets 100 to (at least) 149" in message
        wait_until(partial(ready, run), until=partial(eq, ("False", "DataLost")))
    accepted = manifest("deleted", east, west, lost, whole, onDataLoss="Continue", **ONE_TASK)
    with FlowRun(tmp_path, [accepted]) as run:
        wait_until(run.ready)
        wait_until(
            lambda: [loss["action"] for loss in losses(run)], until=partial(eq, ["Continued"])
        )
