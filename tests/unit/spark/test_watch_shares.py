"""Partitions of each side that a consumer of the probe follows."""

import pytest
from support.manifests import mirror_test_of_another

from headrace.api import MirrorTest, TopicPartition
from headrace.mirror_test import MirrorTestRun, documents
from headrace_spark.probe_consumer import LoadDeadline, share, times_both

SOURCE = {TopicPartition(topic, n): 5 for topic in ("orders", "users") for n in range(2)}
TARGET = {TopicPartition("east.orders", 0): 7, TopicPartition("east.users", 1): 8}


def run(load: dict[str, int] | None = None, **spec: str) -> MirrorTestRun:
    names = {"names": ["orders", "users"]}
    test = mirror_test_of_another("t", load=names | (load or {}), **spec)
    return MirrorTestRun(name="r", test=MirrorTest.model_validate(test))


@pytest.mark.parametrize(
    ("partitioning", "partitions"),
    [("Preserved", {("orders", 0), ("users", 1)}), ("ByKey", set(SOURCE)), ("Any", set(SOURCE))],
)
def test_a_consumer_reads_where_its_messages_come_from(
    partitioning: str, partitions: set[tuple[str, int]]
) -> None:
    one = run(partitioning=partitioning)
    assert share(one, TARGET, SOURCE) == (TARGET, dict.fromkeys(partitions, 5))
    assert share(one, TARGET, {}) == (TARGET, {})


@pytest.mark.parametrize(
    ("load", "partitioning", "partitions", "measured"),
    [
        ({"messagesPerSecond": 20_000, "producers": 2}, "Preserved", 8, True),
        ({"messagesPerSecond": 20_001, "producers": 2}, "Preserved", 8, False),
        # One consumer reads the only partition, for any number of producers.
        ({"messagesPerSecond": 10_000, "producers": 2}, "Preserved", 1, True),
        ({"messagesPerSecond": 10_001, "producers": 2}, "Preserved", 1, False),
        ({"messagesPerSecond": 20_000, "producers": 2}, "Any", 8, False),
        ({"producers": 2}, "Preserved", 8, False),
    ],
)
def test_a_load_that_is_too_fast_for_both_consumers_is_timed_by_one(
    load: dict[str, int], partitioning: str, partitions: int, measured: bool
) -> None:
    assert times_both(run(load, partitioning=partitioning), partitions) is measured


def test_a_failed_load_ends_the_wait_for_its_sentinels_at_once() -> None:
    deadline = LoadDeadline(settle_s=120, now_s=0)
    deadline.receive(documents.progress_key("p-0"), now_s=100)
    assert not deadline.is_over(now_s=101)
    deadline.receive(documents.LOAD_FAILED_KEY, now_s=101)
    assert deadline.is_over(now_s=101)
    assert not deadline.has_ended


def test_sentinels_are_awaited_for_the_settling_time_after_the_manifest() -> None:
    deadline = LoadDeadline(settle_s=120, now_s=0)
    deadline.receive(documents.MANIFEST_KEY, now_s=100)
    assert deadline.has_ended
    assert not deadline.is_over(now_s=219)
    assert deadline.is_over(now_s=220)
