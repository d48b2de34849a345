"""A mirror as users write it, which loses or repeats records if it is killed.

``python -m support.small_mirror SOURCE TARGET TOPIC PARTITIONS``. Offsets are committed although
the records wait in the producer's queue, and records are sent although their offsets are not yet
committed.
"""

import sys

from confluent_kafka import OFFSET_STORED, Consumer, Producer, TopicPartition


def mirror(source: str, target: str, topic: str, partitions: int) -> None:
    """Copy a topic until the process is killed."""
    consumer = Consumer(
        {
            "bootstrap.servers": source,
            "group.id": f"mirror-{topic}",
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 200,
        }
    )
    producer = Producer({"bootstrap.servers": target, "linger.ms": 1000})
    consumer.assign([TopicPartition(topic, n, OFFSET_STORED) for n in range(partitions)])
    while True:
        for record in consumer.consume(500, 0.1):
            partition = record.partition()
            if record.error() is None and partition is not None:
                producer.produce(
                    topic,
                    record.value(),
                    record.key(),
                    partition,
                    timestamp=record.timestamp()[1],
                    headers=record.headers() or [],
                )
        producer.poll(0)


if __name__ == "__main__":
    mirror(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
