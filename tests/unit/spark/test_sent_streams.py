"""Messages of one producer to a topic, which may grow, and their entry in the manifest."""

from headrace.api import Load
from headrace.mirror_test import PartitionSummary, Stream
from headrace_spark.messages import LoadTopic
from headrace_spark.sender import SentStream, first_streams

TOPIC = LoadTopic("orders", "east.orders", partitions=2, keys=4)


def test_no_more_is_sent_than_the_producers_share() -> None:
    stream = SentStream(TOPIC, limit=5)
    assert stream.next_numbers(3) == range(3)
    stream.sent = 3
    assert stream.next_numbers(3) == range(3, 5)
    stream.sent = 5
    assert not stream.next_numbers(3)
    assert SentStream(TOPIC).next_numbers(1_000) == range(1_000)


def test_producers_share_the_messages_of_all_topics() -> None:
    load = Load.model_validate({"names": ["orders", "payments"], "producers": 2, "messages": 6})
    topics = (TOPIC, LoadTopic("payments", "east.payments", partitions=2, keys=2))
    shares = [
        len(stream.next_numbers(100))
        for index in range(2)
        for stream in first_streams(load, topics, index)
    ]
    assert shares == [2, 2, 1, 1]


def test_the_manifest_gets_what_was_acknowledged_and_what_failed() -> None:
    stream = SentStream(TOPIC)
    stream.totals[1].add(1, 10)
    stream.grow(3)
    stream.totals[1].add(3, 20)
    stream.totals[2].add(6, 7)
    stream.failed |= {4, 5}
    stream.sent = 7
    assert (stream.acknowledged, stream.topic.partitions) == (3, 3)
    assert stream.summary("r-0-0") == Stream(
        producer="r-0-0",
        topic="orders",
        sent=7,
        failed=((4, 5),),
        partitions=(
            PartitionSummary(partition=1, first=1, last=3, count=2, checksum=30),
            PartitionSummary(partition=2, first=6, last=6, count=1, checksum=7),
        ),
    )
