"""Random topics of real brokers, copied with and without transactions.

``HEADRACE_ORACLE_SEEDS=100 .venv/bin/pytest tests/integration/test_batch_oracle.py`` runs 100
seeds.
"""

import os
import signal
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
from support.flows import FlowRun, manifest, spec
from support.groups import positions
from support.join_helper import BrokenHelper, compiled, use_helper
from support.lanes import (
    batch_mover,
    copy_in_transactions,
    lane_of,
    run_until_caught_up,
)
from support.patience import WITHIN_S
from support.preserved_topics import CLEANER
from support.random_log import Expected, OpenTransactions, RandomLog, expected, stored, wire_client
from support.records import (
    Record,
    delete_records,
    make_topic,
    numbered,
    produce,
    read,
    set_topic,
    unique,
)

from headrace.api import ClusterAccess, ReplicationFlow, TopicPartition
from headrace.api.flow import BatchVerification
from headrace.connect import DriverIdentity
from headrace.connect.checkpoint.checkpoint_log import SyncedOffsetLog
from headrace.connect.checkpoint.groups import copied_to
from headrace.connect.runtime.context import FlowContext
from headrace.datapath import Before, CopiedCounts, CopyFrom, Mover, Resumed, rebuild
from headrace.datapath.chunk import Why
from headrace.kafka import Admin, Position
from headrace.kafka.wire import Batch, stored_records
from headrace.kafka.wire import ClusterClient as Wire
from headrace.replication.reconcile import ResumeReason
from headrace.replication.translation import CopiedTo, Precision, SyncedOffsets, Translated
from headrace.sandbox import ClusterPlan, Sandbox, SandboxCluster

pytestmark = pytest.mark.in_one_worker
WaitUntil = Callable[..., Any]
SEEDS = range(int(os.environ.get("HEADRACE_ORACLE_SEEDS", "3")))
KEPT = {"retention.ms": "-1"}
"""Brokers delete by the records' timestamps, of which some are 0."""
STAMPED = {**KEPT, "message.timestamp.type": "LogAppendTime"}
COMPACTED = {
    **KEPT, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.001",
    "max.compaction.lag.ms": "1", "delete.retention.ms": "1", "segment.ms": "100",
}  # fmt: skip
Records = dict[int, list[Record]]


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    plans = [ClusterPlan("east", properties=CLEANER), ClusterPlan("west")]
    with Sandbox.start("oracle", plans, home=tmp_path_factory.mktemp("sandboxes")) as sandbox:
        yield sandbox


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[Batch]:
    """Return batches whose records the batch mover has read."""
    batches: list[Batch] = []

    def reading(batch: Batch) -> Iterator[Any]:
        batches.append(batch)
        return stored_records(batch)

    monkeypatch.setattr(rebuild, "stored_records", reading)
    return batches


def fill(east: ClusterAccess, client: Wire, seed: int, wait_until: WaitUntil) -> list[str]:
    """Write topics of one partition."""
    mixed = make_topic(east, unique("mixed"), 1, **KEPT)
    log = RandomLog(client, mixed, f"mixed {seed}")
    log.fill(60)
    for number in range(30):
        log.append([b"small-%d" % number])
    stamped = make_topic(east, unique("stamped"), 1, **STAMPED)
    RandomLog(client, stamped, f"stamped {seed}").fill(15)
    compacted = make_topic(east, unique("compacted"), 1, **COMPACTED)
    log = RandomLog(client, compacted, f"compacted {seed}")
    log.fill(40, keys=200)
    log.append([b"old", b"new"], key=b"hole")  # all other records may be removed or kept

    def cleaned() -> Expected:
        log.append([b""])
        try:
            return expected(stored(client, compacted))
        except OpenTransactions:  # read while the cleaner replaced a segment that has their end
            return Expected()

    wait_until(cleaned, until=lambda found: found.others > 0)
    set_topic(east, compacted, "cleanup.policy", "delete")
    return [mixed, stamped, compacted]


def copy(
    mover: Mover, source: SandboxCluster, topics: list[str], wait_until: WaitUntil
) -> CopiedCounts:
    """Copy all topics by one lane."""
    at = [TopicPartition(topic, 0) for topic in topics]
    with lane_of(mover) as (lane, copied, _):
        lane.open({one: CopyFrom(0, -1) for one in at})
        run_until_caught_up(lane, spec(source), at, wait_until)
        lane.settle(WITHIN_S)
    return copied


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.long] if seed else []) for seed in SEEDS]
)
def test_each_record_is_copied_as_the_source_has_it(
    sandbox: Sandbox,
    wait_until: WaitUntil,
    decoded: list[Batch],
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
) -> None:
    east, west = sandbox.cluster("east"), sandbox.cluster("west")
    helper = None if seed % 2 else compiled()
    use_helper(monkeypatch, helper)
    with wire_client(spec(east)) as client:
        topics = fill(spec(east), client, seed, wait_until)
        after = {topic: stored(client, topic) for topic in topics}
        while True:  # until the cleaner, which is off now, made no change
            decoded.clear()
            before, plain, once = after, unique("plain"), unique("once")
            for topic in topics:
                for prefix in (plain, once):
                    make_topic(spec(west), f"{prefix}.{topic}", 1, **KEPT)
            mover = batch_mover(east, west, plain, BatchVerification.SAMPLED)
            copied = copy(mover, east, topics, wait_until)
            decoded_batches = len(decoded)
            ats = [TopicPartition(topic, 0) for topic in topics]
            mover = batch_mover(east, west, once, exactly_once=True)
            copy_in_transactions(mover, spec(east), ats, wait_until)
            after = {topic: stored(client, topic) for topic in topics}
            if after == before:
                break

    assert copied.verified.keys() <= {"Same", "NotRead"}
    records, wanted = 0, Expected()
    for topic, batches in after.items():
        source = read(spec(east), topic)
        records += len(source[0])
        wanted += expected(batches)
        assert read(spec(west), f"{plain}.{topic}") == source
        assert read(spec(west), f"{once}.{topic}") == source
    assert copied.records == records
    small = copied.rebuilt.get(Why.SMALL, 0)
    assert (copied.batches_copied + small, copied.batches_rebuilt - small) == (
        wanted.dense,
        wanted.others,
    )
    assert copied.batches_copied
    assert wanted.others
    assert small
    in_python = wanted.others + (small if helper is None else 0)
    assert decoded_batches == in_python, "a batch that is copied as it is was decoded"


@pytest.mark.parametrize("broken", [False, True], ids=["sound", "broken"])
def test_joined_batches_are_compared_before_they_are_sent_and_read_back(
    sandbox: Sandbox, wait_until: WaitUntil, monkeypatch: pytest.MonkeyPatch, broken: bool
) -> None:
    east, west = sandbox.cluster("east"), sandbox.cluster("west")
    topic, prefix = make_topic(spec(east), unique("joined"), 1, **KEPT), unique("batch")
    make_topic(spec(west), f"{prefix}.{topic}", 1, **KEPT)
    with wire_client(spec(east)) as client:
        log = RandomLog(client, topic, "joined")
        for number in range(60):
            log.append([b"%d-%d" % (number, record) for record in range(20)])
    helper, at = BrokenHelper(), TopicPartition(topic, 0)
    use_helper(monkeypatch, helper if broken else compiled())
    with lane_of(batch_mover(east, west, prefix, BatchVerification.SAMPLED)) as (lane, copied, _):
        lane.open({at: CopyFrom(0, -1)})
        run_until_caught_up(lane, spec(east), [at], wait_until)
        wait_until(lambda: copied.verified.get("Same"))

    assert read(spec(west), f"{prefix}.{topic}") == read(spec(east), topic)
    assert copied.verified.get("Misjoined", 0) == helper.calls == broken
    assert copied.batches_copied == (60 if broken else 0)


def assert_between(copies: list[Record], left: list[Record], before: list[Record]) -> None:
    """Assert that the copies are the records of a topic whose cleaner was switched off just now.

    Brokers apply that a moment later: the cleaner may remove records while they are copied. Before
    that, the topic had ``before``, and ``left`` are the records that stayed. Normally they are
    equal.
    """
    for some, all_of_them in ((left, copies), (copies, before)):
        rest = iter(all_of_them)
        assert all(record in rest for record in some)


def test_batches_that_wait_for_their_tombstones_to_go_are_copied_as_they_are(
    sandbox: Sandbox, wait_until: WaitUntil, decoded: list[Batch]
) -> None:
    """The cleaner marks them (KIP-534), and counts their timestamps from when these may go."""
    east, west = sandbox.cluster("east"), sandbox.cluster("west")
    compacted = COMPACTED | {"delete.retention.ms": "86400000"}
    topic = make_topic(spec(east), unique("horizon"), 1, **compacted)
    make_topic(spec(west), f"east.{topic}", 1, **KEPT)
    deleted = [Record(0, b"key-%d" % n, None, (), 1_790_000_000_000 + n) for n in range(50)]
    produce(spec(east), topic, deleted)
    with wire_client(spec(east)) as client:
        log = RandomLog(client, topic, "horizon")

        def marked() -> list[Batch]:
            log.append([b"a segment more"])
            return [one for one in stored(client, topic) if one.attributes & 0x40]

        wait_until(marked)
        set_topic(spec(east), topic, "cleanup.policy", "delete")

    decoded.clear()
    records = read(spec(east), topic)[0]
    copied = copy(batch_mover(east, west), east, [topic], wait_until)
    copies = read(spec(west), f"east.{topic}")[0]
    assert_between(copies, read(spec(east), topic)[0], records)
    assert copies[:50] == deleted
    assert copied.batches_copied
    assert not [one for one in decoded if one.attributes & 0x40]


def test_what_compaction_removed_before_a_take_over_is_copied_again_and_nothing_is_lost(
    sandbox: Sandbox, wait_until: WaitUntil
) -> None:
    east, west = sandbox.cluster("east"), sandbox.cluster("west")
    topic = make_topic(spec(east), unique("cleaned"), 1, **COMPACTED)
    make_topic(spec(west), f"east.{topic}", 1)
    records = [one._replace(key=b"key-%d" % (n % 20)) for n, one in enumerate(numbered(200, 1))]
    produce(spec(east), topic, records)
    at, mover = TopicPartition(topic, 0), batch_mover(east, west)
    first, own = (mover.fencing.identify(unique("headrace-owner")) for _ in range(2))
    with lane_of(mover) as (lane, _, _):
        lane.open({at: CopyFrom(0, -1, writer=first)})
        run_until_caught_up(lane, spec(east), [at], wait_until)

    with wire_client(spec(east)) as client:
        log = RandomLog(client, topic, "cleaned")

        def left() -> int:
            log.append([b"a segment more"])
            return sum(one.record_count for one in stored(client, topic) if one.base_offset < 200)

        wait_until(left, until=lambda count: count < 200)
        set_topic(spec(east), topic, "cleanup.policy", "delete")
    before = Before(TopicPartition(f"east.{topic}", 0), 0, 0, frozenset({first}))
    resumed = mover.fencing.resume(own, {at: before})[at]
    assert isinstance(resumed, Resumed)
    resume = resumed.resume
    assert (resume.outcome, resume.source_offset) == (ResumeReason.SOURCE_HOLES, 0)
    assert resume.doubled_at_most == 200, "which RecordsMayRepeat reports"
    left_before = read(spec(east), topic)[0]
    with lane_of(mover) as (lane, _, _):
        lane.open({at: CopyFrom(0, -1, writer=own)})
        run_until_caught_up(lane, spec(east), [at], wait_until)
    copies = read(spec(west), f"east.{topic}")[0]
    assert copies[:200] == records
    assert_between(copies[200:], read(spec(east), topic)[0], left_before)


def test_what_is_too_large_for_the_target_is_split(sandbox: Sandbox, wait_until: WaitUntil) -> None:
    east, west = sandbox.cluster("east"), sandbox.cluster("west")
    topic = make_topic(spec(east), unique("large"), 1)
    make_topic(spec(west), f"east.{topic}", 1, **{"max.message.bytes": "60000"})
    with wire_client(spec(east)) as client:
        log = RandomLog(client, topic, "large")
        for size in (1_000, 5_000, 50):
            log.append([b"%d-" % n + b"v" * size for n in range(100)])

    copied = copy(batch_mover(east, west), east, [topic], wait_until)

    assert read(spec(west), f"east.{topic}") == read(spec(east), topic)
    assert copied.records == 300
    with wire_client(spec(west)) as client:
        sizes = [batch.record_count for batch in stored(client, f"east.{topic}")]
    assert (max(sizes), sizes[-1]) == (100, 100)
    assert len(sizes) > 10


@pytest.mark.parametrize(
    ("ending", "seed"),
    [
        (signal.SIGKILL, 0),
        *(pytest.param(signal.SIGKILL, seed, marks=pytest.mark.long) for seed in SEEDS if seed),
        *(pytest.param(signal.SIGTERM, seed, marks=pytest.mark.long) for seed in SEEDS),
    ],
)
def test_each_offset_is_translated_to_the_very_next_record(
    sandbox: Sandbox, wait_until: WaitUntil, tmp_path: Path, ending: int, seed: int
) -> None:
    """Compare with the stored progress of a flow whose driver ended twice while it copied.

    If a driver was killed, the next owner writes the pairs that were not yet written.
    """
    east, west = sandbox.cluster("east"), sandbox.cluster("west")
    with wire_client(spec(east)) as client:
        topics = fill(spec(east), client, seed, wait_until)
        mixed = topics[0]
        batches = stored(client, mixed)
        delete_records(spec(east), mixed, {0: batches[len(batches) // 4].base_offset + 1})
        flow = manifest(unique("oracle"), east, west, *topics)
        with FlowRun(tmp_path, [flow]) as run:
            ended: set[int] = set()

            def running() -> list[psutil.Process]:
                return [one for one in run.drivers() if run.settled(1) and one.pid not in ended]

            for turn in range(2):
                (driver,) = wait_until(running)
                for topic in topics[:2]:
                    RandomLog(client, topic, f"{turn} {seed}").fill(20)
                driver.send_signal(ending)
                driver.wait(WITHIN_S)
                ended.add(driver.pid)
            ats = [TopicPartition(topic, 0) for topic in topics]
            log_ends = Admin(spec(east)).offsets(ats, Position.LATEST)
            store = wait_until(lambda: stored_offsets(flow, log_ends))
    for at, end in log_ends.items():
        source = [offset for offset, _ in positions(east, at.topic)]
        copies = [offset for offset, _ in positions(west, f"east.{at.topic}")]
        assert len(copies) == len(source)
        for offset in range(source[0], end + 1):
            found, next_record = store.translate(at, offset), bisect_left(source, offset)
            translated = 0 if found is None else bisect_left(copies, found.offset)
            assert translated == next_record, (at, offset, found)


class Store(NamedTuple):
    """Offsets by which checkpoints are translated."""

    syncs: SyncedOffsets
    copied_to: Mapping[TopicPartition, CopiedTo | None]

    def translate(self, at: TopicPartition, offset: int) -> Translated | None:
        return self.syncs.translate(at, offset, self.copied_to[at])


def stored_offsets(flow: dict[str, Any], ends: Mapping[TopicPartition, int]) -> Store | None:
    """Return the stored offsets, read as another driver reads them.

    They are complete if the flow is copied to these ends of the source, and the running driver has
    written its last pairs.
    """
    context = FlowContext(
        ReplicationFlow.model_validate(flow), DriverIdentity("reader", "reader-1")
    )
    copied = copied_to(context, ends)
    waiting = {at: stored.pairs for at in ends if (stored := context.stored(at))}
    context.progress.close()
    if any(one is None or one.source_offset < ends[at] for at, one in copied.items()):
        return None
    syncs = SyncedOffsetLog(context)
    syncs.read()
    syncs.close()
    assert isinstance(syncs.offsets, SyncedOffsets)
    store = Store(syncs.offsets, copied)
    written = all(
        store.translate(at, pair.source_offset) == (pair.target_offset, Precision.EXACT)
        for at, pairs in waiting.items()
        for pair in pairs
    )
    return store if written else None
