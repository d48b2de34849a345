"""Latencies that the probe's consumers measure on real clusters, whatever the clocks show."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from support.patience import WITHIN_S
from support.records import Record, make_topic, produce, unique

from headrace.api import MirrorTest, TopicPartition
from headrace.kafka import journal
from headrace.mirror_test import MirrorTestRun, documents
from headrace.sandbox import SandboxCluster
from headrace_spark import messages
from headrace_spark.probe_consumer import Watch, WatchAssignment

WaitUntil = Callable[..., Any]
APART_MS = 300_000
COUNT = 20


def test_clocks_five_minutes_apart_change_nothing_of_the_mirrors_own_share(
    east: SandboxCluster, west: SandboxCluster, wait_until: WaitUntil
) -> None:
    """Measure messages of two producers, one with a fast and one with a slow clock."""
    name = unique("clocks")
    spec = {
        "source": {"alias": east.name, "bootstrapServers": east.bootstrap_servers},
        "target": {"alias": west.name, "bootstrapServers": west.bootstrap_servers},
        "load": {"names": [name]},
    }
    test = MirrorTest.model_validate({"metadata": {"name": "clocks"}, "spec": spec})
    run = MirrorTestRun(name=name[:20], test=test)
    at, copy = TopicPartition(name, 0), TopicPartition(f"{east.name}.{name}", 0)
    for cluster, topic in ((run.source, at.topic), (run.target, copy.topic)):
        make_topic(cluster, topic, 1)
    journal.create(run.source)
    tail, ready = journal.JournalTail(run.source, run.name), set[str]()

    def is_ready() -> bool:
        ready.update(key for key, _ in tail.poll(0.1))
        return documents.ready_key("probe-0") in ready

    with ThreadPoolExecutor() as pool:
        watch = Watch(run, 0, {(copy.topic, 0)}, WatchAssignment({copy: 0}, {at: 0}))
        watched = pool.submit(watch.watch)
        wait_until(is_ready)
        produce(run.source, at.topic, sent := records(run.name, at))
        produce(run.target, copy.topic, [*sent, sentinel(run.name, at)])
        found = watched.result(WITHIN_S)
    tail.close()
    assert sum(found.own.histogram.values()) == COUNT
    assert max(found.own.histogram) < APART_MS / 2
    assert found.own.before_sent == 0
    assert found.arrivals.before_sent == COUNT // 2
    assert max(found.arrivals.histogram) >= APART_MS
    assert found.late == set()


def records(run: str, at: TopicPartition) -> list[Record]:
    writer, now_ms = messages.MessageFactory(f"{run}-0-0", 100), time.time_ns() // 1_000_000
    found = []
    for seq in range(COUNT):
        sent_ms = now_ms + (APART_MS if seq % 2 else -APART_MS)
        found.append(record(writer.message(at, seq, sent_ms), sent_ms))
    return found


def sentinel(run: str, at: TopicPartition) -> Record:
    now_ms = time.time_ns() // 1_000_000
    return record(messages.sentinel(run, at, now_ms), now_ms)


def record(message: messages.Message, sent_ms: int) -> Record:
    headers = tuple((name, value) for name, value in message.headers if isinstance(value, bytes))
    return Record(0, b"0", message.value, headers, sent_ms)
