"""A partition of the target without a leader: it waits by itself, the others are taken over."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from support.flows import FlowRun, manifest, spec
from support.lanes import batch_mover, partitions
from support.records import make_topic, numbered, produce, read, unique

from headrace.api import TopicPartition
from headrace.errors import Retriable
from headrace.kafka import Admin, Position
from headrace.movers import Before, Resumed
from headrace.sandbox import Cluster, ClusterPlan, Sandbox

pytestmark = pytest.mark.in_one_worker
WaitUntil = Callable[..., Any]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    home = tmp_path_factory.mktemp("sandboxes")
    with Sandbox.start("leaderless", [ClusterPlan("leaderless", brokers=3)], home=home) as sandbox:
        yield sandbox.cluster("leaderless")


def topic_on(east: Cluster, target: Cluster) -> str:
    """A topic of two partitions; the copies are on brokers 1 and 3, each on that one alone."""
    topic = make_topic(spec(east), unique("orders"), 2)
    copy = NewTopic(
        f"{east.name}.{topic}",
        2,
        replica_assignment=[[1], [3]],
        config={"min.insync.replicas": "1"},
    )
    admin = AdminClient({"bootstrap.servers": target.bootstrap_servers})
    admin.create_topics([copy])[copy.topic].result()
    Admin(spec(target)).offsets(partitions(copy.topic, 2), Position.LATEST)
    return topic


def test_it_delays_no_other_of_its_task(
    target: Cluster, east: Cluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    topic = topic_on(east, target)
    copy = f"{east.name}.{topic}"
    flow = manifest("leaderless", east, target, topic, mover="Batch", tasks={"max": 1})

    def end(partition: int) -> int:
        at = TopicPartition(copy, partition)
        return Admin(spec(target)).known_ends([at]).get(at, 0)

    produce(spec(east), topic, numbered(2_000, 2))
    with FlowRun(tmp_path, [flow]) as run:
        wait_until(lambda: (end(0), end(1)), within_s=60, until=lambda ends: ends == (1000, 1000))
        for driver in run.drivers():  # progress need not name all that they have appended
            driver.kill()
        run.process.kill()
        run.end(10)
    target.broker(3).kill()
    produce(spec(east), topic, numbered(1_000, 2))

    with FlowRun(tmp_path, [flow]) as run:
        wait_until(lambda: end(0), within_s=90, until=lambda found: found >= 1500)

        def error() -> str:
            [unit] = run.units() or [{}]
            return str(unit.get("lastError", ""))

        assert f"{copy}-1" in wait_until(error, within_s=30)
        target.broker(3).start()
        wait_until(lambda: end(1), within_s=90, until=lambda found: found >= 1500)
        wait_until(error, within_s=30, until=lambda found: not found)
    assert read(spec(target), copy) == read(spec(east), topic)


def test_its_writers_are_fenced_on_the_others(target: Cluster, east: Cluster) -> None:
    topic = topic_on(east, target)
    led, leaderless = partitions(topic, 2)
    fencing = batch_mover(east, target).fencing
    before = fencing.identify(unique("headrace-old"))
    own = fencing.identify(unique("headrace-new"))
    writers = frozenset({before})
    wanted = {
        at: Before(TopicPartition(f"{east.name}.{topic}", at.partition), 0, 0, writers)
        for at in (led, leaderless)
    }
    target.broker(3).kill()
    found = fencing.resume(own, wanted)
    assert isinstance(found[led], Resumed)
    assert isinstance(found[leaderless], Retriable)
    assert f"{east.name}.{topic}-1" in str(found[leaderless])
    target.broker(3).start()
    Admin(spec(target)).offsets([wanted[leaderless].target], Position.LATEST)
    again = fencing.resume(own, {leaderless: wanted[leaderless]})
    assert isinstance(again[leaderless], Resumed)
