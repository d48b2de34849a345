"""A partition of the target without a leader, or with followers that lag.

Only that partition waits, and the others are taken over. No owner relies on a marker that does not
exist.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from support.flows import FlowRun, manifest, spec
from support.lanes import batch_mover, lane_of, partitions, run_until_caught_up
from support.patience import WITHIN_S
from support.random_log import wire_client
from support.records import arrived, make_topic, numbered, produce, produce_with, read, unique

from headrace.api import TopicPartition
from headrace.datapath import Before, Closed, CopyFrom, Lane, Resumed, fence
from headrace.errors import Retriable
from headrace.kafka import Admin, Position
from headrace.kafka.wire import log_ends, start
from headrace.replication.reconcile import ResumeReason
from headrace.sandbox import ClusterPlan, Sandbox, SandboxCluster

pytestmark = [pytest.mark.in_one_worker, pytest.mark.long]
WaitUntil = Callable[..., Any]
ONE_IN_SYNC = {"min.insync.replicas": "1"}
PROPERTIES = {
    "transaction.state.log.min.isr": "1",
    "broker.session.timeout.ms": "8000",  # one that is frozen for a moment stays in sync
}
COORDINATORS = NewTopic(
    "__transaction_state",
    2,
    replica_assignment=[[1, 3], [1, 3]],
    config={"cleanup.policy": "compact", **ONE_IN_SYNC},
)
"""Broker 2 may be frozen while markers are written."""


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxCluster]:
    home = tmp_path_factory.mktemp("sandboxes")
    plan = ClusterPlan("leaderless", brokers=3, properties=PROPERTIES)
    with Sandbox.start("leaderless", [plan], home=home) as sandbox:
        target = sandbox.cluster("leaderless")
        create(target, COORDINATORS)
        yield target


def create(cluster: SandboxCluster, topic: NewTopic) -> None:
    """Create a topic, and wait until it can be used."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([topic])[topic.topic].result()
    all_of_it = partitions(topic.topic, topic.num_partitions)
    Admin(spec(cluster)).offsets(all_of_it, Position.LATEST)


def topic_on(east: SandboxCluster, target: SandboxCluster) -> str:
    """Create a topic of two partitions, whose copies are on broker 1 and broker 3 alone."""
    topic = make_topic(spec(east), unique("orders"), 2)
    copy = f"{east.name}.{topic}"
    create(target, NewTopic(copy, 2, replica_assignment=[[1], [3]], config=ONE_IN_SYNC))
    return topic


def test_it_delays_no_other_of_its_task(
    target: SandboxCluster, east: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    topic = topic_on(east, target)
    copy = f"{east.name}.{topic}"
    flow = manifest("leaderless", east, target, topic, tasks={"max": 1})

    def end(partition: int) -> int:
        at = TopicPartition(copy, partition)
        return Admin(spec(target)).known_ends([at]).get(at, 0)

    produce(spec(east), topic, numbered(2_000, 2))
    with FlowRun(tmp_path, [flow]) as run:
        wait_until(lambda: (end(0), end(1)), until=lambda ends: ends == (1000, 1000))
        for driver in run.drivers():  # progress may lack some of their appended records
            driver.kill()
        run.process.kill()
        run.end()
    target.broker(3).kill()
    produce(spec(east), topic, numbered(1_000, 2))

    with FlowRun(tmp_path, [flow]) as run:
        wait_until(lambda: end(0), until=lambda found: found >= 1500)

        def error() -> str:
            [unit] = run.units() or [{}]
            return str(unit.get("lastError", ""))

        wait_until(error, until=lambda found: f"{copy}-1" in found)
        target.broker(3).start()
        wait_until(lambda: end(1), until=lambda found: found >= 1500)
        wait_until(error, until=lambda found: not found)
        wait_until(lambda: arrived(spec(target), copy), until=lambda found: found >= 3000)
    assert read(spec(target), copy) == read(spec(east), topic)


def test_its_writers_are_fenced_on_the_others_and_there_when_it_is_back(
    target: SandboxCluster, east: SandboxCluster, wait_until: WaitUntil
) -> None:
    topic = topic_on(east, target)
    produce(spec(east), topic, numbered(200, 2))
    led, leaderless = partitions(topic, 2)
    mover = batch_mover(east, target)
    writer = mover.fencing.identify(unique("headrace-old"))
    own = mover.fencing.identify(unique("headrace-new"))
    wanted = {
        at: Before(TopicPartition(f"{east.name}.{topic}", at.partition), 0, 0, frozenset({writer}))
        for at in (led, leaderless)
    }
    with lane_of(mover) as (old, _, _):
        old.open({at: CopyFrom(0, -1, writer=writer) for at in wanted})
        run_until_caught_up(old, spec(east), list(wanted), wait_until)
        target.broker(3).kill()
        found = mover.fencing.resume(own, wanted)
        first = found[led]
        assert isinstance(first, Resumed)
        assert first.resume.outcome is ResumeReason.AGREES
        assert isinstance(found[leaderless], Retriable)
        assert f"{east.name}.{topic}-1" in str(found[leaderless])

        target.broker(3).start()
        produce(spec(east), topic, numbered(200, [0, 1], first=200))
        run_until_caught_up_there(old, leaderless, wait_until)  # no marker has closed it there yet
        [error] = wait_until(lambda: problems_of(old))
        assert "INVALID_PRODUCER_EPOCH" in error, "it writes where it was fenced"
        second = mover.fencing.resume(own, {leaderless: wanted[leaderless]})[leaderless]
        assert isinstance(second, Resumed)
        assert (second.resume.outcome, second.resume.copied) == (ResumeReason.AGREES, 200)
        produce(spec(east), topic, numbered(50, [1], first=400))
        wait_until(lambda: problems_of(old), until=lambda found: len(found) == 2)
        assert all("INVALID_PRODUCER_EPOCH" in one for one in problems_of(old))


@pytest.mark.parametrize("closing", ["take-over", "fail-over"])
def test_records_that_were_committed_without_a_marker_are_not_aborted_by_a_fence(
    target: SandboxCluster, east: SandboxCluster, wait_until: WaitUntil, closing: str
) -> None:
    """Fence after brokers lost the marker of a partition without a leader.

    The next marker would abort the committed records.
    """
    topic, progress = topic_on(east, target), make_topic(spec(target), unique("progress"), 1)
    copy = f"{east.name}.{topic}"
    records = numbered(200, 2)
    produce(spec(east), topic, records)
    _, leaderless = partitions(topic, 2)
    there = TopicPartition(copy, 1)
    mover, name = batch_mover(east, target), unique("headrace-old")
    writer = mover.fencing.identify(name)
    identity = {"transactional.id": name}  # of the same producer id
    owner = produce_with(spec(target), copy, records, **identity)
    admin = Admin(spec(target))
    target.broker(3).kill()
    wait_until(lambda: admin.describe([copy])[copy].leaderless)
    owner.commit_transaction()
    target.broker(3).start()

    def ends() -> list[int]:
        return [
            admin.offsets([there], one)[there] for one in (Position.LAST_STABLE, Position.LATEST)
        ]

    wait_until(ends, until=lambda found: found == [0, 100])
    own = mover.fencing.identify(unique("headrace-new"))
    stored = Before(there, 100, 100, frozenset({writer}), progress=TopicPartition(progress, 0))
    if closing == "take-over":
        found = mover.fencing.resume(own, {leaderless: stored})[leaderless]
        assert isinstance(found, Resumed)
        assert (found.resume.outcome, found.resume.copied) == (ResumeReason.AGREES, 0)
    else:
        closed = mover.fencing.close(own, {leaderless: stored})[leaderless]
        assert closed == Closed(0, frozenset())
    assert read(spec(target), copy) == read(spec(east), topic)


def problems_of(lane: Lane) -> list[str]:
    lane.run_once()
    return [str(one.error) for one in lane.problems()]


def run_until_caught_up_there(lane: Lane, at: TopicPartition, wait_until: WaitUntil) -> None:
    def acknowledged() -> int:
        lane.run_once()
        return lane.state()[at].acknowledged

    wait_until(acknowledged, until=lambda found: found == 200)


def test_a_marker_that_no_follower_has_closes_nothing(
    target: SandboxCluster,
    east: SandboxCluster,
    wait_until: WaitUntil,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Freeze the follower, so that marker and records are above the high watermark.

    Then the leader is killed, and the follower leads. This is the last test here, because it leaves
    a broker dead.
    """
    monkeypatch.setattr(fence, "READ_S", 1.5)
    topic = make_topic(spec(east), unique("orders"), 1)
    copy = f"{east.name}.{topic}"
    create(target, NewTopic(copy, 1, replica_assignment=[[1, 2]], config=ONE_IN_SYNC))
    produce(spec(east), topic, numbered(100, 1))
    [at], there = partitions(topic, 1), TopicPartition(copy, 0)
    mover, next_mover = batch_mover(east, target), batch_mover(east, target)
    writer = mover.fencing.identify(unique("headrace-old"))
    own = next_mover.fencing.identify(unique("headrace-new"))
    wanted = {at: Before(there, 0, 0, frozenset({writer}))}
    with lane_of(mover) as (old, _, _), wire_client(spec(target)) as client:
        old.open({at: CopyFrom(0, -1, writer=writer)})
        run_until_caught_up(old, spec(east), [at], wait_until)

        def end() -> int:
            old.run_once()
            ends = client.loop.wait(start(log_ends(client, [there])), WITHIN_S).all()
            return int(ends[there].end_offset)

        target.broker(2).freeze()
        produce(spec(east), topic, numbered(50, 1, first=100))
        wait_until(end, until=lambda found: found == 150)
        found = next_mover.fencing.resume(own, wanted)[at]
        assert isinstance(found, Retriable), "the coordinator's answer is no fence"
        assert (end(), Admin(spec(target)).known_ends([there])) == (151, {there: 100})
        target.broker(1).kill()
        target.broker(2).thaw()

        def resumed() -> Resumed | None:
            again = next_mover.fencing.resume(own, wanted)[at]
            return again if isinstance(again, Resumed) else None

        resume = wait_until(resumed).resume
        assert resume.outcome is ResumeReason.AGREES
        produce(spec(east), topic, numbered(50, 1, first=150))
        with lane_of(next_mover) as (lane, _, _):
            lane.open({at: CopyFrom(resume.source_offset, -1, writer=own)})
            run_until_caught_up(lane, spec(east), [at], wait_until)
        [error] = wait_until(lambda: problems_of(old))
        assert "INVALID_PRODUCER_EPOCH" in error
    assert read(spec(target), copy) == read(spec(east), topic)
