"""Earlier writers of a partition are fenced on real brokers, and nothing of theirs is repeated."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from operator import eq
from typing import Any

import pytest
from support.flows import spec
from support.lanes import (
    batch_mover,
    lane_of,
    partitions,
    run_until_caught_up,
    transactional,
)
from support.patience import WITHIN_S
from support.proxy import Proxy
from support.records import make_topic, numbered, produce, read, unique

from headrace.api import TopicPartition
from headrace.datapath import KAFKA, Before, CopyFrom, Lane, ProgressLog, Resumed
from headrace.datapath.progress import PARTITIONS
from headrace.kafka.wire import ClusterClient as WireCluster
from headrace.kafka.wire import EventLoop, RequestRefused, Transactions, start
from headrace.replication import OwnerProducer, Progress, ProgressKey
from headrace.replication.reconcile import ResumeReason
from headrace.sandbox import ClusterPlan, Sandbox, SandboxCluster
from headrace.sandbox.processes import HOST, held_ports

pytestmark = pytest.mark.in_one_worker
WaitUntil = Callable[..., Any]
Befores = dict[TopicPartition, Before]


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    plans = [ClusterPlan("east"), ClusterPlan("west")]
    with Sandbox.start("fence", plans, home=tmp_path_factory.mktemp("sandboxes")) as sandbox:
        yield sandbox


def east_and_west(
    sandbox: Sandbox, records: int, **copies: str
) -> tuple[SandboxCluster, SandboxCluster, str]:
    """Return both clusters and a topic with records; ``copies`` are the target topic's settings."""
    east, west = sandbox.cluster("east"), sandbox.cluster("west")
    topic = make_topic(spec(east), unique("fenced"), 2)
    make_topic(spec(west), f"east.{topic}", 2, **copies)
    produce(spec(east), topic, numbered(records, 2))
    return east, west, topic


def errors_of(lane: Lane, wait_until: WaitUntil) -> list[str]:
    def errors() -> list[str]:
        lane.run_once()
        return [str(one.error) for one in lane.problems()]

    found: list[str] = wait_until(errors, until=lambda found: len(found) == 2)
    return found


def test_an_earlier_writer_is_refused_and_what_it_wrote_is_not_copied_again(
    sandbox: Sandbox, wait_until: WaitUntil
) -> None:
    east, west, topic = east_and_west(sandbox, 3_000)
    both = partitions(topic, 2)
    mover, next_mover = batch_mover(east, west), batch_mover(east, west)
    with lane_of(mover) as (old, _, _):
        writer = mover.fencing.identify(unique("headrace-old"))
        old.open({one: CopyFrom(0, -1, writer=writer) for one in both})
        run_until_caught_up(old, spec(east), both, wait_until)

        # Nothing of this is in progress: the next owner has to copy all records.
        own = next_mover.fencing.identify(unique("headrace-new"))
        began = time.monotonic()
        before = {
            one: Before(TopicPartition(f"east.{topic}", one.partition), 0, 0, frozenset({writer}))
            for one in both
        }
        found = next_mover.fencing.resume(own, before)
        resumes = {at: one for at, one in found.items() if isinstance(one, Resumed)}
        print(f"fenced and compared in {1000 * (time.monotonic() - began):.0f} ms")
        assert [resume.outcome for resume, _ in resumes.values()] == [ResumeReason.AGREES] * 2
        assert sum(resume.copied for resume, _ in resumes.values()) == 3_000

        produce(spec(east), topic, numbered(1_000, 2))
        with lane_of(next_mover) as (lane, copied, _):
            lane.open(
                {
                    one: CopyFrom(resume.source_offset, -1, resume.target_offset, writer=own)
                    for one, (resume, _) in resumes.items()
                }
            )
            run_until_caught_up(lane, spec(east), both, wait_until)
        assert copied.records == 1_000
        for error in errors_of(old, wait_until):
            assert "INVALID_PRODUCER_EPOCH" in error
    assert read(spec(west), f"east.{topic}") == read(spec(east), topic)


def test_of_an_earlier_writer_in_transactions_only_what_was_committed_counts(
    sandbox: Sandbox, wait_until: WaitUntil
) -> None:
    """Count committed records only, as with ``delivery.mode: ExactlyOnce``."""
    east, west, topic = east_and_west(sandbox, 0)
    records = numbered(1_000, 2)
    produce(spec(east), topic, records)
    mover, name = batch_mover(east, west), unique("headrace-old")
    writer = mover.fencing.identify(name)
    owner = transactional(spec(west), name)  # of the same producer id
    owner.init_transactions()
    aborted = records[400:700]
    for part, ends in ((records[:400], "commit"), (aborted, "abort"), (records[400:], "")):
        owner.begin_transaction()
        for one in part:
            owner.produce(
                f"east.{topic}", one.value, one.key, one.partition,
                timestamp=one.timestamp_ms, headers=list(one.headers),
            )  # fmt: skip
        assert owner.flush(WITHIN_S) == 0
        if ends == "commit":
            owner.commit_transaction()
        elif ends == "abort":
            owner.abort_transaction()

    own = mover.fencing.identify(unique("headrace-new"))
    found = mover.fencing.resume(own, before(topic, writer))
    resumes = {at: one for at, one in found.items() if isinstance(one, Resumed)}
    assert [resume.outcome for resume, _ in resumes.values()] == [ResumeReason.AGREES] * 2
    assert sum(resume.copied for resume, _ in resumes.values()) == 400
    with lane_of(mover) as (lane, copied, _):
        lane.open(
            {
                one: CopyFrom(resume.source_offset, -1, resume.target_offset, writer=own)
                for one, (resume, _) in resumes.items()
            }
        )
        run_until_caught_up(lane, spec(east), partitions(topic, 2), wait_until)
    assert copied.records == 600
    assert read(spec(west), f"east.{topic}") == read(spec(east), topic)


def before(topic: str, *writers: OwnerProducer, numbers: Iterable[int] = (0, 1)) -> Befores:
    """Return the state of partitions whose appended records are not in progress."""
    return {
        TopicPartition(topic, number): Before(
            TopicPartition(f"east.{topic}", number), 0, 0, frozenset(writers)
        )
        for number in numbers
    }


@pytest.mark.parametrize(
    "copies", [{"compression.type": "gzip"}, {"message.timestamp.type": "LogAppendTime"}]
)
def test_what_the_target_compressed_or_stamped_again_is_not_copied_again(
    sandbox: Sandbox, wait_until: WaitUntil, copies: dict[str, str]
) -> None:
    east, west, topic = east_and_west(sandbox, 1_000, **copies)
    both, mover = partitions(topic, 2), batch_mover(east, west)
    writer = mover.fencing.identify(unique("headrace-old"))
    with lane_of(mover) as (lane, _, _):
        lane.open({one: CopyFrom(0, -1, writer=writer) for one in both})
        run_until_caught_up(lane, spec(east), both, wait_until)
    found = mover.fencing.resume(
        mover.fencing.identify(unique("headrace-new")), before(topic, writer)
    )
    resumes = [one.resume for one in found.values() if isinstance(one, Resumed)]
    assert [one.outcome for one in resumes] == [ResumeReason.AGREES] * 2
    assert sum(one.copied for one in resumes) == 1_000


def test_a_first_batch_that_comes_when_its_owner_has_come_back_is_refused(
    sandbox: Sandbox, wait_until: WaitUntil
) -> None:
    east, west, topic = east_and_west(sandbox, 1_000)
    both = partitions(topic, 2)
    mine, theirs = batch_mover(east, west), batch_mover(east, west)
    name = unique("headrace-mine")
    with lane_of(mine) as (late, _, _):
        first = mine.fencing.identify(name)
        late.open({one: CopyFrom(0, -1, writer=first) for one in both})  # and sends nothing yet

        other = theirs.fencing.identify(unique("headrace-theirs"))
        theirs.fencing.resume(other, before(topic, first))
        with lane_of(theirs) as (lane, _, _):
            lane.open({one: CopyFrom(0, -1, writer=other) for one in both})
            run_until_caught_up(lane, spec(east), both, wait_until)

        again = mine.fencing.identify(name)
        found = mine.fencing.resume(again, before(topic, other))
        assert all(
            isinstance(one, Resumed) and one.resume.outcome is ResumeReason.AGREES
            for one in found.values()
        )
        for error in errors_of(late, wait_until):
            assert "INVALID_PRODUCER_EPOCH" in error
    assert read(spec(west), f"east.{topic}") == read(spec(east), topic)


def is_produce(sent: bytes) -> bool:
    """Return whether a request with batches begins here: its key 0 follows its size."""
    return sent[4:6] == b"\0\0"


def test_a_first_batch_that_the_network_delays_until_its_owner_has_come_back_is_refused(
    east: SandboxCluster, start_cluster: Callable[..., SandboxCluster], wait_until: WaitUntil
) -> None:
    """Move the partition from one owner to another and back."""
    with held_ports([None]) as (port,), Proxy(HOST, port) as line:
        advertised = {"advertised.listeners": f"PLAINTEXT://{HOST}:{line.port}"}
        west = start_cluster("west", port=port, properties=advertised)
        topic = make_topic(spec(east), unique("delayed"), 2)
        make_topic(spec(west), f"east.{topic}", 2)
        produce(spec(east), topic, numbered(1_000, 2))
        both = partitions(topic, 2)
        mine, theirs, mine_again = (batch_mover(east, west) for _ in range(3))
        name = unique("headrace-mine")
        with lane_of(mine) as (late, _, _), lane_of(theirs) as (other, _, _):
            first = mine.fencing.identify(name)
            line.holds = is_produce
            late.open({one: CopyFrom(0, -1, writer=first) for one in both})

            def held() -> bool:
                late.run_once()
                return line.held.is_set()

            wait_until(held)
            line.holds = lambda _: False

            another = theirs.fencing.identify(unique("headrace-theirs"))
            theirs.fencing.resume(another, before(topic, first))
            other.open({one: CopyFrom(0, -1, writer=another) for one in both})
            run_until_caught_up(other, spec(east), both, wait_until)

            again = mine_again.fencing.identify(name)
            found = mine_again.fencing.resume(again, before(topic, another))
            produce(spec(east), topic, numbered(1_000, 2, first=1_000))
            with lane_of(mine_again) as (lane, copied, _):
                lane.open(
                    {
                        at: CopyFrom(one.resume.source_offset, -1, writer=again)
                        for at, one in found.items()
                        if isinstance(one, Resumed)
                    }
                )
                run_until_caught_up(lane, spec(east), both, wait_until)
                assert copied.records == 1_000
            line.release()
            for error in errors_of(late, wait_until):
                assert "INVALID_PRODUCER_EPOCH" in error
        assert read(spec(west), f"east.{topic}") == read(spec(east), topic)


@pytest.mark.long
def test_an_id_whose_epochs_are_spent_fences_nothing(
    sandbox: Sandbox, wait_until: WaitUntil
) -> None:
    """Raise the epoch 32,767 times; then the coordinator returns another producer id."""
    east, west, topic = east_and_west(sandbox, 1_000)
    both, mover, name = partitions(topic, 2), batch_mover(east, west), unique("headrace-spent")
    first = mover.fencing.identify(name)
    with closing(EventLoop()) as loop, closing(WireCluster(loop, spec(west))) as cluster:
        transactions = Transactions(cluster, name)

        async def raised(epoch: int) -> None:
            while (await transactions.init_producer_id()).epoch < epoch:
                pass

        for reply in [start(raised(32_750)) for _ in range(5)]:  # several are in flight
            loop.wait(reply, 5 * WITHIN_S)
        loop.wait(start(raised(32_765)), WITHIN_S)
    last = mover.fencing.identify(name)
    assert last == OwnerProducer(name, first.producer_id, 32_766)
    with lane_of(mover) as (lane, _, _):
        lane.open({one: CopyFrom(0, -1, writer=last) for one in both})
        run_until_caught_up(lane, spec(east), both, wait_until)
        own = mover.fencing.identify(unique("headrace-new"))
        found = mover.fencing.resume(own, before(topic, last))
        for one in found.values():
            assert isinstance(one, Resumed)
            assert one.resume.outcome is ResumeReason.UNFENCED, "it would promise what is not so"
            assert one.resume.unfenced == {last.producer_id}
    renewed = mover.fencing.identify(name)
    assert renewed.producer_id != last.producer_id, "which progress has to name"


def test_an_id_that_expired_fences_nothing_and_one_that_was_renewed_does(
    east: SandboxCluster, start_cluster: Callable[..., SandboxCluster], wait_until: WaitUntil
) -> None:
    """Let an id expire: a lane renews its id daily, and brokers forget an idle one after a week."""
    expiring = start_cluster(
        "expiring",
        properties={
            "transactional.id.expiration.ms": "15000",
            "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
        },
    )
    topic = make_topic(spec(east), unique("expired"), 2)
    make_topic(spec(expiring), f"east.{topic}", 2)
    produce(spec(east), topic, numbered(1_000, 2))
    kept, forgotten = partitions(topic, 2)
    mover = batch_mover(east, expiring)
    names = {kept: unique("headrace-kept"), forgotten: unique("headrace-forgotten")}
    writers = {at: mover.fencing.identify(name) for at, name in names.items()}
    with lane_of(mover) as (lane, _, _), closing(EventLoop()) as loop:
        lane.open({at: CopyFrom(0, -1, writer=writer) for at, writer in writers.items()})
        run_until_caught_up(lane, spec(east), [kept, forgotten], wait_until)
        with closing(WireCluster(loop, spec(expiring))) as cluster:
            transactions = Transactions(cluster, names[forgotten])

            def is_forgotten() -> bool:
                mover.fencing.identify(names[kept])
                try:
                    loop.wait(start(transactions.describe(timeout_s=WITHIN_S)), WITHIN_S)
                except RequestRefused:
                    return True
                return False

            wait_until(is_forgotten)
        own = mover.fencing.identify(unique("headrace-new"))
        found = {
            at: mover.fencing.resume(own, before(topic, writers[at], numbers=[at.partition]))[at]
            for at in writers
        }
        outcomes = {at: one.resume for at, one in found.items() if isinstance(one, Resumed)}
        assert outcomes[kept].outcome is ResumeReason.AGREES
        assert outcomes[forgotten].outcome is ResumeReason.UNFENCED, (
            "it would promise what is not so"
        )
        assert outcomes[forgotten].unfenced == {writers[forgotten].producer_id}
        produce(spec(east), topic, numbered(100, 2))
        lane.pause({forgotten})

        def errors() -> list[str]:
            lane.run_once()
            return [str(one.error) for one in lane.problems()]

        (error,) = wait_until(errors)
        assert "INVALID_PRODUCER_EPOCH" in error


def test_an_open_transaction_of_another_task_on_progress_hides_nothing(
    sandbox: Sandbox, wait_until: WaitUntil
) -> None:
    """Read past the transaction of a frozen task, which ends after a minute at least."""
    west, alias = spec(sandbox.cluster("west")), unique("alias")
    key = ProgressKey("id-of-east", "orders", 0, "east.orders")
    progress = Progress("s", 7, 0, "t", 5, 3, "orders-source-task-0 on me/1")
    frozen = transactional(west, unique("frozen"))

    def read_until(reader: ProgressLog, wanted: Progress) -> None:
        """Read until the progress is found: a marker is written after the coordinator's answer."""

        def found() -> Progress | None:
            reader.read_to_end()
            return reader.get(key)

        wait_until(found, until=partial(eq, wanted))

    with (
        closing(ProgressLog(west, alias, KAFKA, time)) as mine,
        closing(ProgressLog(west, alias, KAFKA, time)) as next_owner,
    ):
        mine.start()
        frozen.init_transactions()
        frozen.begin_transaction()
        for partition in range(PARTITIONS):
            frozen.produce(mine.topic, b"{}", b"of another", partition)
        assert frozen.flush(WITHIN_S) == 0
        mine.write({key: progress})
        next_owner.start()
        next_owner.read_to_end()
        assert next_owner.get(key) == progress

        # For an owner's transactions, only committed progress counts.
        owner = transactional(west, unique("owner"))
        owner.init_transactions()
        for offset, ends in ((8, "commit"), (9, "abort"), (10, "")):
            stored = replace(progress, source_offset=offset).of_transaction()
            owner.begin_transaction()
            owner.produce(mine.topic, stored.encode(), key.encode())
            if ends == "commit":
                owner.commit_transaction()
            elif ends == "abort":
                assert owner.flush(WITHIN_S) == 0
                owner.abort_transaction()
            else:
                assert owner.flush(WITHIN_S) == 0
            for reader in (next_owner, mine):
                read_until(reader, replace(progress, source_offset=8).of_transaction())
        owner.commit_transaction()
        read_until(next_owner, stored)
    frozen.abort_transaction()
