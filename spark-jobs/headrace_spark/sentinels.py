"""Sends the end sentinels: the last record of every partition, when all else is acknowledged."""

from headrace.api import TopicPartition
from headrace.errors import GaveUp
from headrace.kafka import KafkaError, Message, make_producer, translate
from headrace.mirror_test import Run
from headrace_spark import messages
from headrace_spark.clocks import now_ms
from headrace_spark.sender import STUCK_S


def send(run: Run, partitions: dict[str, int]) -> None:
    """One to each partition of the topics, given with their number. Raises ``GaveUp`` when brokers
    do not acknowledge all of them."""
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = make_producer(run.source)
    for topic, count in partitions.items():
        for partition in range(count):
            sent_ms = now_ms()
            at = TopicPartition(topic, partition)
            message = messages.sentinel(run.name, at, sent_ms, run.test.spec.load.message_format)
            producer.produce(
                topic,
                message.value,
                b"%d" % partition,
                partition=partition,
                timestamp=sent_ms,
                headers=message.headers,
                on_delivery=delivered,
            )
    if producer.flush(STUCK_S):
        raise GaveUp(f"could not write the end sentinels to {run.source.alias} in {STUCK_S:.0f} s")
    if failures:
        raise translate(failures[0], f"write the end sentinels to {run.source.alias}")
