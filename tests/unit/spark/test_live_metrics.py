"""Counts in the metrics of a running test."""

import json
import urllib.request

import pytest

from headrace.api import Load
from headrace.errors import InvalidSpec
from headrace.sandbox.processes import held_ports
from headrace_spark.live_metrics import (
    ArrivalFigures,
    LoadFigures,
    SequenceCounts,
    as_events,
    at_port,
)
from headrace_spark.messages import Sighting


def seen(number: int, sent_ms: int = 0) -> Sighting:
    return Sighting(sent_ms, None, name=(b"r1-0-0", b"%d" % number), size_bytes=100)


def counted(*numbers: int, keys: int = 1) -> dict[str, int]:
    counts = SequenceCounts({"t": keys})
    counts.add("t", [seen(number) for number in numbers], 1_000)
    return {field: counts.report()[field] for field in ("inOrder", "same", "old", "skipped")}


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ((0, 1, 2), (3, 0, 0, 0)),
        ((0, 1, 1, 2), (3, 1, 0, 0)),
        ((0, 1, 5), (2, 0, 0, 3)),
        ((3,), (0, 0, 0, 3)),
        # A replay counts each old message, not only the first one.
        ((0, 1, 2, 3, 0, 1, 2, 4), (5, 0, 3, 0)),
    ],
)
def test_messages_are_counted_by_their_place(
    numbers: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    assert tuple(counted(*numbers).values()) == expected


def test_each_key_has_a_sequence_of_its_own() -> None:
    assert counted(1, 0, 3, 2, 5, 4, keys=2)["inOrder"] == 6


def test_latencies_are_counted_in_the_buckets_of_kafka_mirror_tester() -> None:
    counts, figures = SequenceCounts({"t": 1}), ArrivalFigures()
    latencies_ms = enumerate((5, 1000, 1001, 300_000))
    counts.add("t", [seen(number, 300_000 - ms) for number, ms in latencies_ms], 300_000)
    figures.receive("probe-0/seen", counts.report())
    lines = figures.text().splitlines()
    assert [line for line in lines if "_bucket" in line][:2] == [
        'message_arrival_latency_hist_ms_bucket{le="1000"} 2',
        'message_arrival_latency_hist_ms_bucket{le="2000"} 3',
    ]
    assert 'message_arrival_latency_hist_ms_bucket{le="256000"} 3' in lines
    assert 'message_arrival_latency_hist_ms_bucket{le="+Inf"} 4' in lines
    assert {"messages_consumed 4", "bytes_consumed 400"} <= set(lines)


def test_what_is_behind_the_rate_is_counted_in_messages() -> None:
    now = [0.0]
    load = Load(messages_per_second=100, message_size_bytes=100)
    figures = LoadFigures(load, [3, 3], clock=lambda: now[0])
    for now[0], acknowledged in ((5.0, 960), (10.0, 1_460)):
        report = {"acknowledged": acknowledged, "sent": acknowledged + 7, "failed": 2}
        figures.receive("r1-0-0/progress", report)
    # A rate of 4 % less is no throttling. Later 500 of 1,000 messages are throttled.
    assert {
        "bandwidth_throttled_messages 500",
        "messages_produced 1460",
        "bytes_produced 146000",
        "in_flight_message_count 5",
        "message_send_errors 2",
        "producer_number_of_topics 2",
        "producer_number_of_partitions 3",
    } <= set(figures.text().splitlines())


def test_metrics_are_served_meanwhile_and_a_port_in_use_is_said() -> None:
    with held_ports([None]) as (port,), at_port(port)(lambda: "up 1\n"):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            assert answer.read() == b"up 1\n"
        with (
            pytest.raises(InvalidSpec, match=f"metrics on port {port} of .*--metrics-port"),
            at_port(port)(str),
        ):
            pass


def test_without_a_port_they_are_events_and_the_last_one_is_that_of_the_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = ["up 1\n"]
    with as_events()(lambda: now[0]):
        now[0] = "up 2\n"
    *_, last = capsys.readouterr().out.splitlines()
    assert json.loads(last) == {"event": "metrics", "text": "up 2\n"}
