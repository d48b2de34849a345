"""``delivery.mode: ExactlyOnce``: the records that a reader of committed records finds."""

import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.flows import FlowRun, manifest, spec, words_of
from support.groups import commit, positions
from support.lanes import (
    batch_mover,
    copy_in_transactions,
    lane_of,
    partitions,
    transactional,
)
from support.manifests import mirror_test
from support.records import (
    Load,
    arrived,
    has_all_markers,
    make_topic,
    numbered,
    produce,
    read,
    unique,
)
from support.rehearsal import (
    checkpointed,
    delivered_again_and_never,
    fail_over,
    index_of,
    places,
    read_to,
    report_of,
    reverse,
)
from support.rehearsal import flow as rehearsed_flow
from support.verifying import verified

from headrace.api import ClusterAccess, TopicPartition
from headrace.api.flow import BatchVerification
from headrace.datapath import KAFKA, Before, CopyFrom, ProgressLog, Resumed
from headrace.datapath.chunk import Why
from headrace.errors import HeadraceError, Retriable
from headrace.kafka import Admin, Position
from headrace.replication import Progress
from headrace.replication.reconcile import ResumeReason
from headrace.sandbox import SandboxCluster

pytestmark = pytest.mark.in_one_worker
WaitUntil = Callable[..., Any]


def flow_of(name: str, east: SandboxCluster, west: SandboxCluster, topic: str) -> dict[str, Any]:
    return manifest(
        name,
        east,
        west,
        f"{topic}.*",
        delivery={"mode": "ExactlyOnce", "commitIntervalMs": 200},
        tasks={"max": 2},
        discovery={"topicsSeconds": 1},
    )


def more(cluster: ClusterAccess, topic: str, records: int) -> Callable[[], bool]:
    """Return whether that number arrived since the first call that was answered."""
    first: list[int] = []

    def come() -> bool:
        found = arrived(cluster, topic)
        first.append(found)
        return found > first[0] + records

    return come


def stored(cluster: ClusterAccess, topic: str) -> dict[int, Progress]:
    with closing(ProgressLog(cluster, "east", KAFKA, time)) as progress:
        progress.start()
        progress.read_to_end()
        return {key.partition: one for key, one in progress.entries().items() if key.topic == topic}


def test_a_reader_of_committed_records_finds_each_once_whoever_is_killed(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    topic = make_topic(spec(east), unique("once"), 4)
    copy = f"east.{topic}"
    flow = flow_of(topic, east, west, topic)

    with Load(spec(east), topic, 4, per_second=2_000), FlowRun(tmp_path, [flow], drivers=2) as run:
        wait_until(more(spec(west), copy, 2_000))
        joins = make_topic(spec(east), f"{topic}-joins", 2)  # tasks that copy already
        produce(spec(east), joins, numbered(1_000, 2))
        wait_until(lambda: arrived(spec(west), f"east.{joins}"))
        for _ in range(2):
            wait_until(more(spec(west), copy, 2_000))
            run.drivers()[0].kill()
        wait_until(more(spec(west), copy, 2_000))
        for driver in run.drivers():
            driver.kill()
        run.process.kill()
        run.end()
    with FlowRun(tmp_path, [flow], "--until-caught-up") as run:
        assert run.end() == 0, run.output

    for one in (copy, f"east.{joins}"):
        wait_until(lambda one=one: has_all_markers(spec(west), one))
    source = read(spec(east), topic)
    assert read(spec(west), copy) == source
    assert read(spec(west), f"east.{joins}") == read(spec(east), joins)
    ats = {number: TopicPartition(copy, number) for number in source}
    ends = Admin(spec(west)).offsets(set(ats.values()), Position.LAST_STABLE)
    for number, progress in stored(spec(west), topic).items():
        assert progress.in_transaction
        assert progress.source_offset == len(source[number])
        # The marker of the transaction that stored this may follow.
        assert ends[ats[number]] - progress.target_offset in {0, 1}


def test_aborted_transactions_of_the_source_are_not_copied(
    east: SandboxCluster, west: SandboxCluster, wait_until: WaitUntil
) -> None:
    topic = make_topic(spec(east), unique("aborted"), 2)
    make_topic(spec(west), f"east.{topic}", 2)
    client = transactional(spec(east), topic)
    client.init_transactions()
    for number in range(6):
        client.begin_transaction()
        for one in numbered(50, 2, first=50 * number):
            client.produce(topic, one.value, one.key, one.partition)
        end = client.abort_transaction if number % 2 else client.commit_transaction
        end()
    copied = copy_in_transactions(
        batch_mover(east, west, exactly_once=True), spec(east), partitions(topic, 2), wait_until
    )
    assert read(spec(west), f"east.{topic}") == read(spec(east), topic)
    assert copied.records == 150


def test_a_fenced_producer_commits_nothing_more(
    east: SandboxCluster, west: SandboxCluster, wait_until: WaitUntil
) -> None:
    """Let its successor find that nothing was committed, and copy all records."""
    topic = make_topic(spec(east), unique("replaced"), 2)
    make_topic(spec(west), f"east.{topic}", 2)
    produce(spec(east), topic, numbered(1_000, 2))
    both, name = partitions(topic, 2), unique("headrace-old")
    mover, successor = (batch_mover(east, west, exactly_once=True) for _ in range(2))
    writer = mover.fencing.identify(name)
    with lane_of(mover) as (lane, _, _):
        lane.open({one: CopyFrom(0, -1, writer=writer) for one in both})
        transactions = lane.transactions
        assert transactions is not None

        def sent() -> bool:
            lane.run_once()
            cut = transactions.cut() if lane.in_flight >= 1_000 else None
            return cut is not None and all(one.in_flight for one in cut.values())

        wait_until(sent)
        successor.fencing.end_transactions({name})
        outcomes: list[HeadraceError | None] = []
        transactions.commit({}, outcomes.append)
        wait_until(lambda: outcomes)
        assert isinstance(outcomes[0], Retriable)
        assert "ended by another owner" in str(outcomes[0])
        assert {one.acknowledged for one in lane.state().values()} == {0}
    own = successor.fencing.identify(unique("headrace-new"))
    before = {
        one: Before(
            TopicPartition(f"east.{topic}", one.partition),
            0,
            0,
            frozenset({writer}),
            progress=TopicPartition(f"east.{topic}", one.partition),
        )
        for one in both
    }
    found = successor.fencing.resume(own, before)
    assert {one.resume.outcome for one in found.values() if isinstance(one, Resumed)} == {
        ResumeReason.AGREES
    }
    assert {one.resume.source_offset for one in found.values() if isinstance(one, Resumed)} == {0}
    copy_in_transactions(successor, spec(east), both, wait_until)
    assert read(spec(west), f"east.{topic}") == read(spec(east), topic)


def test_batches_that_are_split_or_put_together_are_in_transactions_too(
    east: SandboxCluster, west: SandboxCluster, wait_until: WaitUntil
) -> None:
    topic = make_topic(spec(east), unique("sizes"), 2)
    copy = make_topic(spec(west), f"east.{topic}", 2, **{"max.message.bytes": "20000"})
    value = b"v" * 500
    large = [one._replace(value=value) for one in numbered(400, [0])]
    produce(spec(east), topic, large)
    produce(spec(east), topic, numbered(200, [1]), {"batch.num.messages": "1"})
    mover = batch_mover(east, west, verification=BatchVerification.DISABLED, exactly_once=True)
    copied = copy_in_transactions(mover, spec(east), partitions(topic, 2), wait_until)
    assert read(spec(west), copy) == read(spec(east), topic)
    assert copied.rebuilt.get(Why.SMALL)
    assert copied.records == 600


@pytest.mark.long
def test_brokers_that_are_killed_in_mid_transaction_double_nothing(
    east: SandboxCluster,
    start_cluster: Callable[..., SandboxCluster],
    tmp_path: Path,
    wait_until: WaitUntil,
) -> None:
    """Kill, in turn, leaders of data and of progress, and the transactions' coordinator."""
    west = start_cluster("three", brokers=3)
    topic = make_topic(spec(east), unique("brokers"), 4)
    copy = f"east.{topic}"
    flow = flow_of(topic, east, west, topic)
    with Load(spec(east), topic, 4, per_second=1_000), FlowRun(tmp_path, [flow]) as run:
        for broker in (1, 2, 3):
            wait_until(more(spec(west), copy, 1_000))
            west.broker(broker).kill()
            wait_until(more(spec(west), copy, 1_000))
            west.broker(broker).start()
    with FlowRun(tmp_path, [flow], "--until-caught-up") as run:
        assert run.end() == 0, run.output
    wait_until(lambda: has_all_markers(spec(west), copy))
    assert read(spec(west), copy) == read(spec(east), topic)


def test_a_target_that_allows_shorter_transactions_only_is_named_with_what_to_do(
    east: SandboxCluster,
    start_cluster: Callable[..., SandboxCluster],
    tmp_path: Path,
    wait_until: WaitUntil,
) -> None:
    west = start_cluster("short", properties={"transaction.max.timeout.ms": "30000"})
    topic = make_topic(spec(east), unique("short"), 1)
    with FlowRun(tmp_path, [flow_of(topic, east, west, topic)]) as run:
        error = wait_until(
            lambda: " ".join(str(unit.get("lastError", "")) for unit in run.units()).strip(),
            until=lambda said: "transaction.max.timeout.ms" in said,
        )
    assert "set transaction.max.timeout.ms of its brokers to 60000 or more" in error
    assert "spec.delivery.mode: ExactlyOnce takes a transactional id" in error


@pytest.mark.long
def test_a_driver_that_freezes_in_mid_transaction_doubles_nothing_when_it_thaws(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    topic = make_topic(spec(east), unique("frozen"), 4)
    copy = f"east.{topic}"
    flow = flow_of(topic, east, west, topic)
    with Load(spec(east), topic, 4, per_second=2_000), FlowRun(tmp_path, [flow], drivers=2) as run:
        wait_until(more(spec(west), copy, 2_000))
        before = wait_until(run.settled)
        victim = before[0]["driverName"]
        frozen = next(one for one in run.drivers() if victim in words_of(one))
        frozen.suspend()
        wait_until(
            lambda: [unit for unit in run.units() if unit.get("driverName") == victim],
            until=lambda left: not left,
        )
        wait_until(more(spec(west), copy, 4_000))
        with suppress(psutil.NoSuchProcess):  # it may have been replaced
            frozen.resume()
        wait_until(more(spec(west), copy, 4_000))
    with FlowRun(tmp_path, [flow], "--until-caught-up") as run:
        assert run.end() == 0, run.output
    wait_until(lambda: has_all_markers(spec(west), copy))
    assert read(spec(west), copy) == read(spec(east), topic)


@pytest.mark.long
def test_a_source_that_is_gone_leaves_what_was_committed_and_nothing_else(
    start_cluster: Callable[..., SandboxCluster],
    west: SandboxCluster,
    tmp_path: Path,
    wait_until: WaitUntil,
) -> None:
    """Run and driver are frozen in mid-transaction, and the source's broker is killed."""
    gone, name = start_cluster("gone"), unique("gone")
    topic = make_topic(spec(gone), name, 1)
    there = TopicPartition(topic, 0)
    flow = rehearsed_flow(name, gone, west, topic, delivery={"mode": "ExactlyOnce"})
    groups = {f"{name}-{number}": 100 * number for number in range(5)}

    def end(of: Position) -> int:
        return Admin(spec(west)).offsets([there], of)[there]

    with FlowRun(tmp_path, [flow]) as run, Load(spec(gone), topic, 1, per_second=500):
        wait_until(lambda: arrived(spec(west), topic) > 1_000)
        for group, at in groups.items():
            commit(gone, group, topic, {0: at})
        wait_until(lambda: checkpointed(run), until=lambda n: n == len(groups))
        cut_off = [psutil.Process(run.process.pid), *run.drivers()]

        def froze_in_mid_transaction() -> bool:
            for process in cut_off:
                process.suspend()
            if end(Position.LATEST) > end(Position.LAST_STABLE):
                return True
            for process in cut_off:
                process.resume()
            return False

        wait_until(froze_in_mid_transaction)
        committed, opened = positions(west, topic), end(Position.LATEST)
        gone.broker(1).kill()
        found = report_of("failover", "-f", str(run.file), "--source-is-gone")
        (partition,) = found["partitions"]
        assert (found["problems"], partition["unfenced"], partition["notStored"]) == ([], [], 0)
        assert positions(west, topic) == committed, "no more, and none was aborted"
        assert opened < partition["targetEnd"] == end(Position.LAST_STABLE)
        assert partition["copiedTo"] == len(committed)
        assert found["notCopied"] == partition["sourceEnd"] - len(committed)
        assert found["progressAgeSeconds"] >= 0
        goes_on = {one: index_of(committed, at) for one, at in places(west, groups).items()}
        assert goes_on == groups, "at their next records, all of which are committed"

        for process in cut_off:
            process.resume()
        gone.start()
        wait_until(lambda: "was failed over to" in str(run.units()))
        assert positions(west, topic) == committed, "nothing is behind the switch"

    log = positions(gone, topic)
    back, noted = reverse("-f", str(run.file))
    unsent = len(log) - len(committed)
    assert f"{unsent:,} offsets ({topic}/0 {unsent:,}) that were never sent" in noted, (
        noted,
        found,
    )
    produce(spec(west), topic, numbered(500, 1, first=10**6))
    with FlowRun(tmp_path, [back]) as run:
        wait_until(lambda: positions(gone, topic), until=lambda n: len(n) == len(log) + 500)
        copies = positions(west, topic)
        last = dict.fromkeys(groups, copies[-1][1] or b"")
        delivered = read_to(west, topic, last)
        assert delivered_again_and_never(copies, groups, last, delivered) == (0, 0)
        assert fail_over(run, "--quiet-seconds", "1")["problems"] == []
    returned = positions(gone, topic)
    assert [value for _, value in returned] == [
        value for _, value in (*log, *copies[len(committed) :])
    ]
    assert {index_of(returned, at) for at in places(gone, groups).values()} == {len(returned)}


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_mirror_test_passes_whoever_is_killed_or_frozen(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    """Kill drivers, and freeze one past its Lease, during the whole of ``headrace verify``."""
    name = unique("judged")
    flow = flow_of(name, east, west, name)
    flow["spec"]["delivery"]["commitIntervalMs"] = 1_000
    actions = ("KillDriver", "FreezeDriver", "KillDriver", "KillDriver")
    test = mirror_test(
        name,
        flowName=name,
        load={
            "topics": 2,
            "partitions": 3,
            "durationSeconds": 60,
            "messagesPerSecond": 1_000,
            "producers": 1,
        },
        settleSeconds=60,
        chaos=[
            {"action": action, "atSeconds": at}
            for action, at in zip(actions, (4, 16, 34, 46), strict=True)
        ],
    )
    with FlowRun(tmp_path, [flow], drivers=2) as run:
        wait_until(run.ready)
        found = verified(tmp_path, test)
    result = found.result
    assert [fault.recovery_seconds is not None for fault in result.faults] == [True] * 4
    counts, latency = result.counts, result.latency_ms
    assert counts is not None
    assert (counts.missing, counts.duplicated, counts.alien, counts.reordered) == (0, 0, 0, 0)
    assert latency is not None
    assert latency.measured == counts.acknowledged
    assert "when it commits, every 1,000 ms" in (found.report / "report.html").read_text()
