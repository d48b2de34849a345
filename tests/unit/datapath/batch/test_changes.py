"""A lane whose flow filters records, changes headers, or compresses batches for the target."""

import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from support.fake_broker import Serve
from support.patience import WITHIN_S
from support.stored import batches_of, content, log_batch
from support.wire_kafka import Refusal, wire_cluster

from headrace.api import (
    HeaderChanges,
    RecordFilter,
    ReplicationFlow,
    TopicPartition,
)
from headrace.api.client_settings import HIGHEST_LEVELS, Compression, CompressionType
from headrace.api.flow import BatchVerification
from headrace.assign import TaskId
from headrace.datapath import BatchMover, CopiedCounts, CopyFrom, RecordRefused
from headrace.datapath.mover import BatchLane
from headrace.datapath.rebuild import TopicChanges, rebuilt
from headrace.kafka.wire import Batch, Decoded, StoredRecord, decoded, stored_records
from headrace.replication import RecordChanges

AT = TopicPartition("orders", 0)
TEST = (b"test", b"1")
START = CopyFrom(0, -1)


class ChangingLane:
    """A lane with one partition of a source in memory."""

    def __init__(self, serve: Serve) -> None:
        self.source, self.target = wire_cluster(serve, "east"), wire_cluster(serve, "west")
        self.copied = CopiedCounts()
        self.lanes: list[BatchLane] = []
        self.verification = BatchVerification.DISABLED

    def append(self, *headers: tuple[bytes, bytes] | None, codec: str = "none") -> None:
        """Add a batch to the source: a record for each header, with its offset as its value."""
        records = [
            StoredRecord(offset, 1_000, content(None, b"%d" % offset, [one] if one else []))
            for offset, one in enumerate(headers, self.source.logs[0].end)
        ]
        self.source.store([bytes(log_batch(records, codec=codec, leader_epoch=4))])

    def open(
        self,
        wanted: dict[str, Any] | None = None,
        headers: dict[str, Any] | None = None,
        compression: Compression | None = None,
        start: CopyFrom = START,
    ) -> BatchLane:
        mover = BatchMover(
            self.source.access,
            self.target.access,
            lambda topic: topic,
            verification=lambda: self.verification,
            records=RecordChanges(
                RecordFilter.model_validate({"headers": wanted}) if wanted else None,
                HeaderChanges.model_validate(headers) if headers else None,
            ),
            compression=compression or Compression(),
        )
        lane = mover.lane(TaskId("orders", "SourceTask", 0), lambda _: None, self.copied)
        self.lanes.append(lane)
        lane.open({AT: start})
        return lane

    def until(self, condition: Callable[[], Any]) -> None:
        deadline_s = time.monotonic() + WITHIN_S
        while not condition():
            for lane in self.lanes:
                lane.run_once()
            seen = [(lane.state(), lane.problems()) for lane in self.lanes]
            assert time.monotonic() < deadline_s, seen
            time.sleep(0.005)

    def acknowledged(self, lane: BatchLane, offset: int) -> None:
        self.until(lambda: lane.state()[AT].acknowledged == offset)

    @property
    def batches(self) -> list[Batch]:
        return batches_of(*self.target.logs[0].batches.values())

    @property
    def records(self) -> list[Decoded]:
        return [decoded(one) for batch in self.batches for one in stored_records(batch)]


@pytest.fixture
def changing(serve: Serve) -> Iterator[ChangingLane]:
    changing = ChangingLane(serve)
    yield changing
    for lane in changing.lanes:
        lane.close()


def test_filtered_records_count_as_copied(changing: ChangingLane) -> None:
    changing.append(None, TEST, None, TEST, TEST)
    changing.append(TEST, TEST)
    lane = changing.open({"exclude": [{"name": "test"}]})
    changing.acknowledged(lane, 7)

    assert changing.target.logs[0].values == [b"0", b"2"]
    reached = lane.state()[AT]
    assert (reached.target_offset, reached.in_flight, reached.lag_records) == (2, 0, 0)
    assert reached.leader_epoch == 4, "of the last record read, or it looks like a truncated log"
    assert [run[:3] for run in lane.take_runs()[AT]] == [(0, 0, 1), (2, 1, 1)]
    assert (changing.copied.records, changing.copied.filtered) == (2, 5)
    assert changing.copied.rebuilt.get("Changed", 0) + changing.copied.rebuilt.get("Small", 0) == 2


def test_progress_does_not_pass_filtered_records_before_earlier_ones_are_acknowledged(
    changing: ChangingLane,
) -> None:
    changing.target.unanswered = {0}
    changing.append(*[None] * 10)  # too many records to be joined with others
    changing.append(*[TEST] * 10)
    lane = changing.open({"exclude": [{"name": "test"}]})
    changing.until(lambda: changing.copied.filtered == 10 and changing.target.sent)
    assert (lane.state()[AT].acknowledged, lane.state()[AT].in_flight) == (0, 10)


def test_batches_to_which_no_change_applies_are_copied_as_they_are(changing: ChangingLane) -> None:
    changing.append(*[None] * 10, codec="lz4")
    changing.append(*[TEST] * 10, codec="lz4")
    lane = changing.open(
        {"exclude": [{"name": "other"}]},
        {"remove": ["test"]},
        Compression(type=CompressionType.LZ4, level=12),
    )
    changing.acknowledged(lane, 20)
    assert changing.copied.batches_copied == 1
    assert changing.copied.rebuilt == {"Changed": 1}
    first, second = changing.batches
    assert bytes(first.data[61:]) == changing.source.logs[0].batches[0][61:]
    assert [one.headers for one in map(decoded, stored_records(second))] == [()] * 10


def test_filter_headers_and_compression_compose(changing: ChangingLane) -> None:
    changing.append(*[None, TEST] * 10, codec="gzip")
    changing.append(*[None] * 10)
    lane = changing.open(
        {"exclude": [{"name": "test"}]},
        {"add": [{"name": "via", "value": "headrace"}]},
        Compression(type=CompressionType.ZSTD, level=3),
    )
    changing.acknowledged(lane, 30)
    assert [one.headers for one in changing.records] == [(("via", b"headrace"),)] * 20
    assert {batch.codec for batch in changing.batches} == {"zstd"}
    assert changing.copied.rebuilt == {"Compression": 2}
    assert changing.copied.filtered == 10


def test_small_batches_are_joined_though_records_change(changing: ChangingLane) -> None:
    for _ in range(20):
        changing.append(None, TEST)
    lane = changing.open({"exclude": [{"name": "test"}]})
    changing.acknowledged(lane, 40)
    assert len(changing.batches) < 20
    assert changing.copied.rebuilt == {"Small": 20}
    assert changing.target.logs[0].values == [b"%d" % n for n in range(0, 40, 2)]


def test_a_refused_record_is_reported_as_the_source_has_it(changing: ChangingLane) -> None:
    changing.append(None, TEST, None)
    changing.target.fault = lambda _, batch: (
        Refusal(ErrorCode.invalid_record) if b"2" in _values(batch) else None
    )
    lane = changing.open(
        {"exclude": [{"name": "test"}]},
        {"add": [{"name": "via", "value": "headrace"}]},
        start=CopyFrom(0, -1, suspects=range(3)),
    )
    changing.until(lane.problems)
    (problem,) = lane.problems()
    assert isinstance(problem.error, RecordRefused)
    assert problem.error.offsets == range(2, 3)
    assert problem.error.record is not None
    assert (problem.error.record.value, problem.error.record.headers) == (b"2", [])
    assert changing.target.logs[0].values == [b"0"]


def _values(batch: Batch) -> list[bytes | None]:
    return [decoded(one).value for one in stored_records(batch)]


@pytest.mark.parametrize(("codec", "highest"), HIGHEST_LEVELS.items())
def test_a_higher_level_makes_smaller_batches(codec: CompressionType, highest: int) -> None:
    words = Random(1).choices([b"%d" % n for n in range(500)], k=20_000)
    stored = [StoredRecord(0, 1_000, content(None, b" ".join(words)))]
    [batch] = batches_of(log_batch(stored))

    def size(level: int | None) -> int:
        changes = TopicChanges(compression=Compression(type=codec, level=level))
        [made] = rebuilt([batch], start=0, release=lambda: None, changes=changes).outgoing
        assert [decoded(one) for one in stored_records(made.batch)] == list(map(decoded, stored))
        return len(made.batch.data)

    assert size(highest) < size(1) < len(batch.data)
    assert size(None) < len(batch.data)


def test_a_flow_without_changes_has_none() -> None:
    spec = {
        "source": {"alias": "east", "bootstrapServers": "a:1"},
        "target": {"alias": "west", "bootstrapServers": "b:1"},
        "topics": {"include": ["orders"]},
    }
    flow = ReplicationFlow.model_validate({"metadata": {"name": "f"}, "spec": spec})
    assert not RecordChanges(flow.spec.record_filter, flow.spec.headers).concern("orders")
