"""A mirror and records that real brokers of the target refuse."""

import re
from collections.abc import Callable
from functools import partial
from operator import eq
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
)
from support.flows import FlowRun, manifest, spec
from support.patience import WITHIN_S
from support.records import (
    Record,
    arrived,
    make_topic,
    numbered,
    produce,
    read,
    set_topic,
    unique,
)

from headrace.cli.main import main
from headrace.kafka import Admin
from headrace.sandbox import SandboxCluster

WaitUntil = Callable[..., Any]
ONE_TASK = {"tasks": {"max": 1}, "drivers": {"replicas": 1}}
KEPT = {"topicConfigs": {"enabled": False}}
"""The target's limits stay below the source's."""


def make_topic_on(cluster: SandboxCluster, name: str, broker: int) -> None:
    """Create a topic of one partition, which only this broker holds."""
    topic = NewTopic(name, 1, replica_assignment=[[broker]])
    client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    client.create_topics([topic])[name].result(60)


def raise_limit(
    cluster: SandboxCluster, topic: str, name: str, value: str, wait_until: WaitUntil
) -> None:
    """Change a limit of a topic, and return once the broker has it: it answers before that."""

    def own() -> str | None:
        return Admin(spec(cluster)).topic_configs([topic])[0][topic].own.get(name)

    set_topic(spec(cluster), topic, name, value)
    wait_until(own, until=partial(eq, value))


def test_nothing_is_appended_behind_a_record_that_is_refused(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    topic = make_topic(spec(east), unique("refused"), 1)
    copy, hour = f"east.{topic}", str(3_600_000)
    make_topic(spec(west), copy, 1, **{"message.timestamp.before.max.ms": hour})
    records = numbered(30_000, 1)
    records[20_000] = records[20_000]._replace(timestamp_ms=1_700_000_000_000)
    produce(spec(east), topic, records)

    with FlowRun(tmp_path, [manifest("refused", east, west, topic, **ONE_TASK)]) as run:

        def failure() -> str:
            (task,) = run.units() or [{}]
            return str(task.get("lastError", {}).get("message"))

        message = wait_until(failure, until=lambda message: "INVALID_TIMESTAMP" in message)
        assert "raise its message.timestamp.before.max.ms" in message
        copied = read(spec(west), copy)[0]
        assert copied == records[: len(copied)], "what came first, each once, and no more"
        assert len(copied) <= 20_000
        raise_limit(west, copy, "message.timestamp.before.max.ms", str(2**62), wait_until)
        assert main(["task", "restart", run.units()[0]["name"]]) == 0
        wait_until(partial(arrived, spec(west), copy), until=lambda n: n >= 30_000)
        wait_until(run.ready)
    assert read(spec(west), copy)[0] == records


HOUR_MS = str(3_600_000)
TOO_LARGE, TOO_OLD = 700, 1_300
"""Places in a load of 2,000 records."""


def with_refused_records() -> list[Record]:
    """Return 2,000 records, of which a target refuses two: for a size, and for a timestamp."""
    records = numbered(2_000, 1)
    records[TOO_LARGE] = records[TOO_LARGE]._replace(value=b"x" * 60_000)
    records[TOO_OLD] = records[TOO_OLD]._replace(timestamp_ms=1_700_000_000_000)
    return records


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param({"onRecordError": {"action": "Skip"}}, marks=pytest.mark.long),
        {"onRecordError": {"action": "DeadLetter", "deadLetterTopic": "dead"}},
        pytest.param(
            {
                "onRecordError": {"action": "DeadLetter", "deadLetterTopic": "dead-once"},
                "delivery": {"mode": "ExactlyOnce"},
            },
            marks=pytest.mark.long,
        ),
    ],
    ids=["Skip", "DeadLetter", "ExactlyOnce"],
)
def test_refused_records_and_no_others_are_left_out(
    east: SandboxCluster,
    west: SandboxCluster,
    tmp_path: Path,
    wait_until: WaitUntil,
    policy: dict[str, Any],
) -> None:
    dead = policy["onRecordError"].get("deadLetterTopic")
    said = "0 skipped, 2 written" if dead else "2 skipped, 0 written"
    topic = make_topic(spec(east), unique("left-out"), 1, **{"max.message.bytes": "10000000"})
    copy = f"east.{topic}"
    limits = {"max.message.bytes": "50000", "message.timestamp.before.max.ms": HOUR_MS}
    make_topic(spec(west), copy, 1, **limits)
    records = with_refused_records()
    produce(spec(east), topic, records)

    asked = {**ONE_TASK, **KEPT, **policy}
    flow = manifest("left-out", east, west, topic, **asked)
    with FlowRun(tmp_path, [flow]) as run:

        def message() -> str:
            return str(run.condition("RecordsLeftOut").get("message"))

        def first_arrivals() -> list[Record]:
            # A producer that a refusal stopped may leave a batch repeated: the last acknowledged.
            return list(dict.fromkeys(read(spec(west), copy)[0]))

        wait_until(partial(arrived, spec(west), copy), until=lambda n: n >= 1_998)
        wait_until(message, until=lambda now: said in now)
        wait_until(run.ready)
        (task,) = run.units()
        assert (task.get("skippedRecords"), task.get("deadLetteredRecords")) == (
            (None, 2) if dead else (2, None)
        )
        assert re.search(rf" offset {TOO_OLD} .*to {re.escape(copy)}", message()), message()
        assert "INVALID_TIMESTAMP" in message()
        tail = numbered(10, 1, first=2_000)
        produce(spec(east), topic, tail)
        wait_until(first_arrivals, until=lambda found: len(found) >= 2_008)
    kept = [r for n, r in enumerate(records) if n not in (TOO_LARGE, TOO_OLD)]
    assert first_arrivals() == kept + tail
    if dead:
        letters = [letter for part in read(spec(west), dead).values() for letter in part]
        lost = [records[TOO_LARGE], records[TOO_OLD]]
        assert [(one.key, one.value) for one in letters] == [(r.key, r.value) for r in lost]
        for letter, record in zip(letters, lost, strict=True):
            own = len(record.headers)
            assert letter.headers[:own] == record.headers
            added = dict(letter.headers[own:])
            assert added["__connect.errors.topic"] == topic.encode()
            assert added["__headrace.errors.timestamp"] == b"%d" % record.timestamp_ms
        classes = [dict(o.headers)["__connect.errors.exception.class.name"] for o in letters]
        assert classes == [
            b"org.apache.kafka.common.errors.RecordTooLargeException",
            b"org.apache.kafka.common.errors.InvalidTimestampException",
        ]


def test_a_record_that_was_left_out_makes_no_next_owner_copy_the_others_again(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    """Kill the run as soon as a record after the refused one arrives.

    The next run compares the target with the source, which has that record.
    """
    topic = make_topic(spec(east), unique("left-out"), 1, **{"max.message.bytes": "10000000"})
    copy = f"east.{topic}"
    make_topic(spec(west), copy, 1, **{"max.message.bytes": "50000"})
    records = numbered(20_000, 1)
    records[TOO_LARGE] = records[TOO_LARGE]._replace(value=b"x" * 60_000)
    produce(spec(east), topic, records)
    asked = {**ONE_TASK, **KEPT, "onRecordError": {"action": "Skip"}}
    flow = manifest("left-out-killed", east, west, topic, **asked)
    with FlowRun(tmp_path, [flow]) as run:
        copied = partial(arrived, spec(west), copy)
        wait_until(copied, until=lambda found: found > TOO_LARGE)
        for driver in run.drivers():
            driver.kill()
        run.process.kill()
        run.end(WITHIN_S)
    with FlowRun(tmp_path, [flow], "--until-caught-up") as rest:
        assert rest.end(WITHIN_S) == 0, rest.output
    assert read(spec(west), copy)[0] == records[:TOO_LARGE] + records[TOO_LARGE + 1 :]


def test_a_dead_letter_topic_that_refuses_the_record_too_fails_the_task_and_loses_nothing(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    topic = make_topic(spec(east), unique("both"), 1, **{"max.message.bytes": "10000000"})
    copy, dead = f"east.{topic}", unique("small-dead")
    for name in (copy, dead):
        make_topic(spec(west), name, 1, **{"max.message.bytes": "50000"})
    records = numbered(20, 1)
    records[10] = records[10]._replace(value=b"x" * 60_000)
    produce(spec(east), topic, records)
    asked = {**ONE_TASK, **KEPT, "onRecordError": {"action": "DeadLetter", "deadLetterTopic": dead}}

    with FlowRun(tmp_path, [manifest("both", east, west, topic, **asked)]) as run:

        def failure() -> str:
            (task,) = run.units() or [{}]
            return str(task.get("lastError", {}).get("message"))

        said = wait_until(failure, until=lambda said: f"dead-letter topic {dead}" in said)
        assert "or leave the record out with spec.onRecordError.action: Skip" in said
        copies = partial(read, spec(west), copy)
        wait_until(copies, until=lambda found: found.get(0) == records[:10])
        raise_limit(west, dead, "max.message.bytes", "1000000", wait_until)
        assert main(["task", "restart", run.units()[0]["name"]]) == 0
        wait_until(partial(arrived, spec(west), copy), until=lambda n: n >= 19)
        wait_until(run.ready)
    assert read(spec(west), copy)[0] == records[:10] + records[11:]
    assert [letter.value for letter in read(spec(west), dead)[0]] == [records[10].value]


@pytest.mark.long
def test_a_partition_without_a_leader_does_not_hold_up_the_others(
    east: SandboxCluster,
    start_cluster: Callable[..., SandboxCluster],
    tmp_path: Path,
    wait_until: WaitUntil,
) -> None:
    west = start_cluster("leaders", brokers=3)
    stuck, free = (make_topic(spec(east), unique(word), 1) for word in ("stuck", "free"))
    make_topic_on(west, f"east.{stuck}", broker=2)
    make_topic_on(west, f"east.{free}", broker=1)
    waiting, going = numbered(30_000, 1), numbered(30_000, 1)

    flow = manifest("others", east, west, stuck, free, **ONE_TASK)
    with FlowRun(tmp_path, [flow]) as run:

        def lag() -> list[tuple[Any, Any]]:
            return [(task.get("phase"), task.get("lag", {}).get("records")) for task in run.units()]

        wait_until(run.ready)
        west.broker(2).kill()
        produce(spec(east), stuck, waiting)
        wait_until(lag, until=partial(eq, [("Running", 30_000)]))
        produce(spec(east), free, going)
        copied = partial(arrived, spec(west), f"east.{free}")
        wait_until(copied, until=partial(eq, 30_000))

        wait_until(lag, until=partial(eq, [("Running", 30_000)]))
        west.broker(2).start()
        copied = partial(arrived, spec(west), f"east.{stuck}")
        wait_until(copied, until=lambda n: n >= 30_000)
        wait_until(run.ready)
    assert read(spec(west), f"east.{stuck}")[0] == waiting
    assert read(spec(west), f"east.{free}")[0] == going
