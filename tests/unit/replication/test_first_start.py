"""Topics that the source had at the first start of a flow."""

import pytest

from headrace.replication.first_start import (
    FirstStart,
    FirstStartKey,
    FirstStarts,
    Origin,
    SourceTopic,
    is_first_start,
)
from headrace.replication.progress import ProgressKey

KEY = FirstStartKey("f", "E")
FIRST = FirstStart.of(
    [
        SourceTopic("orders", "id-1", 2, selected=True),
        SourceTopic("bills", "id-2", 1, selected=False),
        SourceTopic("old", "", 1, selected=True),
    ]
)


@pytest.mark.parametrize(
    ("topic", "topic_id", "partition", "origin"),
    [
        ("orders", "id-1", 1, Origin.SELECTED),
        ("bills", "id-2", 0, Origin.NOT_SELECTED),
        ("new", "id-3", 0, Origin.CREATED_LATER),
        ("orders", "id-4", 0, Origin.CREATED_LATER),  # it was created again
        ("orders", "id-1", 2, Origin.CREATED_LATER),  # the topic got more partitions
        ("old", "", 0, Origin.SELECTED),
        ("old", "id-5", 0, Origin.SELECTED),  # the cluster was upgraded to Kafka 2.8
    ],
)
def test_the_record_decides_where_a_partition_comes_from(
    topic: str, topic_id: str, partition: int, origin: Origin
) -> None:
    assert FIRST.origin(topic, topic_id, partition) is origin


def test_ten_thousand_topics_fit_into_records_that_brokers_accept() -> None:
    topics = [SourceTopic(f"topic-{n}", f"id-{n}", n, selected=True) for n in range(10_001)]
    records = FirstStart.of(topics).encode(KEY, 1_000)
    assert len(records) == 3
    assert max(map(len, records.values())) < 100_000
    read = FirstStarts()
    for n, (key, value) in enumerate(records.items()):
        assert read.get(KEY) is None, f"only {n} of the records were read"
        read.read(key, value)
    stored = read.get(KEY)
    assert stored is not None
    last = topics[-1]
    assert stored.origin(last.name, last.topic_id, 9_999) is Origin.SELECTED
    assert read.get(FirstStartKey("other", "E")) is None


def test_records_of_two_starts_are_not_mixed() -> None:
    topics = [SourceTopic(f"topic-{n}", "", 1, selected=True) for n in range(5_001)]
    read = FirstStarts()
    first, second = (FirstStart.of(topics).encode(KEY, time_ms) for time_ms in (1, 2))
    for key, value in first.items():
        read.read(key, value)
    key, value = next(iter(second.items()))
    read.read(key, value)
    assert read.get(KEY) is None


def test_progress_and_first_starts_do_not_read_each_others_records() -> None:
    progress = ProgressKey("E", "orders", 0, "east.orders").encode()
    assert is_first_start(KEY.encode())
    assert not is_first_start(progress)
    with pytest.raises(ValueError, match="ProgressKey"):
        ProgressKey.decode(KEY.encode())  # an older headrace ignores it for that
