"""Members of consumer groups that read side by side, in one thread, as applications do."""

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, closing

from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from headrace.api import ClusterAccess, TopicPartition
from headrace.errors import GaveUp
from headrace.kafka.clients import make_consumer
from headrace.kafka.errors import translate

OnRecord = Callable[[str, Message], None]
_MOST = 100
"""Records of one group before the next has its turn."""
_WAIT_S = 0.02
_SILENCE_S = 20.0
"""So long nothing may come before a partition's end: to join takes a few seconds."""


def open_member(cluster: ClusterAccess, group: str, topics: Iterable[str]) -> Consumer:
    """It does not commit by itself. Without an offset it begins at the end, as applications
    do by default: a group that a fail-over forgets misses what there is."""
    settings = {
        "group.id": group,
        "auto.offset.reset": "latest",
        # Of up to 100 members in one process; by default each has 64 MiB.
        "queued.max.messages.kbytes": 1_024,
        "fetch.max.bytes": 1 << 20,
    }
    consumer = make_consumer(cluster, settings)
    consumer.subscribe(list(topics))
    return consumer


def take(consumer: Consumer) -> tuple[list[Message], set[TopicPartition]]:
    """The next records, and the partitions whose ends were reached. Raises Kafka's errors."""
    found, ends = [], set()
    try:
        for message in consumer.consume(_MOST, _WAIT_S):
            if (error := message.error()) is None:
                found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                ends.add(TopicPartition(message.topic() or "", message.partition() or 0))
            elif error.fatal():
                raise translate(error, "read in a group")
    except KafkaException as error:
        raise translate(error.args[0], "read in a group") from error
    return found, ends


def commit(consumer: Consumer, last: Iterable[Message]) -> None:
    """Behind these records, one of each partition; waits for the answer. Raises Kafka's errors."""
    try:
        for message in last:
            consumer.commit(message=message, asynchronous=False)
    except KafkaException as error:
        raise translate(error.args[0], "commit in a group") from error


def read_to_ends(
    cluster: ClusterAccess,
    groups: Iterable[str],
    topics: Mapping[str, int],
    on_record: OnRecord,
) -> None:
    """All groups read on to the ends of these topics, of so many partitions, and leave. Raises
    Kafka's errors, and ``GaveUp`` when nothing comes before an end."""
    waited = {TopicPartition(topic, n) for topic, count in topics.items() for n in range(count)}
    with ExitStack() as open_ones:
        members = {
            group: open_ones.enter_context(closing(open_member(cluster, group, topics)))
            for group in groups
        }
        left = {group: set(waited) for group in members}
        since_s = time.monotonic()
        while left:
            for group in list(left):
                found, ends = take(members[group])
                for message in found:
                    on_record(group, message)
                left[group] -= ends
                if found or ends:
                    since_s = time.monotonic()
                if not left[group]:
                    del left[group]
            if time.monotonic() - since_s > _SILENCE_S:
                raise GaveUp(
                    f"group {min(left)} was delivered nothing for {_SILENCE_S:.0f} s, and did not "
                    "reach the ends of its partitions"
                )
