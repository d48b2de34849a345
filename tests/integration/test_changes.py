"""Filters, header changes and compression on real brokers."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.flows import FlowRun, manifest, spec
from support.lanes import partitions
from support.patience import WITHIN_S
from support.records import (
    Comparison,
    Load,
    Record,
    arrived,
    compare,
    has_all_markers,
    make_topic,
    numbered,
    produce_with,
    read,
    unique,
)

from headrace.datapath.tail import Tail
from headrace.kafka.wire import Batch, EventLoop
from headrace.kafka.wire import ClusterClient as WireCluster
from headrace.sandbox import SandboxCluster

pytestmark = pytest.mark.in_one_worker
WaitUntil = Callable[..., Any]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
FILTER = {"headers": {"exclude": [{"name": "test", "value": "1"}]}}
HEADERS = {"remove": ["trace"], "add": [{"name": "via", "value": "headrace"}]}


def marked(records: list[Record]) -> list[Record]:
    """Give every third record the header that the filter excludes, every fifth one a trace."""
    return [
        one._replace(
            headers=(
                *one.headers,
                *((("test", b"1"),) if n % 3 == 0 else ()),
                *((("trace", b"%d" % n),) if n % 5 == 0 else ()),
            )
        )
        for n, one in enumerate(records)
    ]


def changed(source: dict[int, list[Record]]) -> dict[int, list[Record]]:
    """Return the copies that the target has to hold."""
    return {
        partition: [
            one._replace(
                headers=(
                    *(header for header in one.headers if header[0] != "trace"),
                    ("via", b"headrace"),
                )
            )
            for one in records
            if ("test", b"1") not in one.headers
        ]
        for partition, records in source.items()
    }


def batches_on(cluster: SandboxCluster, topic: str, count: int) -> list[Batch]:
    """Return the batches of a topic that have records."""
    loop = EventLoop()
    wire = WireCluster(loop, spec(cluster))
    try:
        ends = {at: Tail(wire, at, 0, patience_s=WITHIN_S) for at in partitions(topic, count)}
        sizes = {number: len(found) for number, found in read(spec(cluster), topic).items()}
        return [
            batch
            for at, tail in ends.items()
            for batch in tail.batches(sizes[at.partition])
            if not batch.control
        ]
    finally:
        wire.close()
        loop.close()


@pytest.mark.parametrize("delivery", ["AtLeastOnce", "ExactlyOnce"])
def test_filter_headers_and_compression_compose(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil, delivery: str
) -> None:
    topic = make_topic(spec(east), unique("composed"), 2)
    records = marked(numbered(5_000, 2))
    for n, codec in enumerate(CODECS):
        part = records[1_000 * n : 1_000 * (n + 1)]
        produce_with(spec(east), topic, part, **{"compression.codec": codec})
    flow = manifest(
        topic,
        east,
        west,
        topic,
        delivery={"mode": delivery},
        recordFilter=FILTER,
        headers=HEADERS,
    )
    flow["spec"]["target"]["compression"] = {"type": "Zstd", "level": 6}
    with FlowRun(tmp_path, [flow], "--until-caught-up") as run:
        assert run.end() == 0, run.output
    wait_until(lambda: has_all_markers(spec(west), f"east.{topic}"))
    assert read(spec(west), f"east.{topic}") == changed(read(spec(east), topic))
    assert {one.codec for one in batches_on(west, f"east.{topic}", 2)} == {"zstd"}


@pytest.mark.parametrize(
    "compression",
    [
        {"type": "None"},
        {"type": "Gzip", "level": 9},
        pytest.param({"type": "Snappy"}, marks=pytest.mark.long),
        {"type": "Lz4", "level": 12},
        pytest.param({"type": "Zstd"}, marks=pytest.mark.long),
    ],
    ids=lambda compression: compression["type"],
)
def test_batches_get_the_codec_of_the_target(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, compression: dict[str, Any]
) -> None:
    topic = make_topic(spec(east), unique("codec"), 1)
    records = numbered(1_000, 1)
    for n, codec in enumerate(CODECS):
        part = records[200 * n : 200 * (n + 1)]
        produce_with(spec(east), topic, part, **{"compression.codec": codec})
    flow = manifest(topic, east, west, topic)
    flow["spec"]["target"]["compression"] = compression
    with FlowRun(tmp_path, [flow], "--until-caught-up") as run:
        assert run.end() == 0, run.output
    assert read(spec(west), f"east.{topic}") == read(spec(east), topic)
    assert {one.codec for one in batches_on(west, f"east.{topic}", 1)} == {
        compression["type"].lower()
    }


def test_a_take_over_compares_filtered_records_with_changed_headers(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    topic = make_topic(spec(east), unique("changed"), 4)
    copy = f"east.{topic}"
    flow = manifest(
        topic, east, west, topic, recordFilter=FILTER, headers=HEADERS, drivers={"leaseSeconds": 3}
    )
    records = marked(numbered(20_000, 4))
    produce_with(spec(east), topic, records[:10_000])

    def copied_on(records: int) -> None:
        before = arrived(spec(west), copy)
        wait_until(lambda: arrived(spec(west), copy) > before + records)

    with (
        FlowRun(tmp_path, [flow], drivers=2) as run,
        Load(spec(east), topic, 4, per_second=2_000, first=1_000_000),
    ):
        wait_until(run.settled)
        for _ in range(2):
            copied_on(3_000)
            victim = wait_until(run.settled)[0]["driverName"]
            run.kill_driver(victim)
            wait_until(lambda victim=victim: run.settled(without=victim))
        produce_with(spec(east), topic, records[10_000:])
        copied_on(3_000)
    with FlowRun(tmp_path, [flow], "--until-caught-up") as rest:
        assert rest.end() == 0, rest.output
    result = compare(changed(read(spec(east), topic)), read(spec(west), copy))
    spared = sum(map(int, re.findall(r"\bnot_repeated=(\d+)", rest.output)))
    print(f"killed: {result}, {spared} records found in tails")
    assert result == Comparison(missing=0, repeated=0, in_order=True), rest.output
    assert spared, rest.output
