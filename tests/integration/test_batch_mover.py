"""The batch mover on real brokers: its copy equals the source."""

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.flows import FlowRun, manifest, spec
from support.lanes import (
    batch_mover,
    lane_of,
    partitions,
    run_until_caught_up,
)
from support.patience import WITHIN_S
from support.preserved_topics import CLEANER
from support.records import (
    Comparison,
    Load,
    Record,
    compare,
    count,
    has_all_markers,
    make_topic,
    numbered,
    produce,
    produce_with,
    read,
    unique,
)

from headrace.api import ClusterAccess
from headrace.datapath import CopiedCounts, CopyFrom, Mover
from headrace.sandbox import ClusterPlan, Sandbox, SandboxCluster

pytestmark = pytest.mark.in_one_worker
WaitUntil = Callable[..., Any]


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    plans = [ClusterPlan("east", properties=CLEANER), ClusterPlan("west")]
    with Sandbox.start("batches", plans, home=tmp_path_factory.mktemp("sandboxes")) as sandbox:
        yield sandbox


def copy(
    mover: Mover,
    source: SandboxCluster,
    topic: str,
    count: int,
    wait_until: WaitUntil,
    *,
    start: int = 0,
) -> CopiedCounts:
    at = partitions(topic, count)
    with lane_of(mover) as (lane, copied, _):
        lane.open({one: CopyFrom(start, -1) for one in at})
        run_until_caught_up(lane, spec(source), at, wait_until)

        def read_back() -> bool:
            lane.run_once()
            return bool(copied.verified.get("Same")) or not copied.batches_copied

        wait_until(read_back)
        lane.settle(WITHIN_S)
    assert copied.verified.keys() <= {"Same", "NotRead"}  # the lane may end before it has read all
    assert copied.verified.get("Same") or not copied.batches_copied
    return copied


CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def odd(count: int, partition: int, first: int) -> list[Record]:
    """Return records with and without keys, values and headers; timestamps are out of order."""
    now_ms = int(time.time() * 1000)
    headers: list[tuple[tuple[str, bytes | None], ...]] = [
        (), (("", b""),), (("h", None), ("h", b"\xff"), ("\u00fc", b"x" * 200)),
    ]  # fmt: skip
    return [
        Record(
            partition,
            (None, b"", b"key-%d" % n)[n % 3],
            (b"value-%d" % n * (n % 50), None, b"")[n % 3 if n % 7 else 1],
            headers[n % 3],
            now_ms - 1000 * (n % 5),
        )
        for n in range(first, first + count)
    ]


def fill_mixed(cluster: ClusterAccess, topic: str) -> None:
    """Write all codecs in turn, and transactions that commit, abort and interleave."""
    first = 0
    for codec in CODECS:
        for partition in (0, 1):
            produce_with(cluster, topic, odd(120, partition, first), **{"compression.codec": codec})
        first += 120
        committed = produce_with(
            cluster, topic, odd(40, 0, first), **{"transactional.id": unique("tx")}
        )
        aborted = produce_with(
            cluster, topic, odd(40, 0, first + 40), **{"transactional.id": unique("tx")}
        )
        produce_with(cluster, topic, odd(10, 0, first + 80), **{"compression.codec": codec})
        aborted.abort_transaction(WITHIN_S)
        committed.commit_transaction(WITHIN_S)
        first += 100


def test_plain_batches_are_copied_as_they_are(sandbox: Sandbox, wait_until: WaitUntil) -> None:
    east, west = sandbox.cluster("east"), sandbox.cluster("west")
    topic = make_topic(spec(east), unique("plain"), 3)
    make_topic(spec(west), f"east.{topic}", 3)
    produce(spec(east), topic, numbered(30_000, 3))
    mover = batch_mover(east, west)

    copied = copy(mover, east, topic, 3, wait_until)

    assert read(spec(west), f"east.{topic}") == read(spec(east), topic)
    assert copied.records == 30_000
    assert copied.batches_rebuilt == 0
    assert copied.batches_copied > 0


def test_copies_of_all_codecs_and_transactions_equal_the_source(
    sandbox: Sandbox, wait_until: WaitUntil
) -> None:
    east, west = sandbox.cluster("east"), sandbox.cluster("west")
    topic = make_topic(spec(east), unique("mixed"), 2)
    make_topic(spec(west), f"east.{topic}", 2)
    fill_mixed(spec(east), topic)
    wait_until(lambda: has_all_markers(spec(east), topic))
    mover = batch_mover(east, west)

    copied = copy(mover, east, topic, 2, wait_until)

    source = read(spec(east), topic)
    assert read(spec(west), f"east.{topic}") == source
    assert copied.records == sum(map(len, source.values())) == 5 * (120 + 120 + 40 + 10)
    assert copied.batches_rebuilt == 0


def test_a_start_inside_a_batch_begins_with_that_record(
    sandbox: Sandbox, wait_until: WaitUntil
) -> None:
    east, west = sandbox.cluster("east"), sandbox.cluster("west")
    topic = make_topic(spec(east), unique("inside"), 1)
    make_topic(spec(west), f"east.{topic}", 1)
    produce_with(spec(east), topic, odd(200, 0, 0), **{"compression.codec": "lz4"})
    mover = batch_mover(east, west)

    copied = copy(mover, east, topic, 1, wait_until, start=77)

    assert read(spec(west), f"east.{topic}")[0] == read(spec(east), topic)[0][77:]
    assert copied.batches_rebuilt == 1


def test_times_of_the_source_broker_stay(sandbox: Sandbox, wait_until: WaitUntil) -> None:
    east, west = sandbox.cluster("east"), sandbox.cluster("west")
    appended = {"message.timestamp.type": "LogAppendTime"}
    topic = make_topic(spec(east), unique("appended"), 1, **appended)
    make_topic(spec(west), f"east.{topic}", 1)
    produce_with(spec(east), topic, odd(100, 0, 0), **{"compression.codec": "zstd"})
    mover = batch_mover(east, west)

    copied = copy(mover, east, topic, 1, wait_until)

    assert read(spec(west), f"east.{topic}") == read(spec(east), topic)
    assert (copied.batches_copied, copied.batches_rebuilt > 0) == (0, True)


def test_a_compacted_topic_is_copied_without_its_holes(
    sandbox: Sandbox, wait_until: WaitUntil
) -> None:
    east, west = sandbox.cluster("east"), sandbox.cluster("west")
    compacted = {
        "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.001",
        "max.compaction.lag.ms": "1", "segment.ms": "100",
    }  # fmt: skip
    topic = make_topic(spec(east), unique("compacted"), 1, **compacted)
    make_topic(spec(west), f"east.{topic}", 1)
    now_ms = int(time.time() * 1000)
    for _ in range(4):
        records = [
            Record(0, b"key-%d" % (n % 90 if n % 10 else n), b"v%d" % n, (), now_ms)
            for n in range(900)
        ]
        produce_with(spec(east), topic, records, **{"compression.codec": "lz4"})

    def cleaned() -> bool:
        # A segment ends by the records' own times.
        roll = Record(0, b"roll", b"", (), int(time.time() * 1000))
        produce_with(spec(east), topic, [roll])
        return len(read(spec(east), topic)[0]) < 1_500

    wait_until(cleaned)
    mover = batch_mover(east, west)

    copied = copy(mover, east, topic, 1, wait_until)

    records = read(spec(west), f"east.{topic}")[0]
    # The cleaner may still run: the records that it keeps are copied, in order.
    left = read(spec(east), topic)[0]
    rest = iter(records)
    assert all(record in rest for record in left)
    assert copied.batches_rebuilt > 0


def test_a_killed_broker_and_moved_leaders_lose_and_reorder_nothing(
    start_cluster: Callable[..., SandboxCluster], wait_until: WaitUntil
) -> None:
    both = start_cluster("three", brokers=3)
    topic = make_topic(spec(both), unique("moved"), 6)
    make_topic(spec(both), f"east.{topic}", 6)
    at = partitions(topic, 6)
    with lane_of(batch_mover(both, both)) as (lane, copied, _):
        lane.open({one: CopyFrom(0, -1) for one in at})

        def moved() -> int:
            lane.run_once()
            assert lane.problems() == []
            return copied.records

        with Load(spec(both), topic, 6, per_second=2_000):
            wait_until(moved, until=lambda records: records > 2_000)
            both.broker(2).kill()
            before = copied.records
            wait_until(moved, until=lambda records: records > before + 8_000)
            both.broker(2).start()
            before = copied.records
            wait_until(moved, until=lambda records: records > before + 4_000)
        run_until_caught_up(lane, spec(both), at, wait_until)
    assert read(spec(both), f"east.{topic}") == read(spec(both), topic)


def test_drivers_killed_and_frozen_under_load_lose_and_repeat_nothing(
    sandbox: Sandbox, tmp_path: Path, wait_until: WaitUntil
) -> None:
    east, west = sandbox.cluster("east"), sandbox.cluster("west")
    topic = make_topic(spec(east), unique("killed"), 4)
    flow = manifest("killed", east, west, topic, drivers={"leaseSeconds": 3})
    copy = f"east.{topic}"

    def copied_on(records: int) -> None:
        before = count(spec(west), copy)
        wait_until(lambda: count(spec(west), copy) > before + records)

    with (
        FlowRun(tmp_path, [flow], drivers=2) as run,
        Load(spec(east), topic, 4, per_second=2_000),
    ):
        wait_until(run.settled)
        copied_on(3_000)
        victim = wait_until(run.settled)[0]["driverName"]
        run.kill_driver(victim)
        wait_until(lambda: run.settled(without=victim))
        copied_on(2_000)
        frozen = run.drivers()[0]
        frozen.suspend()
        # Its units are running elsewhere, while batches of its own may be on their way.
        wait_until(lambda: run.settled(1))
        frozen.resume()
        copied_on(4_000)
    with FlowRun(tmp_path, [flow], "--until-caught-up") as rest:
        assert rest.end() == 0, rest.output
    result = compare(read(spec(east), topic), read(spec(west), copy))
    spared = sum(map(int, re.findall(r"\bnot_repeated=(\d+)", rest.output)))
    print(f"killed and frozen: {result}, {spared} records found in tails")
    assert result == Comparison(missing=0, repeated=0, in_order=True), rest.output
    assert spared, rest.output
