"""A flow, run by ``headrace run`` between real clusters."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from operator import eq
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from support.flows import FlowRun, manifest, spec, words_of
from support.patience import WITHIN_S
from support.records import (
    Comparison,
    Load,
    Record,
    arrived,
    compare,
    count,
    delete_records,
    make_topic,
    numbered,
    produce,
    read,
    unique,
)

from headrace.kafka import Admin, make_producer
from headrace.replication.mirror_maker_formats import Heartbeat
from headrace.sandbox import SandboxCluster

WaitUntil = Callable[..., Any]


def test_everything_of_a_record_is_preserved(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path
) -> None:
    # Both sides keep everything: brokers delete by the records' own timestamps.
    topic = make_topic(spec(east), unique("odd"), 3, **{"retention.ms": "-1"})
    make_topic(spec(west), f"east.{topic}", 3, **{"retention.ms": "-1"})
    odd = [
        Record(0, None, None, (), 1),
        Record(0, b"", b"", (("", b""),), 1_700_000_000_001),
        Record(1, b"k", None, (("h", None), ("h", b"\xff"), ("ü", b"x")), 1_700_000_000_000),
        Record(1, b"\x00", b"x" * 500_000, (), 1_600_000_000_000),
    ]
    produce(spec(east), topic, odd)

    with FlowRun(tmp_path, [manifest("odd", east, west, topic)], "--until-caught-up") as run:
        assert run.end() == 0, run.output

    source, target = read(spec(east), topic), read(spec(west), f"east.{topic}")
    assert target == source


def test_only_committed_records_are_copied(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path
) -> None:
    topic = make_topic(spec(east), unique("tx"), 1)
    producer = make_producer(spec(east), {"transactional.id": topic})
    producer.init_transactions(30)
    for number in range(6):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number, partition=0)
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)

    with FlowRun(tmp_path, [manifest("tx", east, west, topic)], "--until-caught-up") as run:
        assert run.end() == 0, run.output

    assert [r.value for r in read(spec(west), f"east.{topic}")[0]] == [b"0", b"2", b"4"]


def test_the_next_run_goes_on_where_the_last_stopped(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path
) -> None:
    topic = make_topic(spec(east), unique("resume"), 4)
    flow = manifest("resume", east, west, topic, replicationPolicy={"type": "Identity"})
    for first in (0, 1_000):
        produce(spec(east), topic, numbered(1_000, 4, first))
        with FlowRun(tmp_path, [flow], "--until-caught-up", "--drivers", "1") as run:
            assert run.end() == 0, run.output

    assert read(spec(west), topic) == read(spec(east), topic)


def test_a_killed_driver_loses_nothing(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    topic = make_topic(spec(east), unique("killed"), 8)
    with (
        FlowRun(tmp_path, [manifest("killed", east, west, topic)], drivers=2) as run,
        Load(spec(east), topic, 8, per_second=2_000),
    ):
        wait_until(lambda: count(spec(west), f"east.{topic}") > 5_000)
        before = wait_until(run.settled)
        victim = before[0]["driverName"]
        lost = {unit["name"] for unit in before if unit["driverName"] == victim}
        pid = next(p.pid for p in run.drivers() if victim in words_of(p))
        os.kill(pid, signal.SIGKILL)

        def elsewhere() -> bool:
            units = [unit for unit in run.units() if unit["name"] in lost]
            return bool(units) and all(
                unit.get("phase") == "Running" and unit.get("driverName") != victim
                for unit in units
            )

        wait_until(elsewhere)
        wait_until(lambda: len(run.drivers()) == 2)
        copied = count(spec(west), f"east.{topic}")
        wait_until(lambda: count(spec(west), f"east.{topic}") > copied + 4_000)
    found = _assert_complete(east, west, topic, tmp_path)
    assert found.repeated == 0


@pytest.mark.long
def test_a_killed_broker_of_the_target_loses_nothing(
    east: SandboxCluster,
    start_cluster: Callable[..., SandboxCluster],
    tmp_path: Path,
    wait_until: WaitUntil,
) -> None:
    west = start_cluster("three", brokers=3)
    topic = make_topic(spec(east), unique("broker"), 6)
    copied = partial(count, spec(west), f"east.{topic}")
    with (
        FlowRun(tmp_path, [manifest("broker", east, west, topic)]) as run,
        Load(spec(east), topic, 6, per_second=1_000),
    ):
        before = wait_until(copied, until=lambda now: now > 2_000)
        west.broker(2).kill()
        wait_until(copied, until=lambda now: now > before + 10_000)
        west.broker(2).start()
        wait_until(run.ready)
    _assert_complete(east, west, topic, tmp_path)


def test_a_run_killed_with_9_takes_its_drivers_along_and_loses_nothing(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    topic = make_topic(spec(east), unique("nine"), 4)
    flow = manifest("nine", east, west, topic)
    with FlowRun(tmp_path, [flow], drivers=2) as run, Load(spec(east), topic, 4, per_second=2_000):
        wait_until(lambda: count(spec(west), f"east.{topic}") > 4_000)
        drivers = wait_until(run.drivers, until=lambda found: len(found) == 2)
        drivers[0].suspend()  # even one that cannot hear of it
        run.process.kill()
        run.process.wait()
        _, alive = psutil.wait_procs(drivers, timeout=WITHIN_S)
        assert not alive, alive
    _assert_complete(east, west, topic, tmp_path)


def test_a_new_topic_and_new_partitions_are_copied_and_touch_no_other_task(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    word = unique("found")
    first = make_topic(spec(east), f"{word}-a", 2)
    more = {"discovery": {"topicsSeconds": 5}, "drivers": {"leaseSeconds": 20}}
    with FlowRun(tmp_path, [manifest("found", east, west, f"{word}-.*", **more)], drivers=2) as run:

        def ready() -> dict[str, object]:
            return {u["name"]: (u["epoch"], u["partitions"]) for u in run.settled()}

        before = wait_until(ready)
        assert sum(len(partitions) for _, partitions in before.values()) == len(before)

        second = make_topic(spec(east), f"{word}-b", 3)
        produce(spec(east), second, numbered(300, 3))
        wait_until(lambda: arrived(spec(west), f"east.{second}") == 300)

        Admin(spec(east)).add_partitions(first, 4)
        wait_until(lambda: Admin(spec(west)).topics().get(f"east.{first}") == 4)
        produce(spec(east), first, numbered(400, 4))
        wait_until(lambda: arrived(spec(west), f"east.{first}") == 400)

        after = wait_until(ready)
        assert {name: after[name] for name in before} == before
    _assert_complete(east, west, second, tmp_path)


def test_a_stop_takes_5_s_at_most_and_the_next_run_repeats_nothing(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    topic = make_topic(spec(east), unique("stop"), 4)
    flow = manifest("stop", east, west, topic)
    with FlowRun(tmp_path, [flow]) as run, Load(spec(east), topic, 4, per_second=3_000):
        wait_until(lambda: count(spec(west), f"east.{topic}") > 5_000)
        asked = time.monotonic()
        assert run.stop() == 0
        took = time.monotonic() - asked
        assert took < 60  # 5 s, and what interpreters need to end on a busy machine
        assert "did not stop in time" not in run.output
    assert _assert_complete(east, west, topic, tmp_path).repeated == 0


def test_a_target_that_is_away_is_waited_for(
    east: SandboxCluster,
    start_cluster: Callable[..., SandboxCluster],
    tmp_path: Path,
    wait_until: WaitUntil,
) -> None:
    west = start_cluster("away")
    topic = make_topic(spec(east), unique("away"), 2)
    produce(spec(east), topic, numbered(100, 2))
    west.broker(1).kill()
    with FlowRun(tmp_path, [manifest("away", east, west, topic)]) as run:
        message = wait_until(
            lambda: run.condition("Ready"),
            until=lambda ready: ready.get("reason") == "TargetUnreachable",
        )["message"]
        assert west.bootstrap_servers in message
        assert "no broker listens there" in message
        west.broker(1).start()
        wait_until(lambda: run.ready() and arrived(spec(west), f"east.{topic}") == 100)


def test_heartbeats_are_those_of_mirrormaker(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    started_ms = time.time() * 1000
    with FlowRun(tmp_path, [manifest("beats", east, west, unique("none"))]):
        for cluster, topic, aliases in (
            (west, "heartbeats", ("east", "west")),
            (east, "heartbeats", ("west", "east")),
            (west, "east.heartbeats", ("west", "east")),
        ):

            def seen(cluster: SandboxCluster = cluster, topic: str = topic) -> Heartbeat | None:
                records = read(spec(cluster), topic).get(0)
                if not records:
                    return None
                beat = Heartbeat.decode(records[-1].key or b"", records[-1].value or b"")
                return beat if beat.timestamp_ms > started_ms else None

            beat = wait_until(seen)
            assert isinstance(beat, Heartbeat)
            assert (beat.source, beat.target) == aliases


def test_a_truncated_source_is_reported_with_the_exact_range(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    topic = make_topic(spec(east), unique("cut"), 1)
    flow = manifest("cut", east, west, topic)
    produce(spec(east), topic, numbered(100, 1))
    with FlowRun(tmp_path, [flow], "--until-caught-up") as run:
        assert run.end() == 0, run.output
    produce(spec(east), topic, numbered(100, 1, first=100))
    delete_records(spec(east), topic, {0: 150})

    with FlowRun(tmp_path, [flow]) as run:
        lost = wait_until(lambda: run.condition("DataLossDetected").get("message"))
        assert "offsets 100 to 149 are lost" in str(lost)
        wait_until(lambda: run.condition("Ready").get("status") == "False")
    assert arrived(spec(west), f"east.{topic}") == 100


def test_a_topic_made_again_on_the_source_is_reported(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    topic = make_topic(spec(east), unique("again"), 1)
    flow = manifest("again", east, west, topic)
    produce(spec(east), topic, numbered(10, 1))
    with FlowRun(tmp_path, [flow], "--until-caught-up") as run:
        assert run.end() == 0, run.output
    Admin(spec(east)).delete_topic(topic)
    wait_until(lambda: topic not in Admin(spec(east)).topics())
    make_topic(spec(east), topic, 1)
    produce(spec(east), topic, numbered(20, 1))

    with FlowRun(tmp_path, [flow]) as run:
        lost = wait_until(lambda: run.condition("DataLossDetected").get("message"))
        assert "has another topic id than the topic that was" in str(lost)


@pytest.mark.parametrize("side", [pytest.param("source", marks=pytest.mark.long), "target"])
def test_a_topic_created_again_under_a_running_flow_is_reported(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil, side: str
) -> None:
    topic = make_topic(spec(east), unique("live"), 1)
    # A topic of the source that a discovery does not find is no loss, but a topic less.
    discovery = {"topicsSeconds": 3_600 if side == "source" else 5}
    flow = manifest("live", east, west, topic, discovery=discovery)
    cluster, name = (east, topic) if side == "source" else (west, f"east.{topic}")
    with FlowRun(tmp_path, [flow]) as run:
        produce(spec(east), topic, numbered(10, 1))
        wait_until(lambda: arrived(spec(west), f"east.{topic}"), until=partial(eq, 10))
        wait_until(lambda: run.condition("Ready").get("status"), until=partial(eq, "True"))
        admin = Admin(spec(cluster))
        admin.delete_topic(name)
        # A discovery in between creates the topic of the target.
        wait_until(lambda: admin.create_topic(name, 1) or name in admin.topics())
        produce(spec(east), topic, numbered(30, 1))
        lost = wait_until(lambda: run.condition("DataLossDetected").get("message"))
        assert f"topic {name} on" in str(lost)
        assert "has another topic id than the topic that was" in str(lost)
        wait_until(lambda: run.condition("Ready").get("status"), until=partial(eq, "False"))


def test_another_writer_on_the_target_is_shown(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    topic = make_topic(spec(east), unique("foreign"), 1)
    with FlowRun(tmp_path, [manifest("foreign", east, west, topic)]) as run:
        produce(spec(east), topic, numbered(10, 1))
        wait_until(lambda: arrived(spec(west), f"east.{topic}") == 10)

        def condition() -> dict[str, str]:
            # Repeat it: a task that stalled for a while has no earlier offsets to compare with.
            produce(spec(west), f"east.{topic}", numbered(1, 1))
            produce(spec(east), topic, numbered(10, 1, first=10))
            return run.condition("ForeignWriter")

        shown = wait_until(condition, until=lambda seen: seen.get("status") == "True")
        assert f"{topic}-0" in shown["message"]


def test_status_prints_the_status_as_yaml(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    topic = make_topic(spec(east), unique("status"), 2)
    with FlowRun(tmp_path, [manifest("shown", east, west, topic)], drivers=2) as run:
        wait_until(run.settled)

        def shown() -> dict[str, Any]:
            done = subprocess.run(
                [sys.executable, "-m", "headrace", "status", "shown", "-o", "yaml"],
                capture_output=True,
                text=True,
                check=True,
            )
            document: dict[str, Any] = yaml.safe_load(done.stdout)
            return document

        def all_run(document: dict[str, Any]) -> bool:  # heartbeats may become one task more
            tasks = document["status"]["tasks"]
            drivers = document["status"]["readyReplicas"]  # one that stalled is not ready
            return bool(tasks["running"] == tasks["total"] and drivers == 2)

        document = wait_until(shown, until=all_run)
    assert document["metadata"] == {"name": "shown"}
    assert (document["status"]["topics"], document["status"]["partitions"]) == (1, 2)


def _assert_complete(
    east: SandboxCluster, west: SandboxCluster, topic: str, folder: Path
) -> Comparison:
    """Catch up, then compare; returns the comparison."""
    with FlowRun(folder, [manifest("rest", east, west, topic)], "--until-caught-up") as run:
        assert run.end() == 0, run.output
    comparison = compare(read(spec(east), topic), read(spec(west), f"{east.name}.{topic}"))
    assert comparison.missing == 0
    assert comparison.in_order
    print(f"{topic}: 0 missing, {comparison.repeated} repeated")
    return comparison


def test_two_flows_of_one_source_share_its_heartbeats(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    topics = [make_topic(spec(east), unique(name), 1) for name in ("first", "second")]
    for topic in topics:
        produce(spec(east), topic, numbered(100, 1))
    flows = [manifest(unique("pair"), east, west, topic) for topic in topics]
    with FlowRun(tmp_path, flows) as run:
        for flow in flows:
            run.name = flow["metadata"]["name"]
            wait_until(run.ready)
        for topic in topics:
            wait_until(
                lambda topic=topic: arrived(spec(west), f"east.{topic}"),
                until=lambda copied: copied == 100,
            )
