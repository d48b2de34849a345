"""Batches that are fetched and appended unchanged on a real broker, and rebuilt ones of all codecs.

The bytes are equal except for their headers. Sequences continue over a restart of the broker.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from support.patience import WITHIN_S
from support.records import Record, delete_records, make_topic, numbered, produce, read, unique

from headrace.api import ClusterAccess, ClusterSpec, TopicPartition
from headrace.api.flow import BatchVerification
from headrace.datapath import CopiedCounts
from headrace.datapath.append import Appender
from headrace.datapath.chunk import Passage, judged
from headrace.datapath.producer import Leaders
from headrace.datapath.rebuild import rebuilt
from headrace.datapath.spans import Outgoing
from headrace.datapath.verify import Verifier
from headrace.errors import HeadraceError
from headrace.kafka.wire import (
    READ_COMMITTED,
    Batch,
    ClusterClient,
    EventLoop,
    FetchPosition,
    FetchResponse,
    ProducerIdentity,
    Transactions,
    fetch_call,
    idempotent_producer,
    log_ends,
    sequence_after,
    split_batches,
    start,
)
from headrace.kafka.wire.stamp import MAX_SEQUENCE
from headrace.sandbox import ClusterPlan, Sandbox
from headrace.sandbox import SandboxCluster as Brokers

pytestmark = pytest.mark.in_one_worker

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
"""The partition of each is its place here."""
RECORDS = numbered(1_000, len(CODECS))


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    home = tmp_path_factory.mktemp("sandboxes")
    with Sandbox.start("append", [ClusterPlan("west")], home=home) as sandbox:
        yield sandbox.cluster("west")


@pytest.fixture(scope="module")
def access(brokers: Brokers) -> ClusterAccess:
    return ClusterAccess(ClusterSpec(alias="west", bootstrap_servers=brokers.bootstrap_servers))


@pytest.fixture
def cluster(access: ClusterAccess) -> Iterator[ClusterClient]:
    loop = EventLoop()
    with closing(loop), closing(ClusterClient(loop, access)) as cluster:
        yield cluster


class Copy:
    """Batches of one topic on their way to another one."""

    def __init__(self, cluster: ClusterClient, transactions: Transactions | None = None) -> None:
        self.cluster, self.loop = cluster, cluster.loop
        self.offsets: dict[int, list[int]] = {}
        self.failed: list[HeadraceError] = []
        if transactions is None:
            self.identity: ProducerIdentity = self.wait(idempotent_producer(cluster))
        else:
            identity = self.wait(transactions.init_producer_id())
            self.identity = replace(identity, transactional=True)
        self.appender = Appender(
            self.loop,
            Leaders(cluster, None if transactions is None else transactions.id),
            self.identity,
            lambda at, _, base_offset: self.offsets.setdefault(at.partition, []).append(
                base_offset
            ),
            lambda _, error: self.failed.append(error),
        )

    def wait(self, coroutine: Any) -> Any:
        return self.loop.wait(start(coroutine), WITHIN_S)

    def fetched(self, topic: str) -> dict[int, list[Batch]]:
        """Return all batches of each partition."""
        ats = [TopicPartition(topic, partition) for partition in range(len(CODECS))]
        ends = self.wait(log_ends(self.cluster, ats)).all()
        topic_id = self.cluster.view.topics[topic].id
        led = self.cluster.view.leadership(ats[0])
        assert topic_id
        assert led
        connection = self.wait(self.cluster.connection(led.leader, "fetch"))
        found: dict[int, list[Batch]] = {}
        for at, end in ends.items():
            offset = 0
            while offset < end.end_offset:
                wanted = FetchPosition(topic_id, at.partition, offset, 1 << 20)
                call = fetch_call([wanted], isolation=READ_COMMITTED)
                response: FetchResponse = self.loop.wait(connection.send(call), WITHIN_S)
                [partition] = response.partitions
                batches = split_batches(partition.records).batches
                found.setdefault(at.partition, []).extend(batches)
                offset = batches[-1].last_offset + 1
        return found

    def until_done(self) -> None:
        self.appender.flush()
        deadline_s = self.loop.now_s() + WITHIN_S
        while self.appender.pending:
            assert self.loop.now_s() < deadline_s, (self.offsets, self.failed)
            self.loop.run_once(0.2)
        assert not self.failed


@pytest.fixture(scope="module")
def source(access: ClusterAccess) -> str:
    """Return a topic with a partition for each codec."""
    topic = make_topic(access, unique("source"), len(CODECS))
    for partition, codec in enumerate(CODECS):
        mine = [one for one in RECORDS if one.partition == partition]
        settings = {"compression.type": codec, "batch.num.messages": "50", "linger.ms": "50"}
        produce(access, topic, mine, settings)
    return topic


def test_batches_are_appended_in_transactions(
    cluster: ClusterClient, access: ClusterAccess, source: str
) -> None:
    """Aborted records reach no consumer of the target; sequences continue over the transactions."""
    target = make_topic(access, unique("target"), len(CODECS))
    transactions = Transactions(cluster, unique("headrace-append"))
    copy = Copy(cluster, transactions)
    batches = copy.fetched(source)
    ats = [TopicPartition(target, partition) for partition in batches]

    def transaction(*, commit: bool) -> None:
        copy.wait(transactions.add_partitions(copy.identity, ats))
        for partition, found in batches.items():
            for one in judged(found, start=0):
                outgoing = Outgoing(one.batch, one.batch.last_offset + 1, release=lambda: None)
                copy.appender.append(TopicPartition(target, partition), outgoing)
        copy.until_done()
        copy.wait(transactions.end(copy.identity, commit=commit))

    transaction(commit=False)
    transaction(commit=True)
    copy.wait(transactions.add_partitions(copy.identity, ats))  # once the markers are written
    copy.wait(transactions.end(copy.identity, commit=False))
    assert read(access, target) == read(access, source)
    offsets = copy.offsets[0]
    half = len(offsets) // 2
    assert offsets[half] == offsets[0] + len(RECORDS) // len(CODECS) + 1  # the marker between


def test_batches_are_copied_byte_by_byte_over_a_restart(
    cluster: ClusterClient, access: ClusterAccess, brokers: Brokers, source: str
) -> None:
    target = make_topic(access, unique("target"), len(CODECS))
    copy = Copy(cluster)
    batches = copy.fetched(source)
    assert {batches[place][0].codec for place in batches} == set(CODECS)
    assert min(map(len, batches.values())) >= 4

    def append(half: Callable[[int], range]) -> None:
        for partition, found in batches.items():
            chosen = [found[place] for place in half(len(found))]
            for one in judged(chosen, start=0):
                assert one.passage is Passage.COPY
                outgoing = Outgoing(one.batch, one.batch.last_offset + 1, release=lambda: None)
                copy.appender.append(TopicPartition(target, partition), outgoing)

    append(lambda count: range(count // 2))
    copy.until_done()
    brokers.brokers[0].stop()
    append(lambda count: range(count // 2, count))
    copy.appender.flush()
    brokers.brokers[0].start()
    copy.until_done()

    assert read(access, target) == read(access, source)
    copies = copy.fetched(target)
    for partition, found in batches.items():
        sequence = 0
        for before, after in zip(found, copies[partition], strict=True):
            assert after.intact
            assert after.data[61:] == before.data[61:]
            assert after.data[8:12] == before.data[8:12]
            assert after.data[21:43] == before.data[21:43]
            assert after.base_offset == before.base_offset
            assert (after.producer_id, after.producer_epoch) == (
                copy.identity.producer_id,
                copy.identity.epoch,
            )
            assert after.base_sequence == sequence
            sequence += after.record_count
        assert copy.offsets[partition] == [one.base_offset for one in found]


def test_sequences_begin_again_behind_the_largest(
    cluster: ClusterClient, access: ClusterAccess, source: str
) -> None:
    target = make_topic(access, unique("sequences"), len(CODECS))
    copy = Copy(cluster)
    first = MAX_SEQUENCE - 2
    for partition, found in copy.fetched(source).items():
        at = TopicPartition(target, partition)
        copy.appender.begin(at, copy.identity, first)
        for batch in found:
            outgoing = Outgoing(batch, batch.last_offset + 1, release=lambda: None)
            copy.appender.append(at, outgoing)
    copy.until_done()
    assert read(access, target) == read(access, source)
    for found in copy.fetched(target).values():
        assert [found[0].base_sequence, found[1].base_sequence] == [
            first,
            sequence_after(first, found[0].record_count),
        ]
        assert found[1].base_sequence < first


def test_rebuilt_batches_are_read_by_others(
    cluster: ClusterClient, access: ClusterAccess, source: str
) -> None:
    target = make_topic(access, unique("target"), len(CODECS))
    copy = Copy(cluster)
    for partition, found in copy.fetched(source).items():
        new = rebuilt(found, start=3, release=lambda: None, most_records=70).outgoing
        assert {one.batch.codec for one in new} == {CODECS[partition]}
        for outgoing in new:
            copy.appender.append(TopicPartition(target, partition), outgoing)
    copy.until_done()

    expected = {partition: records[3:] for partition, records in read(access, source).items()}
    assert read(access, target) == expected


def test_batches_that_are_too_large_are_split(
    cluster: ClusterClient, access: ClusterAccess, source: str
) -> None:
    target = make_topic(access, unique("target"), len(CODECS), **{"max.message.bytes": "1000"})
    copy = Copy(cluster)
    for partition, found in copy.fetched(source).items():
        for batch in found:
            outgoing = Outgoing(batch, batch.last_offset + 1, release=lambda: None)
            copy.appender.append(TopicPartition(target, partition), outgoing)
    copy.until_done()

    assert read(access, target) == read(access, source)
    assert len(copy.offsets[0]) > len(copy.fetched(source)[0])


def test_what_a_broker_stamped_keeps_its_time(
    cluster: ClusterClient, access: ClusterAccess
) -> None:
    stamped = make_topic(
        access, unique("stamped"), len(CODECS), **{"message.timestamp.type": "LogAppendTime"}
    )
    produce(access, stamped, RECORDS[:50])
    target = make_topic(access, unique("target"), len(CODECS))
    copy = Copy(cluster)
    for partition, found in copy.fetched(stamped).items():
        for one in judged(found, start=0):
            assert one.passage is Passage.REBUILD
            for outgoing in rebuilt([one.batch], start=0, release=lambda: None).outgoing:
                copy.appender.append(TopicPartition(target, partition), outgoing)
    copy.until_done()

    there: dict[int, list[Record]] = read(access, target)
    assert there == read(access, stamped)


# Verification of batches.


class ReadBack:
    """A verifier of all batches, and its findings."""

    def __init__(self, copy: Copy) -> None:
        self.copy, self.copied = copy, CopiedCounts()
        self.differs: list[str] = []
        self.verifier = Verifier(
            copy.cluster,
            lambda: BatchVerification.FULL,
            self.copied,
            differs=lambda at, error: self.differs.append(str(error)),
            room=lambda: None,
        )

    def of(self, target: str, batches: dict[int, list[Batch]]) -> dict[str, int]:
        """Return the differences found in these appended batches."""
        self.copied.verified.clear()
        for partition, found in batches.items():
            for batch, base_offset in zip(found, self.copy.offsets[partition], strict=True):
                outgoing = Outgoing(batch, batch.last_offset + 1, release=lambda: None)
                at = TopicPartition(target, partition)
                self.verifier.delivered(at, outgoing, base_offset)
        wanted, deadline_s = sum(map(len, batches.values())), self.copy.loop.now_s() + WITHIN_S
        while sum(self.copied.verified.values()) < wanted:
            assert self.copy.loop.now_s() < deadline_s, self.copied
            self.copy.loop.run_once(0.2)
        return self.copied.verified


def append_all(copy: Copy, target: str, batches: dict[int, list[Batch]]) -> int:
    """Append all batches, and return their number."""
    for partition, found in batches.items():
        for batch in found:
            outgoing = Outgoing(batch, batch.last_offset + 1, release=lambda: None)
            copy.appender.append(TopicPartition(target, partition), outgoing)
    copy.until_done()
    return sum(map(len, batches.values()))


@pytest.mark.parametrize(
    "settings",
    [{}, {"compression.type": "gzip"}, {"message.timestamp.type": "LogAppendTime"}],
    ids=["as it is", "compressed again", "stamped"],
)
def test_what_was_appended_is_read_back_and_the_same(
    cluster: ClusterClient, access: ClusterAccess, source: str, settings: dict[str, str]
) -> None:
    target = make_topic(access, unique("target"), len(CODECS), **settings)
    copy = Copy(cluster)
    batches = copy.fetched(source)
    count = append_all(copy, target, batches)
    assert ReadBack(copy).of(target, batches) == {"Same": count}


def test_a_byte_that_changes_on_the_target_s_disk_is_found(
    cluster: ClusterClient, access: ClusterAccess, brokers: Brokers, source: str
) -> None:
    target = make_topic(access, unique("target"), len(CODECS))
    copy = Copy(cluster)
    batches = copy.fetched(source)
    count = append_all(copy, target, batches)
    read_back = ReadBack(copy)
    for partition in batches:
        [segment] = (brokers.brokers[0].data / f"{target}-{partition}").glob("*.log")
        with segment.open("r+b") as log:
            log.seek(-1, os.SEEK_END)  # of the last batch
            [last] = log.read(1)
            log.seek(-1, os.SEEK_END)
            log.write(bytes([last ^ 1]))
    found = read_back.of(target, batches)
    assert found == {"Same": count - len(batches), "Different": len(batches)}
    assert all(f"{target}-" in one for one in read_back.differs)


def test_what_was_deleted_on_the_target_is_not_verified(
    cluster: ClusterClient, access: ClusterAccess, source: str
) -> None:
    target = make_topic(access, unique("target"), len(CODECS))
    copy = Copy(cluster)
    batches = copy.fetched(source)
    count = append_all(copy, target, batches)
    last = {partition: found[-1].base_offset for partition, found in batches.items()}
    delete_records(access, target, last)
    found = ReadBack(copy).of(target, batches)
    assert found == {"NotRead": count - len(batches), "Same": len(batches)}
