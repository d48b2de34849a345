"""Watch of the source after a planned fail-over, on real brokers."""

from collections.abc import Callable
from functools import partial
from operator import eq
from pathlib import Path
from typing import Any

import pytest
from support.flows import FlowRun, spec
from support.records import arrived, make_topic, numbered, produce, produce_with, unique
from support.rehearsal import fail_over, flow, headrace, reverse

from headrace.sandbox import SandboxCluster

WaitUntil = Callable[..., Any]
WATCH = {"intervalSeconds": 1}
STILL = "SourceStillWritten"


def watches(run: FlowRun) -> bool:
    """Return whether the watch runs, and has read the ends of the source."""
    ready = run.condition("Ready")
    found = (ready.get("status"), ready.get("reason")) == ("True", "Stopped")
    return found and "are watched every 1 s" in str(ready["message"])


def offsets(run: FlowRun) -> dict[int, int]:
    """Return the number of new offsets of each partition that the status names."""
    return {one["partition"]: one["offsets"] for one in run.status().get("sourceWrites", [])}


def test_producers_that_write_to_the_source_after_a_fail_over_are_named(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    name = unique("watch")
    topic = make_topic(spec(east), name, 4)
    produce(spec(east), topic, numbered(40, 4))
    with FlowRun(tmp_path, [flow(name, east, west, topic, sourceWatch=WATCH)]) as run:
        wait_until(lambda: arrived(spec(west), topic), until=partial(eq, 40))
        found = fail_over(run, "--quiet-seconds", "1")
        assert (found["sourceWatched"], found["problems"]) == (True, [])
        wait_until(lambda: watches(run))
        assert (offsets(run), run.condition(STILL)) == ({}, {})
        (unit,) = run.units("SourceWatch")
        assert unit["driverName"]
        assert "lag" not in run.status(), "nobody reads the source's records"

        # These records have timestamps of before the fail-over.
        produce(spec(east), topic, numbered(10, [0]), {"enable.idempotence": "true"})
        transactional = produce_with(
            spec(east), topic, numbered(7, [1]), **{"transactional.id": f"{name}-tx"}
        )
        transactional.commit_transaction()
        produce(spec(east), topic, numbered(5, [2]))
        wait_until(lambda: offsets(run), until=partial(eq, {0: 10, 1: 8, 2: 5}))
        writes = {one["partition"]: one for one in run.status()["sourceWrites"]}
        ids = {
            at: [one.get("transactionalId") for one in it["producers"]] for at, it in writes.items()
        }
        assert ids == {0: [""], 1: [f"{name}-tx"], 2: []}
        message = run.condition(STILL)["message"]
        assert f"{topic}-0 has 10 new offsets since {writes[0]['since']}" in message
        assert f"of transactional id {name}-tx" in message
        assert (
            f"{topic}-2 has 5 new offsets since {writes[2]['since']}, by a producer without"
            in message
        )
        assert STILL in headrace("status", name)[1]

        code, printed = headrace("failover", name, "--end-watch")
        assert (code, printed) == (0, f"The source of {name} is not watched any more.\n")
        wait_until(lambda: not run.units("SourceWatch") and not run.condition(STILL))
        assert run.condition("Ready")["reason"] == "Stopped"


@pytest.mark.parametrize(
    "delivery", ["AtLeastOnce", pytest.param("ExactlyOnce", marks=pytest.mark.long)]
)
def test_copies_of_the_reverse_flow_end_the_watch_and_are_not_reported(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil, delivery: str
) -> None:
    name = unique("watch")
    topic = make_topic(spec(east), name, 2)
    produce(spec(east), topic, numbered(20, 2))
    there = flow(name, east, west, topic, sourceWatch=WATCH, delivery={"mode": delivery})
    with FlowRun(tmp_path, [there]) as run:
        wait_until(lambda: arrived(spec(west), topic), until=partial(eq, 20))
        fail_over(run, "--quiet-seconds", "1")
        wait_until(lambda: watches(run))
        produce(spec(west), topic, numbered(30, 2))
        back, _ = reverse(name)
        assert watches(run), "it ends when the reverse flow runs"
        with FlowRun(tmp_path, [back]):
            wait_until(lambda: run.units("SourceWatch")[0]["driverName"] == "")
            wait_until(lambda: arrived(spec(east), topic), until=partial(eq, 50))
        ready = run.condition("Ready")
        assert (ready["status"], ready["reason"]) == ("True", "Stopped")
        assert "the watch of the source has ended" in ready["message"]
        assert (offsets(run), run.condition(STILL)) == ({}, {})
        assert STILL not in run.log.read_text()
