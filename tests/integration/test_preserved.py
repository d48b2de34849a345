"""Target offsets equal source offsets on real brokers, even if processes are killed."""

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as Place
from support import preserved_copy
from support.flows import FlowRun, manifest, spec
from support.groups import commit
from support.patience import WITHIN_S
from support.preserved_topics import CLEANER, COMPACTED, KEPT, bounds, holes, visible
from support.random_log import RandomLog, wire_client
from support.records import delete_records, make_topic, set_topic, unique
from support.verifying import result_in, verify_command

from headrace.api import ClusterAccess, TopicPartition
from headrace.api.offsets import GapPolicy
from headrace.kafka import Admin, Position
from headrace.kafka.wire import ClusterClient as Wire
from headrace.kafka.wire import RequestRefused, Transactions, describe_producers, start
from headrace.mirror_test import Result
from headrace.sandbox import ClusterPlan, Sandbox, SandboxCluster

pytestmark = pytest.mark.in_one_worker
SEEDS = range(int(os.environ.get("HEADRACE_ORACLE_SEEDS", "1")))
THINNED = 1_000
MESSAGES = 4_000
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
    """Write topics of one partition: transactions and codecs, a deleted head, compaction."""
    mixed = make_topic(east, unique("mixed"), 1, **KEPT)
    RandomLog(client, mixed, f"mixed {seed}").fill(60)
    cut = make_topic(east, unique("cut"), 1, **KEPT)
    RandomLog(client, cut, f"cut {seed}").fill(40)
    end = Admin(east).offsets([TopicPartition(cut, 0)], Position.LATEST)[TopicPartition(cut, 0)]
    delete_records(east, cut, {0: end // 2})
    compacted = make_topic(east, unique("compacted"), 1, **COMPACTED)
    log = RandomLog(client, compacted, f"compacted {seed}")
    log.fill(30, keys=200)
    deadline = time.monotonic() + WITHIN_S
    while holes(east, compacted) < 5:
        log.append([b""])
        assert time.monotonic() < deadline
    set_topic(east, compacted, "cleanup.policy", "delete")
    return [mixed, cut, compacted]


def copying(
    east: ClusterAccess, west: ClusterAccess, name: str, method: GapPolicy, topics: list[str]
) -> Any:
    servers = [one.spec.bootstrap_servers for one in (east, west)]
    module = ["-m", preserved_copy.__name__]
    words = [sys.executable, *module, *servers, name, method, *topics]
    tests = Path(preserved_copy.__file__).parents[1]
    return subprocess.Popen(words, cwd=tests, stdout=subprocess.PIPE, text=True)


def copied_though_killed(
    east: ClusterAccess, west: ClusterAccess, method: GapPolicy, topics: list[str], seed: int
) -> None:
    """Run copiers that are killed while they write, except for the last one."""
    for topic in topics:
        make_topic(west, topic, 1, **KEPT)
    name, chance = unique("preserved"), random.Random(seed)
    killed = 0

    def ends() -> list[int]:
        return [bounds(west, topic)[2] for topic in topics]

    for _ in range(4):
        before, deadline = ends(), time.monotonic() + WITHIN_S
        process = copying(east, west, name, method, topics)
        while process.poll() is None and ends() == before:
            assert time.monotonic() < deadline, before
            time.sleep(0.02)
        try:
            process.wait(chance.uniform(0.0, 0.5))
        except subprocess.TimeoutExpired:
            process.kill()
            killed += 1
        print(process.communicate()[0], ends())
    process = copying(east, west, name, method, topics)
    said = process.communicate(timeout=WITHIN_S)[0]
    print(killed, "killed;", said)
    assert process.returncode == 0


def assert_equal(
    east: ClusterAccess, west: ClusterAccess, topic: str, *, copies: bool = False
) -> None:
    """Assert that every offset is equal.

    ``copies``: offsets that compaction left empty may have the source's next record.
    """
    copy, source = visible(west, topic), visible(east, topic)
    more = copy.keys() - source.keys()
    assert {offset: one for offset, one in copy.items() if offset not in more} == source
    for offset in more:
        assert copy[offset] == source[min(at for at in source if at > offset)]
    assert bool(more) == copies
    assert bounds(west, topic)[:2] == bounds(east, topic)[:2]
    assert bounds(west, topic)[2] == bounds(west, topic)[1]


@pytest.mark.long
@pytest.mark.parametrize("method", GapPolicy)
@pytest.mark.parametrize("seed", SEEDS)
def test_every_offset_is_equal_though_copiers_are_killed(
    replicated: Sandbox, seed: int, method: GapPolicy
) -> None:
    east, west = spec(replicated.cluster("east")), spec(replicated.cluster("west"))
    with wire_client(east) as client:
        topics = fill(east, client, seed)
    copied_though_killed(east, west, method, topics, seed)
    for topic in topics:
        copies = method is GapPolicy.COPIES and topic == topics[-1]
        assert_equal(east, west, topic, copies=copies)


@pytest.mark.long
def test_a_compacted_topic_of_which_a_tenth_is_left_is_copied_by_each_method(
    start_cluster: Callable[..., SandboxCluster], west: SandboxCluster
) -> None:
    """Kill copiers in the middle of the topic's holes."""
    here = spec(start_cluster("thinned", properties=CLEANER))
    topics = [make_topic(here, unique(method.lower()), 1, **COMPACTED) for method in GapPolicy]
    with wire_client(here) as client:
        logs = [RandomLog(client, topic, topic) for topic in topics]
        for log in logs:
            for number in range(THINNED // 10):
                log.append([b"%d" % number] * 9, b"gone")
                log.append([b"v%d" % number], b"live-%d" % number)
        deadline = time.monotonic() + WITHIN_S
        while min(holes(here, topic) for topic in topics) < THINNED * 0.8:
            assert time.monotonic() < deadline
            for log in logs:
                log.append([b""])
    for topic, method in zip(topics, GapPolicy, strict=True):
        set_topic(here, topic, "cleanup.policy", "delete")
        copied_though_killed(here, spec(west), method, [topic], THINNED)
        assert_equal(here, spec(west), topic, copies=method is GapPolicy.COPIES)


@pytest.mark.parametrize(
    ("group_count", "judged"), [(6, False), pytest.param(60, True, marks=pytest.mark.long)]
)
def test_a_flow_preserves_offsets_though_its_driver_is_killed(
    *,
    east: SandboxCluster,
    west: SandboxCluster,
    wait_until: Callable[..., Any],
    tmp_path: Path,
    group_count: int,
    judged: bool,
) -> None:
    """Check that groups resume at the target with exactly the next record.

    A mirror test of the flow finds every offset equal, while other clients write to its topics in
    transactions.
    """
    with wire_client(spec(east)) as client:
        mixed, cut = (make_topic(spec(east), unique(word), 1, **KEPT) for word in ("mixed", "cut"))
        for topic in (mixed, cut):
            RandomLog(client, topic, f"{topic} first").fill(30)
        delete_records(spec(east), cut, {0: bounds(spec(east), cut)[2] // 2})
        flow = manifest(
            unique("preserved"), east, west, mixed, cut,
            offsets={"mode": "Preserved"},
            checkpoints={"applyToGroups": True, "intervalSeconds": 5},
        )  # fmt: skip
        with FlowRun(tmp_path, [flow]) as run:
            ended: set[int] = set()

            def running() -> list[psutil.Process]:
                return [one for one in run.drivers() if run.settled(1) and one.pid not in ended]

            for turn in range(2):
                (driver,) = wait_until(running)
                for topic in (mixed, cut):
                    RandomLog(client, topic, f"{turn} {topic}").fill(20)
                driver.kill()
                driver.wait(WITHIN_S)
                ended.add(driver.pid)
            groups: dict[str, tuple[str, int]] = {}
            for topic in (mixed, cut):
                start, stable, _ = bounds(spec(east), topic)
                for number in range(group_count // 2):
                    group, part = unique(f"group-{number}"), number / (group_count // 2 - 1)
                    groups[group] = topic, start + round(part * (stable - start))
            with ThreadPoolExecutor(8) as pool:
                for done in [
                    pool.submit(commit, east, group, topic, {0: offset})
                    for group, (topic, offset) in groups.items()
                ]:
                    done.result()
            if judged:
                result = mirror_tested(run, tmp_path, client, mixed, cut)
                assert result.verdict == "Passed", result.reasons
                assert result.counts is not None
                assert (result.counts.acknowledged, result.counts.unequal_offsets) == (MESSAGES, 0)

            def differ() -> list[Any]:
                ends = [
                    (bounds(spec(east), topic), bounds(spec(west), f"east.{topic}"))
                    for topic in (mixed, cut)
                ]
                held, _ = Admin(spec(west)).committed(list(groups))
                return [
                    *(both for both in ends if both[0] != both[1]),
                    *(
                        (group, offset, held.get(group))
                        for group, (topic, offset) in groups.items()
                        if [offset] != [one.offset for one in held.get(group, {}).values()]
                    ),
                ]

            wait_until(differ, until=lambda found: not found)
            wait_until(run.ready)
    there = {}
    for topic in (mixed, cut):
        there[topic] = visible(spec(east), topic)
        assert visible(spec(west), f"east.{topic}") == there[topic]
    with ThreadPoolExecutor(8) as pool:
        going_on = {
            group: pool.submit(next_offset, west, group, f"east.{topic}")
            for group, (topic, _) in groups.items()
        }
    for group, (topic, offset) in groups.items():
        expected = min((at for at in there[topic] if at >= offset), default=None)
        assert going_on[group].result() == expected, (group, offset)


def mirror_tested(run: FlowRun, folder: Path, client: Wire, *topics: str) -> Result:
    """Return the result of a mirror test whose load goes to these topics."""
    test = {
        "apiVersion": "headrace.dev/v1beta1",
        "kind": "MirrorTest",
        "metadata": {"name": run.name},
        "spec": {
            "flowName": run.name,
            "load": {"names": list(topics), "messages": MESSAGES, "messagesPerSecond": 400},
            "settleSeconds": 60,
        },
    }
    file, report = folder / "test.yaml", folder / "report"
    file.write_text(yaml.safe_dump(test))
    printed = folder / "verify.log"
    with printed.open("w") as log:
        process = subprocess.Popen(verify_command(file, report), stdout=log, stderr=log)
    turn = 0
    while process.poll() is None:
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.5)
        if "Waiting for the last message" not in printed.read_text():
            turn += 1
            for topic in topics:
                RandomLog(client, topic, f"beside the load {turn}").fill(2)
    assert process.returncode == 0, printed.read_text()
    assert turn > 3
    return result_in(report)


def next_offset(cluster: SandboxCluster, group: str, topic: str) -> int | None:
    """Return the offset of the record at which this group's consumer resumes; None at the end."""
    settings = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": group,
        "enable.auto.commit": "false",
        "auto.offset.reset": "error",
        "enable.partition.eof": "true",
        "isolation.level": "read_committed",
    }
    with closing(Consumer(settings)) as consumer:
        consumer.assign([Place(topic, 0)])  # where the group has committed
        message = consumer.poll(WITHIN_S)
        assert message is not None
        if (error := message.error()) is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            return None
        return message.offset()


async def remembered(target: Wire, at: TopicPartition, data_id: str) -> list[Any]:
    """Return the partition's producers, and whether this transactional id is known."""
    states = (await describe_producers(target, [at])).all()[at]
    try:
        known = await Transactions(target, data_id).describe(timeout_s=5)
    except RequestRefused as error:
        if error.code.name != "transactional_id_not_found":
            raise
        return [one.producer_id for one in states]
    return [*(one.producer_id for one in states), known.transactional_id]


@pytest.mark.long
def test_copies_go_on_when_the_target_has_forgotten_who_wrote_them(
    east: SandboxCluster,
    start_cluster: Callable[..., SandboxCluster],
    wait_until: Callable[..., Any],
    tmp_path: Path,
) -> None:
    """Forget the writers while a lane is open, and before the next owner."""
    west = start_cluster("forgetful", properties=FORGETFUL)
    topic, name = make_topic(spec(east), unique("mixed"), 1, **KEPT), unique("preserved")
    copy = TopicPartition(f"east.{topic}", 0)

    def differ() -> Any:
        both = bounds(spec(east), topic), bounds(spec(west), copy.topic)
        return both if both[0] != both[1] else None

    with (
        wire_client(spec(east)) as client,
        wire_client(spec(west)) as target,
        FlowRun(
            tmp_path, [manifest(name, east, west, topic, offsets={"mode": "Preserved"})]
        ) as run,
    ):

        def known() -> Any:
            asked = remembered(target, copy, f"headrace-{name}-source-task-0-data")
            return target.loop.wait(start(asked), WITHIN_S)

        def fill_and_wait(word: str) -> None:
            RandomLog(client, topic, word).fill(20)
            wait_until(differ, until=lambda found: not found)

        wait_until(run.ready)
        fill_and_wait("first")
        wait_until(known, until=lambda found: not found)
        fill_and_wait("second")
        wait_until(known, until=lambda found: not found)
        for driver in run.drivers():
            driver.kill()
        fill_and_wait("third")
        wait_until(run.ready)
    assert visible(spec(west), copy.topic) == visible(spec(east), topic)
