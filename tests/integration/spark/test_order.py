"""The order of random logs, judged range by range, against an oracle that reads them one by one."""

import random
from dataclasses import dataclass

from pyspark.sql import SparkSession

from headrace.api import Partitioning
from headrace_spark.checks import reordered

LOGS = 300
KEYS = 2
Message = tuple[str, int]
"""Producer and number; an end sentinel is one of the producer ``run``."""


@dataclass(frozen=True)
class Log:
    """One partition of the target."""

    partition: int
    messages: tuple[Message, ...]
    refused: frozenset[Message]


def random_log(partition: int) -> Log:
    """Return two dense sequences and the sentinel, some of them lost, copied or moved."""
    dice = random.Random(partition)
    first = 1_000 * partition
    messages = [(f"run-{n % 2}-0", first + n // 2) for n in range(dice.randrange(40))]
    messages.append(("run", partition))
    for _ in range(dice.randrange(6)):
        at, to = dice.randrange(len(messages)), dice.randrange(len(messages))
        match dice.randrange(3):
            case 0 if len(messages) > 1:
                messages.pop(at)
            case 1:
                messages.insert(to, messages[at])
            case _:
                messages.insert(to, messages.pop(at))
    sent = sorted(message for message in set(messages) if message[0] != "run")
    refused = dice.sample(sent, dice.choice([0, 0, min(2, len(sent))]))
    return Log(partition, tuple(messages), frozenset(refused))


def out_of_order(log: Log) -> set[int]:
    """Return offsets of messages that first arrive after a later one of their key or the end."""
    found, seen, highest = set[int](), set[Message](), dict[tuple[str, int], int]()
    has_ended = False
    for offset, message in enumerate(log.messages):
        if message in seen | log.refused:
            continue
        seen.add(message)
        producer, number = message
        key = (producer, number % KEYS)
        if number < highest.get(key, -1) or (has_ended and producer != "run"):
            found.add(offset)
        highest[key] = max(number, highest.get(key, -1))
        has_ended |= producer == "run"
    return found


def test_the_order_is_judged_as_by_who_reads_one_record_after_the_other(
    spark: SparkSession,
) -> None:
    logs = [random_log(number) for number in range(LOGS)]
    target = spark.createDataFrame(
        [
            ("orders", "orders", producer, seq, log.partition, offset)
            for log in logs
            for offset, (producer, seq) in enumerate(log.messages)
        ],
        "topic string, found_in string, producer string, seq bigint, partition int, offset bigint",
    )
    refused = spark.createDataFrame(
        [("orders", *message) for log in logs for message in log.refused],
        "topic string, producer string, seq bigint",
    )
    rows = reordered(
        target,
        refused,
        "run",
        {"orders": KEYS},
        Partitioning.PRESERVED,
        range_offsets=3,
    ).collect()
    expected = {(log.partition, offset) for log in logs for offset in out_of_order(log)}
    assert len(expected) > LOGS / 2
    assert {(row["partition"], row["offset"]) for row in rows} == expected
    assert len(rows) == len(expected)
