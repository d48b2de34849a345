"""A steady load from a pod next to the brokers; the same pod reads the copies at its end.

Its script runs in the operator's image. It sends to topics of ``east`` until TERM.
"""

import json
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

PARTITIONS = 4
ROUND_S = 0.02
"""Seconds of a round, in which each topic gets one record."""
PATIENCE_S = 240.0
Judged = dict[str, dict[str, int]]


def make_topics(bootstrap: str, topics: list[str]) -> None:
    """Create topics, and return when they exist."""
    admin = AdminClient({"bootstrap.servers": bootstrap})  # its answers come while it is there
    made = admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in topics])
    for creation in made.values():
        creation.result()


def send(bootstrap: str, topics: list[str]) -> int:
    """Send the same numbers to each topic until TERM, and count the acknowledged ones."""
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    number = 0
    while not ended:
        for topic in topics:
            producer.produce(topic, str(number), partition=number % PARTITIONS)
        number += 1
        producer.poll(ROUND_S)
        time.sleep(ROUND_S)
    if producer.flush(PATIENCE_S):
        raise SystemExit("the source does not acknowledge what was sent")
    return number


def judge(bootstrap: str, copies: list[str], sent: int) -> Judged:
    """Wait for missing records, and return each copy's arrived, missing and repeated ones."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "judge", "auto.offset.reset": "earliest"}
    )
    consumer.assign(
        [TopicPartition(topic, number, 0) for topic in copies for number in range(PARTITIONS)]
    )
    found = {topic: Counter[bytes]() for topic in copies}
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and any(len(seen) < sent for seen in found.values()):
        message = consumer.poll(1)
        if message is not None and not message.error():
            found[str(message.topic())][message.value() or b""] += 1
    consumer.close()
    return {
        topic: {
            "sent": sent,
            "missing": len({str(number).encode() for number in range(sent)} - seen.keys()),
            "repeated": seen.total() - len(seen),
        }
        for topic, seen in found.items()
    }


def load_pod(name: str, image: str, source: str, target: str, topics: list[str]) -> dict[str, Any]:
    """Return the pod of a load.

    It ends after TERM to its first process. Its last line is the judgement, as JSON.
    """
    script = Path(__file__).read_text()
    container = {
        "name": "load",
        "image": image,
        "imagePullPolicy": "Never",
        "command": ["python", "-c", script, source, target, *topics],
        "readinessProbe": {"exec": {"command": ["ls", "/tmp/sending"]}, "periodSeconds": 1},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }


def main(source: str, target: str, *topics: str) -> None:
    """Send until TERM, and print the judgement."""
    make_topics(source, list(topics))
    Path("/tmp/sending").touch()
    sent = send(source, list(topics))
    print(json.dumps(judge(target, [f"east.{topic}" for topic in topics], sent)))


if __name__ == "__main__":
    main(*sys.argv[1:])
