"""The mirror's own share of the latency, message by message."""

import pytest
from support.manifests import mirror_test_of_another

from headrace.api import MirrorTest, TopicPartition
from headrace.mirror_test import Run
from headrace_spark.crossings import Crossings, Name
from headrace_spark.probe import _share, _times_both


def name(seq: int) -> Name:
    return ("orders", b"r-0-0", b"%d" % seq)


def test_a_message_takes_from_the_source_to_the_target() -> None:
    found = Crossings()
    found.on_source(name(1), 1_000)
    found.on_source(name(2), 1_010)
    found.on_target(name(2), 1_025)
    found.on_target(name(1), 1_100)
    assert found.measured.histogram == {100: 1, 15: 1}


def test_what_the_target_s_consumer_sees_first_took_no_time() -> None:
    found = Crossings()
    found.on_target(name(1), 1_000)
    found.on_source(name(1), 1_003)
    assert found.measured.histogram == {0: 1}
    assert found.measured.before_sent == 0


def test_a_repetition_is_not_measured() -> None:
    found = Crossings()
    found.on_source(name(1), 1_000)
    found.on_target(name(1), 1_007)
    found.on_target(name(1), 9_000)
    assert found.measured.histogram == {7: 1}


SOURCE = {TopicPartition(topic, n): 5 for topic in ("orders", "users") for n in range(2)}
TARGET = {TopicPartition("east.orders", 0): 7, TopicPartition("east.users", 1): 8}


@pytest.mark.parametrize(
    ("partitioning", "partitions"),
    [("Preserved", {("orders", 0), ("users", 1)}), ("ByKey", set(SOURCE)), ("Any", set(SOURCE))],
)
def test_a_consumer_reads_where_its_messages_come_from(
    partitioning: str, partitions: set[tuple[str, int]]
) -> None:
    one = run(partitioning=partitioning)
    assert _share(one, TARGET, SOURCE) == (TARGET, dict.fromkeys(partitions, 5))
    assert _share(one, TARGET, {}) == (TARGET, {})


@pytest.mark.parametrize(
    ("load", "partitioning", "measured"),
    [
        ({"messagesPerSecond": 20_000, "producers": 2}, "Preserved", True),
        ({"messagesPerSecond": 20_001, "producers": 2}, "Preserved", False),
        ({"messagesPerSecond": 20_000, "producers": 2}, "Any", False),
        ({"producers": 2}, "Preserved", False),
    ],
)
def test_a_load_that_is_too_fast_for_both_consumers_is_timed_by_one(
    load: dict[str, int], partitioning: str, measured: bool
) -> None:
    assert _times_both(run(load, partitioning=partitioning)) is measured


def run(load: dict[str, int] | None = None, **spec: str) -> Run:
    names = {"names": ["orders", "users"]}
    test = mirror_test_of_another("t", load=names | (load or {}), **spec)
    return Run(name="r", test=MirrorTest.model_validate(test))


def test_messages_that_never_cross_take_no_more_and_more_memory() -> None:
    found = Crossings(most=2)
    for seq in range(5):
        found.on_source(name(seq), 1_000)
    for seq in range(5):
        found.on_target(name(seq), 1_001)
    assert found.measured.histogram == {1: 2}
