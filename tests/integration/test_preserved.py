"""Offsets of the target equal those of the source, on real brokers, whoever is killed meanwhile."""

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from support import preserved_copy
from support.flows import FlowRun, manifest, spec
from support.groups import commit, committed
from support.preserved_topics import (
    CLEANER,
    COMPACTED,
    KEPT,
    WITHIN_S,
    bounds,
    holes,
    visible,
)
from support.random_log import RandomLog, wire_client
from support.records import delete_records, make_topic, set_topic, unique

from headrace.api import ClusterAccess, TopicPartition
from headrace.kafka import Admin, Position
from headrace.kafka.wire import Cluster as Wire
from headrace.kafka.wire import Refused, Transactions, describe_producers, start
from headrace.sandbox import Cluster, ClusterPlan, Sandbox

pytestmark = pytest.mark.in_one_worker
SEEDS = range(int(os.environ.get("HEADRACE_ORACLE_SEEDS", "1")))
FORGETFUL = {
    "producer.id.expiration.ms": "5000", "producer.id.expiration.check.interval.ms": "500",
    "transactional.id.expiration.ms": "3000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
}  # fmt: skip


@pytest.fixture(scope="module")
def replicated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    plans = [ClusterPlan("east", properties=CLEANER), ClusterPlan("west", brokers=3)]
    with Sandbox.start("preserved", plans, home=tmp_path_factory.mktemp("sandboxes")) as sandbox:
        yield sandbox


def fill(east: ClusterAccess, client: Wire, seed: int) -> list[str]:
    """Topics of one partition: transactions and codecs, a head that is gone, compaction."""
    mixed = make_topic(east, unique("mixed"), 1, **KEPT)
    RandomLog(client, mixed, f"mixed {seed}").fill(60)
    cut = make_topic(east, unique("cut"), 1, **KEPT)
    RandomLog(client, cut, f"cut {seed}").fill(40)
    end = Admin(east).offsets([TopicPartition(cut, 0)], Position.LATEST)[TopicPartition(cut, 0)]
    delete_records(east, cut, {0: end // 2})
    compacted = make_topic(east, unique("compacted"), 1, **COMPACTED)
    log = RandomLog(client, compacted, f"compacted {seed}")
    log.fill(30, keys=200)
    deadline = time.monotonic() + 60
    while holes(east, compacted) < 5:
        log.append([b""])
        assert time.monotonic() < deadline
    set_topic(east, compacted, "cleanup.policy", "delete")
    return [mixed, cut, compacted]


def copying(east: ClusterAccess, west: ClusterAccess, name: str, topics: list[str]) -> Any:
    servers = [one.spec.bootstrap_servers for one in (east, west)]
    words = [sys.executable, str(Path(preserved_copy.__file__)), *servers, name, *topics]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
def test_every_offset_is_equal_though_copiers_are_killed(replicated: Sandbox, seed: int) -> None:
    east, west = spec(replicated.cluster("east")), spec(replicated.cluster("west"))
    with wire_client(east) as client:
        topics = fill(east, client, seed)
    for topic in topics:
        make_topic(west, topic, 1, **KEPT)
    name, chance = unique("preserved"), random.Random(seed)
    killed = 0
    for _ in range(4):
        process = copying(east, west, name, topics)
        try:
            process.wait(chance.uniform(1.0, 2.5))
        except subprocess.TimeoutExpired:
            process.kill()
            killed += 1
        print(process.communicate()[0], [bounds(west, topic) for topic in topics])
    process = copying(east, west, name, topics)
    said = process.communicate(timeout=WITHIN_S)[0]
    print(killed, "killed;", said)
    assert process.returncode == 0
    for topic in topics:
        assert visible(west, topic) == visible(east, topic)
        assert bounds(west, topic)[:2] == bounds(east, topic)[:2]
        assert bounds(west, topic)[2] == bounds(west, topic)[1]


def test_a_flow_preserves_offsets_though_its_driver_is_killed(
    east: Cluster, west: Cluster, wait_until: Callable[..., Any], tmp_path: Path
) -> None:
    """And groups have the offsets on the target that they have on the source."""
    with wire_client(spec(east)) as client:
        mixed, cut = (make_topic(spec(east), unique(word), 1, **KEPT) for word in ("mixed", "cut"))
        for topic in (mixed, cut):
            RandomLog(client, topic, f"{topic} first").fill(30)
        delete_records(spec(east), cut, {0: bounds(spec(east), cut)[2] // 2})
        flow = manifest(
            unique("preserved"), east, west, mixed, cut,
            offsets="Preserved", checkpoints={"applyToGroups": True, "intervalSeconds": 5},
        )  # fmt: skip
        with FlowRun(tmp_path, [flow]) as run:
            ended: set[int] = set()

            def running() -> list[psutil.Process]:
                return [one for one in run.drivers() if run.settled(1) and one.pid not in ended]

            for turn in range(2):
                (driver,) = wait_until(running, within_s=WITHIN_S)
                for topic in (mixed, cut):
                    RandomLog(client, topic, f"{turn} {topic}").fill(20)
                driver.kill()
                driver.wait(WITHIN_S)
                ended.add(driver.pid)
            groups = {}
            for topic in (mixed, cut):
                start, stable, _ = bounds(spec(east), topic)
                for number, offset in enumerate((start, (start + stable) // 2, stable)):
                    group = unique(f"group-{number}")
                    commit(east, group, topic, {0: offset})
                    groups[group] = offset

            def differ() -> list[Any]:
                ends = [
                    (bounds(spec(east), topic), bounds(spec(west), f"east.{topic}"))
                    for topic in (mixed, cut)
                ]
                held = {group: committed(west, group) for group in groups}
                return [
                    *(both for both in ends if both[0] != both[1]),
                    *(
                        (group, offset, held[group])
                        for group, offset in groups.items()
                        if held[group].get(0, (-1, ""))[0] != offset
                    ),
                ]

            wait_until(differ, within_s=WITHIN_S, until=lambda found: not found)
            assert run.ready()
    for topic in (mixed, cut):
        assert visible(spec(west), f"east.{topic}") == visible(spec(east), topic)


async def remembered(target: Wire, at: TopicPartition, data_id: str) -> list[Any]:
    """Who has written to the partition, and whether this transactional id is known."""
    states = (await describe_producers(target, [at])).all()[at]
    try:
        known = await Transactions(target, data_id).describe(timeout_s=5)
    except Refused as error:
        if error.code.name != "transactional_id_not_found":
            raise
        return [one.producer_id for one in states]
    return [*(one.producer_id for one in states), known.transactional_id]


def test_copies_go_on_when_the_target_has_forgotten_who_wrote_them(
    east: Cluster,
    start_cluster: Callable[..., Cluster],
    wait_until: Callable[..., Any],
    tmp_path: Path,
) -> None:
    """While a lane is open, and for the next owner."""
    west = start_cluster("forgetful", properties=FORGETFUL)
    topic, name = make_topic(spec(east), unique("mixed"), 1, **KEPT), unique("preserved")
    copy = TopicPartition(f"east.{topic}", 0)

    def differ() -> Any:
        both = bounds(spec(east), topic), bounds(spec(west), copy.topic)
        return both if both[0] != both[1] else None

    with (
        wire_client(spec(east)) as client,
        wire_client(spec(west)) as target,
        FlowRun(tmp_path, [manifest(name, east, west, topic, offsets="Preserved")]) as run,
    ):

        def known() -> Any:
            asked = remembered(target, copy, f"headrace-{name}-source-task-0-data")
            return target.loop.wait(start(asked), WITHIN_S)

        def fill_and_wait(word: str) -> None:
            RandomLog(client, topic, word).fill(20)
            wait_until(differ, within_s=WITHIN_S, until=lambda found: not found)

        wait_until(run.ready, within_s=WITHIN_S)
        fill_and_wait("first")
        wait_until(known, within_s=WITHIN_S, until=lambda found: not found)
        fill_and_wait("second")
        wait_until(known, within_s=WITHIN_S, until=lambda found: not found)
        for driver in run.drivers():
            driver.kill()
        fill_and_wait("third")
        wait_until(run.ready, within_s=WITHIN_S)
    assert visible(spec(west), copy.topic) == visible(spec(east), topic)
